// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup v2 hierarchy: where it is, the directories of jobs
//! ([`Seat`]), and the lock that serialises every change of jobs on this host.

#![deny(unsafe_code)]

mod error;
#[allow(unsafe_code, reason = "file handles")]
mod hierarchy;
mod lock;
mod seat;

pub use error::{Error, Result};
#[doc(hidden)]
pub use hierarchy::fuzz;
pub use hierarchy::{Cgroup, Hierarchy};
pub use lock::{Hold, Lock};
pub use seat::{is_undividable, Seat};
