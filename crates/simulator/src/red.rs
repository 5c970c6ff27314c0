// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random early detection: Floyd and Jacobson, "Random Early Detection Gateways for
//! Congestion Avoidance", IEEE/ACM Transactions on Networking 1(4), 1993, with what
//! ns-2 adds to it: `wait` and `gentle`.
//!
//! The average queue is kept in packets and moves at arrivals only. While the link is
//! idle it would have seen so many small arrivals at an empty queue as packets could
//! have been sent in that time (the paper's section 11, m = idle time / s).

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::SECOND;

/// Parameters, by the names of the paper; those of ns-2 where it has others in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedConfig {
    /// Lower threshold, packets: below it no packet is dropped (`thresh_`, 5).
    #[schemars(range(min = 0))]
    pub min: f64,
    /// Upper threshold, packets: from it on all packets are dropped, or a growing share if `gentle`
    /// (`maxthresh_`, 15).
    pub max: f64,
    /// Weight of an arrival in the average (`q_weight_`, 0.002: the paper's).
    #[serde(default = "weight")]
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1))]
    pub weight: f64,
    /// Probability of a drop as the average reaches `max` (`1/linterm_`, 0.1).
    #[serde(default = "most")]
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1))]
    pub max_p: f64,
    /// From `max_p` at `max` to 1 at twice `max`, instead of at once (`gentle_`, off in
    /// 2000, on since 2001).
    #[serde(default)]
    pub gentle: bool,
    /// Drops are spread evenly: none until 1/p packets after the last (`wait_`, on). Off: as in the
    /// paper, the gap is uniform from 1 to 1/p.
    #[serde(default = "yes")]
    pub wait: bool,
    /// Packets per second that could leave while the queue is idle; absent: the link's rate in
    /// packets of the flows' size (`ptc`).
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = f64::MAX))]
    pub idle_packets_per_second: Option<f64>,
}

fn weight() -> f64 {
    0.002
}
fn most() -> f64 {
    0.1
}
fn yes() -> bool {
    true
}

/// The state of one queue's RED.
#[derive(Debug, Clone)]
pub struct Red {
    config: RedConfig,
    /// Nanoseconds that a packet takes.
    packet_ns: f64,
    average: f64,
    /// Packets since the last drop while the average lies above `min`; -1: none yet.
    count: i64,
    /// The average was below `min` at the last arrival.
    below: bool,
    chance: Pcg64Mcg,
}

impl Red {
    /// One for a link on which a packet takes `packet_ns`.
    pub fn new(config: RedConfig, packet_ns: u64, chance: Pcg64Mcg) -> Self {
        let packet_ns = match config.idle_packets_per_second {
            Some(rate) => SECOND as f64 / rate,
            None => packet_ns as f64,
        };
        Red {
            config,
            packet_ns: packet_ns.max(1.0),
            average: 0.0,
            count: -1,
            below: true,
            chance,
        }
    }

    /// The average queue, packets.
    pub fn average(&self) -> f64 {
        self.average
    }

    /// A packet arrives where `queued` wait, and the link has been idle for `idle_ns`.
    /// Returns whether it is dropped early.
    pub fn drops(&mut self, queued: usize, idle_ns: u64) -> bool {
        let RedConfig {
            min,
            max,
            weight,
            max_p,
            gentle,
            wait,
            ..
        } = self.config;
        if idle_ns > 0 {
            let missed = (idle_ns as f64 / self.packet_ns).floor();
            self.average *= power(1.0 - weight, missed as u64);
        }
        self.average += weight * (queued as f64 - self.average);
        self.count += 1;
        if self.average < min || queued <= 1 {
            self.count = -1;
            self.below = true;
            return false;
        }
        if self.below {
            // The first packet above: counted from here.
            self.below = false;
            self.count = 1;
            return false;
        }
        let base = if self.average < max {
            max_p * (self.average - min) / (max - min)
        } else if gentle {
            max_p + (1.0 - max_p) * (self.average - max) / max
        } else {
            1.0
        };
        let expected = self.count as f64 * base;
        let probability = if base >= 1.0 {
            1.0
        } else if wait {
            match expected {
                soon if soon < 1.0 => 0.0,
                later if later < 2.0 => base / (2.0 - later),
                _ => 1.0,
            }
        } else if expected < 1.0 {
            base / (1.0 - expected)
        } else {
            1.0
        };
        let drop = probability >= 1.0 || self.chance.random::<f64>() < probability;
        if drop {
            self.count = 0;
        }
        drop
    }
}

/// A power by squaring: the same bits on any machine, which the mathematical library's
/// does not promise.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 && base > 0.0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{sequence, Purpose};

    fn config() -> RedConfig {
        RedConfig {
            min: 5.0,
            max: 15.0,
            weight: 0.002,
            max_p: 0.02,
            gentle: false,
            wait: false,
            idle_packets_per_second: None,
        }
    }

    fn red(config: RedConfig) -> Red {
        Red::new(config, 1_000, sequence(1, Purpose::Queue, 0))
    }

    /// Gaps between drops at a queue that always holds ten: base probability 0.01.
    fn gaps(config: RedConfig) -> Vec<u32> {
        let mut red = red(config);
        let (mut gaps, mut gap) = (Vec::new(), 0);
        for arrival in 0..3_000_000 {
            gap += 1;
            if red.drops(10, 0) {
                // The average needs a while to arrive.
                if arrival > 20_000 {
                    gaps.push(gap);
                }
                gap = 0;
            }
        }
        gaps.remove(0);
        gaps
    }

    #[test]
    fn without_wait_gaps_are_uniform_up_to_1_over_p() {
        let gaps = gaps(config());
        let mean = gaps.iter().map(|gap| f64::from(*gap)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 50.5).abs() < 1.0, "{mean}");
        assert!(gaps.iter().all(|gap| (1..=100).contains(gap)));
    }

    #[test]
    fn with_wait_they_are_uniform_from_there_to_twice_that() {
        let gaps = gaps(RedConfig {
            wait: true,
            ..config()
        });
        let mean = gaps.iter().map(|gap| f64::from(*gap)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 150.5).abs() < 1.5, "{mean}");
        assert!(gaps.iter().all(|gap| (100..=200).contains(gap)));
    }

    #[test]
    fn an_idle_link_forgets() {
        let mut red = red(config());
        for _ in 0..5_000 {
            red.drops(14, 0);
        }
        let before = red.average();
        red.drops(0, 1_000 * 1_000);
        let after = before * 0.998_f64.powi(1_001);
        assert!((red.average() - after).abs() < 1e-9);
    }

    #[test]
    fn gentle_goes_on_where_the_other_drops_all() {
        let mut abrupt = red(config());
        let mut gentle = red(RedConfig {
            gentle: true,
            ..config()
        });
        let count = |red: &mut Red| (0..20_000).filter(|_| red.drops(18, 0)).count();
        let (all, some) = (count(&mut abrupt), count(&mut gentle));
        assert!(all > 19_000 && some < 8_000, "{all} {some}");
    }
}
