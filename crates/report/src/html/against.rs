// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A metric against a number in which the variants differ: the greatest run, the mean and the
//! least, in the manner of Figure 9 of kamezawa-2004.

use maud::Markup;

use crate::paper::Against;
use crate::quantity::{capital, name, tail, Scale};
use crate::results::{Metric, Results};

use super::svg::{positive, short, tick_label, ticks, Anchor, Canvas, Style, FAINT, GRID, INK};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const HEIGHT: f64 = 250.0;

/// The statistic that is drawn of the runs.
type Statistic = fn(&Metric) -> f64;

/// The lines: name, statistic of the runs, colour.
const LINES: [(&str, Statistic, &str); 3] = [
    ("greatest", |metric| metric.max, "#009e73"),
    ("mean", mean, "#0072b2"),
    ("least", |metric| metric.min, "#d55e00"),
];

fn mean(metric: &Metric) -> f64 {
    metric.runs.iter().sum::<f64>() / metric.runs.len().max(1) as f64
}

/// `None` if there is not one variant that has both the number and the metric.
pub fn chart(results: &Results, of: &Against) -> Option<Markup> {
    let metric = of.metric.as_str();
    let found = |variant: &String| results.variants.get(variant)?.get(metric);
    let mut points: Vec<(f64, &str, &Metric)> = of
        .at
        .iter()
        .filter_map(|(variant, number)| Some((*number, variant.as_str(), found(variant)?)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let scale = Scale::fit(metric, points.iter().map(|(_, _, metric)| metric.max));
    let x_end = positive(points.last()?.0 * 1.02);
    let greatest = points.iter().map(|(_, _, metric)| metric.max);
    let bound = results.bounds.get(metric).copied();
    let y_end = positive(greatest.chain(bound).fold(0.0, f64::max) * scale.factor * 1.06);
    let floor = TOP + HEIGHT;
    let x = |number: f64| LEFT + (number / x_end).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| floor - (value * scale.factor / y_end).clamp(0.0, 1.0) * HEIGHT;
    let mut canvas = Canvas::new(WIDTH);
    let x_ticks = ticks(x_end, 8);
    for &tick in &x_ticks {
        canvas.line((x(tick), TOP), (x(tick), floor), GRID, 1.0, "");
        let label = tick_label(tick, &x_ticks);
        let at = (x(tick), floor + 16.0);
        canvas.text(at, Anchor::Middle, FAINT, 11.0, Style::Plain, &label);
    }
    let y_ticks = ticks(y_end, 6);
    for &tick in &y_ticks {
        let height = floor - tick / y_end * HEIGHT;
        canvas.line((LEFT, height), (WIDTH - RIGHT, height), GRID, 1.0, "");
        let label = tick_label(tick, &y_ticks);
        let at = (LEFT - 7.0, height + 4.0);
        canvas.text(at, Anchor::End, FAINT, 11.0, Style::Plain, &label);
    }
    canvas.line((LEFT, floor), (WIDTH - RIGHT, floor), FAINT, 1.0, "");
    if let Some(bound) = bound {
        let (from, to) = ((LEFT, y(bound)), (WIDTH - RIGHT, y(bound)));
        canvas.line(from, to, INK, 1.3, "4 3");
    }
    let mut at = LEFT;
    let mut key = |canvas: &mut Canvas, label: &str, color: &str, dash: &str| {
        canvas.line((at, 14.0), (at + 22.0, 14.0), color, 1.8, dash);
        canvas.text(
            (at + 28.0, 18.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Plain,
            label,
        );
        at += 28.0 + 6.8 * label.chars().count() as f64 + 20.0;
    };
    for (label, value, color) in LINES {
        let corners = points.iter().map(|(number, _, metric)| {
            let (x, y) = (x(*number), y(value(metric)));
            format!("{} {}", short(x), short(y))
        });
        let corners: Vec<String> = corners.collect();
        canvas.path(&format!("M{}", corners.join("L")), color, "");
        for (number, variant, metric) in &points {
            let shown = scale.with_unit(value(metric));
            let title = format!("{variant}, {label} of {} runs: {shown}", metric.runs.len());
            canvas.circle((x(*number), y(value(metric))), 4.0, color, &title);
        }
        key(&mut canvas, label, color, "");
    }
    if bound.is_some() {
        key(&mut canvas, "bound", INK, "4 3");
    }
    let centre = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    let below = (centre, floor + 34.0);
    canvas.text(below, Anchor::Middle, INK, 12.0, Style::Plain, &of.label);
    let unit = match scale.unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let tail = tail(metric);
    let what = format!(
        "{}{unit}",
        capital(format!("{} {tail}", name(metric)).trim())
    );
    let middle = TOP + HEIGHT / 2.0;
    canvas.text(
        (13.0, middle),
        Anchor::Middle,
        INK,
        12.0,
        Style::Turned,
        &what,
    );
    Some(canvas.finish(floor + 44.0, &format!("{what} against {}", of.label)))
}
