// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The chart of a part that a reader can zoom: its data, and the script that draws it.

use maud::{html, Markup, PreEscaped};
use serde::Serialize;
use serde_json::Number;

use crate::results::round;
use crate::series::{Report, Series};

use super::figure::DASHES;
use super::panels::{longest, panels, steps};
use super::svg::colors;

/// Samples of all charts of a page: some 1.5 MB of text at 5 characters for x and 10 for y.
const MOST_IN_PAGE: usize = 100_000;

/// All that a page needs to draw its charts. XML would take `<` and `&` of a script as
/// markup, HTML would show the marks of CDATA to the script: so they are comments of it.
const SCRIPT: &str = concat!(
    "//<![CDATA[\n/*\n",
    include_str!("../../assets/uplot/LICENSE"),
    "\n*/\n",
    include_str!("../../assets/uplot/uPlot.iife.min.js"),
    "\n",
    include_str!("../../assets/chart.js"),
    "//]]>",
);

/// The data of a chart, as `assets/chart.js` reads it.
#[derive(Serialize)]
struct Chart<'r> {
    x: &'r str,
    y: &'r str,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    color: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    dash: &'static str,
    x: Vec<Option<Number>>,
    y: Vec<Option<Number>>,
}

/// The samples that each line may have, so that all of the page have at most
/// [`MOST_IN_PAGE`].
pub fn allowance(report: &Report) -> usize {
    (MOST_IN_PAGE / report.series.len().max(1)).max(1)
}

/// The chart of `part`; nothing if there is no sample of it. It is hidden until the script
/// draws it.
///
/// Where a line has more samples than `allowance`, each step is the mean of as many of them
/// as bring the longest line below it, the same number in all lines; the chart says so.
pub fn chart(report: &Report, part: &str, allowance: usize) -> Markup {
    let panels = panels(report, part);
    let Some(first) = panels.first().and_then(|lines| lines.first()) else {
        return Markup::default();
    };
    let samples = longest(&panels).div_ceil(allowance);
    let colors = colors(
        &report.results,
        report.series.iter().map(|series| series.variant.clone()),
    );
    let lines = panels.iter().flat_map(|lines| {
        let dashed = lines.iter().zip(DASHES.into_iter().cycle());
        dashed.filter_map(|(series, dash)| Line::of(series, samples, colors[&series.variant], dash))
    });
    let chart = Chart {
        x: &first.x_label,
        y: &first.y_label,
        lines: lines.collect(),
    };
    if chart.lines.is_empty() {
        return Markup::default();
    }
    let data = serde_json::to_string(&chart).expect("string keys and numbers always serialise");
    html! {
        div.chart hidden="" data-chart=(data) {
            p {
                "Drag over a span to zoom, double-click for the whole. Click a name to hide its \
                 line, with Ctrl to see it alone."
                @if samples > 1 {
                    " Each step is the mean of " (samples) " samples; all of them are in the CSV \
                     files beside this page."
                }
            }
        }
    }
}

impl Line {
    /// `None` if no sample is a pair of numbers.
    fn of(
        series: &Series,
        samples: usize,
        color: &'static str,
        dash: &'static str,
    ) -> Option<Self> {
        let finite = |point: &&(f64, f64)| point.0.is_finite() && point.1.is_finite();
        let points: Vec<(f64, f64)> = series.points.iter().filter(finite).copied().collect();
        let name = match series.line.as_str() {
            "" => series.variant.clone(),
            line => format!("{}, {line}", series.variant),
        };
        let (x, y) = steps(&points, samples)
            .into_iter()
            .map(|(x, y)| (number(x), number(y)))
            .unzip();
        (!points.is_empty()).then_some(Line {
            name,
            color,
            dash,
            x,
            y,
        })
    }
}

/// With the digits that it has in the CSV files; null if a mean is beyond all numbers.
fn number(value: f64) -> Option<Number> {
    let value = round(value);
    // Every integer below 2^53 is a double, and is shorter without a point.
    match value.fract() == 0.0 && value.abs() < 2f64.powi(53) {
        true => Some(Number::from(value as i64)),
        false => Number::from_f64(value),
    }
}

/// The script that draws the charts before it.
pub fn script() -> Markup {
    html! { script { (PreEscaped(SCRIPT)) } }
}
