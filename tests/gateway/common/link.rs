// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a path: rate, drop-tail buffer, delay, loss, reordering, cuts, pauses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use paceline_gateway::session::{Nanos, MS, SECOND};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What a path does.
#[derive(Debug, Clone)]
pub struct Path {
    /// Bits per second.
    pub rate: u64,
    /// One way.
    pub delay: Nanos,
    /// Bytes that wait at most.
    pub buffer: u64,
    /// Share that is lost.
    pub loss: f64,
    /// Share that comes later, and by how much.
    pub reorder: (f64, Nanos),
    /// Share that comes once more, and by how much later.
    pub repeat: (f64, Nanos),
    /// All that is under way in one of them is lost.
    pub cuts: Vec<Range<Nanos>>,
    /// Nothing leaves the buffer, which survives.
    pub pauses: Vec<Range<Nanos>>,
    /// Each datagram is later by up to this, without overtaking.
    pub jitter: Nanos,
}

impl Path {
    /// With a buffer of 100 ms.
    pub fn new(rate: u64, delay: Nanos) -> Self {
        Self {
            rate,
            delay,
            buffer: rate / 80,
            loss: 0.0,
            reorder: (0.0, 0),
            repeat: (0.0, 0),
            cuts: Vec::new(),
            pauses: Vec::new(),
            jitter: 0,
        }
    }
}

/// A path, and what is on it.
pub struct Link {
    path: Path,
    overhead: u64,
    busy_until: Nanos,
    last_arrival: Nanos,
    random: Pcg64Mcg,
    under_way: BinaryHeap<Reverse<(Nanos, u64, Vec<u8>)>>,
    sent: u64,
    /// Bytes on the wire that were offered, by time.
    pub offered: Vec<(Nanos, u64)>,
    /// Datagrams that the buffer had no room for.
    pub overflowed: u64,
}

impl Link {
    pub fn new(path: Path, overhead: usize, seed: u64) -> Self {
        Self {
            path,
            overhead: overhead as u64,
            busy_until: 0,
            last_arrival: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
            under_way: BinaryHeap::new(),
            sent: 0,
            offered: Vec::new(),
            overflowed: 0,
        }
    }

    fn time(&self, bytes: u64) -> Nanos {
        (u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(self.path.rate)) as Nanos
    }

    pub fn send(&mut self, now: Nanos, datagram: &[u8]) {
        let bytes = datagram.len() as u64 + self.overhead;
        self.offered.push((now, bytes));
        let mut start = self.busy_until.max(now);
        let waiting = start - now;
        if waiting > self.time(self.path.buffer) {
            self.overflowed += 1;
            return;
        }
        let is_lost = self.random.random_bool(self.path.loss);
        for pause in &self.path.pauses {
            if pause.contains(&start) {
                start = pause.end;
            }
        }
        self.busy_until = start + self.time(bytes);
        let mut arrival = self.busy_until + self.path.delay;
        if self.path.jitter > 0 {
            arrival += self.random.random_range(0..self.path.jitter);
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        let (share, by) = self.path.reorder;
        if share > 0.0 && self.random.random_bool(share) {
            arrival += by;
        }
        let is_cut = |cut: &Range<Nanos>| now < cut.end && arrival >= cut.start;
        if is_lost || self.path.cuts.iter().any(is_cut) {
            return;
        }
        let (share, by) = self.path.repeat;
        let is_repeated = share > 0.0 && self.random.random_bool(share);
        for arrival in [Some(arrival), is_repeated.then_some(arrival + by)] {
            let Some(arrival) = arrival else { continue };
            self.sent += 1;
            self.under_way
                .push(Reverse((arrival, self.sent, datagram.to_vec())));
        }
    }

    pub fn next_arrival(&self) -> Nanos {
        self.under_way.peek().map_or(Nanos::MAX, |next| next.0 .0)
    }

    pub fn arrival(&mut self, now: Nanos) -> Option<Vec<u8>> {
        if self.next_arrival() > now {
            return None;
        }
        self.under_way.pop().map(|next| next.0 .2)
    }

    /// Most bytes that were offered in any 10 ms.
    pub fn most_in_10_ms(&self) -> u64 {
        let (mut first, mut sum, mut most) = (0, 0, 0);
        for &(at, bytes) in &self.offered {
            sum += bytes;
            while self.offered[first].0 + 10 * MS <= at {
                sum -= self.offered[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }
}
