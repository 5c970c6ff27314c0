// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections, receivers and one bottleneck, run event by event.

use std::collections::VecDeque;

use paceline_abi::{pl_path, pl_policy, pl_turn};
use paceline_control::State;

use super::link::Link;
use super::sender::{Known, Packet, Sender};
use super::SECOND;

struct Arrival {
    at: u64,
    connection: usize,
    packet: Packet,
}

struct Ack {
    at: u64,
    connection: usize,
    count: u64,
    una: u64,
}

/// The receiving side of a connection.
#[derive(Default)]
struct Receiver {
    next: u64,
    /// Arrived out of order: one flag per segment from `next` on.
    beyond: VecDeque<bool>,
    unacked: u64,
    delayed_ns: Option<u64>,
    /// The application answers when it has this many segments.
    awaits: u64,
}

impl Receiver {
    /// Returns whether an ACK has to go now.
    fn take(&mut self, segment: u64, ack_every: u64) -> bool {
        self.unacked += 1;
        let in_order = segment == self.next && self.beyond.is_empty();
        if segment >= self.next {
            let at = (segment - self.next) as usize;
            while self.beyond.len() <= at {
                self.beyond.push_back(false);
            }
            self.beyond[at] = true;
            while self.beyond.front() == Some(&true) {
                self.beyond.pop_front();
                self.next += 1;
            }
        }
        !in_order || self.unacked >= ack_every || self.next >= self.awaits
    }
}

pub struct World {
    pub now: u64,
    pub link: Link,
    pub path: pl_path,
    /// Of connections from different hosts: a path each, and one bottleneck for all.
    pub apart: Vec<pl_path>,
    /// A turn for each host.
    pub turns: Vec<pl_turn>,
    pub policy: pl_policy,
    /// Of hosts that answer together the order is another one each time.
    chance: u64,
    /// Connections from this index on run the base algorithm alone.
    pub governed: usize,
    pub senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    arrivals: VecDeque<Arrival>,
    acks: VecDeque<Ack>,
    /// Highest sum of the pacing rates of all connections in PACED.
    pub peak_rate: u64,
}

/// What a burst of one or several connections came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Burst {
    /// From the first write to the last reply.
    pub completion_ns: u64,
    pub bound_ns: u64,
    pub drops: u64,
    pub retransmitted: u64,
    /// The path's rate when the burst began, and after it.
    pub started_at: u64,
    pub learned: u64,
    /// Sum of the orders to pace at most, while starts were under way.
    pub peak_rate: u64,
    pub queue: u64,
    /// Starts counted so far by the first connection.
    pub starts: u32,
}

impl Burst {
    /// Completion over the bound, in thousandths.
    pub fn permille(&self) -> u64 {
        self.completion_ns * 1000 / self.bound_ns
    }
}

impl World {
    pub fn new(link: Link, policy: pl_policy, connections: usize) -> Self {
        Self::with_counters(link, policy, connections, 0)
    }

    /// All counters that the law sees begin at `offset`.
    pub fn with_counters(link: Link, policy: pl_policy, connections: usize, offset: u32) -> Self {
        Self {
            now: SECOND,
            path: pl_path::default(),
            apart: Vec::new(),
            turns: vec![pl_turn::default()],
            chance: 1,
            policy,
            governed: connections,
            senders: (0..connections)
                .map(|_| Sender::new(&link, offset))
                .collect(),
            receivers: (0..connections).map(|_| Receiver::default()).collect(),
            link,
            arrivals: VecDeque::new(),
            acks: VecDeque::new(),
            peak_rate: 0,
        }
    }

    /// Each connection is from a host of its own.
    pub fn of_hosts(link: Link, policy: pl_policy, hosts: usize) -> Self {
        Self::of_hosts_to_many(link, policy, hosts, 1)
    }

    /// Each host has connections to `each` others, whose paths share the bottleneck.
    pub fn of_hosts_to_many(link: Link, policy: pl_policy, hosts: usize, each: usize) -> Self {
        Self {
            apart: vec![pl_path::default(); hosts * each],
            turns: vec![pl_turn::default(); hosts],
            ..Self::new(link, policy, hosts * each)
        }
    }

    /// What the law goes by for a connection; `None` where it runs the base alone.
    fn known(&mut self, connection: usize) -> (&mut Sender, Option<Known<'_>>) {
        let host = connection * self.turns.len() / self.senders.len();
        let law = (connection < self.governed).then(|| Known {
            policy: &self.policy,
            path: self.apart.get_mut(connection).unwrap_or(&mut self.path),
            turn: &mut self.turns[host],
        });
        (&mut self.senders[connection], law)
    }

    /// All senders' least timeout.
    pub fn set_rto_min(&mut self, us: u32) {
        self.senders
            .iter_mut()
            .for_each(|sender| sender.set_rto_min(us));
    }

    pub fn idle(&mut self, ns: u64) {
        let until = self.now + ns;
        self.run(until);
        self.now = until;
    }

    /// Writes without waiting.
    pub fn write(&mut self, connection: usize, segs: u64) {
        self.senders[connection].write(segs, self.now);
        self.receivers[connection].awaits = self.senders[connection].written;
        self.transmit(connection);
    }

    /// Each connection writes `segs`; runs until all have their reply, then
    /// `pause_ns` more.
    pub fn burst(&mut self, segs: u64, pause_ns: u64) -> Burst {
        self.burst_of(0..self.senders.len(), segs, pause_ns)
    }

