// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random early detection: Floyd and Jacobson, "Random early detection gateways for
//! congestion avoidance", 1993, section 4 and the algorithm of its figure 2.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::config::Red;

/// Size of the packets that an idle line could have sent, bytes: the 1993
/// paper's "small packet", at the size that ns and Linux take by default.
const MEAN_PACKET_BYTES: u64 = 1000;

/// State of one queue.
#[derive(Debug)]
pub(crate) struct RedQueue {
    average: f64,
    /// Packets since the last one that was dropped; `None` below the lower threshold.
    since_drop: Option<u64>,
    random: Pcg64Mcg,
}

impl RedQueue {
    pub fn new(random: Pcg64Mcg) -> Self {
        RedQueue {
            average: 0.0,
            since_drop: None,
            random,
        }
    }

    /// A packet arrives at a queue of `backlog` bytes; if that is none, then `idle_ns`
    /// after the line became idle. Whether it is dropped.
    pub fn drops(&mut self, red: &Red, backlog: u64, idle_ns: u64, rate_bits: u64) -> bool {
        if backlog > 0 {
            self.average += red.weight * (backlog as f64 - self.average);
        } else {
            let sent = u128::from(idle_ns) * u128::from(rate_bits)
                / (8_000_000_000 * u128::from(MEAN_PACKET_BYTES));
            // Beyond that the average is nothing in any case.
            let sent = i32::try_from(sent).unwrap_or(i32::MAX);
            self.average *= (1.0 - red.weight).powi(sent);
        }
        let (least, most) = (red.least_bytes as f64, red.most_bytes as f64);
        let chance = if self.average < least {
            self.since_drop = None;
            return false;
        } else if self.average < most {
            red.probability * (self.average - least) / (most - least)
        } else if red.gentle && self.average < 2.0 * most {
            red.probability + (1.0 - red.probability) * (self.average - most) / most
        } else {
            1.0
        };
        let since = self.since_drop.map_or(0, |count| count + 1);
        // Evenly spread drops: after 1/chance packets it is certain.
        let certain = 1.0 - since as f64 * chance;
        let drop = certain <= chance || self.random.random::<f64>() < chance / certain;
        self.since_drop = Some(if drop { 0 } else { since });
        drop
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const RED: Red = Red {
        least_bytes: 10_000,
        most_bytes: 30_000,
        probability: 0.1,
        weight: 1.0,
        gentle: true,
    };

    fn share(red: &Red, backlog: u64) -> f64 {
        let mut queue = RedQueue::new(Pcg64Mcg::seed_from_u64(1));
        let dropped = (0..20_000)
            .filter(|_| queue.drops(red, backlog, 0, 1))
            .count();
        dropped as f64 / 20_000.0
    }

    #[test]
    fn none_below_all_above_and_between_by_the_line() {
        assert_eq!(share(&RED, 9_999), 0.0);
        assert_eq!(share(&RED, 60_000), 1.0);
        // Drops spread evenly over 1/p packets come at twice p: the mean gap is half.
        assert!(
            (share(&RED, 20_000) - 0.1).abs() < 0.01,
            "{}",
            share(&RED, 20_000)
        );
        let abrupt = Red {
            gentle: false,
            ..RED
        };
        assert_eq!(share(&abrupt, 30_000), 1.0);
        assert!(share(&RED, 30_000) < 0.25);
    }

    #[test]
    fn gaps_between_drops_are_even() {
        let mut queue = RedQueue::new(Pcg64Mcg::seed_from_u64(2));
        let (mut gap, mut longest) = (0, 0);
        for _ in 0..100_000 {
            gap += 1;
            if queue.drops(&RED, 20_000, 0, 1) {
                longest = longest.max(gap);
                gap = 0;
            }
        }
        // Probability 1/20 at 20,000: never more than 20 apart.
        assert!((15..=21).contains(&longest), "{longest}");
    }

    #[test]
    fn an_idle_line_forgets() {
        let slow = Red {
            weight: 0.002,
            ..RED
        };
        let mut queue = RedQueue::new(Pcg64Mcg::seed_from_u64(3));
        for _ in 0..10_000 {
            queue.drops(&slow, 25_000, 0, 1_000_000_000);
        }
        assert!(queue.average > 24_000.0);
        // 347 packets of 1000 bytes at 1 Gbit/s: half of it is forgotten.
        queue.drops(&slow, 0, 347 * 8_000, 1_000_000_000);
        assert!(
            (queue.average - 12_500.0).abs() < 100.0,
            "{}",
            queue.average
        );
    }
}
