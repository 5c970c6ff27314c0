// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of jobs.
//!
//! - [`Traffic`], [`Counts`]: the traffic of a job's connections, added up by the kernel side;
//! - [`trial`]: bursts under the policy compared with bursts that were held out;
//! - [`Record`]: all of that for one job, and [`History`]: those of ended jobs, bounded;
//! - [`shortage`]: features that a job lacked, in words;
//! - [`verdict`]: the line at a job's end.
//!
//! Nothing here reads a clock or the kernel.

#![forbid(unsafe_code)]

mod record;
pub mod shortage;
mod store;
mod traffic;
pub mod trial;
pub mod verdict;

pub use record::Record;
pub use store::History;
pub use traffic::{grouped, size_name, Traffic};
pub use trial::{Arm, Comparison, Trial};
pub use verdict::Counts;
