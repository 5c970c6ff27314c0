// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report.html`: one file that opens offline, on any screen and on paper.
//!
//! The page is well-formed XML and loads nothing. A text becomes markup by maud alone, which
//! escapes it. All of the page is there without JavaScript; with it there is a chart of each
//! series over time that can be zoomed.

mod about;
mod against;
mod chart;
pub mod comparison;
mod document;
mod figure;
mod interactive;
mod ladder;
mod numbers;
mod over_time;
mod panels;
mod paper;
mod paths;
pub mod svg;
mod traffic;
mod xml;

use maud::{html, Markup};

use crate::results::Results;
use crate::series::Report;

pub use document::document;
pub use ladder::{ACK as LADDER_ACK, DATA as LADDER_DATA, PART as LADDER_PART};
pub use over_time::figures as figures_over_time;

/// The small-multiples figure alone, as an SVG file: bandwidth over one chunk of
/// `part` (such as `10MB`), one panel per variant on the same axes. `None` if the
/// report has no series of that part.
#[must_use]
pub fn figure_svg(report: &Report, part: &str) -> Option<String> {
    let figure = match ladder::is(part) {
        true => ladder::figure(report, part),
        false => figure::figure(report, part),
    };
    figure.map(Markup::into_string)
}

/// The traffic of `part` in the manner of the paper that the results name, as an SVG
/// file. `None` if they name none, or there is no traffic of that part.
#[must_use]
pub fn traffic_svg(report: &Report, part: &str) -> Option<String> {
    let mut traffic = report.results.paper.iter();
    let traffic =
        traffic.find_map(|paper| paper.traffic.as_ref().filter(|_| paper.is_about(part)))?;
    traffic::figure(report, traffic, part).map(Markup::into_string)
}

/// The whole page.
#[must_use]
pub fn page(report: &Report) -> String {
    let results = &report.results;
    let colors = svg::colors(
        results,
        report.series.iter().map(|series| series.variant.clone()),
    );
    let figures = html! {
        (paths::section(results))
        (paper::section(report, &colors))
        (over_time::section(report))
        (numbers::charts(results, &colors))
        (numbers::tables(results, &colors))
    };
    page_around(results, &figures)
}

/// A page about results whose figures are another crate's.
#[must_use]
pub fn page_around(results: &Results, figures: &Markup) -> String {
    let body = html! {
        (about::heading(results))
        (about::question(results))
        (figures)
        (about::claims(results))
        (about::how(results))
    };
    document(about::title(results), &body)
}
