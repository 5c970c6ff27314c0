// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every metric of every variant: against its bound as a chart, and as a table.

use indexmap::IndexMap;
use maud::{html, Markup};

use crate::quantity::{family, headline, name, ratio, tail, Scale};
use crate::results::Results;
use crate::table::{best, failures, metrics, to_bound};

use super::chart;

/// One colour per variant.
type Colors = IndexMap<String, &'static str>;

/// The metrics, grouped by family.
fn families(results: &Results) -> Vec<Vec<&str>> {
    let all = metrics(results);
    all.chunk_by(|a, b| family(a) == family(b))
        .map(<[&str]>::to_vec)
        .collect()
}

/// A chart for each family of metrics; nothing if there is no metric.
pub fn charts(results: &Results, colors: &Colors) -> Markup {
    let families = families(results);
    html! {
        @if !families.is_empty() {
            section {
                h2 { "Each variant against the bound" }
                p {
                    "The dot is the median, the line goes from the least run to the greatest; \
                     \u{d7} is the median over the bound."
                }
                @for family in &families {
                    h3 { (headline(family[0])) }
                    figure { (chart::chart(results, family, colors)) }
                }
            }
        }
    }
}

/// A table for each family of metrics; nothing if there is no metric.
pub fn tables(results: &Results, colors: &Colors) -> Markup {
    let families = families(results);
    html! {
        @if !families.is_empty() {
            section {
                h2 { "The numbers" }
                p {
                    "Median, then least and greatest run. Underlined: the best of the variants. \
                     Red: a claim about it fails."
                }
                @for family in &families {
                    h3 { (headline(family[0])) }
                    (Table::new(results, family, colors).markup())
                }
            }
        }
    }
}

/// One family. A row or column of `None` is that of the bound.
struct Table<'r> {
    results: &'r Results,
    metrics: &'r [&'r str],
    colors: &'r Colors,
    variants: Vec<Option<&'r str>>,
    /// Of each metric.
    scales: Vec<Scale>,
    /// Variants and metrics of claims that fail.
    failures: Vec<(String, String)>,
}

impl<'r> Table<'r> {
    fn new(results: &'r Results, metrics: &'r [&'r str], colors: &'r Colors) -> Self {
        let has_bound = metrics.iter().any(|m| results.bounds.contains_key(*m));
        let of_family = results
            .variants
            .iter()
            .filter(|(_, of)| metrics.iter().any(|metric| of.contains_key(*metric)))
            .map(|(variant, _)| Some(variant.as_str()));
        let scale = |metric: &&str| {
            let medians = results
                .variants
                .values()
                .filter_map(|of| Some(of.get(*metric)?.median));
            Scale::fit(metric, medians.chain(results.bounds.get(*metric).copied()))
        };
        Table {
            results,
            metrics,
            colors,
            variants: has_bound
                .then_some(None)
                .into_iter()
                .chain(of_family)
                .collect(),
            scales: metrics.iter().map(scale).collect(),
            failures: failures(results),
        }
    }

    /// Variants down and tails across, or the reverse if there are more tails than
    /// variants.
    fn markup(&self) -> Markup {
        let metrics = 0..self.metrics.len();
        html! {
            div.wide { table {
                @if self.metrics.len() <= self.variants.len() {
                    thead { tr {
                        th {}
                        @for index in metrics.clone() { th.number { (self.metric_head(index)) } }
                    } }
                    tbody { @for &variant in &self.variants {
                        tr {
                            th { (self.variant_head(variant)) }
                            @for index in metrics.clone() { (self.cell(variant, index)) }
                        }
                    } }
                } @else {
                    thead { tr {
                        th {}
                        @for &variant in &self.variants {
                            th.number { (self.variant_head(variant)) }
                        }
                    } }
                    tbody { @for index in metrics {
                        tr {
                            th { (self.metric_head(index)) }
                            @for &variant in &self.variants { (self.cell(variant, index)) }
                        }
                    } }
                }
            } }
        }
    }

    fn variant_head(&self, variant: Option<&str>) -> Markup {
        html! {
            @match variant {
                None => "bound",
                Some(variant) => {
                    span.swatch style={ "background:" (self.colors[variant]) } {}
                    (variant)
                }
            }
        }
    }

    fn metric_head(&self, index: usize) -> Markup {
        let metric = self.metrics[index];
        html! {
            @if tail(metric).is_empty() { (name(metric)) } @else { (tail(metric)) }
            @if !self.scales[index].unit.is_empty() { ", " (self.scales[index].unit) }
        }
    }

    fn cell(&self, variant: Option<&str>, index: usize) -> Markup {
        let (results, metric, scale) = (self.results, self.metrics[index], self.scales[index]);
        let Some(variant) = variant else {
            let bound = results.bounds.get(metric);
            return html! {
                td.number { @if let Some(bound) = bound { (scale.number(*bound)) } }
            };
        };
        let Some(found) = results.variants[variant].get(metric) else {
            return html! { td.number {} };
        };
        let is_best = variant != "ideal" && best(results, metric) == Some(found.median);
        let fails = self
            .failures
            .iter()
            .any(|(v, m)| v == variant && m == metric);
        html! {
            td.number.best[is_best].failed[fails] {
                strong { (scale.number(found.median)) }
                @if let Some(over) = to_bound(results, metric, found.median) {
                    " \u{b7} " (ratio(over)) "\u{d7}"
                }
                small { (scale.number(found.min)) "\u{2013}" (scale.number(found.max)) }
            }
        }
    }
}
