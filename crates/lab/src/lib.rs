// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments on TCP. One TOML names topology, workload, variants and what must
//! hold; it runs in a virtual machine, whose clock counts instructions, or live
//! on this machine's kernel.
//!
//! - [`experiment`]: the file, checked, and its shards;
//! - [`run`]: from a file to a report;
//! - [`case`]: runs one shard on the kernel that it stands on;
//! - [`virtual_machine`], [`guest`]: the `virtual` backend, outside and inside;
//! - [`live`]: the `live` backend;
//! - [`testbed`]: a network that stays up, for programs of the user's;
//! - [`overhead`]: CUBIC against Paceline where the CPU is the limit;
//! - [`unfinished`]: what an interrupted run leaves to the next one;
//! - [`plan`], [`record`]: what goes into a case run and what comes out;
//! - [`collect`], [`bounds`]: from records to metrics and their limits.

#![deny(unsafe_code)]

pub mod bounds;
#[allow(unsafe_code, reason = "sockets, namespaces and fork")]
pub mod case;
pub mod collect;
pub mod experiment;
#[allow(unsafe_code, reason = "the first process of a guest")]
pub mod guest;
mod hash;
pub mod live;
pub mod located;
pub mod overhead;
pub mod plan;
mod progress;
mod random;
pub mod record;
pub mod recovery;
mod rounds;
pub mod run;
pub mod simulated;
pub mod skeleton;
#[allow(unsafe_code, reason = "descriptors and processes by number")]
pub mod testbed;
pub mod unfinished;
#[allow(unsafe_code, reason = "scheduling of QEMU")]
pub mod virtual_machine;
