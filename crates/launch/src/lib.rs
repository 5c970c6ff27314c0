// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of a job that its command line shows before the start.
//!
//! - [`launcher`]: launchers that start processes outside the job;
//! - [`preload`]: the MPI shim and other preloaded libraries;
//! - [`terminal`]: keeps a command that root starts as another user from typing into root's
//!   terminal.

#![deny(unsafe_code)]

pub mod launcher;
pub mod preload;
#[allow(unsafe_code, reason = "a filter of system calls")]
pub mod terminal;
