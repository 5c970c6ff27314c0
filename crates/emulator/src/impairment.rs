// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random impairments of packets.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64Mcg;

use crate::config::{Jitter, LinkConfig, Loss};

/// Sequences of a seed; each impairment has its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sequence {
    Loss = 1,
    Jitter,
    Reorder,
    Duplicate,
    Red,
}

/// The generator of one sequence.
pub(crate) fn random(seed: u64, sequence: Sequence) -> Pcg64Mcg {
    // SplitMix64 is behind seed_from_u64: neighbouring seeds are as good as any. A
    // factor keeps the sequences of neighbouring seeds apart.
    Pcg64Mcg::seed_from_u64(
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(sequence as u64),
    )
}

/// The decisions about one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    /// It is lost on the line.
    pub lost: bool,
    /// It arrives twice.
    pub twice: bool,
    /// Later packets may overtake it: additional delay, nanoseconds.
    pub held_ns: Option<u64>,
    /// Difference of its delay from the link's, nanoseconds.
    pub jitter_ns: i64,
}

/// The chances of one direction.
#[derive(Debug)]
pub(crate) struct Impairments {
    bad: bool,
    loss: Pcg64Mcg,
    jitter: Pcg64Mcg,
    reorder: Pcg64Mcg,
    duplicate: Pcg64Mcg,
}

impl Impairments {
    pub fn new(seed: u64) -> Self {
        Impairments {
            bad: false,
            loss: random(seed, Sequence::Loss),
            jitter: random(seed, Sequence::Jitter),
            reorder: random(seed, Sequence::Reorder),
            duplicate: random(seed, Sequence::Duplicate),
        }
    }

    /// Decides about the next packet.
    pub fn next(&mut self, config: &LinkConfig) -> Fate {
        let held = config
            .reorder
            .filter(|reorder| chance(&mut self.reorder, reorder.share));
        Fate {
            lost: config.loss.is_some_and(|loss| self.is_lost(loss)),
            twice: chance(&mut self.duplicate, config.duplicate),
            held_ns: held.map(|reorder| reorder.by_ns),
            jitter_ns: config.jitter.map_or(0, |jitter| self.jitter(jitter)),
        }
    }

    fn is_lost(&mut self, loss: Loss) -> bool {
        match loss {
            Loss::Random { share } => chance(&mut self.loss, share),
            Loss::Bursts {
                to_bad,
                to_good,
                good,
                bad,
            } => {
                let turns = if self.bad { to_good } else { to_bad };
                self.bad ^= chance(&mut self.loss, turns);
                chance(&mut self.loss, if self.bad { bad } else { good })
            }
        }
    }

    fn jitter(&mut self, jitter: Jitter) -> i64 {
        match jitter {
            Jitter::Uniform { most_ns } => {
                let most = i64::try_from(most_ns).unwrap_or(i64::MAX);
                self.jitter.random_range(-most..=most)
            }
            Jitter::Normal { deviation_ns } => {
                // A deviation is finite and not negative: there is such a distribution.
                Normal::new(0.0, deviation_ns as f64)
                    .map_or(0, |normal| normal.sample(&mut self.jitter) as i64)
            }
        }
    }
}

/// Draws no number for a share of 0 or 1.
fn chance(random: &mut Pcg64Mcg, share: f64) -> bool {
    share > 0.0 && (share >= 1.0 || random.random::<f64>() < share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Buffer, Reorder};

    fn fates(config: &LinkConfig, count: usize) -> Vec<Fate> {
        let mut impairments = Impairments::new(config.seed);
        (0..count).map(|_| impairments.next(config)).collect()
    }

    fn config() -> LinkConfig {
        LinkConfig::new(1_000_000, 10_000_000, Buffer::Packets(10))
    }

    #[test]
    fn a_plain_link_does_nothing() {
        let nothing = Fate {
            lost: false,
            twice: false,
            held_ns: None,
            jitter_ns: 0,
        };
        assert!(fates(&config(), 100).iter().all(|fate| *fate == nothing));
    }

    #[test]
    fn shares_are_what_was_asked_and_repeat_with_the_seed() {
        let config = LinkConfig {
            loss: Some(Loss::Random { share: 0.02 }),
            reorder: Some(Reorder {
                share: 0.1,
                by_ns: 5,
            }),
            duplicate: 0.5,
            ..config()
        };
        let all = fates(&config, 100_000);
        let share = |of: fn(&Fate) -> bool| all.iter().filter(|fate| of(fate)).count() as f64 / 1e5;
        assert!((share(|fate| fate.lost) - 0.02).abs() < 0.002);
        assert!((share(|fate| fate.held_ns == Some(5)) - 0.1).abs() < 0.005);
        assert!((share(|fate| fate.twice) - 0.5).abs() < 0.01);
        assert_eq!(all, fates(&config, 100_000));
        let other = LinkConfig {
            seed: 2,
            ..config.clone()
        };
        assert_ne!(all, fates(&other, 100_000));
        // One impairment less leaves the others as they were.
        let fewer = LinkConfig {
            reorder: None,
            ..config
        };
        let losses = |all: &[Fate]| all.iter().map(|fate| fate.lost).collect::<Vec<_>>();
        assert_eq!(losses(&all), losses(&fates(&fewer, 100_000)));
    }

    #[test]
    fn bursts_have_their_mean_length_and_share() {
        let config = LinkConfig {
            loss: Some(Loss::Bursts {
                to_bad: 0.01,
                to_good: 0.25,
                good: 0.0,
                bad: 1.0,
            }),
            ..config()
        };
        let all = fates(&config, 400_000);
        let lost = all.iter().filter(|fate| fate.lost).count() as f64;
        let bursts = all
            .windows(2)
            .filter(|pair| !pair[0].lost && pair[1].lost)
            .count() as f64;
        // p / (p + r) of the time it is bad, 1 / r packets at a time.
        assert!((lost / 4e5 - 0.01 / 0.26).abs() < 0.003, "{lost}");
        assert!((lost / bursts - 4.0).abs() < 0.2, "{lost} in {bursts}");
    }

    #[test]
    fn jitter_is_within_its_bounds_and_has_its_deviation() {
        let uniform = LinkConfig {
            jitter: Some(Jitter::Uniform { most_ns: 1_000 }),
            ..config()
        };
        let all = fates(&uniform, 10_000);
        assert!(all.iter().all(|fate| fate.jitter_ns.abs() <= 1_000));
        assert!(
            all.iter().any(|fate| fate.jitter_ns < -900)
                && all.iter().any(|fate| fate.jitter_ns > 900)
        );
        let normal = LinkConfig {
            jitter: Some(Jitter::Normal {
                deviation_ns: 1_000,
            }),
            ..config()
        };
        let squares: f64 = fates(&normal, 100_000)
            .iter()
            .map(|fate| (fate.jitter_ns as f64).powi(2))
            .sum();
        assert!(((squares / 1e5).sqrt() - 1_000.0).abs() < 20.0);
    }
}
