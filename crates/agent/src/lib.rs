// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paceline's agent: everything outside the kernel between a policy and a packet.
//!
//! - [`job`]: a command in its own cgroup, with its policy ([`job::run_in_job`], [`job::Job`]);
//! - [`attach`]: a policy for an existing cgroup;
//! - [`set`]: another policy for a running job;
//! - [`status`]: the changes to each connection, and the reasons;
//! - [`group`]: the streams of a group, and bounds of their windows;
//! - [`doctor`]: checks of this kernel and host;
//! - [`pages`]: the memory in which a process shows its phase;
//! - [`service`]: jobs for users without root;
//! - [`report`]: jobs and their traffic, as records;
//! - `kernel_side`: finds, loads, registers and retires the BPF programs; no other module does;
//!
//! Everything here needs root and Linux 6.1 or later.

#![deny(unsafe_code)]

mod address;
pub mod attach;
mod config;
#[allow(unsafe_code, reason = "descriptors of other processes")]
pub mod doctor;
mod error;
pub mod group;
pub mod job;
#[allow(unsafe_code, reason = "functions of libbpf")]
mod kernel_side;
mod leftovers;
mod listening;
mod making;
mod options;
mod outside;
pub mod pages;
#[allow(unsafe_code, reason = "credentials of a peer")]
mod peer;
mod point;
pub mod report;
mod running;
pub mod service;
pub mod set;
pub mod status;
#[allow(unsafe_code, reason = "fork, signals")]
mod supervise;
#[allow(unsafe_code, reason = "setsockopt")]
mod tuning;

pub use error::{Error, Result};
pub use leftovers::clean_up;
pub use paceline_cgroup as cgroup;
pub use supervise::Outcome;
