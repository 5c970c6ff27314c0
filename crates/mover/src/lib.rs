// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves files between hosts for `paceline send` and `receive`.
//!
//! A *source* reads and sends, a *sink* verifies, writes and keeps the journal of the data on
//! its disks. One of them is the command's own process; the other is a standing receiver, or
//! the same program at the other end of ssh.
//!
//! [`session`] has the two sides, and the code that connects them.
//!
//! Their connections are the crate `conduit`. The crate `transfer` has the rest: bites and their
//! hashes, messages and frames, the source's files, the sink's files and journal.
//!
//! The design follows Data Reservoir (kamezawa-2004, 6.1): parallel streams that end together.
//! This adds files, integrity, authentication, resume.

#![deny(unsafe_code)]

mod fault;
pub mod session;

pub use paceline_conduit::{Error, Result};
