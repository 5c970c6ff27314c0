// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How well a run distinguishes its variants.

use crate::interval;
use crate::results::Results;

/// The reference of all other variants, where it was run.
pub const BASELINE: &str = "cubic";

/// The variant that others are compared with: [`BASELINE`], or the first one.
#[must_use]
pub fn baseline(results: &Results) -> Option<&str> {
    let mut names = results.variants.keys();
    let named = names.clone().find(|name| *name == BASELINE);
    named.or_else(|| names.next()).map(String::as_str)
}

/// A ratio of two medians.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// The variant that is compared with the baseline.
    pub variant: String,
    /// The compared metric.
    pub metric: String,
    /// Half of the ratio's interval, relative to its middle; infinite if there are too
    /// few runs for one.
    pub half_width: f64,
}

/// Of all metrics that are [compared](Results::is_compared), and all variants but the baseline, the ratio to the
/// baseline that is known least; `None` if there is nothing to compare.
#[must_use]
pub fn least_sure(results: &Results) -> Option<Ratio> {
    let baseline = baseline(results)?;
    let reference = &results.variants[baseline];
    let others = results
        .variants
        .iter()
        .filter(|(name, _)| *name != baseline);
    let ratios = others.flat_map(|(name, metrics)| {
        let bounded = metrics
            .iter()
            .filter(|(metric, _)| results.is_compared(metric));
        bounded.filter_map(move |(metric, found)| {
            let interval = interval::of_ratio(&found.runs, &reference.get(metric)?.runs);
            Some(Ratio {
                variant: name.clone(),
                metric: metric.clone(),
                half_width: interval.map_or(f64::INFINITY, |[least, most]| {
                    (most - least) / (most + least)
                }),
            })
        })
    });
    ratios.max_by(|a, b| a.half_width.total_cmp(&b.half_width))
}
