// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each metric against its bound: a dot for the median on a line from the least
//! run to the greatest.

use indexmap::IndexMap;
use maud::Markup;

use crate::quantity::{alone, family, name, ratio, tail, Scale};
use crate::results::{Metric, Results};
use crate::table::to_bound;

use super::svg::{tick_label, ticks, Anchor, Canvas, Style, FAINT, GRID, INK};

const WIDTH: f64 = 960.0;
const ROW: f64 = 24.0;
/// Pixels per character of a 12 px label, on average over fonts.
const CHARACTER: f64 = 6.8;
/// Panels side by side.
const PANELS: usize = 3;
/// With more tails than this, one row per tail reads better than one panel.
const MOST_PANELS: usize = 9;

/// Draws `metrics`, which are of one family.
pub fn chart(
    results: &Results,
    metrics: &[&str],
    colors: &IndexMap<String, &'static str>,
) -> Markup {
    if metrics.len() > MOST_PANELS {
        overview(results, metrics, colors)
    } else {
        panels(results, metrics, colors)
    }
}

/// A panel per metric, a row per variant.
fn panels(results: &Results, metrics: &[&str], colors: &IndexMap<String, &'static str>) -> Markup {
    let variants: Vec<&String> = results
        .variants
        .iter()
        .filter(|(_, of)| metrics.iter().any(|metric| of.contains_key(*metric)))
        .map(|(variant, _)| variant)
        .collect();
    let longest = variants
        .iter()
        .map(|variant| variant.chars().count())
        .max()
        .unwrap_or(0);
    let left = 14.0 + CHARACTER * longest as f64;
    let in_row = metrics.len().min(PANELS);
    // One panel alone is as wide as two: a line of the whole page is hard to read.
    let slot = (WIDTH - left) / in_row.max(2) as f64;
    let block = 34.0 + ROW * variants.len() as f64 + 40.0;
    let mut canvas = Canvas::new(WIDTH);
    for (index, metric) in metrics.iter().enumerate() {
        let top = block * (index / PANELS) as f64;
        if index % PANELS == 0 {
            for (row, variant) in variants.iter().enumerate() {
                let at = (left - 12.0, top + 34.0 + ROW * (row as f64 + 0.5) + 4.0);
                canvas.text(at, Anchor::End, INK, 12.0, Style::Weight(600), variant);
            }
        }
        let start = left + slot * (index % PANELS) as f64;
        panel(
            &mut canvas,
            results,
            metric,
            &variants,
            colors,
            (start, top),
            slot,
        );
    }
    let height = block * metrics.len().div_ceil(PANELS) as f64;
    canvas.finish(
        height,
        &format!(
            "{} per variant, median and range, against the bound",
            name(metrics[0])
        ),
    )
}

