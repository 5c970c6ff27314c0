// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a link: a queue, a rate and a delay.
//!
//! A first-in first-out queue in front of a constant rate needs no event of its own:
//! when a packet is queued, the time of its departure is known. So a
//! packet costs one event per link, its arrival at the other end.

use std::collections::VecDeque;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::event::SECOND;
use crate::red::Red;

/// Capacity of a queue. The packet in transmission does not count, as in ns-2, ns-3 and a
/// network card's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Everything.
    None,
    /// So many packets.
    Packets(u32),
    /// So many bytes.
    Bytes(u64),
}

/// Counters of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived.
    pub arrived: u64,
    /// Of these, dropped because the queue was full.
    pub overflowed: u64,
    /// And dropped by RED.
    pub early: u64,
    /// And lost behind the queue, by the line.
    pub lost: u64,
    /// Sum over the arrivals of the packets that waited then, for the mean queue.
    pub queued: u64,
    /// Most packets that ever waited.
    pub longest: u32,
}

impl Counts {
    /// Packets dropped by the queue.
    pub fn dropped(&self) -> u64 {
        self.overflowed + self.early
    }

    /// Counts since `before`; the longest queue is that of the whole run.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            arrived: self.arrived - before.arrived,
            overflowed: self.overflowed - before.overflowed,
            early: self.early - before.early,
            lost: self.lost - before.lost,
            queued: self.queued - before.queued,
            longest: self.longest,
        }
    }
}

/// Random loss on a line, after the queue: Gilbert and Elliott's two states, which change
/// from packet to packet. All are probabilities, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// That the line turns bad.
    pub to_bad: f64,
    /// That it is good again.
    pub to_good: f64,
    /// That a packet is lost while it is good.
    pub good: f64,
    /// And while it is bad.
    pub bad: f64,
}

#[derive(Debug, Clone)]
struct Line {
    loss: Loss,
    is_bad: bool,
    random: Pcg64Mcg,
}

impl Line {
    fn loses(&mut self) -> bool {
        let loss = self.loss;
        let turns = if self.is_bad {
            loss.to_good
        } else {
            loss.to_bad
        };
        self.is_bad ^= self.random.random::<f64>() < turns;
        let share = if self.is_bad { loss.bad } else { loss.good };
        self.random.random::<f64>() < share
    }
}

/// The queue of a link that may drop or lose packets, and its counters.
#[derive(Debug, Clone)]
struct Queue {
    limit: Limit,
    red: Option<Red>,
    /// Departure times of the queued packets, in order.
    leaving: VecDeque<(u64, u32)>,
    bytes: u64,
    /// Behind the queue, if it loses packets.
    line: Option<Line>,
    /// Without the arrivals.
    counts: Counts,
}

/// One direction of a link: a line of the cache, as a run may have millions, most of which
/// take everything.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub struct Link {
    /// Bits per second; 0: no packet takes any time.
    rate_bps: u64,
    delay_ns: u64,
    busy_until: u64,
    arrived: u64,
    /// The size and time of the last packet: most are of one size.
    last_size: (u32, u64),
    /// None for a link without limit, RED or loss: nothing reads its queue.
    queue: Option<Box<Queue>>,
}

impl Link {
    /// A link of `rate_bps` bits per second, 0 for one that takes no time.
    pub fn new(rate_bps: u64, delay_ns: u64, limit: Limit, red: Option<Red>) -> Self {
        let takes_everything = limit == Limit::None && red.is_none();
        Link {
            rate_bps,
            delay_ns,
            busy_until: 0,
            arrived: 0,
            last_size: (0, 0),
            queue: (!takes_everything).then(|| Box::new(Queue::new(limit, red))),
        }
    }

    /// The link with a line that loses packets, as `random` draws.
    #[must_use]
    pub fn with_loss(mut self, loss: Loss, random: Pcg64Mcg) -> Self {
        let queue = self.queue.take();
        let mut queue = queue.unwrap_or_else(|| Box::new(Queue::new(Limit::None, None)));
        queue.line = Some(Line {
            loss,
            is_bad: false,
            random,
        });
        self.queue = Some(queue);
        self
    }

    /// Changes the link's rate, delay and queue limit; RED stays. Packets on the link and in
    /// its queue keep their departure times.
    pub fn change(&mut self, rate_bps: u64, delay_ns: u64, limit: Limit) {
        (self.rate_bps, self.delay_ns) = (rate_bps, delay_ns);
        self.last_size = (0, 0);
        if let Some(queue) = &mut self.queue {
            queue.limit = limit;
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

    /// Nanoseconds that a packet of `bytes` needs to cross the idle link.
    pub fn crossing_ns(&self, bytes: u32) -> u64 {
        Self::transmission_ns(self.rate_bps, bytes).saturating_add(self.delay_ns)
    }

    /// A packet arrives at `now`, which is never earlier than the last one's time.
    /// Returns when it will be at the other end, or nothing if it is dropped or lost.
    #[inline]
    pub fn take(&mut self, now: u64, bytes: u32) -> Option<u64> {
        if self.last_size.0 != bytes {
            self.last_size = (bytes, Self::transmission_ns(self.rate_bps, bytes));
        }
        self.arrived += 1;
        let idle_since = self.busy_until;
        // A link of a bit per second may be busy for ever.
        let busy_until = idle_since.max(now).saturating_add(self.last_size.1);
        if let Some(queue) = &mut self.queue {
            if !queue.takes(now, bytes, idle_since) {
                return None;
            }
            queue.leaving.push_back((busy_until, bytes));
            queue.bytes += u64::from(bytes);
            if queue.line.as_mut().is_some_and(Line::loses) {
                queue.counts.lost += 1;
                self.busy_until = busy_until;
                return None;
            }
        }
        self.busy_until = busy_until;
        Some(busy_until.saturating_add(self.delay_ns))
    }

    /// Packets that wait at `now`.
    pub fn queued(&self, now: u64) -> usize {
        let Some(Queue { leaving, .. }) = self.queue.as_deref() else {
            return 0;
        };
        let inside = leaving.len() - leaving.partition_point(|&(time, _)| time <= now);
        inside.saturating_sub(1)
    }

    /// Limit of the queue.
    pub fn limit(&self) -> Limit {
        self.queue.as_ref().map_or(Limit::None, |queue| queue.limit)
    }

    /// RED's average queue, where there is RED.
    pub fn average(&self) -> Option<f64> {
        Some(self.queue.as_ref()?.red.as_ref()?.average())
    }

    /// Its counters so far.
    pub fn counts(&self) -> Counts {
        let counts = self.queue.as_ref().map(|queue| queue.counts);
        Counts {
            arrived: self.arrived,
            ..counts.unwrap_or_default()
        }
    }
}

impl Queue {
    fn new(limit: Limit, red: Option<Red>) -> Self {
        Queue {
            limit,
            red,
            leaving: VecDeque::new(),
            bytes: 0,
            line: None,
            counts: Counts::default(),
        }
    }

    /// Whether a packet of `bytes` may wait, or go at once.
    #[inline]
    fn takes(&mut self, now: u64, bytes: u32, idle_since: u64) -> bool {
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
            if red.drops(queued as usize, now.saturating_sub(idle_since)) {
                self.counts.early += 1;
                return false;
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
            return false;
        }
        if !self.leaving.is_empty() {
            self.counts.longest = self.counts.longest.max(queued + 1);
        }
        true
    }

    fn waiting_bytes(&self) -> u64 {
        self.bytes
            - self
                .leaving
                .front()
                .map_or(0, |&(_, bytes)| u64::from(bytes))
    }
}
