// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves files between hosts: what `paceline send` and `receive` do.
//!
//! A *source* reads and sends, a *sink* verifies, writes and keeps the journal of what lies on
//! its disks. One of them is the command's own process; the other is a standing receiver, or
//! the same program at the other end of ssh.
//!
//! [`session`] has the two sides, and whoever brings them together.
//!
//! Their connections are the crate `conduit`; what goes over them, and where from and to, is the
//! crate `transfer`: bites and their hashes, messages and frames, the source's files, the sink's
//! files and journal.
//!
//! The design follows Data Reservoir (kamezawa-2004, 6.1): parallel streams that end together.
//! What that lacked is here: files, integrity, authentication, resume.

#![deny(unsafe_code)]

mod fault;
pub mod session;

pub use paceline_conduit::{Error, Result};