    /// A burst a second. Leaves out the first `learned`; of the next `counted` what they took
    /// in thousandths of the bound, in order.
    pub fn rounds(&mut self, learned: usize, counted: usize, segs: u64) -> Vec<u64> {
        let all = (0..learned + counted).map(|_| self.burst(segs, SECOND).permille());
        let mut took: Vec<u64> = all.skip(learned).collect();
        took.sort_unstable();
        took
    }

    pub fn burst_of(&mut self, range: std::ops::Range<usize>, segs: u64, pause_ns: u64) -> Burst {
        let begin = self.now;
        let drops = self.link.drops;
        let retransmitted = self.retransmitted();
        let started_at = self.path.rate_bps;
        self.peak_rate = 0;
        self.link.longest_queue = 0;
        let bound_ns = self.link.bound_ns(segs * range.len() as u64);
        for connection in self.order_of(range.clone()) {
            self.write(connection, segs);
        }
        while !range
            .clone()
            .all(|connection| self.senders[connection].idle())
        {
            assert!(self.step(u64::MAX), "nothing left to happen");
            assert!(self.now - begin < 1000 * SECOND, "stuck");
        }
        let burst = Burst {
            completion_ns: self.now - begin,
            bound_ns,
            drops: self.link.drops - drops,
            retransmitted: self.retransmitted() - retransmitted,
            started_at,
            learned: self.path.rate_bps,
            peak_rate: self.peak_rate,
            queue: self.link.longest_queue,
            starts: self.senders[range.start].law.raw().starts,
        };
        self.idle(pause_ns);
        burst
    }

    fn order_of(&mut self, range: std::ops::Range<usize>) -> Vec<usize> {
        let mut order: Vec<usize> = range.collect();
        for last in (1..order.len()).rev().filter(|_| !self.apart.is_empty()) {
            // Knuth's generator, MMIX.
            self.chance = self
                .chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            order.swap(last, (self.chance >> 33) as usize % (last + 1));
        }
        order
    }

    pub fn retransmitted(&self) -> u64 {
        self.senders.iter().map(|sender| sender.retransmitted).sum()
    }

    /// Runs what happens up to `until`.
    pub fn run(&mut self, until: u64) {
        while self.step(until) {}
    }

    fn transmit(&mut self, connection: usize) {
        let now = self.now;
        let mut packets = Vec::new();
        let (sender, law) = self.known(connection);
        sender.transmit(now, law, |packet| packets.push(packet));
        for packet in packets {
            launch(now, &mut self.link, &mut self.arrivals, connection, packet);
        }
        let rate: u64 = self
            .senders
            .iter()
            .filter(|sender| sender.law.state() == State::Paced && sender.law.raw().led != 0)
            .map(|sender| sender.law.raw().share_bps)
            .sum();
        self.peak_rate = self.peak_rate.max(rate);
    }

    /// The next event at or before `until`; false when there is none.
    fn step(&mut self, until: u64) -> bool {
        let arrival = self.arrivals.front().map_or(u64::MAX, |arrival| arrival.at);
        let ack = self.acks.front().map_or(u64::MAX, |ack| ack.at);
        let (mut timer, mut expired) = (u64::MAX, 0);
        for (index, (sender, receiver)) in self.senders.iter().zip(&self.receivers).enumerate() {
            for at in [sender.wake_ns, sender.timer_ns, receiver.delayed_ns]
                .into_iter()
                .flatten()
            {
                if at < timer {
                    (timer, expired) = (at, index);
                }
            }
        }
        let next = arrival.min(ack).min(timer);
        if next > until || next == u64::MAX {
            return false;
        }
        self.now = self.now.max(next);
        if next == arrival {
            self.arrive();
        } else if next == ack {
            self.acknowledge();
        } else {
            self.expire(expired, next);
        }
        true
    }

    fn arrive(&mut self) {
        let arrival = self.arrivals.pop_front().expect("checked");
        self.senders[arrival.connection].arrives(arrival.packet.number);
        let receiver = &mut self.receivers[arrival.connection];
        if receiver.take(arrival.packet.segment, self.link.ack_every) {
            self.send_ack(arrival.connection);
        } else if receiver.delayed_ns.is_none() {
            receiver.delayed_ns = Some(self.now + self.link.ack_delay_ns);
        }
    }

    fn send_ack(&mut self, connection: usize) {
        let receiver = &mut self.receivers[connection];
        receiver.delayed_ns = None;
        self.acks.push_back(Ack {
            at: self.now + self.link.rtt_ns / 2,
            connection,
            count: std::mem::take(&mut receiver.unacked),
            una: receiver.next,
        });
    }

    fn acknowledge(&mut self) {
        let ack = self.acks.pop_front().expect("checked");
        let now = self.now;
        let (sender, law) = self.known(ack.connection);
        sender.ack(now, ack.count, ack.una, law);
        self.transmit(ack.connection);
    }

    fn expire(&mut self, index: usize, at: u64) {
        if self.receivers[index].delayed_ns == Some(at) {
            self.send_ack(index);
        } else if self.senders[index].wake_ns == Some(at) {
            self.senders[index].wake_ns = None;
            self.transmit(index);
        } else {
            let Self {
                now,
                link,
                arrivals,
                senders,
                ..
            } = self;
            senders[index].timer(*now, |packet| launch(*now, link, arrivals, index, packet));
            self.transmit(index);
        }
    }
}

fn launch(
    now: u64,
    link: &mut Link,
    arrivals: &mut VecDeque<Arrival>,
    connection: usize,
    packet: Packet,
) {
    if let Some(at) = link.carry(now) {
        arrivals.push_back(Arrival {
            at,
            connection,
            packet,
        });
    }
}
