// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scoreboard: the state of each segment in flight of a sender with SACK.
//!
//! The paths of a run keep the order of packets, so a segment that was sent before a
//! delivered one, and has not arrived itself, is lost: RACK (RFC 8985) with no reordering
//! seen. That holds for retransmissions, too.

use std::collections::VecDeque;

const ARRIVED: u8 = 1;
const LOST: u8 = 2;
const AGAIN: u8 = 4;
/// Sent more than once: an ACK does not show for which transmission it is (Karn).
const RESENT: u8 = 8;

#[derive(Debug, Clone, Copy)]
struct Segment {
    /// When it was last sent.
    stamp: u64,
    /// Segments delivered by that moment, and when the last of them was.
    delivered_ns: u64,
    delivered: u32,
    flags: u8,
}

/// Changes by an ACK.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Change {
    /// Segments that are known to have arrived since.
    pub delivered: u32,
    /// When the latest of them was sent, if it was sent only once.
    pub rtt_stamp: Option<u64>,
    /// When the first of them was, likewise.
    pub first_stamp: Option<u64>,
    /// Segments delivered since the latest of them was sent, and over how long.
    pub carried: u32,
    pub carried_ns: u64,
}

/// The scoreboard.
#[derive(Debug, Clone, Default)]
pub(super) struct Board {
    segments: VecDeque<Segment>,
    /// Transmissions in the order of sending, some of them of no interest any more.
    flying: VecDeque<(u32, u64)>,
    lost: VecDeque<u32>,
    arrived: u32,
    lost_out: u32,
    again_out: u32,
    /// Stamp of the latest transmission that is known to have arrived.
    newest: u64,
    last_stamp: u64,
    /// Segments known to have arrived.
    pub delivered: u32,
    delivered_ns: u64,
    /// App-limited until so many segments are delivered; 0: not app-limited.
    pub app_limited: u32,
    /// Proportional rate reduction (RFC 6937).
    pub prr_delivered: u32,
    pub prr_out: u32,
    pub prior_cwnd: u32,
    /// Segments sent before a tail-loss probe whose outcome is open (tlp_high_seq): no other
    /// probe leaves.
    pub probe_end: Option<u32>,
    /// It repeated the last of them (tlp_retrans).
    pub probe_repeats: bool,
}

impl Board {
    /// Segments in the network, as far as is known.
    pub fn in_flight(&self) -> u32 {
        (self.segments.len() as u32 + self.again_out) - self.arrived - self.lost_out
    }

    /// Segments marked lost.
    pub fn lost_out(&self) -> u32 {
        self.lost_out
    }

    /// Segments that arrived out of order.
    pub fn arrived(&self) -> u32 {
        self.arrived
    }

    /// The unique stamp of a transmission at `now`.
    fn stamp(&mut self, now: u64) -> u64 {
        self.last_stamp = now.max(self.last_stamp + 1);
        self.last_stamp
    }

    /// Sends the next new segment, `sequence`.
    pub fn send_new(&mut self, sequence: u32, now: u64) -> u64 {
        if self.segments.is_empty() {
            self.delivered_ns = now;
        }
        let stamp = self.stamp(now);
        self.segments.push_back(Segment {
            stamp,
            delivered_ns: self.delivered_ns,
            delivered: self.delivered,
            flags: 0,
        });
        self.flying.push_back((sequence, stamp));
        stamp
    }

    /// Sends `sequence` again.
    pub fn send_again(&mut self, sequence: u32, una: u32, now: u64) -> u64 {
        let stamp = self.stamp(now);
        let (delivered, delivered_ns) = (self.delivered, self.delivered_ns);
        let segment = &mut self.segments[(sequence - una) as usize];
        segment.stamp = stamp;
        segment.delivered = delivered;
        segment.delivered_ns = delivered_ns;
        segment.flags |= RESENT;
        // A probe of a segment that is not marked lost counts as one segment in flight.
        if segment.flags & (LOST | AGAIN) == LOST {
            segment.flags |= AGAIN;
            self.again_out += 1;
        }
        self.flying.push_back((sequence, stamp));
        stamp
    }

