// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The series that are drawn together, and the selection of their samples.

use crate::quantity::tail;
use crate::series::{Report, Series};

/// The parts of which there are series, in the order of the metrics.
pub fn parts(report: &Report) -> Vec<&str> {
    let metrics = report
        .results
        .variants
        .values()
        .flat_map(|metrics| metrics.keys());
    let order: Vec<&str> = metrics.map(|metric| tail(metric)).collect();
    let mut parts: Vec<&str> = Vec::new();
    for series in report
        .series
        .iter()
        .filter(|series| !series.points.is_empty())
    {
        if !parts.contains(&series.experiment_part.as_str()) {
            parts.push(&series.experiment_part);
        }
    }
    parts.sort_by_key(|part| {
        order
            .iter()
            .position(|known| known == part)
            .unwrap_or(usize::MAX)
    });
    parts
}

/// The series of `part`, variant by variant in the order of the results: one, or the lines of
/// one panel in the order of their names.
pub fn panels<'r>(report: &'r Report, part: &str) -> Vec<Vec<&'r Series>> {
    let mut panels: Vec<Vec<&Series>> = Vec::new();
    let of_part = report.series.iter().filter(|s| s.experiment_part == part);
    for series in of_part.filter(|series| !series.points.is_empty()) {
        let same = |lines: &&mut Vec<&Series>| lines[0].variant == series.variant;
        match panels.iter_mut().find(same) {
            Some(lines) => lines.push(series),
            None => panels.push(vec![series]),
        }
    }
    for lines in &mut panels {
        lines.sort_by(|a, b| a.line.cmp(&b.line));
    }
    let variants = &report.results.variants;
    panels.sort_by_key(|lines| {
        let place = variants.get_index_of(&lines[0].variant);
        place.unwrap_or(usize::MAX)
    });
    panels
}

/// Where the last of a panel's lines ends.
pub fn end(lines: &[&Series]) -> f64 {
    let ends = lines.iter().map(|series| traffic_end(series));
    ends.fold(0.0, f64::max)
}

/// Samples of the line that has the most.
pub fn longest(panels: &[Vec<&Series>]) -> usize {
    let lengths = panels.iter().flatten().map(|series| series.points.len());
    lengths.max().unwrap_or(0)
}

/// The greatest sample of all.
pub fn peak(panels: &[Vec<&Series>]) -> f64 {
    let samples = panels.iter().flatten().flat_map(|series| &series.points);
    let heights = samples.map(|point| point.1).filter(|y| y.is_finite());
    heights.fold(0.0, f64::max)
}

/// The samples, each `samples` of them as one with the x of the first and the mean of their
/// y; fewer at the end.
pub fn steps(points: &[(f64, f64)], samples: usize) -> Vec<(f64, f64)> {
    let mean = |of: &[(f64, f64)]| of.iter().map(|point| point.1).sum::<f64>() / of.len() as f64;
    let chunks = points.chunks(samples.max(1));
    chunks.map(|chunk| (chunk[0].0, mean(chunk))).collect()
}

/// End of the last sample that is not zero.
fn traffic_end(series: &Series) -> f64 {
    let points = &series.points;
    let last = points.iter().rposition(|point| point.1 > 0.0).unwrap_or(0);
    points
        .get(last + 1)
        .map_or_else(|| points[last].0 + last_step(points), |next| next.0)
}

/// Length of the last sample, which nothing follows: that of the one before.
pub fn last_step(points: &[(f64, f64)]) -> f64 {
    match points {
        [.., before, last] => last.0 - before.0,
        _ => 0.0,
    }
}
