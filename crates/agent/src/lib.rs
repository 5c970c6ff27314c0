// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paceline's agent: everything outside the kernel between a policy and a packet.
//!
//! - [`job`]: a command in its own cgroup, with its policy ([`job::run_in_job`], [`job::Job`]);
//! - [`attach`]: a policy for an existing cgroup;
//! - [`status`]: the changes to each connection, and the reasons;
//! - [`group`]: the streams of a group, and bounds of their windows;
//! - [`doctor`]: checks of this kernel and host;
//! - [`pages`]: the memory in which a process shows its phase;
//! - [`preload`]: the MPI shim and other preloaded libraries;
//! - [`service`]: jobs for users without root;
//! - [`launcher`]: launchers that start processes outside the job;
//! - `verdict`: the warning at the end of a job whose policy had no effect;
//! - `kernel_side`: finds, loads, registers and retires the BPF programs; no other module does;
//! - [`cgroup`], [`tick`]: facts of the host.
//!
//! Everything here needs root and Linux 6.1 or later.

#![deny(unsafe_code)]

mod address;
pub mod attach;
mod callers;
#[allow(unsafe_code, reason = "file handles")]
pub mod cgroup;
mod clock;
mod config;
#[allow(unsafe_code, reason = "descriptors of other processes")]
pub mod doctor;
mod error;
pub mod group;
mod identity;
#[allow(unsafe_code, reason = "between fork and exec")]
pub mod job;
#[allow(unsafe_code, reason = "functions of libbpf")]
mod kernel_side;
pub mod launcher;
mod leftovers;
mod listening;
mod lock;
mod making;
mod options;
mod outside;
pub mod pages;
#[allow(unsafe_code, reason = "credentials of a peer")]
mod peer;
pub mod preload;
mod seat;
pub mod service;
mod shortage;
pub mod status;
#[allow(unsafe_code, reason = "fork, signals")]
mod supervise;
#[allow(unsafe_code, reason = "a filter of system calls")]
mod terminal;
#[allow(unsafe_code, reason = "clock_getres")]
pub mod tick;
mod verdict;

pub use error::{Error, Result};
pub use leftovers::clean_up;
pub use supervise::Outcome;
