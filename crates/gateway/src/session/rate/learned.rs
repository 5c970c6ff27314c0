// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate that a path delivers. Ours: the papers have no such law.
//!
//! A round is a round trip. While it starts, the rate doubles each round, until the arriving rate
//! does not follow, a queue builds, or a quarter is lost; each report is checked for that. Then it
//! is the best of the last ten rounds, a little more in one round of eight to find more, and less
//! as long as there is a queue.
//!
//! Loss is a sign of a rate too high only as far as it exceeds the usual loss: loss at any rate is
//! the path's own, and the rate is the one that the path serves, before that loss.

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
/// Loss beyond twice the usual one that is too much, in thousandths: while the rate doubles, and
/// later. Twice the path's rate loses a half of it, five quarters a fifth.
const MUCH: (u64, u64) = (250, 100);
/// Rounds in a row with too much of it, though the rate fell, after which it is the path's own.
const OWN: u32 = 5;
/// Rounds after which the bytes sent in one are settled: a round trip, in parts of two.
const SETTLED: usize = 3;
/// Rounds in a row with a queue, though the rate fell, after which the delay is the path's own: it
/// has become longer, or packets come later when there are many. A queue of this side's own is
/// empty by then: three round trips, as the rate falls by a tenth in each.
const LONGER: u32 = 8;
/// One round in so many is at half the rate while `base` exceeds the shortest round trip.
const LOOK: u64 = 64;
/// Bytes whose fate must be known before their loss means anything.
const ENOUGH: u64 = 32 << 10;

/// See the module's text.
#[derive(Debug)]
pub struct Learned {
    most: u64,
    rate: u64,
    is_starting: bool,
    rounds: u64,
    round: Round,
    /// Rates of the last rounds: bytes that are settled now were sent then.
    rates: VecDeque<u64>,
    /// Reports of the last quarter of a round trip: when, what arrived, the round-trip time.
    recent: VecDeque<(Nanos, u64, Nanos)>,
    best: VecDeque<u64>,
    /// Loss of the last rounds that had not too much of it, in thousandths.
    losses: VecDeque<u64>,
    /// Rounds in a row that had.
    lossy: u32,
    /// Rounds in a row with a queue.
    queued: u32,
    /// Round trip without a queue, where the path's has become longer than the shortest one.
    base: Nanos,
    /// Delivered rates of the last rounds of the start.
    followed: VecDeque<u64>,
}

/// Counts since the beginning of a round.
#[derive(Debug, Default)]
struct Round {
    since: Nanos,
    arrived: u64,
    lost: u64,
    was_idle: bool,
    was_silent: bool,
}

impl Round {
    /// Loss among settled bytes, in thousandths; 0 if these are few.
    fn loss(&self) -> u64 {
        let all = self.arrived + self.lost;
        match all < ENOUGH {
            true => 0,
            false => self.lost * 1_000 / all,
        }
    }
}

/// Bits per second.
fn rate(bytes: u64, time: Nanos) -> u64 {
    (u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(time.max(1))) as u64
}

