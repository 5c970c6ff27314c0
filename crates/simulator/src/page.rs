// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report.html` of a sweep: each metric over the first axis, a curve per variant.

use indexmap::IndexMap;
use maud::{html, Markup};
use paceline_report::html::svg::{
    colors, tick_label, ticks, Anchor, Canvas, Style, FAINT, GRID, INK,
};
use paceline_report::html::{figures_over_time, page_around};
use paceline_report::quantity::{name, Scale};
use paceline_report::results::{Metric, Results};
use paceline_report::{Report, Series};

use crate::output::name_at;
use crate::scenario::{label, Point};
use crate::statistics::Mean;

/// The figures, in this order, with their captions.
const FIGURES: [(&str, &str); 13] = [
    ("cov", "Coefficient of variation of the packets that arrive at the gateway per round-trip propagation delay, over the whole run. Dashed: the same of the unmodulated Poisson sources."),
    ("steady_cov", "The same in the steady part of the run, without the connections\u{2019} slow start."),
    ("over_poisson", "Coefficient of variation over that of a Poisson process with the mean that was measured: 1 is as smooth as unmodulated traffic."),
    ("steady_over_poisson", "The same in the steady part of the run."),
    ("delivered_packets", "Packets delivered, each of them once."),
    ("goodput_bps", "Packets delivered, each of them once, headers counted."),
    ("loss_share", "Of the packets that arrived at the gateway, those that it dropped."),
    ("dropped_share", "Of a group\u{2019}s packets, those that were dropped."),
    ("timeouts", "Timeouts of all flows."),
    ("retransmitted_share", "Of the packets sent, those sent again."),
    ("queue_packets", "Packets that an arriving one found waiting, on average."),
    ("jain", "Jain\u{2019}s index of the flows\u{2019} goodputs: 1 is equal shares."),
    ("completion_s", "Median time from a flow\u{2019}s start to its last segment\u{2019}s arrival."),
];

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 48.0;
/// Advance of a character of the legend, generously.
const CHARACTER: f64 = 7.6;

/// One curve of a figure: its name, colour, and points with half the width of their
/// confidence interval.
struct Curve<'a> {
    name: &'a str,
    color: &'static str,
    points: Vec<(f64, f64, f64)>,
}

/// The whole page. `series`: samples over time, of those runs that took them.
pub fn page(results: &Results, points: &[Point], series: &[Series]) -> String {
    let report = Report {
        results: results.clone(),
        series: series.to_vec(),
    };
    let over_time = figures_over_time(&report);
    let body = html! {
        @if !over_time.0.is_empty() {
            section { h2 { "Over time" } (over_time) }
        }
        (figures(results, points))
    };
    page_around(results, &body)
}

fn number(value: &toml::Value) -> Option<f64> {
    value
        .as_float()
        .or(value.as_integer().map(|number| number as f64))
}

