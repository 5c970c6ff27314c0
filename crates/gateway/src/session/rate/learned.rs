// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate that a path delivers. Ours: the papers have no such law.
//!
//! A round is a round trip. While it starts, the rate doubles each round, until what arrives
//! does not follow or a queue builds. Then it is the best of the last ten rounds, a little
//! more in one round of eight to find more, and less as long as there is a queue.

use std::collections::VecDeque;

use super::Sample;
use crate::session::time::{Nanos, MS, SECOND};

/// First rate, bits per second: ten packets in 60 ms, as TCP's first window (RFC 6928).
const FIRST: u64 = 2_000_000;
/// Lowest rate, bits per second.
const LEAST: u64 = 100_000;
/// Rounds of which the best counts, as in BBR.
const REMEMBERED: usize = 10;
/// One round in so many looks for more, as in BBR.
const CYCLE: u64 = 8;
/// Queueing delay that is too much: this, or an eighth of the shortest round trip.
const QUEUE: Nanos = 5 * MS;
/// Shortest round.
const ROUND: Nanos = 20 * MS;

/// See the module's text.
#[derive(Debug)]
pub struct Learned {
    most: u64,
    rate: u64,
    is_starting: bool,
    rounds: u64,
    since: Nanos,
    arrived: u64,
    lost: u64,
    was_idle: bool,
    was_silent: bool,
    best: VecDeque<u64>,
    /// What was delivered in the last rounds of the start.
    followed: VecDeque<u64>,
}

impl Learned {
    /// Never above `most`, bits per second.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            rate: FIRST.min(most),
            is_starting: true,
            rounds: 0,
            since: 0,
            arrived: 0,
            lost: 0,
            was_idle: false,
            was_silent: false,
            best: VecDeque::new(),
            followed: VecDeque::new(),
        }
    }

    /// Goes on from a rate that is known to be delivered, bits per second.
    pub fn start_at(&mut self, rate: u64) {
        self.rate = rate.clamp(LEAST, self.most.max(LEAST));
        self.best = [self.rate].into();
        self.is_starting = false;
    }

    /// Bits per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// A report.
    pub fn sample(&mut self, sample: &Sample) {
        self.arrived += sample.arrived;
        self.lost += sample.lost;
        self.was_idle |= sample.was_idle;
        self.was_silent |= sample.was_silent;
        let elapsed = sample.now.saturating_sub(self.since);
        if elapsed < sample.least_rtt.max(ROUND) {
            return;
        }
        let delivered = u128::from(self.arrived) * 8 * u128::from(SECOND) / u128::from(elapsed);
        // A round that a cut or a pause of the sender ended says nothing about the path.
        if !self.was_silent && !self.was_idle {
            self.round(delivered as u64, sample);
        }
        self.since = sample.now;
        (self.arrived, self.lost) = (0, 0);
        (self.was_idle, self.was_silent) = (false, false);
    }

    fn round(&mut self, delivered: u64, sample: &Sample) {
        self.rounds += 1;
        let queue = sample.rtt.saturating_sub(sample.least_rtt);
        let is_queue = queue > QUEUE.max(sample.least_rtt / 8);
        // More than that is no noise of the path.
        let is_lossy = self.lost * 10 > self.arrived + self.lost;
        self.best.push_back(delivered);
        if self.best.len() > REMEMBERED {
            self.best.pop_front();
        }
        let best = self.best.iter().copied().max().unwrap_or(delivered);
        if self.is_starting {
            self.followed.push_back(delivered);
            // What was sent a round trip ago was half of the rate; two rounds see no more.
            let count = self.followed.len();
            let stalled = count > 3 && delivered * 5 < self.followed[count - 3] * 6;
            if is_queue || is_lossy || stalled {
                self.is_starting = false;
            } else {
                self.set(self.rate * 2);
                return;
            }
        }
        let rate = match (is_queue, self.rounds % CYCLE) {
            _ if is_lossy => delivered / 20 * 19,
            (true, _) => delivered.min(best) / 10 * 9,
            (false, 0) => best / 4 * 5,
            (false, _) => best,
        };
        if is_lossy || is_queue {
            self.best = [rate].into();
        }
        self.set(rate);
    }

    fn set(&mut self, rate: u64) {
        self.rate = rate.clamp(LEAST.min(self.most), self.most);
    }
}
