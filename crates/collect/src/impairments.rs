// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link's settings beside rate, delay and queue, requested against measured.

use paceline_experiment::plan::Topology;
use paceline_experiment::record::ImpairmentReading;

/// Tolerance of shares, in standard deviations.
const DEVIATIONS: f64 = 4.5;
/// Tolerance of rates: a bucket lets whole packets through.
const RATE_TOLERANCE: f64 = 0.02;
/// Tolerance of times, and its minimum, which hosts and router take.
const TIME_TOLERANCE: f64 = 0.05;
const LEAST_TIME_TOLERANCE_NS: f64 = 500_000.0;

/// Sentences for people.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Comparison {
    /// The settings that are as requested.
    pub right: Vec<String>,
    /// The settings that are not.
    pub wrong: Vec<String>,
}

impl Comparison {
    fn add(&mut self, fits: bool, text: String) {
        match fits {
            true => self.right.push(text),
            false => self.wrong.push(text),
        }
    }

    fn share(&mut self, what: &str, asked: f64, clustering: f64, probes: u64, found: Option<f64>) {
        let Some(found) = found else {
            return;
        };
        let deviation = (asked * (1.0 - asked) * clustering / probes.max(1) as f64).sqrt();
        // Ten events more or less say nothing.
        let tolerance = (DEVIATIONS * deviation).max(10.0 / probes.max(1) as f64);
        let text = format!(
            "{what} {:.3} % of {probes} packets (asked for: {:.3} %)",
            found * 100.0,
            asked * 100.0
        );
        self.add((found - asked).abs() <= tolerance, text);
    }

    fn rate(&mut self, what: &str, asked_bps: u64, found_bps: Option<u64>) {
        let Some(found_bps) = found_bps else {
            return self
                .wrong
                .push(format!("{what} let hardly anything through"));
        };
        let (asked, found) = (asked_bps as f64, found_bps as f64);
        let text = format!(
            "{what} ran at {:.2} Mbit/s (asked for: {:.2})",
            found / 1e6,
            asked / 1e6
        );
        self.add((found / asked - 1.0).abs() <= RATE_TOLERANCE, text);
    }

    fn time(&mut self, what: &str, asked_ns: u64, found_ns: Option<u64>) {
        let Some(found_ns) = found_ns else {
            return self.wrong.push(format!("{what} could not be measured"));
        };
        let (asked, found) = (asked_ns as f64, found_ns as f64);
        let tolerance = (asked * TIME_TOLERANCE).max(LEAST_TIME_TOLERANCE_NS);
        let text = format!(
            "{what} {:.2} ms (asked for: {:.2})",
            found / 1e6,
            asked / 1e6
        );
        self.add((found - asked).abs() <= tolerance, text);
    }
}

/// Compares them.
pub(super) fn compare(wanted: &Topology, reading: &ImpairmentReading) -> Comparison {
    let impairments = &wanted.impairments;
    let mut comparison = Comparison::default();
    if let Some(loss) = impairments.loss {
        let found = reading.lost_share;
        comparison.share(
            "the link lost",
            loss.mean(),
            loss.clustering(),
            reading.probes,
            found,
        );
    }
    if impairments.jitter_ns > 0 {
        comparison.time(
            "the delay varied by up to",
            impairments.jitter_ns,
            reading.jitter_ns,
        );
    }
    if let Some(reorder) = impairments.reorder {
        let found = reading.overtaken_share;
        comparison.share("others overtook", reorder.share, 1.0, reading.probes, found);
    }
    if let Some(policer) = impairments.policer {
        // Beyond the link's own rate a policer does nothing.
        let asked = policer.rate_bps.min(wanted.rate_bps);
        comparison.rate("the policer", asked, reading.policer_bps);
    }
    if let Some(codel) = impairments.codel {
        let found = reading.codel_ns;
        comparison.time("CoDel's target", codel.target_ns, found.map(|ns| ns.0));
        comparison.time("CoDel's interval", codel.interval_ns, found.map(|ns| ns.1));
    }
    if let Some(asked) = impairments.return_rate_bps {
        comparison.rate("the way back", asked, reading.return_rate_bps);
    }
    if impairments.ack_slot_ns > 0 {
        comparison.time(
            "slots of the way back took",
            impairments.ack_slot_ns,
            reading.ack_slot_ns,
        );
    }
    comparison
}