/// The figures, or where nothing is varied over numbers, a table.
fn figures(results: &Results, points: &[Point]) -> Markup {
    let axis = points.first().and_then(|point| {
        point
            .values
            .iter()
            .position(|(_, value)| number(value).is_some())
    });
    let several = points
        .chunk_by(|a, b| a.variant == b.variant)
        .any(|points| points.len() > 1);
    let Some(axis) = axis.filter(|_| several) else {
        return table(results);
    };
    // The other axes: a figure for each combination of their values.
    let mut rests: Vec<Vec<String>> = Vec::new();
    for point in points {
        let rest = others(point, axis);
        if !rests.contains(&rest) {
            rests.push(rest);
        }
    }
    let colors = colors(results, std::iter::empty());
    html! {
        section {
            h2 { "Each variant over what was varied" }
            p {
                "Means over the seeds; the vertical lines are 95 % confidence intervals of the \
                 mean."
            }
            @for (metric, words) in FIGURES {
                @for stem in &stems(results, points, metric) {
                    @for rest in &rests {
                        @if let Some(svg) = figure(results, points, axis, rest, stem, &colors) {
                            h3 {
                                (name(metric))
                                @if let Some((_, group)) = stem.split_once('/') { ", " (group) }
                                @if !rest.is_empty() { ", " (rest.join(", ")) }
                            }
                            figure {
                                (svg)
                                figcaption { (words) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The metric without a point's tail: itself, or `METRIC/GROUP` where there are several
/// groups.
fn stems(results: &Results, points: &[Point], metric: &str) -> Vec<String> {
    let is_of_metric = |stem: &&str| {
        let group = stem.strip_prefix(metric);
        group.is_some_and(|group| group.is_empty() || group.starts_with('/'))
    };
    let mut stems: Vec<String> = Vec::new();
    let all = results.variants.values().flat_map(|metrics| metrics.keys());
    for full in all {
        let stem = points.iter().find_map(|point| {
            let stem = full.strip_suffix(point.tail().as_str())?;
            Some(stem.trim_end_matches('/')).filter(is_of_metric)
        });
        if let Some(stem) = stem.filter(|stem| !stems.iter().any(|known| known == stem)) {
            stems.push(stem.to_owned());
        }
    }
    stems
}

fn others(point: &Point, axis: usize) -> Vec<String> {
    let values = point
        .values
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != axis);
    values
        .map(|(_, (name, value))| format!("{name} {}", label(value)))
        .collect()
}

fn figure(
    results: &Results,
    points: &[Point],
    axis: usize,
    rest: &[String],
    metric: &str,
    colors: &IndexMap<String, &'static str>,
) -> Option<Markup> {
    let here = points.iter().filter(|point| others(point, axis) == *rest);
    let mut curves: IndexMap<&str, Vec<(f64, f64, f64)>> = IndexMap::new();
    let mut bound: Vec<(f64, f64)> = Vec::new();
    for point in here {
        let full = name_at(metric, &point.tail());
        let Some(x) = number(&point.values[axis].1) else {
            continue;
        };
        if let Some(limit) = results.bounds.get(&full) {
            if !bound.iter().any(|(at, _)| *at == x) {
                bound.push((x, *limit));
            }
        }
        let found = results
            .variants
            .get(&point.variant)
            .and_then(|of| of.get(&full));
        if let Some(mean) = found.and_then(|found| Mean::of(&found.runs)) {
            let curve = curves.entry(&point.variant).or_default();
            curve.push((x, mean.mean, mean.half_width));
        }
    }
    let curves: Vec<Curve> = curves
        .into_iter()
        .map(|(name, mut points)| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve {
                name,
                color: colors.get(name).copied().unwrap_or(INK),
                points,
            }
        })
        .collect();
    if curves.is_empty() {
        return None;
    }
    bound.sort_by(|a, b| a.0.total_cmp(&b.0));
    let axis_name = points
        .first()
        .map_or("", |point| point.values[axis].0.as_str());
    Some(draw(&curves, &bound, metric, axis_name))
}

fn draw(curves: &[Curve], bound: &[(f64, f64)], metric: &str, axis: &str) -> Markup {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let scale = Scale::fit(metric, all().map(|point| point.1));
    let x_end = all().map(|point| point.0).fold(0.0, f64::max).max(1e-9);
    // The bound of a single client would leave the rest in the lowest tenth.
    let y_end = all()
        .map(|point| point.1 + point.2)
        .fold(0.0, f64::max)
        .max(1e-12);
    let y_end = y_end * scale.factor * 1.05;
    let x = |value: f64| LEFT + value / x_end * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        let part = (value * scale.factor / y_end).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)
    };
    let mut canvas = Canvas::new(WIDTH);
    let (x_ticks, y_ticks) = (ticks(x_end, 12), ticks(y_end, 5));
    for &tick in &x_ticks {
        canvas.line((x(tick), TOP), (x(tick), HEIGHT - BOTTOM), GRID, 1.0, "");
        let text = tick_label(tick, &x_ticks);
        canvas.text(
            (x(tick), HEIGHT - BOTTOM + 16.0),
            Anchor::Middle,
            FAINT,
            11.0,
            Style::Plain,
            &text,
        );
    }
    for &tick in &y_ticks {
        let at = y(tick / scale.factor);
        canvas.line((LEFT, at), (WIDTH - RIGHT, at), GRID, 1.0, "");
        let text = tick_label(tick, &y_ticks);
        canvas.text(
            (LEFT - 7.0, at + 4.0),
            Anchor::End,
            FAINT,
            11.0,
            Style::Plain,
            &text,
        );
    }
    let (mut at, mut line) = (LEFT, 14.0);
    for curve in curves {
        let width = 15.0 + CHARACTER * curve.name.chars().count() as f64 + 20.0;
        if at + width > WIDTH {
            (at, line) = (LEFT, line + 18.0);
        }
        canvas.circle((at + 5.0, line), 5.5, curve.color, curve.name);
        canvas.text(
            (at + 15.0, line + 4.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Plain,
            curve.name,
        );
        at += width;
    }
    for pair in bound.windows(2) {
        let (from, to) = ((x(pair[0].0), y(pair[0].1)), (x(pair[1].0), y(pair[1].1)));
        canvas.line(from, to, INK, 1.3, "5 3");
    }
    for curve in curves {
        for pair in curve.points.windows(2) {
            let (from, to) = ((x(pair[0].0), y(pair[0].1)), (x(pair[1].0), y(pair[1].1)));
            canvas.line(from, to, curve.color, 1.6, "");
        }
        for &(at, mean, half) in &curve.points {
            if half > 0.0 {
                let (low, high) = (y(mean - half), y(mean + half));
                canvas.line((x(at), low), (x(at), high), curve.color, 1.0, "");
            }
            let title = format!(
                "{}, {axis} {at}: {} \u{b1} {}",
                curve.name,
                scale.with_unit(mean),
                scale.number(half)
            );
            canvas.circle((x(at), y(mean)), 3.4, curve.color, &title);
        }
    }
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    canvas.text(
        (middle, HEIGHT - 10.0),
        Anchor::Middle,
        INK,
        12.0,
        Style::Plain,
        axis,
    );
    let unit = match scale.unit {
        "" => name(metric),
        unit => format!("{}, {unit}", name(metric)),
    };
    let centre = (TOP + HEIGHT - BOTTOM) / 2.0;
    canvas.text(
        (14.0, centre),
        Anchor::Middle,
        INK,
        12.0,
        Style::Turned,
        &unit,
    );
    canvas.finish(
        HEIGHT,
        &format!("{} over {axis}, per variant", name(metric)),
    )
}

/// Every metric of every variant.
fn table(results: &Results) -> Markup {
    let mut metrics: Vec<&String> = Vec::new();
    for of in results.variants.values() {
        for metric in of.keys() {
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
    }
    html! {
        section {
            h2 { "The numbers" }
            p { "Means over the seeds, with 95 % confidence intervals." }
            div.wide { table {
                thead { tr {
                    th {}
                    @for variant in results.variants.keys() { th.number { (variant) } }
                } }
                tbody { @for metric in metrics {
                    tr {
                        th { (metric) }
                        @for of in results.variants.values() {
                            td.number {
                                @if let Some(found) = of.get(metric) { (cell(metric, found)) }
                            }
                        }
                    }
                } }
            } }
        }
    }
}

/// The mean of the runs, and half the width of its interval if there is one.
fn cell(metric: &str, found: &Metric) -> Markup {
    let Some(mean) = Mean::of(&found.runs) else {
        return Markup::default();
    };
    let scale = Scale::fit(metric, [mean.mean]);
    html! {
        (scale.with_unit(mean.mean))
        @if mean.count > 1 { small { "\u{b1} " (scale.number(mean.half_width)) } }
    }
}
