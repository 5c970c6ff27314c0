// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples over time, and the whole report: results and samples.

use crate::results::Results;

/// A whole report: the results, and the series that its figures are drawn from.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The content of `results.json`.
    pub results: Results,
    /// Samples over time, in the order in which they are to be shown.
    pub series: Vec<Series>,
}

/// Samples of one quantity over time, for one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The part of the experiment: the tail of its metrics, such as `10MB`.
    pub experiment_part: String,
    /// The variant, as in [`Results::variants`].
    pub variant: String,
    /// Which line of the variant's panel it is, where there are several of the part: such as
    /// `fastest`; else empty.
    pub line: String,
    /// Name and unit of x, such as `time since the start of the chunk (ms)`.
    pub x_label: String,
    /// Name and unit of y, such as `bandwidth (Mbit/s)`.
    pub y_label: String,
    /// The samples `(x, y)`, x ascending, in the units of the labels. Each holds
    /// from its own x to the next one's.
    pub points: Vec<(f64, f64)>,
}
