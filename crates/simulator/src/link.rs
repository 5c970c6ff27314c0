// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a link: a queue, a rate and a delay.
//!
//! A first-in first-out queue in front of a constant rate needs no event of its own:
//! when a packet is taken in, the moment at which it will have left is known. So a
//! packet costs one event per link, its arrival at the other end.

use std::collections::VecDeque;

use crate::event::SECOND;
use crate::red::Red;

/// What may wait in a queue. The packet that is being sent does not wait any more: so do
/// ns-2, ns-3 and a network card's queue count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Everything.
    None,
    /// So many packets.
    Packets(u32),
    /// So many bytes.
    Bytes(u64),
}

/// What a link did with what arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived.
    pub arrived: u64,
    /// Of these, dropped because the queue was full.
    pub overflowed: u64,
    /// And dropped by RED.
    pub early: u64,
    /// Sum over the arrivals of the packets that waited then, for the mean queue.
    pub queued: u64,
    /// Most packets that ever waited.
    pub longest: u32,
}

impl Counts {
    /// Packets dropped.
    pub fn dropped(&self) -> u64 {
        self.overflowed + self.early
    }

    /// What happened since `before`; the longest queue is that of all time.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            arrived: self.arrived - before.arrived,
            overflowed: self.overflowed - before.overflowed,
            early: self.early - before.early,
            queued: self.queued - before.queued,
            longest: self.longest,
        }
    }
}

/// One direction of a link.
#[derive(Debug, Clone)]
pub struct Link {
    /// Bits per second; 0: no packet takes any time.
    rate_bps: u64,
    delay_ns: u64,
    limit: Limit,
    red: Option<Box<Red>>,
    /// When what waits will have left, first in first.
    leaving: VecDeque<(u64, u32)>,
    bytes: u64,
    busy_until: u64,
    /// The size and time of the last packet: most are of one size.
    last_size: (u32, u64),
    /// What it did so far.
    pub counts: Counts,
}

impl Link {
    /// A link of `rate_bps` bits per second, 0 for one that takes no time.
    pub fn new(rate_bps: u64, delay_ns: u64, limit: Limit, red: Option<Red>) -> Self {
        Link {
            rate_bps,
            delay_ns,
            limit,
            red: red.map(Box::new),
            leaving: VecDeque::new(),
            bytes: 0,
            busy_until: 0,
            last_size: (0, 0),
            counts: Counts::default(),
        }
    }

    /// Nanoseconds that a packet of `bytes` takes at `rate_bps`, rounded up: a link is
    /// never faster than it should be. 0 at a rate of 0, which stands for none.
    pub fn transmission_ns(rate_bps: u64, bytes: u32) -> u64 {
        if rate_bps == 0 {
            return 0;
        }
        (u64::from(bytes) * 8 * SECOND).div_ceil(rate_bps)
    }

    /// A packet arrives at `now`, which is never earlier than the last one's time.
    /// Returns when it will be at the other end, or nothing if it is dropped.
    #[inline]
    pub fn take(&mut self, now: u64, bytes: u32) -> Option<u64> {
        if self.last_size.0 != bytes {
            self.last_size = (bytes, Self::transmission_ns(self.rate_bps, bytes));
        }
        self.counts.arrived += 1;
        // Nobody asks what waits before a link that takes everything: no list is kept.
        if self.limit != Limit::None || self.red.is_some() {
            while let Some(&(time, bytes)) = self.leaving.front() {
                if time > now {
                    break;
                }
                self.leaving.pop_front();
                self.bytes -= u64::from(bytes);
            }
            let queued = self.leaving.len().saturating_sub(1) as u32;
            self.counts.queued += u64::from(queued);
            if let Some(red) = &mut self.red {
                let idle = now.saturating_sub(self.busy_until);
                if red.drops(queued as usize, idle) {
                    self.counts.early += 1;
                    return None;
                }
            }
            let full = match self.limit {
                Limit::None => false,
                // Into an idle link a packet goes without waiting.
                _ if self.leaving.is_empty() => false,
                Limit::Packets(most) => queued >= most,
                Limit::Bytes(most) => self.waiting_bytes() + u64::from(bytes) > most,
            };
            if full {
                self.counts.overflowed += 1;
                return None;
            }
            if !self.leaving.is_empty() {
                self.counts.longest = self.counts.longest.max(queued + 1);
            }
        }
        // A link of a bit per second may be busy for ever.
        self.busy_until = self.busy_until.max(now).saturating_add(self.last_size.1);
        if self.limit != Limit::None || self.red.is_some() {
            self.leaving.push_back((self.busy_until, bytes));
            self.bytes += u64::from(bytes);
        }
        Some(self.busy_until.saturating_add(self.delay_ns))
    }

    fn waiting_bytes(&self) -> u64 {
        self.bytes
            - self
                .leaving
                .front()
                .map_or(0, |&(_, bytes)| u64::from(bytes))
    }

    /// Packets that wait at `now`.
    pub fn queued(&self, now: u64) -> usize {
        let inside = self.leaving.len() - self.leaving.partition_point(|&(time, _)| time <= now);
        inside.saturating_sub(1)
    }

    /// What may wait.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// RED's average queue, where there is RED.
    pub fn average(&self) -> Option<f64> {
        self.red.as_ref().map(|red| red.average())
    }
}
