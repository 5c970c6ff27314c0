// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment as data: nothing here runs one, or opens a socket.
//!
//! - [`mod@file`]: the TOML, checked, and its shards;
//! - [`plan`]: what goes into the run of a shard;
//! - [`record`]: what comes out of it;
//! - [`skeleton`]: the benchmarks that a plan may ask for, as messages and pauses;
//! - [`bounds`]: the physical limits of what is measured.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod file;
pub mod hash;
pub mod plan;
pub mod record;
pub mod skeleton;

pub use file::{Experiment, ExperimentError};
