// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings that may change while a transfer runs: number of data connections, and rate.

use std::time::Duration;

use tokio::sync::watch;

/// Data connections at the beginning, unless set. A new one may send ten segments in its first
/// round trip, and twice as many in each further one: with twelve a path of 200 Mbit/s and 50 ms is
/// full after 2.8 of them, with two after 5.4.
pub const STREAMS: u16 = 12;
/// Where several pairs of hosts share them, each has as many at least.
const LEAST_AUTO: u16 = 2;
/// `auto` opens no more.
const MOST_AUTO: u16 = 16;
/// A step must bring as much, percent.
const GAIN_PERCENT: u64 = 5;
/// The rate is compared over so long: longer than a connection's start, so that short transfers
/// are not disturbed by steps.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// Number of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// [`STREAMS`], and one more as long as a step brings 5 %.
    Auto,
    /// So many.
    Fixed(u16),
}

/// See the module's text. The caller has this end; the transfer has the other.
#[derive(Debug)]
pub struct Tuning {
    streams: watch::Sender<Streams>,
    rate: watch::Sender<Option<u64>>,
}

impl Tuning {
    /// At the beginning. `rate_bps`: bits per second, all connections together.
    pub fn new(streams: Streams, rate_bps: Option<u64>) -> Self {
        Self {
            streams: watch::Sender::new(streams),
            rate: watch::Sender::new(rate_bps),
        }
    }

    /// From now on so many.
    pub fn set_streams(&self, streams: Streams) {
        self.streams.send_replace(streams);
    }

    /// From now on no faster.
    pub fn set_rate(&self, rate_bps: Option<u64>) {
        self.rate.send_replace(rate_bps);
    }

    /// The current settings: streams, and bits per second.
    pub fn now(&self) -> (Streams, Option<u64>) {
        (*self.streams.borrow(), *self.rate.borrow())
    }

    pub(super) fn watch(&self) -> (watch::Receiver<Streams>, watch::Receiver<Option<u64>>) {
        (self.streams.subscribe(), self.rate.subscribe())
    }
}

impl Streams {
    /// At the beginning.
    pub fn first(self) -> u16 {
        self.first_of(1)
    }

    /// At the beginning, of each of so many pairs of hosts, which begin together and may share a path.
    pub(super) fn first_of(self, pairs: u16) -> u16 {
        match self {
            Self::Auto => STREAMS.div_ceil(pairs.max(1)).max(LEAST_AUTO),
            Self::Fixed(count) => count,
        }
    }
}

/// The steps of [`Streams::Auto`]. Pure: the caller passes in the rate of each interval.
#[derive(Debug, Default)]
pub(super) struct Steps {
    before: Option<u64>,
    is_settled: bool,
}

impl Steps {
    /// How many streams there shall be, after an interval with so many and at this rate, bytes
    /// per second. `left`: bytes that are not sent yet, as far as is known.
    pub fn next(&mut self, streams: u16, rate: u64, left: u64) -> u16 {
        // A connection needs time to come up to its rate.
        let is_ending = left < 2 * rate.saturating_mul(INTERVAL.as_secs());
        if self.is_settled || rate == 0 {
            return streams;
        }
        let brought = |before: u64| rate * 100 >= before.saturating_mul(100 + GAIN_PERCENT);
        let has_gained = self.before.is_none_or(brought);
        if has_gained && (is_ending || streams >= MOST_AUTO) {
            self.is_settled = true;
            return streams;
        }
        if has_gained {
            self.before = Some(rate);
            return streams + 1;
        }
        self.is_settled = true;
        (streams - 1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of 1, 2, ... streams: how many there are at the end, of two at the beginning.
    fn settles_at(rates: &[u64], left: u64) -> u16 {
        let (mut steps, mut streams) = (Steps::default(), 2);
        for _ in 0..100 {
            let rate = rates[usize::from(streams - 1).min(rates.len() - 1)];
            streams = steps.next(streams, rate, left);
        }
        streams
    }

    #[test]
    fn one_more_as_long_as_it_brings_something() {
        // The path is full with two.
        assert_eq!(settles_at(&[900, 1000, 1010, 1020], u64::MAX), 2);
        // Each is bound by its window.
        assert_eq!(settles_at(&[100, 200, 300, 400, 500, 510], u64::MAX), 5);
        let each: Vec<u64> = (1..100).map(|n| n * 1000).collect();
        assert_eq!(settles_at(&each, u64::MAX), MOST_AUTO);
        // Nothing comes: no decision.
        assert_eq!(settles_at(&[0], u64::MAX), 2);
    }

    #[test]
    fn nothing_is_tried_when_it_is_about_to_end() {
        assert_eq!(settles_at(&[100, 200, 300, 400], 1999), 2);
        assert_eq!(settles_at(&[100, 200, 300, 400], 2000), 3);
    }
}
