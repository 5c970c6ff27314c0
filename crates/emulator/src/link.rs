// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a link as arithmetic: a buffer in front of a line with a rate,
//! a delay, and random impairments.
//!
//! Nothing here reads a clock. A packet that arrives at `t` leaves the line at
//! `max(t, departure of the packet before it) + (size + framing) * 8 / rate`
//! and is due at the far end one delay later. Because every time is computed
//! from other computed times, a late caller makes single packets late and
//! never the packets after them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::codel::{CodelQueue, Verdict, Waiting};
use crate::config::{Buffer, Change, Line, LinkConfig, Policer};
use crate::count::Count;
use crate::impairment::{random, Fate, Impairments, Sequence};
use crate::red::RedQueue;
use crate::trace::Position;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Why a packet did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The buffer was full.
    BufferFull,
    /// The policer had no tokens left.
    Policer,
    /// Random early detection.
    Red,
    /// CoDel, at dequeue.
    Codel,
    /// Lost on the line.
    Line,
}

/// When an accepted packet leaves the line and when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The last bit leaves the line, nanoseconds.
    pub departure: u64,
    /// The last bit reaches the far end, nanoseconds; also of one that is lost on
    /// the way.
    pub delivery: u64,
}

/// A packet that has left the link.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivered<T> {
    /// The argument of [`Link::arrive`].
    pub packet: T,
    /// Its size in bytes.
    pub size: u32,
    /// When its last bit left the line, nanoseconds.
    pub departure: u64,
    /// When it was due, nanoseconds. Never after the argument of [`Link::deliver`].
    pub due: u64,
    /// How often it arrives: 0 if it was dropped or the line lost it, 2 if it was duplicated.
    pub copies: u8,
    /// CoDel's verdict on it.
    pub verdict: Option<Verdict>,
}

/// In the buffer, on the line or on its way.
#[derive(Debug)]
struct Queued<T> {
    packet: T,
    size: u32,
    arrival: u64,
    /// When the line begins to send it.
    start: u64,
    departure: u64,
    delivery: u64,
    fate: Fate,
    capable: bool,
    verdict: Option<Verdict>,
}

/// Overtaken: by the time it is due, and of equals by arrival.
#[derive(Debug)]
struct Held<T> {
    order: Reverse<(u64, u64)>,
    queued: Queued<T>,
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl<T> Held<T> {
    fn lost(mut self) -> Self {
        self.queued.fate.lost = true;
        self
    }
}

/// A policer's tokens, as the time in which they accrue, as in the kernel.
#[derive(Debug)]
struct Bucket {
    tokens: u64,
    since: u64,
}

impl Policer {
    /// Nanoseconds in which so many bytes come together.
    fn ns(&self, bytes: u64) -> u64 {
        let bits = u128::from(bytes) * 8 * u128::from(NANOS_PER_SECOND);
        u64::try_from(bits / u128::from(self.rate_bits.max(1))).unwrap_or(u64::MAX)
    }

    fn depth_ns(&self) -> u64 {
        self.ns(self.burst_bytes)
    }
}

impl Bucket {
    /// Takes the tokens for so many bytes; false if there are too few.
    fn takes(&mut self, policer: &Policer, now: u64, bytes: u64) -> bool {
        let filled = self.tokens.saturating_add(now.saturating_sub(self.since));
        let tokens = filled.min(policer.depth_ns());
        let needed = policer.ns(bytes);
        if needed > tokens {
            return false;
        }
        (self.tokens, self.since) = (tokens - needed, now);
        true
    }
}

/// One direction of a link. Times are nanoseconds since any fixed moment.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    /// By arrival. Deliveries rise, but for those that will be held.
    queue: VecDeque<Queued<T>>,
    /// How many at the front of `queue` have left the line.
    departed: usize,
    /// Taken out of the queue once they have left the line.
    held: BinaryHeap<Held<T>>,
    impairments: Impairments,
    red: RedQueue,
    codel: CodelQueue,
    /// The first that has not left is on the line, and CoDel has judged it.
    judged: bool,
    bucket: Bucket,
    /// End of the present slot, at which its packets arrive, where packets wait for slots.
    slot: u64,
    backlog: u64,
    peak_backlog: u64,
    last_departure: u64,
    /// Of the last packet that keeps its order.
    last_delivery: u64,
    /// Remainder of the division by the rate, so that rounding errors never add up.
    remainder: u64,
    position: Position,
    started: u64,
    next_step: usize,
    accepted: u64,
    now: u64,
}

