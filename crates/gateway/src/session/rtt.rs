// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The round-trip time, and how late a report is.

use super::time::{Nanos, MS};

/// Round trips as RFC 6298 (2) smooths them, and the shortest one.
#[derive(Debug)]
pub struct Rtt {
    smoothed: Nanos,
    variation: Nanos,
    latest: Nanos,
    least: Option<Nanos>,
}

/// Least allowance for what the estimate does not know, nanoseconds: two reports' worth of
/// scheduling on a busy machine.
const LEAST_MARGIN: Nanos = 2 * MS;

impl Rtt {
    /// With a first guess, for example the handshake's.
    pub fn new(guess: Nanos) -> Self {
        Self {
            smoothed: guess,
            variation: guess / 2,
            latest: guess,
            least: None,
        }
    }

    /// A packet's round trip, without the time that the other side held the report.
    pub fn sample(&mut self, sample: Nanos) {
        let sample = sample.max(1);
        match self.least {
            None => {
                self.smoothed = sample;
                self.variation = sample / 8;
            }
            Some(_) => {
                self.variation = (self.variation * 3 + self.smoothed.abs_diff(sample)) / 4;
                self.smoothed = (self.smoothed * 7 + sample) / 8;
            }
        }
        self.latest = sample;
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
    }

    /// Smoothed.
    pub fn smoothed(&self) -> Nanos {
        self.smoothed
    }

    /// The last one.
    pub fn latest(&self) -> Nanos {
        self.latest
    }

    /// The shortest one; before there is any, the guess.
    pub fn least(&self) -> Nanos {
        self.least.unwrap_or(self.smoothed)
    }

    /// What is not here after this time is not under way any more, if the path only carries
    /// and drops.
    pub fn upper(&self) -> Nanos {
        self.smoothed.max(self.latest) + (4 * self.variation).max(LEAST_MARGIN)
    }
}

/// How much later than the fastest a report came, by the two sides' clocks.
#[derive(Debug, Default)]
pub struct Lateness {
    /// Own clock less the reporter's, of the fastest report; and when that was known.
    fastest: Option<(i128, Nanos)>,
}

/// Clocks drift apart by less than this: the fastest report's offset grows by a ten-thousandth.
const DRIFT: i128 = 10_000;

impl Lateness {
    /// Of a report with the reporter's clock, nanoseconds.
    pub fn of(&mut self, now: Nanos, clock: Nanos) -> Nanos {
        let offset = i128::from(now) - i128::from(clock);
        let fastest = match self.fastest {
            None => offset,
            Some((fastest, at)) => {
                let drifted = fastest + i128::from(now.saturating_sub(at)) / DRIFT;
                drifted.min(offset)
            }
        };
        self.fastest = Some((fastest, now));
        (offset - fastest) as Nanos
    }
}
