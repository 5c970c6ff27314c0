// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A paper's values, beside those found here.

use indexmap::IndexMap;
use maud::{html, Markup};

use crate::paper::{Paper, Printed};
use crate::quantity::{alone, capital, family, name, ratio, tail, Scale};
use crate::results::Results;
use crate::series::Report;

use super::svg::{tick_label, ticks, Anchor, Canvas, Style, FAINT, GRID, INK};
use super::{against, traffic};

/// The variant that stands for the physical limit.
const BOUND: &str = "bound";

/// The section; nothing if the results name no paper.
pub fn section(report: &Report, colors: &IndexMap<String, &'static str>) -> Markup {
    let results = &report.results;
    html! {
        @if !results.paper.is_empty() {
            section {
                h2 { "The paper, and here" }
                @for paper in &results.paper {
                    h3 { (paper.source) }
                    p { (paper.says) }
                    @if let Some(reference) = &paper.relative_to {
                        @if let Some(chart) = bars(results, paper, reference, colors) {
                            figure { (chart) }
                        }
                        (ratios(results, paper, reference))
                    } @else {
                        (values(results, paper))
                    }
                    @if let Some(of) = &paper.against {
                        @if let Some(chart) = against::chart(results, of) {
                            figure { (chart) }
                        }
                    }
                    @if let Some(of) = &paper.traffic {
                        (traffic::figures(report, of, |part| paper.is_about(part)))
                    }
                    p.faint { "What differs: " (paper.differs) }
                }
            }
        }
    }
}

/// Metrics of which the paper has a value, in its order.
fn metrics(paper: &Paper) -> Vec<&str> {
    let mut metrics: Vec<&str> = Vec::new();
    for metric in paper.values.values().flat_map(|values| values.keys()) {
        if !metrics.contains(&metric.as_str()) {
            metrics.push(metric);
        }
    }
    metrics
}

/// The value found here.
fn found(results: &Results, variant: &str, metric: &str) -> Option<f64> {
    if variant == BOUND {
        return results.bounds.get(metric).copied();
    }
    Some(results.variants.get(variant)?.get(metric)?.median)
}

/// The paper's value of `variant` over that of `reference`.
fn printed_ratio(paper: &Paper, variant: &str, reference: &str, metric: &str) -> Option<f64> {
    let of = |variant: &str| Some(paper.values.get(variant)?.get(metric)?.number());
    finite(of(variant)? / of(reference)?)
}

fn found_ratio(results: &Results, variant: &str, reference: &str, metric: &str) -> Option<f64> {
    finite(found(results, variant, metric)? / found(results, reference, metric)?)
}

fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

/// The paper's variants, the reference apart.
fn compared<'p>(paper: &'p Paper, reference: &'p str) -> impl Iterator<Item = &'p str> {
    let variants = paper.values.keys().map(String::as_str);
    variants.filter(move |variant| *variant != reference)
}

/// One bar of a group.
struct Bar<'a> {
    variant: &'a str,
    /// Whose value it is.
    of_paper: bool,
    value: Option<f64>,
}