impl<T> Link<T> {
    /// An empty link that starts at `started`, from where its steps count.
    pub fn new(config: LinkConfig, started: u64) -> Self {
        Link {
            queue: VecDeque::new(),
            departed: 0,
            held: BinaryHeap::new(),
            impairments: Impairments::new(config.seed),
            red: RedQueue::new(random(config.seed, Sequence::Red)),
            codel: CodelQueue::default(),
            judged: false,
            bucket: Bucket {
                tokens: config.policer.as_ref().map_or(0, Policer::depth_ns),
                since: started,
            },
            slot: 0,
            backlog: 0,
            peak_backlog: 0,
            last_departure: started,
            last_delivery: 0,
            remainder: 0,
            position: Position::default(),
            started,
            next_step: 0,
            accepted: 0,
            now: started,
            config,
        }
    }

    /// The current state of the link.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Packets in the buffer or on the line.
    pub fn inside(&self) -> Count {
        let held = self.held.iter().map(|held| &held.queued);
        let mut inside = Count::default();
        self.queue
            .iter()
            .chain(held)
            .for_each(|queued| inside.add(queued.size));
        inside
    }

    /// The most bytes the buffer ever held.
    pub fn peak_backlog(&self) -> u64 {
        self.peak_backlog
    }

    /// Bytes in the buffer at `now`.
    pub fn backlog(&mut self, now: u64) -> u64 {
        self.advance(now);
        self.backlog
    }

    /// A packet of `size` bytes arrives, of a transport without ECN. If it is dropped,
    /// it is handed back with the cause. A time before the last one counts as the last one.
    /// Where CoDel drops packets ahead of it, it leaves earlier than returned here.
    pub fn arrive(&mut self, now: u64, size: u32, packet: T) -> Result<Schedule, (T, Cause)> {
        self.arrive_capable(now, size, false, packet)
    }

    /// As [`Link::arrive`], of a transport that is ECN-`capable` or not.
    pub fn arrive_capable(
        &mut self,
        now: u64,
        size: u32,
        capable: bool,
        packet: T,
    ) -> Result<Schedule, (T, Cause)> {
        self.advance(now);
        let arrival = self.now;
        if let Some(policer) = self.config.policer {
            let bytes = self.on_the_line(size);
            if !self.bucket.takes(&policer, arrival, bytes) {
                return Err((packet, Cause::Policer));
            }
        }
        if let Some(cause) = self.refuses(arrival, size) {
            return Err((packet, cause));
        }
        self.backlog += u64::from(size);
        self.peak_backlog = self.peak_backlog.max(self.backlog);
        self.accepted += 1;
        let fate = self.impairments.next(&self.config);
        let (start, departure) = self.depart(arrival, size);
        let delivery = self.deliver_at(departure, &fate);
        self.queue.push_back(Queued {
            packet,
            size,
            arrival,
            start,
            departure,
            delivery,
            fate,
            capable,
            verdict: None,
        });
        Ok(Schedule {
            departure,
            delivery,
        })
    }

    /// Time of the next delivery or step of the link.
    pub fn next_event(&self) -> Option<u64> {
        let front = self.queue.front().map(|first| match first.fate.held_ns {
            Some(_) => first.departure,
            None => first.delivery,
        });
        let held = self.held.peek().map(|held| held.queued.delivery);
        // A step can move waiting packets only.
        let waiting = self.departed < self.queue.len();
        let step = self.step_at().filter(|_| waiting);
        [front, held, step].into_iter().flatten().min()
    }

