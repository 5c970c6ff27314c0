// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[paths]`: links drawn at random, so that a claim is not about chosen paths.
//!
//! Rate, round trip and queue are log-uniform: as many paths of 20 to 40 Mbit/s as of 200 to
//! 400. A path depends on the seed and its own number only: a thirteenth path leaves the first
//! twelve as they are.

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Place;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schemars::JsonSchema;
use serde::Deserialize;

use super::link::{Link, HEADER_BYTES};
use super::{File, Offload};

/// Of an odd number in binary, the golden ratio's digits: consecutive numbers end far apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Links drawn at random.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paths {
    /// Number of paths.
    #[schemars(range(min = 1, max = 1000))]
    pub count: u32,
    /// Number of paths with `--quick`: the first ones.
    #[schemars(range(min = 1, max = 1000))]
    pub quick: Option<u32>,
    /// Minimum and maximum rate.
    #[schemars(extend("x-range" = ["1bit", null], "examples" = [["20mbit", "700mbit"]]))]
    pub rate: [Rate; 2],
    /// Minimum and maximum round-trip time without a queue.
    #[schemars(extend("examples" = [["1ms", "200ms"]]))]
    pub rtt: [Time; 2],
    /// Minimum and maximum queue, in bandwidth-delay products.
    #[schemars(extend("examples" = [[0.06, 3.0]]))]
    pub queue: [f64; 2],
    /// Minimum queue in full packets, regardless of the product.
    #[serde(default = "fifteen")]
    #[schemars(range(min = 1))]
    pub queue_packets: u32,
}