/// A group of bars for each metric: for each variant the paper's and ours.
fn bars(
    results: &Results,
    paper: &Paper,
    reference: &str,
    colors: &IndexMap<String, &'static str>,
) -> Option<Markup> {
    const WIDTH: f64 = 960.0;
    const LEFT: f64 = 46.0;
    const TOP: f64 = 58.0;
    const HEIGHT: f64 = 230.0;
    const BETWEEN_GROUPS: f64 = 22.0;
    const CHARACTER: f64 = 6.8;
    let group = |metric: &str| -> Vec<Bar<'_>> {
        let both = compared(paper, reference).flat_map(|variant| {
            let printed = printed_ratio(paper, variant, reference, metric);
            let here = found_ratio(results, variant, reference, metric);
            [(variant, true, printed), (variant, false, here)]
        });
        let also = paper.also.iter().map(|variant| {
            let here = found_ratio(results, variant, reference, metric);
            (variant.as_str(), false, here)
        });
        both.chain(also)
            .map(|(variant, of_paper, value)| Bar {
                variant,
                of_paper,
                value,
            })
            .collect()
    };
    let metrics = metrics(paper);
    let groups: Vec<(&str, Vec<Bar>)> = metrics
        .iter()
        .map(|metric| (*metric, group(metric)))
        .collect();
    let in_group = groups.first().map_or(0, |(_, bars)| bars.len());
    let greatest = groups
        .iter()
        .flat_map(|(_, bars)| bars.iter().filter_map(|bar| bar.value))
        .fold(1.0, f64::max);
    if in_group == 0 {
        return None;
    }
    let y_end = greatest * 1.06;
    let slot = (WIDTH - LEFT) / groups.len() as f64;
    let width = ((slot - BETWEEN_GROUPS) / in_group as f64).clamp(1.0, 26.0);
    let floor = TOP + HEIGHT;
    let y = |value: f64| floor - (value / y_end).clamp(0.0, 1.0) * HEIGHT;
    let color = |variant: &str| colors.get(variant).copied().unwrap_or(FAINT);
    let mut canvas = Canvas::new(WIDTH);
    let y_ticks = ticks(y_end, 5);
    for &tick in &y_ticks {
        canvas.line((LEFT, y(tick)), (WIDTH, y(tick)), GRID, 1.0, "");
        canvas.text(
            (LEFT - 8.0, y(tick) + 4.0),
            Anchor::End,
            FAINT,
            11.0,
            Style::Plain,
            &tick_label(tick, &y_ticks),
        );
    }
    for (index, (metric, bars)) in groups.iter().enumerate() {
        let middle = LEFT + slot * (index as f64 + 0.5);
        let start = middle - width * in_group as f64 / 2.0;
        for (place, bar) in bars.iter().enumerate() {
            let Some(value) = bar.value else { continue };
            let whose = if bar.of_paper { "the paper" } else { "here" };
            let title = format!(
                "{}, {}, {whose}: {} of {reference}",
                bar.variant,
                tail(metric),
                ratio(value)
            );
            canvas.bar(
                (start + width * place as f64 + 0.5, y(value)),
                (width - 1.5, floor - y(value)),
                color(bar.variant),
                !bar.of_paper,
                &title,
            );
        }
        let label = match tail(metric) {
            "" => name(metric),
            tail => tail.to_owned(),
        };
        canvas.text(
            (middle, floor + 17.0),
            Anchor::Middle,
            INK,
            12.0,
            Style::Weight(650),
            &label,
        );
    }
    canvas.line((LEFT, y(1.0)), (WIDTH, y(1.0)), INK, 1.2, "5 3");
    canvas.line((LEFT, floor), (WIDTH, floor), FAINT, 1.0, "");
    let heading = format!(
        "{} over that of {reference}: outlined the paper\u{2019}s, filled ours",
        capital(&name(metrics[0]))
    );
    canvas.text(
        (0.0, 14.0),
        Anchor::Start,
        INK,
        12.0,
        Style::Plain,
        &heading,
    );
    let mut at = LEFT;
    let legend = compared(paper, reference).map(|variant| (variant, true));
    for (variant, printed) in legend.chain(paper.also.iter().map(|v| (v.as_str(), false))) {
        if printed {
            canvas.bar((at, 28.0), (11.0, 11.0), color(variant), false, variant);
            at += 14.0;
        }
        canvas.bar((at, 28.0), (11.0, 11.0), color(variant), true, variant);
        let label = match printed {
            true => variant.to_owned(),
            false => format!("{variant} (ours alone)"),
        };
        canvas.text(
            (at + 17.0, 38.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Plain,
            &label,
        );
        at += 17.0 + CHARACTER * label.chars().count() as f64 + 22.0;
    }
    let title = format!("{} of the paper and of this run", name(metrics[0]));
    Some(canvas.finish(floor + 26.0, &title))
}