    /// The next packet that has left the link by `now`.
    pub fn deliver(&mut self, now: u64) -> Option<Delivered<T>> {
        // A drop of CoDel moves all packets behind it.
        if self.config.codel.is_some() || self.step_at().is_some_and(|at| at <= now) {
            self.advance(now);
        }
        while let Some(first) = self.queue.front() {
            if first.fate.held_ns.is_none() || first.departure > now {
                break;
            }
            let queued = self.take_first()?;
            let order = Reverse((queued.delivery, self.accepted - self.queue.len() as u64));
            self.held.push(Held { order, queued });
        }
        let front = self
            .queue
            .front()
            .map_or(u64::MAX, |first| match first.fate.held_ns {
                Some(_) => u64::MAX,
                None => first.delivery,
            });
        let held = self
            .held
            .peek()
            .map_or(u64::MAX, |held| held.queued.delivery);
        if front.min(held) > now || (front == u64::MAX && held == u64::MAX) {
            return None;
        }
        let first = if held < front {
            self.held.pop()?.queued
        } else {
            self.take_first()?
        };
        Some(Delivered {
            packet: first.packet,
            size: first.size,
            departure: first.departure,
            due: first.delivery,
            copies: match first.fate {
                Fate { lost: true, .. } => 0,
                Fate { twice: true, .. } => 2,
                _ => 1,
            },
            verdict: first.verdict,
        })
    }

    /// Changes rate, delay, buffer or loss from `now` on, or begins an outage. The frame on
    /// the line keeps its rate, those behind it take the new one. A shorter delay
    /// overtakes nothing: order is kept.
    pub fn change(&mut self, now: u64, change: &Change) {
        self.advance(now);
        self.apply(self.now, change);
    }

    fn step_at(&self) -> Option<u64> {
        let step = self.config.steps.get(self.next_step)?;
        Some(self.started.saturating_add(step.at_ns))
    }

    /// The first of the queue, which has left the line.
    fn take_first(&mut self) -> Option<Queued<T>> {
        let departure = self.queue.front()?.departure;
        self.advance_to(departure.max(self.now));
        self.departed -= 1;
        self.queue.pop_front()
    }

    fn refuses(&mut self, now: u64, size: u32) -> Option<Cause> {
        let full = match self.config.buffer {
            Buffer::Bytes(most) => self.backlog + u64::from(size) > most,
            Buffer::Packets(most) => (self.queue.len() - self.departed) as u64 >= most,
        };
        if full {
            return Some(Cause::BufferFull);
        }
        let red = self.config.red?;
        let rate = self.config.mean_rate_bits() as u64;
        let idle = now.saturating_sub(self.last_departure);
        self.red
            .drops(&red, self.backlog, idle, rate)
            .then_some(Cause::Red)
    }

    fn apply(&mut self, now: u64, change: &Change) {
        if let Some(rate) = change.rate_bits {
            self.config.line = Line::Rate(rate);
        }
        if let Some(delay) = change.delay_ns {
            self.config.delay_ns = delay;
        }
        if let Some(buffer) = change.buffer {
            self.config.buffer = buffer;
        }
        if let Some(loss) = change.loss {
            self.config.loss = Some(loss);
        }
        if change.cut {
            self.cut(now);
        }
        if change.rate_bits.is_none() && change.outage_ns.is_none() && change.delay_ns.is_none() {
            return;
        }
        let line_changes = change.rate_bits.is_some() || change.outage_ns.is_some();
        let on_the_line = self.queue.get(self.departed).map(|first| first.departure);
        if line_changes {
            let free = on_the_line.unwrap_or(self.last_departure);
            let outage = change.outage_ns.map_or(0, |ns| now.saturating_add(ns));
            self.free_at(free.max(outage));
            self.depart_again(self.departed + 1);
        }
        self.deliver_again();
    }

    /// The line is free from `at` on.
    fn free_at(&mut self, at: u64) {
        self.remainder = 0;
        self.last_departure = at;
        if let Line::Trace(trace) = &self.config.line {
            self.position.skip_to(trace, at);
        }
    }

    /// Recomputes the departures from that packet on.
    fn depart_again(&mut self, first: usize) {
        for at in first..self.queue.len() {
            let Queued { arrival, size, .. } = self.queue[at];
            (self.queue[at].start, self.queue[at].departure) = self.depart(arrival, size);
        }
    }

