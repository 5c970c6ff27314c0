// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs experiments on TCP ([`paceline_experiment`]): in a virtual machine, whose clock
//! counts instructions, live on this machine's kernel, or in the simulator.
//!
//! - [`run`]: from a file to a report;
//! - [`backend`]: where the plans of its variants run;
//! - [`workload`]: runs one plan on the kernel that it stands on, over a [`network`] of
//!   hosts;
//! - [`overhead`]: CUBIC against Paceline where the CPU is the limit.

#![deny(unsafe_code)]

pub mod backend;
mod error;
#[allow(
    unsafe_code,
    reason = "socket options and clocks that nix does not have"
)]
mod host;
#[allow(unsafe_code, reason = "an ioctl that nix does not have")]
pub mod network;
pub mod overhead;
pub mod run;
#[allow(
    unsafe_code,
    reason = "socket options, and what is done between fork and exec"
)]
pub mod workload;

pub use error::CaseError;
