// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command of a job: what its words show before the start, and the start itself.
//!
//! - [`identity`]: its user, and the owner of the job;
//! - [`launcher`]: launchers that start processes outside the job;
//! - [`preload`]: the MPI shim and other preloaded libraries;
//! - [`start`]: into the job's cgroup, as its user;
//! - [`terminal`]: keeps a command that root starts as another user from typing into root's
//!   terminal.

#![deny(unsafe_code)]

pub mod identity;
pub mod launcher;
pub mod preload;
#[allow(unsafe_code, reason = "between fork and exec")]
pub mod start;
#[allow(unsafe_code, reason = "a filter of system calls")]
pub mod terminal;
