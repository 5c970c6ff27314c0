// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common code of the crates that load BPF programs.
//!
//! - [`permission`]: whether this process may;
//! - [`messages`]: libbpf's log messages;
//! - [`refusal`]: advice where the kernel refuses;
//! - [`interface`]: a network interface by its name;
//! - [`clsact`]: filters of an interface, before TCX;
//! - [`options`]: the filters that keep TCP options out of a job's connections.
//!
//! `compile.rs` beside this is for build scripts.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "functions of libbpf")]
pub mod clsact;
#[allow(unsafe_code, reason = "an ioctl that nix does not have")]
pub mod interface;
pub mod messages;
#[allow(unsafe_code, reason = "a struct as the bytes of a message")]
mod netlink;
#[allow(unsafe_code, reason = "functions of libbpf")]
pub mod options;
pub mod permission;
pub mod refusal;
