// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Something over time, a panel per variant, one below the other on the same axes: bandwidth over
//! one chunk in the manner of Figure 3 of matsuda-2005.

use maud::Markup;

use crate::quantity::{alone, ratio, Scale};
use crate::series::{Report, Series};
use crate::table::to_bound;

use super::panels::{end, last_step, longest, panels, peak, steps};
use super::svg::{
    colors, positive, short, tick_label, ticks, Anchor, Canvas, Style, FAINT, GRID, INK,
};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 50.0;
const PANEL: f64 = 62.0;
const BETWEEN: f64 = 26.0;
const BOTTOM: f64 = 42.0;
/// Draws the panels of `part`, in the order of the results' variants. `None` if
/// there is no series of it with a point.
///
/// The dashed line across is the link's rate, where y is in Mbit/s; the dashed
/// line down is the bound of `completion_s/PART`, where x is in ms.
pub fn figure(report: &Report, part: &str) -> Option<Markup> {
    let results = &report.results;
    let panels = panels(report, part);
    let first = *panels.first()?.first()?;
    let colors = colors(
        results,
        report.series.iter().map(|series| series.variant.clone()),
    );

    let rate = first
        .y_label
        .contains("Mbit/s")
        .then_some(results.link.rate_bps.asked / 1e6);
    let bound = results
        .bounds
        .get(&format!("completion_s/{part}"))
        .filter(|_| first.x_label.contains("ms"))
        .map(|seconds| seconds * 1e3);
    let ends: Vec<f64> = panels.iter().map(|lines| end(lines)).collect();
    let x_end = ends.iter().copied().chain(bound).fold(0.0, f64::max) * 1.02;
    let y_end = peak(&panels).max(rate.unwrap_or(0.0)) * 1.05;
    let (x_end, y_end) = (positive(x_end), positive(y_end));

    let x = |value: f64| LEFT + (value / x_end).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let mut canvas = Canvas::new(WIDTH);
    let x_ticks = ticks(x_end, 10);
    let y_ticks = ticks(y_end, 2);
    let panels_end = TOP + panels.len() as f64 * (PANEL + BETWEEN) - BETWEEN;

    for (index, (lines, end)) in panels.iter().zip(&ends).enumerate() {
        let series = lines[0];
        let top = TOP + index as f64 * (PANEL + BETWEEN);
        let y = |value: f64| top + PANEL - (value / y_end).clamp(0.0, 1.0) * PANEL;
        let color = colors[&series.variant];
        for &tick in &x_ticks {
            canvas.line((x(tick), top), (x(tick), top + PANEL), GRID, 1.0, "");
        }
        for &tick in &y_ticks {
            canvas.line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), GRID, 1.0, "");
            canvas.text(
                (LEFT - 7.0, y(tick) + 4.0),
                Anchor::End,
                FAINT,
                11.0,
                Style::Plain,
                &tick_label(tick, &y_ticks),
            );
        }
        if let Some(rate) = rate {
            canvas.line((LEFT, y(rate)), (WIDTH - RIGHT, y(rate)), FAINT, 1.0, "2 3");
        }
        draw(&mut canvas, lines, color, x_end, &x, &y);
        canvas.line(
            (LEFT, top + PANEL),
            (WIDTH - RIGHT, top + PANEL),
            FAINT,
            1.0,
            "",
        );
        if let Some(bound) = bound {
            canvas.line((x(bound), top), (x(bound), top + PANEL), INK, 1.2, "5 3");
        }
        canvas.circle((LEFT + 5.0, top - 11.5), 5.5, color, &series.variant);
        canvas.text(
            (LEFT + 16.0, top - 7.0),
            Anchor::Start,
            INK,
            13.0,
            Style::Weight(650),
            &series.variant,
        );
        // An advance of 8 is generous for this size: the label never touches.
        let name_end = LEFT + 16.0 + 8.0 * series.variant.chars().count() as f64 + 12.0;
        match lines.len() {
            1 => canvas.text(
                (name_end, top - 7.0),
                Anchor::Start,
                FAINT,
                12.0,
                Style::Plain,
                &summary(report, series, *end),
            ),
            _ => legend(&mut canvas, lines, color, (name_end, top - 7.0)),
        }
    }
    let keys = [
        bound.map(|bound| {
            (
                format!("bound of the completion, {}", alone("bound_s", bound / 1e3)),
                INK,
                "5 3",
            )
        }),
        rate.map(|rate| {
            (
                format!("link, {}", alone("rate_bps", rate * 1e6)),
                FAINT,
                "2 3",
            )
        }),
    ];
    let advance = |label: &str| 56.0 + 6.5 * label.chars().count() as f64;
    let mut start = WIDTH - RIGHT + 16.0
        - keys
            .iter()
            .flatten()
            .map(|key| advance(&key.0))
            .sum::<f64>();
    for (label, color, dash) in keys.iter().flatten() {
        canvas.line((start, 12.0), (start + 26.0, 12.0), color, 1.2, dash);
        canvas.text(
            (start + 33.0, 16.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Plain,
            label,
        );
        start += advance(label);
    }
    for &tick in &x_ticks {
        let label = tick_label(tick, &x_ticks);
        canvas.text(
            (x(tick), panels_end + 16.0),
            Anchor::Middle,
            FAINT,
            11.0,
            Style::Plain,
            &label,
        );
    }
    let x_label = match averaged(&panels) {
        0 | 1 => first.x_label.clone(),
        n => format!("{}; each step is the mean of {n} samples", first.x_label),
    };
    let over = match first.x_label.contains("chunk") {
        true => format!("over one chunk of {part}"),
        false => format!("over time: {part}"),
    };
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    canvas.text(
        (middle, panels_end + 34.0),
        Anchor::Middle,
        INK,
        12.0,
        Style::Plain,
        &x_label,
    );
    let height = panels_end + BOTTOM;
    let centre = (TOP + panels_end) / 2.0;
    canvas.text(
        (13.0, centre),
        Anchor::Middle,
        INK,
        12.0,
        Style::Turned,
        &first.y_label,
    );
    Some(canvas.finish(height, &format!("{} {over}, per variant", first.y_label)))
}

