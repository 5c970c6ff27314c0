// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of links that are cut, and of the gateways at their ends.

use paceline_experiment::plan::{Bulk, Topology};
use paceline_experiment::record::{ArrivalRecord, GatewayRecord, Record};
use paceline_report::Series;

use super::{pick, seconds, share, CollectError, Collector, Place};

/// Share of the bound that counts as the full rate, over half a second, and the half seconds in
/// a row that must have it.
const ENOUGH: f64 = 0.95;
const HALF_NS: u64 = 500_000_000;
const HALVES: usize = 4;
/// Of a point of the chart.
const SHOWN_NS: u64 = 100_000_000;

/// The recovery of a path after a cut, seconds since the cut's end.
#[derive(Debug, Clone, Copy, PartialEq)]
struct After {
    /// When the first byte was read: the end of its bin.
    first_s: f64,
    /// From when on the full rate was had.
    full_s: f64,
}

impl Collector {
    /// Metrics of the recovery after each cut, and of the gateways' traffic.
    pub(super) fn gateways<'r>(
        &mut self,
        place: &Place,
        index: usize,
        bulk: &Bulk,
        bound_bps: f64,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let arrivals = pick(records.clone(), |record| match record {
            Record::Arrivals(arrivals) if arrivals.workload == index => Some(arrivals),
            _ => None,
        });
        let topology = &place.plan.topology;
        for (from_ns, until_ns) in topology.outages() {
            let Some(until_ns) = until_ns.filter(|until| *until < bulk.duration_ns) else {
                continue;
            };
            let length = format!("{}s", seconds(until_ns - from_ns));
            let tails = [bulk.label.as_str(), length.as_str()];
            let each: Vec<After> = arrivals
                .iter()
                .map(|arrivals| after(arrivals, until_ns, bound_bps))
                .collect();
            if each.is_empty() {
                continue;
            }
            let rtt_s = seconds(2 * topology.one_way_delay_ns);
            let firsts = each.iter().map(|after| after.first_s).collect();
            let metric = place.metric("first_byte_s", &tails);
            // Data sent when the link is back takes one way.
            self.put(place, &metric, firsts, Some(rtt_s / 2.0))?;
            let fulls = each.iter().map(|after| after.full_s).collect();
            let metric = place.metric("full_rate_s", &tails);
            self.put(place, &metric, fulls, Some(rtt_s / 2.0))?;
        }
        if let Some(arrivals) = arrivals.first() {
            self.series.push(Series {
                experiment_part: place.metric(&bulk.label, &["arrivals"]),
                variant: place.plan.variant.clone(),
                line: String::new(),
                x_label: "time since the beginning (s)".to_owned(),
                y_label: "read by programs (Mbit/s)".to_owned(),
                points: shown(arrivals),
            });
        }
        let sent: Vec<&GatewayRecord> = pick(records, |record| match record {
            Record::Gateway(gateway) if gateway.workload == index => Some(gateway),
            _ => None,
        });
        if sent.is_empty() {
            return Ok(());
        }
        let tails = [bulk.label.as_str()];
        let spurious = share(sent.iter().map(|of| (of.spurious, of.sent)));
        self.put(
            place,
            &place.metric("wan_spurious_share", &tails),
            vec![spurious],
            None,
        )?;
        let lost = share(sent.iter().map(|of| (of.lost, of.sent)));
        self.put(
            place,
            &place.metric("wan_lost_share", &tails),
            vec![lost],
            None,
        )?;
        let peaks = sent.iter().map(|of| of.most_in_10ms_bytes as f64).collect();
        self.put(place, &place.metric("wan_10ms_bytes", &tails), peaks, None)
    }
}

/// Share of a link with hosts for gateways that data can have: lost data must be sent again.
pub(super) fn arriving_share(topology: &Topology) -> f64 {
    match topology.gateways {
        true => 1.0 - topology.impairments.loss.map_or(0.0, |loss| loss.mean()),
        false => 1.0,
    }
}

/// The recovery after the end of a cut; all of the remaining time where there was none.
fn after(arrivals: &ArrivalRecord, end_ns: u64, bound_bps: f64) -> After {
    let bin_ns = arrivals.bin_ns.max(1);
    let end = usize::try_from(end_ns.div_ceil(bin_ns)).unwrap_or(usize::MAX);
    let later = arrivals.bytes.get(end..).unwrap_or_default();
    let at = |bins: usize| seconds(bins as u64 * bin_ns);
    let first = later.iter().position(|bytes| *bytes > 0);
    let half = (HALF_NS / bin_ns).max(1) as usize;
    let enough = bound_bps / 8.0 * seconds(half as u64 * bin_ns) * ENOUGH;
    let held = |from: usize| {
        later[from..from + HALVES * half]
            .chunks(half)
            .all(|bins| bins.iter().sum::<u64>() as f64 >= enough)
    };
    let last = (later.len() + 1).saturating_sub(HALVES * half);
    let full = (first.unwrap_or(last)..last).find(|from| held(*from));
    After {
        first_s: at(first.map_or(later.len(), |bin| bin + 1)),
        full_s: at(full.unwrap_or(later.len())),
    }
}

/// Mbit/s over time.
fn shown(arrivals: &ArrivalRecord) -> Vec<(f64, f64)> {
    let bins = (SHOWN_NS / arrivals.bin_ns.max(1)).max(1) as usize;
    let chunks = arrivals.bytes.chunks(bins);
    let rate = |chunk: &[u64]| {
        let bits = chunk.iter().sum::<u64>() as f64 * 8.0;
        bits / seconds(chunk.len() as u64 * arrivals.bin_ns) / 1e6
    };
    (0_u32..)
        .zip(chunks)
        .map(|(number, chunk)| (f64::from(number) * seconds(SHOWN_NS), rate(chunk)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mbit/s are 10,000 bytes in 10 ms.
    fn after_two_seconds(bytes: Vec<u64>) -> After {
        let arrivals = ArrivalRecord {
            workload: 0,
            bin_ns: 10_000_000,
            bytes,
        };
        after(&arrivals, 2_000_000_000, 8e6)
    }

    #[test]
    fn the_first_byte_and_the_full_rate_are_distinguished() {
        let mut bytes = vec![10_000; 200];
        bytes.extend([0; 36]);
        bytes.extend([1_000; 10]);
        bytes.extend([9_600; 400]);
        let after = after_two_seconds(bytes);
        assert_eq!(after.first_s, 0.37);
        // A bin of 1,000 bytes among 50 is one too many.
        assert_eq!(after.full_s, 0.46);
    }

    #[test]
    fn a_rate_that_is_not_kept_is_not_had() {
        let mut bytes = vec![10_000; 500];
        bytes[250..300].fill(0);
        assert_eq!(after_two_seconds(bytes).full_s, 1.0 - 0.02);
        let short = after_two_seconds(vec![10_000; 300]);
        assert_eq!((short.first_s, short.full_s), (0.01, 1.0));
    }
}
