// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of an experiment, and every form of their display.
//!
//! - [`results`]: the content of `results.json`, read and written so that equal
//!   runs give equal bytes.
//! - [`claims`]: the sentences of an experiment that must hold, such as
//!   `paceline/completion_s/1MB <= 1.10 * bound`.
//! - [`table`]: the table on the terminal.
//! - [`csv`]: one CSV file per series.
//! - [`html`]: `report.html`, one file that opens offline; several runs in one page.
//! - [`interval`]: confidence intervals of a median or a ratio of two.
//! - [`paper`]: a paper's values of the same thing.
//! - [`burstiness`]: burstiness of traffic, from packets per window.
//! - [`paths`]: each variant over links that were drawn at random.
//! - [`precision`]: the least sure ratio of a run.
//! - [`quantity`]: numbers with the unit that suits them.

#![forbid(unsafe_code)]

pub mod burstiness;
pub mod claims;
pub mod csv;
mod directory;
pub mod html;
pub mod interval;
pub mod paper;
pub mod paths;
pub mod precision;
pub mod quantity;
pub mod results;
mod series;
pub mod table;

pub use directory::ReportError;
pub use series::{Report, Series};