/// The text beside a panel's variant: the median completion of the part, or without one the end
/// of the traffic shown.
fn summary(report: &Report, series: &Series, end: f64) -> String {
    let metric = format!("completion_s/{}", series.experiment_part);
    let found = report
        .results
        .variants
        .get(&series.variant)
        .and_then(|metrics| metrics.get(&metric));
    match found {
        Some(found) => {
            let median = Scale::fit(&metric, [found.median]).with_unit(found.median);
            match to_bound(&report.results, &metric, found.median) {
                Some(over) => format!(
                    "median completion {median}, {}\u{d7} the bound",
                    ratio(over)
                ),
                None => format!("median completion {median}"),
            }
        }
        None if series.x_label.contains("(ms)") => format!("ends at {end:.0} ms"),
        None if series.x_label.contains("(s)") => format!("ends at {end:.1} s"),
        None => format!("ends at {end:.1}"),
    }
}

/// Steps drawn per panel: two per pixel. More samples than that are averaged.
const MOST_STEPS: usize = 1600;

/// How many samples are one step, in the panel that has the most.
pub fn averaged(panels: &[Vec<&Series>]) -> usize {
    longest(panels).div_ceil(MOST_STEPS)
}

/// How the lines of a panel are distinguished.
pub const DASHES: [&str; 3] = ["", "4 3", "1 3"];

/// One series as an area, several as lines.
pub fn draw(
    canvas: &mut Canvas,
    lines: &[&Series],
    color: &str,
    x_end: f64,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    for (series, dash) in lines.iter().zip(DASHES) {
        let (outline, floor) = outline(&series.points, x_end, x, y);
        match lines.len() {
            1 => canvas.area(&outline, &floor, color),
            _ => canvas.path(&outline, color, dash),
        }
    }
}

/// The names of a panel's lines, from `at` to the right.
pub fn legend(canvas: &mut Canvas, lines: &[&Series], color: &str, at: (f64, f64)) {
    let mut start = at.0;
    for (series, dash) in lines.iter().zip(DASHES) {
        let middle = at.1 - 4.0;
        canvas.line((start, middle), (start + 22.0, middle), color, 1.5, dash);
        let from = (start + 27.0, at.1);
        canvas.text(from, Anchor::Start, FAINT, 11.0, Style::Plain, &series.line);
        start += 27.0 + 6.5 * series.line.chars().count() as f64 + 14.0;
    }
}

/// The stairs over the samples, and the way back along the floor.
fn outline(
    points: &[(f64, f64)],
    x_end: f64,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) -> (String, String) {
    let steps = steps(points, points.len().div_ceil(MOST_STEPS));
    let start = x(steps[0].0);
    let mut outline = format!("M{} {}", short(start), short(y(0.0)));
    let mut height = String::new();
    for &(from, value) in steps.iter().take_while(|(from, _)| *from <= x_end) {
        let next = short(y(value));
        // A step as high as the one before needs no corner.
        if next != height {
            outline.push_str(&format!("H{}V{next}", short(x(from))));
            height = next;
        }
    }
    let last = points[points.len() - 1].0 + last_step(points);
    outline.push_str(&format!("H{}", short(x(last))));
    let floor = format!("V{}H{}Z", short(y(0.0)), short(start));
    (outline, floor)
}
