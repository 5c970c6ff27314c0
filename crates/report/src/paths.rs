// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results over links that were drawn at random: each variant in a few numbers, and its place
//! on each link.

use crate::quantity::{family, ratio, Scale};
use crate::results::{larger_is_better, Results};

/// The share of segments sent again above which a cell is counted.
pub(crate) const MUCH_RETRANSMITTED: f64 = 0.005;
/// The family of that share.
const RETRANSMITTED: &str = "retransmitted_share";

/// A variant over all paths.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary<'r> {
    /// Its name.
    pub variant: &'r str,
    /// Geometric mean of the values over their bounds, all metrics that have one.
    pub mean: f64,
    /// The greatest of these, and its metric.
    pub worst: (f64, &'r str),
    /// Of the cells, those with more than half a per cent retransmitted; `None` if not
    /// counted.
    pub much_retransmitted: Option<f64>,
}

/// A variant on one path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spot<'r> {
    pub path: &'r str,
    /// Bandwidth times round trip, bytes.
    pub bdp_bytes: f64,
    /// The queue over that product.
    pub queue: f64,
    /// Geometric mean over the bound.
    pub over_bound: f64,
    /// The same over the least of all variants.
    pub over_best: f64,
}

/// The variants, in their order; none without paths.
pub fn summaries<'r>(results: &'r Results) -> Vec<Summary<'r>> {
    if results.paths.is_empty() {
        return Vec::new();
    }
    let of = |variant: &'r String| {
        let ratios = over_bound(results, variant);
        let worst = ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let metrics = &results.variants[variant];
        let shares = metrics
            .iter()
            .filter(|(name, _)| family(name) == RETRANSMITTED);
        let shares: Vec<f64> = shares.map(|(_, metric)| metric.median).collect();
        let much = shares.iter().filter(|&&share| share > MUCH_RETRANSMITTED);
        Some(Summary {
            variant,
            mean: geometric_mean(ratios.iter().map(|(ratio, _)| *ratio)),
            worst,
            much_retransmitted: (!shares.is_empty())
                .then(|| much.count() as f64 / shares.len() as f64),
        })
    };
    results.variants.keys().filter_map(of).collect()
}

/// Each path for one variant.
pub(crate) fn spots<'r>(results: &'r Results, variant: &str) -> Vec<Spot<'r>> {
    let mean_on = |variant: &str, path: &str| {
        let ratios = over_bound(results, variant);
        let on = ratios.into_iter().filter(|(_, metric)| is_on(metric, path));
        let on: Vec<f64> = on.map(|(ratio, _)| ratio).collect();
        (!on.is_empty()).then(|| geometric_mean(on.into_iter()))
    };
    let spot = |(path, link): (&'r String, &crate::results::PathLink)| {
        let over_bound = mean_on(variant, path)?;
        let all = results.variants.keys();
        let best = all
            .filter_map(|variant| mean_on(variant, path))
            .reduce(f64::min)?;
        let bdp_bytes = link.rate_bps * link.rtt_s / 8.0;
        Some(Spot {
            path,
            bdp_bytes,
            queue: link.buffer_bytes as f64 / bdp_bytes,
            over_bound,
            over_best: over_bound / best,
        })
    };
    results.paths.iter().filter_map(spot).collect()
}

/// The table of the summaries; empty without paths. Ends in a line feed.
pub(crate) fn table(results: &Results) -> String {
    let summaries = summaries(results);
    let width = summaries
        .iter()
        .map(|one| one.variant.chars().count())
        .max();
    let Some(width) = width else {
        return String::new();
    };
    let mut text = format!(
        "{} drawn paths, over the bound\n{:width$}  mean   worst  >0.5 % retransmitted\n",
        results.paths.len(),
        ""
    );
    for one in summaries {
        let (variant, mean) = (one.variant, three_decimals(one.mean));
        let (worst, metric) = (ratio(one.worst.0), one.worst.1);
        let much = one.much_retransmitted.map(share).unwrap_or_default();
        text += &format!("{variant:width$}  {mean:>5}  {worst:>5}  {much:>8}  worst: {metric}\n");
    }
    text
}

/// A mean of ratios, in which a hundredth is much.
pub fn three_decimals(mean: f64) -> String {
    format!("{mean:.3}")
}

/// `12.50 %`
pub(crate) fn share(share: f64) -> String {
    Scale::fit(RETRANSMITTED, [share]).with_unit(share)
}

/// A variant's times over their bounds, each with its metric. A metric that is better when it
/// is larger counts by its inverse.
fn over_bound<'r>(results: &'r Results, variant: &str) -> Vec<(f64, &'r str)> {
    let metrics = results.variants.get(variant).into_iter().flatten();
    // Not the single bursts of a list, which are in its sizes.
    let each = metrics.filter(|(name, _)| !name.contains('#'));
    let over = each.filter_map(|(name, metric)| {
        let over = metric.median / results.bounds.get(name)?;
        let over = match larger_is_better(name) {
            true => over.recip(),
            false => over,
        };
        (over.is_finite() && over > 0.0).then_some((over, name.as_str()))
    });
    over.collect()
}

/// Whether a metric is of this path: its name's last part.
fn is_on(metric: &str, path: &str) -> bool {
    metric.rsplit('/').next() == Some(path)
}

fn geometric_mean(ratios: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = ratios.len() as f64;
    (ratios.map(f64::ln).sum::<f64>() / count).exp()
}
