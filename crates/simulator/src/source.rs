// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications: the times and sizes of their writes.

use std::sync::Arc;

use rand::RngExt;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

use crate::event::{NEVER, SECOND};

/// How the lengths of on and off times are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lengths {
    /// Always the mean.
    Fixed,
    /// Exponential.
    Exponential,
    /// Pareto of this shape, above 1: heavy tails, of which self-similar traffic is made.
    Pareto(f64),
}

/// A kind of application.
#[derive(Debug, Clone)]
pub enum SourceConfig {
    /// Single packets, exponentially distributed times between them.
    Poisson {
        /// Mean of these times, nanoseconds.
        mean_ns: u64,
    },
    /// So many segments at once; `None`: without end.
    Bulk(Option<u32>),
    /// Packets at a rate for a while, then nothing for a while.
    OnOff {
        /// From packet to packet.
        gap_ns: u64,
        /// Mean length of a time with packets, nanoseconds.
        on_ns: u64,
        /// Mean length of a time without.
        off_ns: u64,
        /// How they are drawn.
        lengths: Lengths,
    },
    /// All flows of the group send so many segments, and when all have arrived and
    /// the time for computation has passed, again.
    Phases {
        /// Segments of each flow.
        segments: u32,
        /// From the end of one to the beginning of the next.
        compute_ns: u64,
        /// How often; 0: without end.
        count: u32,
        /// Each flow begins this much later than the one before it.
        apart_ns: u64,
        /// And up to this much later, at random.
        spread_ns: u64,
    },
    /// At these times, so many segments.
    Trace(Arc<[(u64, u32)]>),
}

/// The application of one flow.
#[derive(Debug, Clone)]
pub struct Source {
    chance: Pcg64Mcg,
    /// On and off: when this time with packets ends. Trace: the next entry.
    state: u64,
}

/// A write of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Segments that it writes.
    pub segments: u32,
    /// When it next writes; [`NEVER`]: not by itself.
    pub next_ns: u64,
}

impl Source {
    /// A source that draws from `chance`.
    pub fn new(chance: Pcg64Mcg) -> Self {
        Source { chance, state: 0 }
    }

    /// An exponentially distributed time of this mean, nanoseconds.
    #[inline]
    pub fn exponential(&mut self, mean_ns: u64) -> u64 {
        let factor: f64 = Exp1.sample(&mut self.chance);
        (factor * mean_ns as f64) as u64
    }

    /// A uniformly distributed time below `most_ns`.
    pub fn uniform(&mut self, most_ns: u64) -> u64 {
        match most_ns {
            0 => 0,
            most => self.chance.random_range(0..most),
        }
    }

    fn length(&mut self, mean_ns: u64, lengths: Lengths) -> u64 {
        match lengths {
            Lengths::Fixed => mean_ns,
            Lengths::Exponential => self.exponential(mean_ns),
            Lengths::Pareto(shape) => {
                // exp(E / shape) is a Pareto variable of least value 1.
                let exponent: f64 = Exp1.sample(&mut self.chance);
                let least = mean_ns as f64 * (shape - 1.0) / shape;
                (least * (exponent / shape).exp()).min(1e18) as u64
            }
        }
    }

    /// When a flow that starts at `start` first writes.
    pub fn first(&mut self, config: &SourceConfig, start: u64) -> u64 {
        match config {
            SourceConfig::Poisson { mean_ns } => start + self.exponential(*mean_ns),
            SourceConfig::Bulk(_) => start,
            SourceConfig::OnOff {
                off_ns, lengths, ..
            } => start + self.length(*off_ns, *lengths),
            SourceConfig::Phases { spread_ns, .. } => start + self.uniform(*spread_ns),
            SourceConfig::Trace(entries) => entries.first().map_or(NEVER, |(time, _)| start + time),
        }
    }

    /// The write at `now` of a flow that started at `start`.
    #[inline]
    pub fn next_demand(&mut self, config: &SourceConfig, start: u64, now: u64) -> Demand {
        match config {
            SourceConfig::Poisson { mean_ns } => Demand {
                segments: 1,
                next_ns: now + self.exponential(*mean_ns),
            },
            SourceConfig::Bulk(segments) => Demand {
                segments: segments.unwrap_or(u32::MAX),
                next_ns: NEVER,
            },
            SourceConfig::OnOff {
                gap_ns,
                on_ns,
                off_ns,
                lengths,
            } => {
                if self.state <= now {
                    self.state = now + self.length(*on_ns, *lengths).max(1);
                }
                let mut next_ns = now + gap_ns;
                if next_ns >= self.state {
                    next_ns = self.state + self.length(*off_ns, *lengths);
                    self.state = 0;
                }
                Demand {
                    segments: 1,
                    next_ns,
                }
            }
            SourceConfig::Phases { segments, .. } => Demand {
                segments: *segments,
                next_ns: NEVER,
            },
            SourceConfig::Trace(entries) => {
                let at = self.state as usize;
                self.state += 1;
                Demand {
                    segments: entries.get(at).map_or(0, |(_, segments)| *segments),
                    next_ns: entries.get(at + 1).map_or(NEVER, |(time, _)| start + time),
                }
            }
        }
    }
}

impl SourceConfig {
    /// Mean of the packets per second that it offers, where it has one.
    pub fn offered_per_second(&self) -> Option<f64> {
        match self {
            SourceConfig::Poisson { mean_ns } => Some(SECOND as f64 / *mean_ns as f64),
            _ => None,
        }
    }
}
