// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bottleneck: a rate, a propagation delay and a drop-tail buffer.

use super::{MS, MSS, SECOND};

#[derive(Clone, Debug)]
pub struct Link {
    /// Bytes of payload per second.
    pub rate: u64,
    /// Propagation, both ways together.
    pub rtt_ns: u64,
    /// Bytes that may wait, the segment in transmission included.
    pub buffer: u64,
    /// Largest packet that a host hands down, in segments; 1: no TSO.
    pub tso_segs: u64,
    /// The receiver acknowledges every so many segments (2; more under GRO),
    pub ack_every: u64,
    /// or what came within this time (the delayed ACK; or GRO's merging).
    pub ack_delay_ns: u64,
    /// The receiver's host does nothing for the second time in each first one, in ns.
    stalls: Option<(u64, u64)>,
    /// One of so many segments is lost on the way, wherever the queue is; 0: none.
    one_lost_of: u64,
    carried: u64,
    busy_until: u64,
    /// Bytes of payload per second at which a host sends into the bottleneck.
    edge: Option<u64>,
    edge_busy_until: u64,
    /// Segments dropped so far.
    pub drops: u64,
    /// Most bytes that ever waited.
    pub longest_queue: u64,
}

impl Link {
    pub fn new(rate: u64, rtt_ns: u64, buffer: u64) -> Self {
        Self {
            rate,
            rtt_ns,
            buffer,
            tso_segs: 1,
            ack_every: 2,
            ack_delay_ns: 40 * MS,
            stalls: None,
            one_lost_of: 0,
            carried: 0,
            busy_until: 0,
            edge: None,
            edge_busy_until: 0,
            drops: 0,
            longest_queue: 0,
        }
    }

    pub fn with_tso(mut self) -> Self {
        self.tso_segs = 65536 / MSS;
        self
    }

    /// A receiver that merges what arrives within `ns`, up to 64 KB.
    pub fn with_gro(mut self, ns: u64) -> Self {
        self.ack_every = 65536 / MSS;
        self.ack_delay_ns = ns;
        self
    }

    /// A receiver that delays no ACK.
    pub fn with_each_acknowledged(mut self) -> Self {
        self.ack_every = 1;
        self
    }

    /// A receiver's host that is busy with something else for `held_ns` in each `every_ns`.
    pub fn with_stalls(mut self, every_ns: u64, held_ns: u64) -> Self {
        self.stalls = Some((every_ns, held_ns));
        self
    }

    /// Random loss of one of so many segments, the same each time.
    pub fn with_random_loss(mut self, one_of: u64) -> Self {
        self.one_lost_of = one_of;
        self
    }

    /// A host's own link, at this rate: what it sends at once reaches the bottleneck so.
    pub fn with_edge(mut self, rate: u64) -> Self {
        self.edge = Some(rate);
        self
    }

    /// Segments that the path holds.
    pub fn bdp_segs(&self) -> u64 {
        (self.rate as u128 * self.rtt_ns as u128 / SECOND as u128) as u64 / MSS
    }

    /// Time that a segment takes on the link.
    pub fn segment_ns(&self) -> u64 {
        MSS * SECOND / self.rate
    }

    /// The least time in which `segs` can be sent and the reply be back.
    pub fn bound_ns(&self, segs: u64) -> u64 {
        segs * self.segment_ns() + self.rtt_ns
    }

    /// A segment reaches the bottleneck at `now`: when it is at the receiver,
    /// or nothing if it was dropped.
    pub fn carry(&mut self, now: u64) -> Option<u64> {
        let now = match self.edge {
            Some(rate) => self.edge_busy_until.max(now) + MSS * SECOND / rate,
            None => now,
        };
        self.edge_busy_until = now;
        let wait = self.busy_until.saturating_sub(now);
        let queued = (wait as u128 * self.rate as u128 / SECOND as u128) as u64;
        if queued + MSS > self.buffer {
            self.drops += 1;
            return None;
        }
        self.longest_queue = self.longest_queue.max(queued + MSS);
        self.busy_until = self.busy_until.max(now) + self.segment_ns();
        self.carried += 1;
        // The upper bits of a multiple of the golden ratio are as good as drawn.
        let drawn = self.carried.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (self.carried >> 3);
        let drawn = drawn.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
        if self.one_lost_of > 0 && drawn.is_multiple_of(self.one_lost_of) {
            return None;
        }
        let at = self.busy_until + self.rtt_ns / 2;
        let held_ns = self.stalls.map_or(0, |(every_ns, held_ns)| {
            held_ns.saturating_sub(at % every_ns)
        });
        Some(at + held_ns)
    }
}
