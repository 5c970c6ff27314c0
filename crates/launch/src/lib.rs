// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a command line tells of a job before it starts.
//!
//! - [`launcher`]: launchers that start processes outside the job;
//! - [`preload`]: the MPI shim and other preloaded libraries;
//! - [`terminal`]: what keeps a command from typing into the terminal of root, who starts it as
//!   another user.

#![deny(unsafe_code)]

pub mod launcher;
pub mod preload;
#[allow(unsafe_code, reason = "a filter of system calls")]
pub mod terminal;
