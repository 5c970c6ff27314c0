// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Paceline is to change about a job's TCP connections.
//!
//! A policy is a TOML file or one of the built-in presets. This crate reads and
//! checks them, and turns them into what the kernel side takes. It looks at no
//! clock, socket or global state; files are read by [`Policy::load`] alone.
//! Keys, units, defaults and ranges are described in `docs/policies.md`.

#![forbid(unsafe_code)]

mod error;
mod parse;
mod policy;
pub mod presets;
mod read;

pub use error::{PolicyError, Problem, ProblemKind};
pub use policy::{
    Ack, Backoff, Base, Breaker, Gap, Policy, Raised, Rto, Spacing, Startup, Target, TickTime,
    Window,
};