fn fifteen() -> u32 {
    15
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Path {
    /// `3-74.3mbit-7.12ms-0.37bdp`: number, rate, round trip, queue.
    pub name: String,
    pub rate: Rate,
    pub one_way_delay: Time,
    pub buffer: Size,
    /// For `offload = "drawn"`.
    pub offload: bool,
}

impl Paths {
    /// The paths of a seed, for packets of the link's MTU.
    pub(super) fn draw(&self, quick: bool, seed: u64, mtu: u32) -> Vec<Path> {
        let quickly = self.quick.filter(|_| quick);
        let count = quickly.unwrap_or(self.count);
        (1..=count)
            .map(|number| self.path(number, seed, mtu))
            .collect()
    }

    fn path(&self, number: u32, seed: u64, mtu: u32) -> Path {
        let own = (seed << 32 | u64::from(number)).wrapping_mul(GOLDEN);
        let mut random = Pcg64Mcg::seed_from_u64(own);
        let mut between = |least: f64, most: f64| {
            let drawn: f64 = random.random();
            least * (most / least).powf(drawn)
        };
        let [slowest, fastest] = self.rate.map(|rate| rate.bits_per_second() as f64);
        let rate_bps = three_digits(between(slowest, fastest));
        let [shortest, longest] = self.rtt.map(|rtt| rtt.micros() as f64);
        // Half of it is a whole number of microseconds.
        let rtt_us = (three_digits(between(shortest, longest)) / 2.0).round() * 2.0;
        let bdp = rate_bps * rtt_us / 8e6;
        let least = f64::from(self.queue_packets) * f64::from(mtu + HEADER_BYTES as u32);
        let buffer = (between(self.queue[0], self.queue[1]) * bdp).max(least);
        let buffer = buffer.round();
        Path {
            name: format!(
                "{number}-{}mbit-{}ms-{:.2}bdp",
                rate_bps / 1e6,
                rtt_us / 1e3,
                buffer / bdp
            ),
            rate: Rate::from_bits_per_second(rate_bps as u64),
            one_way_delay: Time::from_micros(rtt_us as u64 / 2),
            buffer: Size::from_bytes(buffer as u64),
            offload: random.random(),
        }
    }
}

impl Path {
    /// The link with this path's values.
    pub(super) fn on(&self, link: &Link) -> Link {
        Link {
            rate: self.rate,
            one_way_delay: self.one_way_delay,
            buffer: self.buffer,
            ..link.clone()
        }
    }
}

/// A number that people can read, within 0.5 %.
fn three_digits(number: f64) -> f64 {
    let unit = 10f64.powf(number.log10().floor() - 2.0);
    // Division by a power of ten that is a whole number is exact, its inverse is not.
    match unit < 1.0 {
        true => (number / unit).round() / (1.0 / unit).round(),
        false => (number / unit).round() * unit.round(),
    }
}

/// Checks the ranges, and the keys that depend on them.
pub(super) fn check(file: &File, place: &Place<'_>) {
    let Some(paths) = &file.paths else {
        if file.offload == Offload::Drawn {
            place
                .key("offload")
                .wrong("\"drawn\" needs [paths]: give \"on\", \"off\" or \"both\"");
        }
        return;
    };
    let place = place.key("paths");
    let ordered = "the first of two values must be above zero and at most the second";
    let [slowest, fastest] = paths.rate;
    if slowest > fastest {
        place.key("rate").wrong(ordered);
    } else if fastest > file.link.edge_rate() {
        place.key("rate").wrong(
            "must be at most the link's edge_rate: else the hosts' links are the bottleneck",
        );
    }
    let [shortest, longest] = paths.rtt;
    // Below 2 us there is no whole microsecond each way.
    if shortest.micros() < 2 || shortest > longest {
        place
            .key("rtt")
            .wrong("the first of two values must be 2us or more, and at most the second");
    }
    let [least, most] = paths.queue;
    if !(least > 0.0 && least <= most && most.is_finite()) {
        place.key("queue").wrong(ordered);
    }
    if paths.quick > Some(paths.count) {
        place.key("quick").wrong("must be at most count");
    }
    if !file.link.clusters.is_empty() {
        place.wrong("paths lead from senders to one receiver: leave clusters out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        Paths {
            count: 300,
            quick: Some(3),
            rate: ["20mbit", "700mbit"].map(|rate| rate.parse().expect("a rate")),
            rtt: ["1ms", "200ms"].map(|rtt| rtt.parse().expect("a time")),
            queue: [0.06, 3.0],
            queue_packets: 15,
        }
    }

    #[test]
    fn all_are_within_the_ranges_and_as_many_are_slow_as_fast() {
        let drawn = paths().draw(false, 7, 1500);
        assert_eq!(drawn.len(), 300);
        for path in &drawn {
            let rate_bps = path.rate.bits_per_second() as f64;
            let rtt_s = 2.0 * path.one_way_delay.secs_f64();
            let bdp = rate_bps * rtt_s / 8.0;
            assert!((20e6..=700e6).contains(&rate_bps), "{path:?}");
            assert!((0.000_999..=0.200_1).contains(&rtt_s), "{path:?}");
            let buffer = path.buffer.bytes() as f64;
            assert!(buffer >= (15 * 1514) as f64, "{path:?}");
            assert!(buffer <= (3.0 * bdp).max(22_711.0), "{path:?}");
            assert!(buffer >= 0.0599 * bdp, "{path:?}");
        }
        // The middle of a log-uniform range is its geometric mean, 118 Mbit/s.
        let slow = drawn
            .iter()
            .filter(|path| path.rate.bits_per_second() < 118_000_000);
        assert!((120..=180).contains(&slow.count()));
        let offloaded = drawn.iter().filter(|path| path.offload).count();
        assert!((120..=180).contains(&offloaded));
    }

    #[test]
    fn a_seed_has_its_paths_however_many_are_asked_for() {
        let (all, first) = (paths().draw(false, 1, 1500), paths().draw(true, 1, 1500));
        assert_eq!(first.len(), 3);
        assert_eq!(first[..], all[..3]);
        let other = paths().draw(true, 2, 1500);
        assert_ne!(first, other);
        let mut names: Vec<_> = all.iter().map(|path| &path.name).collect();
        names.dedup();
        assert_eq!(names.len(), 300);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (number, wanted) in [
            (74_312_345.0, 74_300_000.0),
            (699_999_999.0, 700_000_000.0),
            (1_004.9, 1_000.0),
            (7.126, 7.13),
        ] {
            assert_eq!(three_digits(number), wanted);
        }
    }
}