    /// Recomputes the due times of all packets that have not left the line.
    fn deliver_again(&mut self) {
        let before = self.queue.range(..self.departed);
        self.last_delivery = before
            .filter(|queued| queued.fate.held_ns.is_none())
            .map(|queued| queued.delivery)
            .next_back()
            .unwrap_or(0);
        for at in self.departed..self.queue.len() {
            let Queued {
                departure, fate, ..
            } = self.queue[at];
            self.queue[at].delivery = self.deliver_at(departure, &fate);
        }
    }

    /// All packets of the link are lost, and the line is free.
    fn cut(&mut self, now: u64) {
        for queued in &mut self.queue {
            queued.fate = Fate {
                lost: true,
                held_ns: None,
                ..queued.fate
            };
            queued.departure = queued.departure.min(now);
            queued.delivery = now;
        }
        self.held = self.held.drain().map(Held::lost).collect();
        self.last_departure = self.last_departure.min(now);
        self.last_delivery = now;
        self.remainder = 0;
        self.departed = self.queue.len();
        self.backlog = 0;
        self.judged = false;
    }

    fn deliver_at(&mut self, departure: u64, fate: &Fate) -> u64 {
        let delay = self.config.delay_ns.saturating_add_signed(fate.jitter_ns);
        let mut delivery = departure.saturating_add(delay).max(self.last_delivery);
        if self.config.slot_ns > 0 {
            if self.slot < delivery {
                self.slot = delivery.saturating_add(self.config.slot_ns);
            }
            delivery = self.slot;
        }
        match fate.held_ns {
            Some(later) => delivery.saturating_add(later),
            None => {
                self.last_delivery = delivery;
                delivery
            }
        }
    }

    fn on_the_line(&self, size: u32) -> u64 {
        u64::from(size).saturating_add_signed(self.config.framing_bytes.into())
    }

    /// When the line begins to send the next packet, and when that has left.
    fn depart(&mut self, arrival: u64, size: u32) -> (u64, u64) {
        let bytes = self.on_the_line(size);
        let start = arrival.max(self.last_departure);
        self.last_departure = match &self.config.line {
            Line::Trace(trace) => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                self.position.depart(trace, start, bytes)
            }
            Line::Rate(rate) => {
                if arrival > self.last_departure {
                    self.remainder = 0;
                }
                let work = u128::from(bytes * 8) * u128::from(NANOS_PER_SECOND)
                    + u128::from(self.remainder);
                let rate = u128::from(*rate);
                self.remainder = (work % rate) as u64;
                start.saturating_add((work / rate) as u64)
            }
        };
        (start, self.last_departure)
    }

    /// Steps that are due by `now`, and departures.
    fn advance(&mut self, now: u64) {
        while let Some(at) = self.step_at().filter(|at| *at <= now) {
            self.advance_to(at);
            let change = self.config.steps[self.next_step].change;
            self.next_step += 1;
            self.apply(at, &change);
        }
        self.advance_to(now);
    }

    fn advance_to(&mut self, now: u64) {
        self.now = self.now.max(now);
        loop {
            self.judge();
            let next = self.queue.get(self.departed);
            let Some(next) = next.filter(|next| next.departure <= self.now) else {
                return;
            };
            self.backlog -= u64::from(next.size);
            self.departed += 1;
            self.judged = false;
        }
    }

    /// The line begins to send the next packet: CoDel judges it.
    fn judge(&mut self) {
        let (Some(codel), false) = (self.config.codel, self.judged) else {
            return;
        };
        let next = self.queue.get_mut(self.departed);
        let Some(next) = next.filter(|next| next.start <= self.now) else {
            return;
        };
        self.judged = true;
        let start = next.start;
        let first = Waiting {
            waited: start - next.arrival,
            size: next.size,
            behind: self.backlog - u64::from(next.size),
            capable: next.capable,
        };
        next.verdict = self.codel.judge(&codel, start, first);
        if next.verdict != Some(Verdict::Drop) {
            return;
        }
        (next.departure, next.fate) = (
            start,
            Fate {
                lost: true,
                held_ns: None,
                ..next.fate
            },
        );
        self.free_at(start);
        self.depart_again(self.departed + 1);
        self.deliver_again();
    }
}

#[cfg(test)]
mod tests;
