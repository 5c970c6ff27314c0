// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The round-trip time, and the lateness of a report.

use super::time::{Nanos, MS};

/// Round trips as RFC 6298 (2) smooths them, and the shortest one.
#[derive(Debug)]
pub struct Rtt {
    smoothed: Nanos,
    variation: Nanos,
    latest: Nanos,
    least: Option<Nanos>,
}

/// Least allowance for errors of the estimate, nanoseconds: two reports' worth of scheduling on a
/// busy machine.
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

    /// A packet that has not arrived after this time is lost, if the path only carries and drops.
    pub fn upper(&self) -> Nanos {
        self.smoothed.max(self.latest) + (4 * self.variation).max(LEAST_MARGIN)
    }
}

/// Lateness of a report beside the fastest one, by the two sides' clocks.
#[derive(Debug, Default)]
pub struct Lateness {
    /// Own clock less the reporter's, of the fastest report of this window and of the last one.
    window: Option<i128>,
    before: Option<i128>,
    /// Time of this window in which reports came.
    age: Nanos,
    at: Nanos,
}

/// Clocks drift apart by less than this: the fastest report's offset grows by a ten-thousandth.
const DRIFT: i128 = 10_000;
/// The fastest report is remembered for one to two times this. The clock of a host that slept stood
/// still meanwhile: all its reports seem late from then on.
const WINDOW: Nanos = 30_000 * MS;
/// A window ages by no more than this from report to report, so not in a silence: the path kept a
/// report that comes late after it.
const STEP: Nanos = 300 * MS;

impl Lateness {
    /// Of a report with the reporter's clock, nanoseconds.
    pub fn of(&mut self, now: Nanos, clock: Nanos) -> Nanos {
        let elapsed = now.saturating_sub(self.at);
        self.at = now;
        self.age += elapsed.min(STEP);
        if self.age >= WINDOW {
            self.age = 0;
            self.before = self.window.take();
        }
        let drift = i128::from(elapsed) / DRIFT;
        for fastest in [&mut self.window, &mut self.before].into_iter().flatten() {
            *fastest += drift;
        }
        let offset = i128::from(now) - i128::from(clock);
        let window = self.window.map_or(offset, |fastest| fastest.min(offset));
        self.window = Some(window);
        let fastest = self.before.map_or(window, |before| before.min(window));
        (offset - fastest) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000 * MS;

    /// Lateness of the last of so many reports, one each 10 ms.
    fn after(lateness: &mut Lateness, from: Nanos, reports: u64, behind: Nanos) -> Nanos {
        let mut late = 0;
        for number in 0..reports {
            let now = from + number * 10 * MS;
            late = lateness.of(now, now - behind);
        }
        late
    }

    #[test]
    fn a_clock_that_stood_still_is_forgotten() {
        let mut lateness = Lateness::default();
        assert_eq!(after(&mut lateness, SECOND, 100, 50 * MS), 0);
        let behind = 50 * MS + 10 * SECOND;
        let late = after(&mut lateness, 20 * SECOND, 100, behind);
        assert!((9 * SECOND..=10 * SECOND).contains(&late), "{late}");
        assert_eq!(after(&mut lateness, 21 * SECOND, 7_000, behind), 0);
        // One that runs ahead is at once.
        assert_eq!(after(&mut lateness, 100 * SECOND, 1, 0), 0);
    }

    #[test]
    fn reports_that_a_pause_kept_are_late_however_long_it_was() {
        let mut lateness = Lateness::default();
        after(&mut lateness, SECOND, 100, 50 * MS);
        // All of a minute at once, the oldest first.
        let now = 62 * SECOND;
        for made in (2 * SECOND..now - SECOND).step_by(10 * MS as usize) {
            assert!(lateness.of(now, made) > 900 * MS, "{made}");
        }
    }
}
