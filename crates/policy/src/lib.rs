// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies: the changes that Paceline makes to a job's TCP connections.
//!
//! A policy is a TOML file or one of the built-in presets. This crate reads and
//! checks them, and converts them to the kernel side's form. It reads no clock,
//! socket or global state; files are read by [`Policy::load`] alone. Keys,
//! units, defaults and ranges are described in `docs/policies.md`.

#![forbid(unsafe_code)]

pub mod change;
mod error;
mod file;
mod parse;
mod policy;
pub mod presets;

pub use error::{NotText, PolicyError};
pub use file::{inline_schema, schema, FORMATS};
pub use policy::{
    Ack, Backoff, Base, Breaker, Gap, MinimumRto, Options, Policy, Raised, Report, Rto, Socket,
    Spacing, Startup, Streams, Target, TickTime, Window,
};