fn panel(
    canvas: &mut Canvas,
    results: &Results,
    metric: &str,
    variants: &[&String],
    colors: &IndexMap<String, &'static str>,
    (start, top): (f64, f64),
    slot: f64,
) {
    let of = |variant: &str| {
        results
            .variants
            .get(variant)
            .and_then(|metrics| metrics.get(metric))
    };
    let bound = results.bounds.get(metric).copied();
    let medians = variants
        .iter()
        .filter_map(|variant| of(variant))
        .map(|found| found.median);
    let scale = Scale::fit(metric, medians.chain(bound));
    let labels: Vec<Option<String>> = variants
        .iter()
        .map(|variant| {
            let median = of(variant)?.median;
            let number = scale.number(median);
            Some(
                to_bound(results, metric, median).map_or(number.clone(), |over| {
                    format!("{number}  {}\u{d7}", ratio(over))
                }),
            )
        })
        .collect();
    let label_width = CHARACTER
        * labels
            .iter()
            .flatten()
            .map(|l| l.chars().count())
            .max()
            .unwrap_or(0) as f64;
    let plot = (slot - label_width - 32.0).max(40.0);
    let end = variants
        .iter()
        .filter_map(|v| of(v))
        .map(|m| m.max)
        .chain(bound)
        .fold(0.0, f64::max)
        * scale.factor;
    let end = if end > 0.0 { end * 1.04 } else { 1.0 };
    let x = |value: f64| start + (value * scale.factor / end).clamp(0.0, 1.0) * plot;
    let (first, last) = (top + 34.0, top + 34.0 + ROW * variants.len() as f64);

    let heading = tail(metric);
    canvas.text(
        (start, top + 16.0),
        Anchor::Start,
        INK,
        13.0,
        Style::Weight(650),
        heading,
    );
    let ticks = ticks(end, 4);
    for &tick in &ticks {
        let at = start + tick / end * plot;
        canvas.line((at, first), (at, last), GRID, 1.0, "");
        canvas.text(
            (at, last + 15.0),
            Anchor::Middle,
            FAINT,
            11.0,
            Style::Plain,
            &tick_label(tick, &ticks),
        );
    }
    let unit = if scale.unit.is_empty() {
        String::new()
    } else {
        scale.unit.to_owned()
    };
    canvas.text(
        (start + plot + 10.0, last + 15.0),
        Anchor::Start,
        FAINT,
        11.0,
        Style::Plain,
        &unit,
    );
    if let Some(bound) = bound {
        canvas.line((x(bound), first - 8.0), (x(bound), last), INK, 1.3, "4 3");
        let label = format!("bound {}", alone(metric, bound));
        let half = CHARACTER * label.chars().count() as f64 / 2.0;
        let tail_end = start + 8.5 * heading.chars().count() as f64 + 10.0;
        // Beside the heading and within the panel.
        let at = x(bound).max(tail_end + half).min(start + slot - half - 8.0);
        canvas.text(
            (at, top + 16.0),
            Anchor::Middle,
            FAINT,
            11.0,
            Style::Plain,
            &label,
        );
    }
    for (row, (variant, label)) in variants.iter().zip(labels).enumerate() {
        let y = first + ROW * (row as f64 + 0.5);
        let Some(found) = of(variant) else { continue };
        let color = colors[*variant];
        canvas.line((x(found.min), y), (x(found.max), y), color, 4.0, "");
        canvas.circle(
            (x(found.median), y),
            5.5,
            color,
            &described(metric, variant, found),
        );
        canvas.text(
            (start + plot + 10.0, y + 4.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Tabular,
            &label.unwrap_or_default(),
        );
    }
}

/// A row per metric, the dots of all variants in it, as ratios to the bound where
/// every metric has one, on a logarithmic axis where they differ much.
fn overview(
    results: &Results,
    metrics: &[&str],
    colors: &IndexMap<String, &'static str>,
) -> Markup {
    let ratios = metrics.iter().all(|metric| {
        results
            .bounds
            .get(*metric)
            .is_some_and(|bound| *bound > 0.0)
    });
    let value = |metric: &str, number: f64| {
        if ratios {
            number / results.bounds[metric]
        } else {
            number
        }
    };
    let medians = metrics.iter().flat_map(|metric| {
        results
            .variants
            .values()
            .filter_map(|of| Some(value(metric, of.get(*metric)?.median)))
    });
    let medians: Vec<f64> = medians.collect();
    let scale = if ratios {
        Scale::fit("", [])
    } else {
        Scale::fit(metrics[0], medians.iter().copied())
    };
    let greatest = medians.iter().copied().fold(0.0, f64::max) * scale.factor;
    let least = medians
        .iter()
        .map(|m| m * scale.factor)
        .filter(|m| *m > 0.0)
        .fold(f64::INFINITY, f64::min);
    let least = if ratios { least.min(1.0) } else { least };
    let logarithmic = medians.iter().all(|median| *median > 0.0) && greatest > 8.0 * least;

    let longest = metrics
        .iter()
        .map(|metric| tail(metric).chars().count())
        .max()
        .unwrap_or(0);
    let left = 24.0 + CHARACTER * longest as f64;
    let plot = WIDTH - left - 16.0;
    let (low, high) = if logarithmic {
        (least * 0.9, greatest * 1.1)
    } else {
        (0.0, greatest * 1.04)
    };
    let high = if high > low { high } else { low + 1.0 };
    let x = |number: f64| {
        let share = if logarithmic {
            (number / low).ln() / (high / low).ln()
        } else {
            (number - low) / (high - low)
        };
        left + share.clamp(0.0, 1.0) * plot
    };
    let row = 20.0;
    let (top, bottom) = (48.0, 48.0 + row * metrics.len() as f64);
    let mut canvas = Canvas::new(WIDTH);
    let mut at = left;
    for (variant, of) in &results.variants {
        if metrics.iter().any(|metric| of.contains_key(*metric)) {
            canvas.circle((at + 5.0, 14.0), 5.5, colors[variant], variant);
            canvas.text(
                (at + 15.0, 18.0),
                Anchor::Start,
                INK,
                12.0,
                Style::Plain,
                variant,
            );
            at += 15.0 + CHARACTER * variant.chars().count() as f64 + 22.0;
        }
    }
    let ticks: Vec<f64> = if logarithmic {
        (-9..10)
            .flat_map(|p| [1.0, 2.0, 5.0].map(|f| f * 10f64.powi(p)))
            .filter(|t| (low..=high).contains(t))
            .collect()
    } else {
        ticks(high, 8)
    };
    for &tick in &ticks {
        canvas.line((x(tick), top), (x(tick), bottom), GRID, 1.0, "");
        let label = if logarithmic {
            format!("{tick}")
        } else {
            tick_label(tick, &ticks)
        };
        canvas.text(
            (x(tick), bottom + 16.0),
            Anchor::Middle,
            FAINT,
            11.0,
            Style::Plain,
            &label,
        );
    }
    if ratios {
        canvas.line((x(1.0), top - 6.0), (x(1.0), bottom), INK, 1.3, "4 3");
        canvas.text(
            (x(1.0), top - 9.0),
            Anchor::Middle,
            FAINT,
            11.0,
            Style::Plain,
            "bound",
        );
    }
    for (index, metric) in metrics.iter().enumerate() {
        let y = top + row * (index as f64 + 0.5);
        canvas.text(
            (left - 10.0, y + 4.0),
            Anchor::End,
            INK,
            12.0,
            Style::Plain,
            tail(metric),
        );
        canvas.line((left, y), (left + plot, y), GRID, 1.0, "");
        for (variant, of) in &results.variants {
            if let Some(found) = of.get(*metric) {
                let number = value(metric, found.median) * scale.factor;
                canvas.circle(
                    (x(number), y),
                    5.0,
                    colors[variant],
                    &described(metric, variant, found),
                );
            }
        }
    }
    let axis = if ratios {
        format!("{}, median over bound", name(metrics[0]))
    } else {
        format!("{}, median, {}", name(metrics[0]), scale.unit)
    };
    canvas.text(
        (left + plot / 2.0, bottom + 36.0),
        Anchor::Middle,
        INK,
        12.0,
        Style::Plain,
        &axis,
    );
    canvas.finish(
        bottom + 46.0,
        &format!("{} of every case, per variant", family(metrics[0])),
    )
}

/// The tooltip of a dot.
fn described(metric: &str, variant: &str, found: &Metric) -> String {
    let scale = Scale::fit(metric, [found.min, found.median, found.max]);
    format!(
        "{variant}, {metric}: median {}, {} to {}, {} runs",
        scale.with_unit(found.median),
        scale.number(found.min),
        scale.with_unit(found.max),
        found.runs.len()
    )
}
