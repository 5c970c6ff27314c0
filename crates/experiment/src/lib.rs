// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment as data: nothing here runs one, or opens a socket.
//!
//! - [`mod@file`]: the TOML, checked, and its shards;
//! - [`plan`]: the input of a shard's run;
//! - [`record`]: its output;
//! - [`skeleton`]: the benchmarks that a plan may have, as messages and pauses;
//! - [`bounds`]: the physical limits of the metrics.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod file;
pub mod hash;
pub mod plan;
pub mod record;
pub mod skeleton;

pub use file::{Experiment, ExperimentError};
