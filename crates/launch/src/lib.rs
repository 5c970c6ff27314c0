// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a command line tells of a job before it starts.
//!
//! - [`launcher`]: launchers that start processes outside the job;
//! - [`preload`]: the MPI shim and other preloaded libraries.

#![forbid(unsafe_code)]

pub mod launcher;
pub mod preload;
