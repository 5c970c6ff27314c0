// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paceline's agent: everything between a policy and a packet that is not
//! inside the kernel.
//!
//! - [`job`]: a command in a cgroup of its own, with its policy
//!   ([`job::run_in_job`], [`job::Job`]);
//! - [`attach`]: a policy for a cgroup that exists already;
//! - [`status`]: what is changed on which connection, and why;
//! - [`group`]: the streams of a group, and bounds of their windows;
//! - [`doctor`]: what this kernel and machine can do;
//! - [`pages`]: the memory in which a process shows its phase;
//! - [`preload`]: the MPI shim, and what else programs are made to load;
//! - [`service`]: jobs for users who are not root;
//! - [`launcher`]: launchers whose processes are not in the job;
//! - `verdict`: what a job is told that ended with nothing done for it;
//! - `kernel_side`: finding, loading, registering and retiring the BPF
//!   programs, the only place that does;
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
