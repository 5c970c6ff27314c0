// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs experiments on TCP ([`paceline_experiment`]): in a virtual machine, whose clock
//! counts instructions, live on this machine's kernel, or in the simulator.
//!
//! - [`run`]: from a file to a report;
//! - [`case`]: runs one shard on the kernel that it stands on;
//! - [`virtual_machine`], [`guest`]: the `virtual` backend, outside and inside;
//! - [`live`]: the `live` backend;
//! - [`overhead`]: CUBIC against Paceline where the CPU is the limit;
//! - [`unfinished`]: what an interrupted run leaves to the next one;
//! - [`collect`]: from records to metrics and their limits.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "sockets, namespaces and fork")]
pub mod case;
pub mod collect;
#[allow(unsafe_code, reason = "the first process of a guest")]
pub mod guest;
pub mod live;
pub mod overhead;
mod progress;
mod random;
pub mod recovery;
mod rounds;
pub mod run;
pub mod simulated;
pub mod unfinished;
#[allow(unsafe_code, reason = "scheduling of QEMU")]
pub mod virtual_machine;
