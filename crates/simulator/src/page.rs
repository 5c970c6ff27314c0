// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report.html` of a sweep: each metric over the first axis, a curve per variant.

use indexmap::IndexMap;
use paceline_report::html::svg::{
    colors, escape, tick_label, ticks, Anchor, Canvas, FAINT, GRID, INK,
};
use paceline_report::html::{figure_svg, page_around};
use paceline_report::quantity::{name, Scale};
use paceline_report::results::Results;
use paceline_report::{Report, Series};

use crate::output::name_at;
use crate::scenario::{label, Point};
use crate::statistics::Mean;

/// What is drawn, in this order, with words about it.
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
    let mut body = over_time(results, series);
    body.push_str(&figures(results, points));
    page_around(results, &body)
}

/// Each series, a panel per variant.
fn over_time(results: &Results, series: &[Series]) -> String {
    let report = Report {
        results: results.clone(),
        series: series.to_vec(),
    };
    let mut parts: IndexMap<&str, &str> = IndexMap::new();
    for one in series {
        parts.entry(&one.experiment_part).or_insert(&one.y_label);
    }
    let mut text = String::new();
    for (part, y_label) in parts {
        let Some(figure) = figure_svg(&report, part) else {
            continue;
        };
        text.push_str(&format!(
            "<h3>{}</h3>\n<figure>\n{figure}<figcaption>{}</figcaption>\n</figure>\n",
            escape(part),
            escape(y_label)
        ));
    }
    match text.is_empty() {
        true => text,
        false => format!("<section>\n<h2>Over time</h2>\n{text}</section>\n"),
    }
}

fn number(value: &toml::Value) -> Option<f64> {
    value
        .as_float()
        .or(value.as_integer().map(|number| number as f64))
}

/// The figures, or where nothing is varied over numbers, a table.
pub fn figures(results: &Results, points: &[Point]) -> String {
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
    let mut text = String::from(
        "<section>\n<h2>Each variant over what was varied</h2>\n<p>Means over the seeds; the vertical lines are \
         95 % confidence intervals of the mean.</p>\n",
    );
    // The other axes: a figure for each combination of their values.
    let mut rests: Vec<Vec<String>> = Vec::new();
    for point in points {
        let rest = others(point, axis);
        if !rests.contains(&rest) {
            rests.push(rest);
        }
    }
    let colors = colors(results, std::iter::empty());
    for (metric, words) in FIGURES {
        let mut names: Vec<String> = Vec::new();
        let all = results.variants.values().flat_map(|metrics| metrics.keys());
        for full in all {
            // `metric/GROUP/…` where there are several groups.
            for point in points.iter().take(points.len()) {
                let tail = point.tail();
                let stem = full
                    .strip_suffix(tail.as_str())
                    .map(|stem| stem.trim_end_matches('/'));
                if let Some(stem) = stem.filter(|stem| {
                    *stem == metric
                        || stem
                            .strip_prefix(metric)
                            .is_some_and(|rest| rest.starts_with('/'))
                }) {
                    if !names.iter().any(|known| known == stem) {
                        names.push(stem.to_owned());
                    }
                    break;
                }
            }
        }
        for stem in &names {
            for rest in &rests {
                let Some(figure) = figure(results, points, axis, rest, stem, &colors) else {
                    continue;
                };
                let of = [
                    stem.split_once('/').map(|(_, group)| group),
                    (!rest.is_empty()).then_some(""),
                ];
                let mut title = name(metric);
                if let Some(group) = of[0] {
                    title = format!("{title}, {group}");
                }
                if !rest.is_empty() {
                    title = format!("{title}, {}", rest.join(", "));
                }
                text.push_str(&format!(
                    "<h3>{}</h3>\n<figure>\n{figure}<figcaption>{}</figcaption>\n</figure>\n",
                    escape(&title),
                    escape(words)
                ));
            }
        }
    }
    text.push_str("</section>\n");
    text
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
) -> Option<String> {
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

fn draw(curves: &[Curve], bound: &[(f64, f64)], metric: &str, axis: &str) -> String {
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
            "",
            &text,
        );
    }
    for &tick in &y_ticks {
        let at = y(tick / scale.factor);
        canvas.line((LEFT, at), (WIDTH - RIGHT, at), GRID, 1.0, "");
        let text = tick_label(tick, &y_ticks);
        canvas.text((LEFT - 7.0, at + 4.0), Anchor::End, FAINT, 11.0, "", &text);
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
            "",
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
    canvas.text((middle, HEIGHT - 10.0), Anchor::Middle, INK, 12.0, "", axis);
    let unit = match scale.unit {
        "" => name(metric),
        unit => format!("{}, {unit}", name(metric)),
    };
    let centre = (TOP + HEIGHT - BOTTOM) / 2.0;
    let turned = format!("transform=\"rotate(-90 14 {centre})\"");
    canvas.text((14.0, centre), Anchor::Middle, INK, 12.0, &turned, &unit);
    canvas.finish(
        HEIGHT,
        &format!("{} over {axis}, per variant", name(metric)),
    )
}

/// Every metric of every variant.
fn table(results: &Results) -> String {
    let mut metrics: Vec<&String> = Vec::new();
    for of in results.variants.values() {
        for metric in of.keys() {
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
    }
    let mut text = String::from(
        "<section>\n<h2>The numbers</h2>\n<p>Means over the seeds, with 95 % confidence intervals.</p>\n\
         <div class=\"wide\"><table>\n<thead><tr><th></th>",
    );
    for variant in results.variants.keys() {
        text.push_str(&format!("<th class=\"number\">{}</th>", escape(variant)));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for metric in metrics {
        text.push_str(&format!("<tr><th>{}</th>", escape(metric)));
        for of in results.variants.values() {
            let cell = of
                .get(metric)
                .and_then(|found| Mean::of(&found.runs))
                .map(|mean| {
                    let scale = Scale::fit(metric, [mean.mean]);
                    let width = match mean.count {
                        1 => String::new(),
                        _ => format!("<small>\u{b1} {}</small>", scale.number(mean.half_width)),
                    };
                    format!("{}{width}", scale.with_unit(mean.mean))
                });
            let cell = cell.unwrap_or_default();
            text.push_str(&format!("<td class=\"number\">{cell}</td>"));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table></div>\n</section>\n");
    text
}