impl Learned {
    /// Never above `most`, bits per second.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            rate: FIRST.min(most),
            is_starting: true,
            rounds: 0,
            round: Round::default(),
            rates: VecDeque::new(),
            recent: VecDeque::new(),
            best: VecDeque::new(),
            losses: VecDeque::new(),
            lossy: 0,
            queued: 0,
            base: 0,
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
        let round = &mut self.round;
        round.arrived += sample.arrived;
        round.lost += sample.lost;
        round.was_idle |= sample.was_idle;
        round.was_silent |= sample.was_silent;
        let elapsed = sample.now.saturating_sub(round.since);
        let is_over = elapsed >= sample.least_rtt.max(ROUND);
        let window = (sample.least_rtt / 4).max(ROUND);
        let lately = self.lately(sample, window);
        // Twice the rate for one more round trip would fill any queue.
        let is_too_much = self.is_starting
            && elapsed >= window
            && (self.is_lossy() || (self.is_queue(sample) && !self.was_idle(elapsed)));
        if !is_over && !is_too_much {
            return;
        }
        let delivered = match is_too_much {
            // At the beginning of the round less was sent than the path delivers.
            true => lately,
            false => rate(self.round.arrived, elapsed),
        };
        // A round that a cut ended says nothing about the path.
        if !self.round.was_silent {
            self.end_round(delivered, elapsed, sample);
        }
        self.rates.push_back(self.rate);
        if self.rates.len() > SETTLED {
            self.rates.pop_front();
        }
        self.round = Round {
            since: sample.now,
            ..Round::default()
        };
    }

    /// Delivered rate of the last `window`, bits per second.
    fn lately(&mut self, sample: &Sample, window: Nanos) -> u64 {
        self.recent
            .push_back((sample.now, sample.arrived, sample.rtt));
        while self.recent.len() > 2 && self.recent[1].0 + window <= sample.now {
            self.recent.pop_front();
        }
        // The first report's bytes were delivered before it.
        let bytes = self.recent.iter().skip(1).map(|one| one.1).sum();
        rate(bytes, sample.now - self.recent[0].0)
    }

    /// The path's own loss, in thousandths.
    fn usual(&self) -> u64 {
        self.losses.iter().copied().min().unwrap_or(0)
    }

    /// Whether this side sent less than three quarters of its rate: then less was delivered, too. A
    /// side that only reports is idle; a queue is then the other direction's.
    fn was_idle(&self, elapsed: Nanos) -> bool {
        let least = self.rates.iter().copied().min().unwrap_or(self.rate);
        let sent = rate(self.round.arrived + self.round.lost, elapsed);
        sent < least / 4 * 3
    }

    fn is_lossy(&self) -> bool {
        let much = if self.is_starting { MUCH.0 } else { MUCH.1 };
        self.round.loss() > 2 * self.usual() + much
    }

    /// Whether a queue persists: one packet that was overtaken is none.
    fn is_queue(&self, sample: &Sample) -> bool {
        let base = self.base.max(sample.least_rtt);
        self.least().saturating_sub(base) > QUEUE.max(base / 8)
    }

    /// Shortest round trip lately.
    fn least(&self) -> Nanos {
        self.recent.iter().map(|one| one.2).min().unwrap_or(0)
    }

    /// `shortest`: round trip of all.
    fn count_queue(&mut self, is_queue: bool, shortest: Nanos) {
        self.queued = if is_queue { self.queued + 1 } else { 0 };
        self.base = self.base.min(self.least());
        if self.queued >= LONGER {
            self.base = self.least().min(2 * shortest);
            self.queued = 0;
        }
    }

    fn count_loss(&mut self, is_lossy: bool) {
        self.lossy = if is_lossy { self.lossy + 1 } else { 0 };
        if self.lossy >= OWN {
            self.losses.clear();
            self.lossy = 0;
        } else if is_lossy {
            return;
        }
        self.losses.push_back(self.round.loss());
        if self.losses.len() > REMEMBERED {
            self.losses.pop_front();
        }
    }

    fn end_round(&mut self, delivered: u64, elapsed: Nanos, sample: &Sample) {
        let (is_lossy, is_queue) = (self.is_lossy(), self.is_queue(sample));
        // A part of the bytes that the path served was lost behind it.
        let served = delivered * 1_000 / (1_000 - self.usual().min(500));
        // Nothing is settled in the very first one.
        let was_idle = match self.rates.is_empty() {
            true => self.round.was_idle,
            false => self.was_idle(elapsed),
        };
        if was_idle && !is_lossy {
            return;
        }
        self.count_loss(is_lossy);
        self.count_queue(is_queue, sample.least_rtt);
        self.rounds += 1;
        let before = self.best.iter().copied().max().unwrap_or(served);
        let is_followed = served / 10 * 9 > before;
        self.best.push_back(served);
        if self.best.len() > REMEMBERED {
            self.best.pop_front();
        }
        let best = self.best.iter().copied().max().unwrap_or(served);
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
            _ if is_lossy => served / 20 * 19,
            (true, _) => served.min(best) / 10 * 9,
            // Was it a queue after all? Half a round trip of it is gone then.
            _ if self.base > sample.least_rtt && self.rounds.is_multiple_of(LOOK) => best / 2,
            // The path delivered more than before: it may carry still more.
            _ if is_followed => best / 4 * 5,
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