    /// The next segment that is lost and not sent again yet.
    pub fn next_lost(&mut self, una: u32) -> Option<u32> {
        while let Some(&sequence) = self.lost.front() {
            let waits = sequence >= una
                && self.segments[(sequence - una) as usize].flags & (LOST | AGAIN | ARRIVED)
                    == LOST;
            if waits {
                return Some(sequence);
            }
            self.lost.pop_front();
        }
        None
    }

    fn note(&mut self, segment: Segment, change: &mut Change, now: u64) {
        self.delivered += 1;
        self.delivered_ns = now;
        change.delivered += 1;
        if segment.flags & LOST != 0 {
            self.lost_out -= 1;
        }
        if segment.flags & AGAIN != 0 {
            self.again_out -= 1;
        }
        if segment.flags & (LOST | RESENT) != 0 {
            return;
        }
        let first = change.first_stamp.unwrap_or(segment.stamp);
        change.first_stamp = Some(first.min(segment.stamp));
        if change.rtt_stamp.is_none_or(|stamp| stamp < segment.stamp) {
            change.rtt_stamp = Some(segment.stamp);
            change.carried = self.delivered - segment.delivered;
            change.carried_ns = now - segment.delivered_ns;
        }
    }

    /// An ACK of everything before `next` and of `block`, for a segment sent at `stamp`.
    pub fn acknowledge(
        &mut self,
        una: u32,
        next: u32,
        block: (u32, u32),
        stamp: u64,
        now: u64,
    ) -> Change {
        let mut change = Change::default();
        self.newest = self.newest.max(stamp);
        for _ in una..next {
            let Some(segment) = self.segments.pop_front() else {
                break;
            };
            if segment.flags & ARRIVED != 0 {
                self.arrived -= 1;
            } else {
                self.note(segment, &mut change, now);
            }
        }
        let una = una.max(next);
        // Without a loss nothing else reads these.
        while matches!(self.flying.front(), Some((sequence, _)) if *sequence < una) {
            self.flying.pop_front();
        }
        // From the end: an earlier ACK has reported those before.
        for sequence in (block.0.max(una)..block.1).rev() {
            let Some(segment) = self.segments.get_mut((sequence - una) as usize) else {
                continue;
            };
            let before = *segment;
            if before.flags & ARRIVED != 0 {
                break;
            }
            segment.flags = ARRIVED;
            self.arrived += 1;
            self.note(before, &mut change, now);
        }
        // `carried` counts all of this ACK.
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        change
    }

    /// Marks segments lost that were sent before a delivered one. Returns how many.
    pub fn find_lost(&mut self, una: u32) -> u32 {
        let mut found = 0;
        while let Some(&(sequence, stamp)) = self.flying.front() {
            let segment = sequence
                .checked_sub(una)
                .and_then(|at| self.segments.get_mut(at as usize))
                .filter(|segment| segment.stamp == stamp && segment.flags & ARRIVED == 0);
            if let Some(segment) = segment {
                if stamp >= self.newest {
                    break;
                }
                if segment.flags & LOST == 0 {
                    segment.flags |= LOST;
                    self.lost_out += 1;
                }
                if segment.flags & AGAIN != 0 {
                    segment.flags &= !AGAIN;
                    self.again_out -= 1;
                }
                self.lost.push_back(sequence);
                found += 1;
            }
            self.flying.pop_front();
        }
        found
    }

    /// When the oldest undelivered segment was sent, if before a delivered one.
    pub fn oldest_suspect(&mut self, una: u32) -> Option<u64> {
        while let Some(&(sequence, stamp)) = self.flying.front() {
            let current = sequence
                .checked_sub(una)
                .and_then(|at| self.segments.get(at as usize))
                .is_some_and(|segment| segment.stamp == stamp && segment.flags & ARRIVED == 0);
            if current {
                return (stamp < self.newest).then_some(stamp);
            }
            self.flying.pop_front();
        }
        None
    }

    /// A timeout: marks all segments lost that have not been delivered.
    pub fn lose_all(&mut self, una: u32) {
        self.flying.clear();
        self.lost.clear();
        self.again_out = 0;
        for (sequence, segment) in (una..).zip(self.segments.iter_mut()) {
            if segment.flags & ARRIVED == 0 {
                if segment.flags & LOST == 0 {
                    self.lost_out += 1;
                }
                segment.flags = LOST;
                self.lost.push_back(sequence);
            }
        }
    }
}
