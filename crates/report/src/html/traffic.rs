// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic at the bottleneck, standard TCP above and modified TCP below, in seconds and
//! Mbit/s: the manner of appendix A of matsuda-2005. Other things over time likewise.

use maud::{html, Markup};

use crate::paper::Traffic;
use crate::series::{Report, Series};

use super::svg::{colors, positive, tick_label, ticks, Anchor, Canvas, Style, FAINT, GRID, INK};
use super::{figure, panels};

const WIDTH: f64 = 470.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 22.0;
const PANEL: f64 = 84.0;
const BETWEEN: f64 = 24.0;
const BOTTOM: f64 = 40.0;
/// A part whose peak is below this share of the link has a scale of its own, as LU has
/// in the paper.
const LITTLE: f64 = 0.12;

/// All `wanted` parts of which there is traffic, as a grid of figures.
pub fn figures(report: &Report, traffic: &Traffic, wanted: impl Fn(&str) -> bool) -> Markup {
    let parts = panels::parts(report).into_iter();
    let drawn: Vec<(&str, Markup)> = parts
        .filter(|part| wanted(part))
        .filter_map(|part| Some((part, figure(report, traffic, part)?)))
        .collect();
    html! {
        @if !drawn.is_empty() {
            div.pairs {
                @for (part, svg) in &drawn {
                    figure {
                        figcaption { strong { (part) } }
                        (svg)
                    }
                }
            }
        }
    }
}

/// The panels of one part; `None` if there is no traffic of it.
pub fn figure(report: &Report, traffic: &Traffic, part: &str) -> Option<Markup> {
    let all = panels::panels(report, part);
    let of = |variant: &str| all.iter().find(|lines| lines[0].variant == variant);
    let panels: Vec<Vec<&Series>> = traffic.variants().filter_map(of).cloned().collect();
    let first = *panels.first()?.first()?;
    let colors = colors(
        &report.results,
        report.series.iter().map(|series| series.variant.clone()),
    );
    // The paper's axis is in seconds.
    let in_seconds = match first.x_label.contains("(ms)") {
        true => 1e-3,
        false => 1.0,
    };
    let mut x_label = first.x_label.replace("(ms)", "(s)");
    if figure::averaged(&panels) > 1 {
        let samples = figure::averaged(&panels);
        x_label.push_str(&format!(", means of {samples} samples"));
    }
    let ends = panels.iter().map(|lines| panels::end(lines));
    let x_end = positive(ends.fold(0.0, f64::max) * 1.02);
    let peak = panels::peak(&panels);
    let rate = (report.results.link.rate_bps.asked / 1e6).clamp(0.0, f64::MAX);
    let own_scale = peak < LITTLE * rate || !first.y_label.contains("Mbit/s");
    let y_end = positive(if own_scale { peak } else { peak.max(rate) } * 1.06);
    let x = |value: f64| LEFT + (value / x_end).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let x_ticks = ticks(x_end * in_seconds, 6);
    let y_ticks = ticks(y_end, 3);
    let mut canvas = Canvas::new(WIDTH);
    for (index, lines) in panels.iter().enumerate() {
        let series = lines[0];
        let top = TOP + index as f64 * (PANEL + BETWEEN);
        let y = |value: f64| top + PANEL - (value / y_end).clamp(0.0, 1.0) * PANEL;
        for &tick in &x_ticks {
            let at = x(tick / in_seconds);
            canvas.line((at, top), (at, top + PANEL), GRID, 1.0, "");
        }
        for &tick in &y_ticks {
            canvas.line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), GRID, 1.0, "");
            canvas.text(
                (LEFT - 6.0, y(tick) + 4.0),
                Anchor::End,
                FAINT,
                10.5,
                Style::Plain,
                &tick_label(tick, &y_ticks),
            );
        }
        if !own_scale {
            canvas.line((LEFT, y(rate)), (WIDTH - RIGHT, y(rate)), FAINT, 1.0, "2 3");
        }
        let color = colors[&series.variant];
        figure::draw(&mut canvas, lines, color, x_end, &x, &y);
        canvas.line(
            (LEFT, top + PANEL),
            (WIDTH - RIGHT, top + PANEL),
            FAINT,
            1.0,
            "",
        );
        canvas.circle((LEFT + 5.0, top - 8.5), 4.5, color, &series.variant);
        canvas.text(
            (LEFT + 14.0, top - 5.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Weight(650),
            &series.variant,
        );
        if lines.len() > 1 {
            let name_end = LEFT + 14.0 + 8.0 * series.variant.chars().count() as f64 + 12.0;
            figure::legend(&mut canvas, lines, color, (name_end, top - 5.0));
        }
    }
    let panels_end = TOP + panels.len() as f64 * (PANEL + BETWEEN) - BETWEEN;
    for &tick in &x_ticks {
        canvas.text(
            (x(tick / in_seconds), panels_end + 14.0),
            Anchor::Middle,
            FAINT,
            10.5,
            Style::Plain,
            &tick_label(tick, &x_ticks),
        );
    }
    canvas.text(
        (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, panels_end + 31.0),
        Anchor::Middle,
        INK,
        11.0,
        Style::Plain,
        &x_label,
    );
    let centre = (TOP + panels_end) / 2.0;
    canvas.text(
        (11.0, centre),
        Anchor::Middle,
        INK,
        11.0,
        Style::Turned,
        &first.y_label,
    );
    let title = format!("{} of {part} over time", first.y_label);
    Some(canvas.finish(panels_end + BOTTOM, &title))
}
