// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all of Paceline that loads BPF programs shares.
//!
//! - [`permission`]: whether this process may;
//! - [`messages`]: what libbpf says meanwhile;
//! - [`refusal`]: what to do where the kernel does not let it.
//!
//! `compile.rs` beside this is for build scripts.

#![forbid(unsafe_code)]

pub mod messages;
pub mod permission;
pub mod refusal;