/// Absolute values, and those over the reference's, of the paper and of this run.
fn ratios(results: &Results, paper: &Paper, reference: &str) -> Markup {
    let variants: Vec<&str> = std::iter::once(reference)
        .chain(compared(paper, reference))
        .collect();
    let head = |variant: &str, whose: &str| {
        html! { th.number { (variant) small { (whose) } } }
    };
    html! {
        div.wide { table {
            thead { tr {
                th {}
                @for variant in &variants {
                    (head(variant, "the paper"))
                    (head(variant, "here"))
                }
                @for variant in &paper.also { (head(variant, "here")) }
            } }
            tbody { @for metric in metrics(paper) {
                tr {
                    th {
                        @if tail(metric).is_empty() { (name(metric)) } @else { (tail(metric)) }
                    }
                    @for &variant in &variants {
                        (both(results, paper, reference, (variant, metric)))
                    }
                    @for variant in &paper.also {
                        (ratio_cell(
                            metric,
                            found(results, variant, metric),
                            found_ratio(results, variant, reference, metric),
                        ))
                    }
                }
            } }
        } }
    }
}

/// The paper's cell of a variant and metric, and ours.
fn both(
    results: &Results,
    paper: &Paper,
    reference: &str,
    (variant, metric): (&str, &str),
) -> Markup {
    let printed = paper.values.get(variant).and_then(|of| of.get(metric));
    // The reference over itself says nothing.
    let over = |ratio: Option<f64>| ratio.filter(|_| variant != reference);
    html! {
        (ratio_cell(
            metric,
            printed.map(|printed| printed.number()),
            over(printed_ratio(paper, variant, reference, metric)),
        ))
        (ratio_cell(
            metric,
            found(results, variant, metric),
            over(found_ratio(results, variant, reference, metric)),
        ))
    }
}

fn ratio_cell(metric: &str, value: Option<f64>, over: Option<f64>) -> Markup {
    html! {
        td.number {
            @if let Some(value) = value { (Scale::fit(metric, [value]).with_unit(value)) }
            @if let Some(over) = over { small { (ratio(over)) "\u{d7}" } }
        }
    }
}

/// A row per value; nothing if the paper has none.
fn values(results: &Results, paper: &Paper) -> Markup {
    let mut rows: Vec<(&str, &str, Option<Printed>)> = Vec::new();
    for metric in metrics(paper) {
        let printed = paper
            .values
            .iter()
            .filter_map(|(variant, of)| Some((metric, variant.as_str(), Some(*of.get(metric)?))));
        let also = paper.also.iter();
        rows.extend(printed.chain(also.map(|variant| (metric, variant.as_str(), None))));
    }
    let rate = paper.link_rate_bps.map(|_| results.link.rate_bps.asked);
    html! {
        @if !rows.is_empty() {
            div.wide { table {
                thead { tr {
                    th {} th { "variant" } th.number { "the paper" } th.number { "here" }
                } }
                tbody { @for (metric, variant, printed) in rows {
                    tr {
                        th { (capital(&format!("{} {}", name(metric), tail(metric)))) }
                        td { (variant) }
                        td.number { (shown(metric, printed, paper.link_rate_bps)) }
                        td.number {
                            (shown(
                                metric,
                                found(results, variant, metric).map(Printed::Exactly),
                                rate,
                            ))
                        }
                    }
                } }
            } }
        }
    }
}

/// A value with its unit, and a rate as a share of the link's too.
fn shown(metric: &str, value: Option<Printed>, link_bps: Option<f64>) -> Markup {
    let Some(value) = value else {
        return html! { "\u{2013}" };
    };
    let share = link_bps
        .filter(|_| family(metric).ends_with("_bps"))
        .and_then(|link| finite(value.number() / link));
    html! {
        (value.text(|number| alone(metric, number)))
        @if let Some(share) = share {
            small { (format!("{:.1} % of the link", share * 100.0)) }
        }
    }
}
