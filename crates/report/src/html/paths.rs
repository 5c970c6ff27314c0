// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links drawn at random: a table of the variants, and for each a map of where it is behind.

use maud::{html, Markup};

use crate::paths::{share, spots, summaries, three_decimals, Spot};
use crate::quantity::ratio;
use crate::results::Results;

use super::svg::{Anchor, Canvas, Style, FAINT, GRID, INK};

/// Panels in a row.
const ACROSS: usize = 2;
const PANEL: (f64, f64) = (480.0, 330.0);
const LEFT: f64 = 54.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
/// Above the panels, the colours.
const KEY: f64 = 30.0;

/// How far behind the best variant, and the colour: of the palette of Okabe and Ito, and grey
/// between its green and its orange.
const STEPS: [(f64, &str, &str); 4] = [
    (1.01, "#009e73", "within 1 % of the best"),
    (1.05, "#8a97a6", "within 5 %"),
    (1.20, "#e69f00", "within 20 %"),
    (f64::INFINITY, "#d55e00", "further behind"),
];

/// Table and map; nothing without paths.
pub fn section(results: &Results) -> Markup {
    let summaries = summaries(results);
    html! {
        @if !summaries.is_empty() {
            section {
                h2 { (results.paths.len()) " paths drawn at random" }
                p {
                    "The geometric mean of all times over their bounds, the worst of them, and the \
                     share of bursts' medians with more than 0.5 % of the segments retransmitted."
                }
                div.wide { table {
                    thead { tr {
                        th {} th.number { "mean" } th.number { "worst" } th { "of" }
                        th.number { "above 0.5 % retransmitted" }
                    } }
                    tbody {
                        @for one in &summaries { tr {
                            th { (one.variant) }
                            td.number { (three_decimals(one.mean)) }
                            td.number { (ratio(one.worst.0)) }
                            td { (one.worst.1) }
                            td.number { (one.much_retransmitted.map(share).unwrap_or_default()) }
                        } }
                    }
                } }
                p {
                    "Where each is behind the best: a dot is a path, the number its mean over the \
                     bound."
                }
                figure { (map(results)) }
            }
        }
    }
}

/// Both axes are logarithmic: from a tenth below the least to a tenth above the greatest.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).ln();
        let most = values.fold(f64::NEG_INFINITY, f64::max).ln();
        let margin = (most - least).max(0.1) / 10.0;
        Axis {
            least: least - margin,
            most: most + margin,
        }
    }

    /// 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.ln() - self.least) / (self.most - self.least)
    }

    /// 1, 2 and 5 times the powers of ten in it; with many powers those alone.
    fn ticks(&self) -> Vec<f64> {
        let powers = (self.least / std::f64::consts::LN_10).floor() as i32
            ..=(self.most / std::f64::consts::LN_10).ceil() as i32;
        let digits: &[f64] = match powers.clone().count() {
            0..=4 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let all = powers.flat_map(|power| digits.iter().map(move |d| d * 10f64.powi(power)));
        all.filter(|&tick| (0.0..=1.0).contains(&self.place(tick)))
            .collect()
    }
}

fn map(results: &Results) -> Markup {
    let all: Vec<(&String, Vec<Spot>)> = results
        .variants
        .keys()
        .map(|variant| (variant, spots(results, variant)))
        .filter(|(_, spots)| !spots.is_empty())
        .collect();
    let each = || all.iter().flat_map(|(_, spots)| spots);
    let (x, y) = (
        Axis::of(each().map(|spot| spot.bdp_bytes)),
        Axis::of(each().map(|spot| spot.queue)),
    );
    let mut canvas = Canvas::new(PANEL.0 * ACROSS as f64);
    key(&mut canvas);
    for (number, (variant, spots)) in all.iter().enumerate() {
        let corner = (
            PANEL.0 * (number % ACROSS) as f64,
            KEY + PANEL.1 * (number / ACROSS) as f64,
        );
        panel(&mut canvas, corner, variant, spots, (&x, &y));
    }
    let rows = all.len().div_ceil(ACROSS);
    canvas.finish(
        KEY + PANEL.1 * rows as f64,
        "Each path by its bandwidth-delay product and its queue, and how far behind each variant is",
    )
}

/// A power of ten, or two or five times one, in the units of rates: 1000 bytes are 1 KB.
fn bytes(count: f64) -> String {
    let units = [(1e6, "MB"), (1e3, "KB")];
    let unit = units.iter().find(|(size, _)| count >= *size);
    unit.map_or_else(
        || format!("{count} B"),
        |(size, unit)| format!("{} {unit}", count / size),
    )
}

fn key(canvas: &mut Canvas) {
    let mut at = LEFT;
    for (_, color, label) in STEPS {
        canvas.circle((at, 14.0), 6.0, color, label);
        canvas.text(
            (at + 12.0, 18.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Plain,
            label,
        );
        at += 12.0 + 6.8 * label.chars().count() as f64 + 24.0;
    }
}

fn panel(
    canvas: &mut Canvas,
    corner: (f64, f64),
    variant: &str,
    spots: &[Spot],
    (x, y): (&Axis, &Axis),
) {
    let (left, top) = (corner.0 + LEFT, corner.1 + TOP);
    let (width, height) = (PANEL.0 - LEFT - RIGHT, PANEL.1 - TOP - BOTTOM);
    let floor = top + height;
    let across = |value: f64| left + x.place(value) * width;
    let up = |value: f64| floor - y.place(value) * height;
    let title = (left, corner.1 + 18.0);
    canvas.text(title, Anchor::Start, INK, 13.0, Style::Weight(600), variant);
    for tick in x.ticks() {
        let at = across(tick);
        canvas.line((at, top), (at, floor), GRID, 1.0, "");
        let label = bytes(tick);
        canvas.text(
            (at, floor + 16.0),
            Anchor::Middle,
            FAINT,
            11.0,
            Style::Plain,
            &label,
        );
    }
    for tick in y.ticks() {
        let at = up(tick);
        canvas.line((left, at), (left + width, at), GRID, 1.0, "");
        let label = format!("{tick}");
        canvas.text(
            (left - 7.0, at + 4.0),
            Anchor::End,
            FAINT,
            11.0,
            Style::Plain,
            &label,
        );
    }
    for spot in spots {
        let step = STEPS.iter().find(|(most, ..)| spot.over_best <= *most);
        let color = step.map_or(INK, |(_, color, _)| color);
        let at = (across(spot.bdp_bytes), up(spot.queue));
        let shown = ratio(spot.over_bound);
        let title = format!(
            "{}: {shown} of the bound, {} of the best",
            spot.path,
            ratio(spot.over_best)
        );
        canvas.circle(at, 6.0, color, &title);
        let beside = (at.0 + 9.0, at.1 + 4.0);
        canvas.text(beside, Anchor::Start, INK, 11.0, Style::Tabular, &shown);
    }
    let below = (left + width / 2.0, floor + 34.0);
    let words = "bandwidth-delay product";
    canvas.text(below, Anchor::Middle, INK, 12.0, Style::Plain, words);
    let beside = (corner.0 + 13.0, top + height / 2.0);
    canvas.text(
        beside,
        Anchor::Middle,
        INK,
        12.0,
        Style::Turned,
        "queue (BDP)",
    );
}
