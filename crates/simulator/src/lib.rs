// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP in simulated time, packet by packet: scales beyond a testbed's, and whether TCP
//! makes smooth traffic bursty (feng-2000).
//!
//! - [`scenario`]: a TOML file with network, flows, variants and axes.
//! - [`measures`]: one run of it and its metrics; [`sweep`]: many.
//! - [`study`]: from a scenario to a report, by some runs, by all, or by the model.
//! - [`output`], [`series`], [`page`]: results as JSON, CSV, Parquet and a page.
//! - [`model`]: the stochastic model of Reno.
//! - [`world`]: links and flows, run event by event from the [`agenda`]; [`link`] with
//!   [`red`], [`sender`], [`receiver`] and [`source`] know nothing of each other, and get
//!   their time passed in.
//!
//! `docs/simulator.md` describes files, metrics and models.

#![deny(unsafe_code)]

pub mod agenda;
#[allow(unsafe_code, reason = "prefetch")]
mod ahead;
pub mod event;
pub mod link;
pub mod measures;
#[allow(unsafe_code, reason = "madvise")]
mod memory;
pub mod meter;
pub mod model;
pub mod output;
pub mod page;
pub mod random;
pub mod receiver;
pub mod red;
pub mod scenario;
pub mod sender;
pub mod series;
pub mod source;
pub mod statistics;
pub mod study;
pub mod sweep;
pub mod world;
