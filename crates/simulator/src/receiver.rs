// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiving side of a connection.

use crate::event::NEVER;

/// An ACK that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The next expected segment.
    pub next: u32,
    /// The stamp returned to the sender: see [`Receiver::take`].
    pub stamp: u64,
    /// The block beyond `next` that the latest segment lies in, or before it that segment alone
    /// if it had arrived before; else empty.
    pub block: (u32, u32),
}

/// State of a receiver.
#[derive(Debug, Clone, Default)]
pub struct Receiver {
    next: u32,
    /// Blocks beyond `next`, in order, with holes between them.
    blocks: Vec<(u32, u32)>,
    unanswered: u32,
    /// Stamp of the first segment that no ACK has answered, and of the last.
    first_stamp: u64,
    last_stamp: u64,
    delayed_ns: u64,
    /// Arrivals, those of segments that had arrived before too.
    arrivals: u64,
    ato: Option<Box<Estimate>>,
}

/// The estimator of a delayed ACK's time-out.
#[derive(Debug, Clone)]
struct Estimate {
    ticks: u64,
    /// When the last segment arrived.
    last_ns: u64,
}

impl Receiver {
    /// Segments that have arrived without a gap.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Segments that have arrived, each of them once.
    pub fn distinct(&self) -> u64 {
        let beyond: u64 = self
            .blocks
            .iter()
            .map(|(begin, end)| u64::from(end - begin))
            .sum();
        u64::from(self.next) + beyond
    }

    /// Packets that have arrived.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// When a delayed ACK is due; [`NEVER`] if none waits.
    pub fn delayed_ns(&self) -> u64 {
        match self.unanswered {
            0 => NEVER,
            _ => self.delayed_ns,
        }
    }

    /// A segment of a sender that needs no ACK.
    pub fn count(&mut self) {
        self.arrivals += 1;
        self.next = self.next.saturating_add(1);
    }

    /// A segment arrives: the ATO of ligon-1999, equation 1, in nanoseconds. Each is half of the
    /// one before and the time since the last segment, in whole ticks, of which at least one has
    /// passed; and `most_ns` at most. The first segment needs none: nothing is returned.
    pub fn estimate_ato(&mut self, now: u64, tick_ns: u64, most_ns: u64) -> Option<u64> {
        let tick_ns = tick_ns.max(1);
        let Some(ato) = &mut self.ato else {
            self.ato = Some(Box::new(Estimate {
                ticks: 1,
                last_ns: now,
            }));
            return None;
        };
        let between = (now / tick_ns - ato.last_ns / tick_ns).max(1);
        ato.last_ns = now;
        ato.ticks = (ato.ticks / 2 + between).min((most_ns / tick_ns).max(1));
        Some(ato.ticks * tick_ns)
    }

    /// A segment arrives. Returns the ACK, unless it is delayed: in order, with none
    /// missing, and fewer than `every` wait.
    ///
    /// The stamp returned is that of the earliest segment that the ACK answers, so that
    /// the sender's round trip includes the delay (RFC 7323, 4.3); for a sender with
    /// selective acknowledgement, which reckons with each segment's own time, the latest.
    #[inline]
    pub fn take(
        &mut self,
        sequence: u32,
        stamp: u64,
        now: u64,
        every: u32,
        delay_ns: u64,
        latest: bool,
    ) -> Option<Answer> {
        self.arrivals += 1;
        if self.unanswered == 0 {
            self.first_stamp = stamp;
        }
        self.last_stamp = stamp;
        self.unanswered += 1;
        let mut block = (0, 0);
        let in_order = sequence == self.next && self.blocks.is_empty();
        if in_order {
            self.next += 1;
            if self.unanswered < every {
                let due = now + delay_ns;
                if self.unanswered == 1 || due < self.delayed_ns {
                    self.delayed_ns = due;
                }
                return None;
            }
        } else if sequence == self.next {
            self.next += 1;
            if self.blocks[0].0 == self.next {
                self.next = self.blocks.remove(0).1;
            }
        } else if sequence > self.next {
            block = self.insert(sequence);
            self.first_stamp = stamp;
        } else {
            // RFC 2883: it had arrived before.
            block = (sequence, sequence + 1);
        }
        Some(self.answer_with(block, latest))
    }

    fn insert(&mut self, sequence: u32) -> (u32, u32) {
        // The first block that ends at or beyond it; most arrivals are at the very end.
        let mut at = self.blocks.len();
        while at > 0 && self.blocks[at - 1].1 >= sequence {
            at -= 1;
        }
        if at < self.blocks.len() && self.blocks[at].0 <= sequence {
            let block = &mut self.blocks[at];
            if sequence == block.1 {
                block.1 += 1;
                if at + 1 < self.blocks.len() && self.blocks[at + 1].0 == self.blocks[at].1 {
                    self.blocks[at].1 = self.blocks.remove(at + 1).1;
                }
            }
            return self.blocks[at];
        }
        if at < self.blocks.len() && self.blocks[at].0 == sequence + 1 {
            self.blocks[at].0 = sequence;
            return self.blocks[at];
        }
        self.blocks.insert(at, (sequence, sequence + 1));
        self.blocks[at]
    }

    /// The ACK for the segments not acknowledged yet.
    pub fn answer(&mut self, latest: bool) -> Answer {
        self.answer_with((0, 0), latest)
    }

    fn answer_with(&mut self, block: (u32, u32), latest: bool) -> Answer {
        self.unanswered = 0;
        Answer {
            next: self.next,
            stamp: if latest {
                self.last_stamp
            } else {
                self.first_stamp
            },
            block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn blocks_are_what_arrived(sequences in proptest::collection::vec(0u32..60, 1..200)) {
            let mut receiver = Receiver::default();
            let mut arrived = BTreeSet::new();
            for sequence in sequences {
                let known = arrived.contains(&sequence);
                let answer = receiver.take(sequence, 1, 1, 1, 0, true).expect("no delay");
                arrived.insert(sequence);
                let next = (0..).find(|at| !arrived.contains(at)).expect("one is missing");
                prop_assert_eq!(answer.next, next);
                prop_assert_eq!(receiver.distinct(), arrived.len() as u64);
                let (begin, end) = answer.block;
                if sequence > next {
                    prop_assert!((begin..end).contains(&sequence));
                    prop_assert!((begin..end).all(|at| arrived.contains(&at)));
                    prop_assert!(!arrived.contains(&end));
                } else if !known {
                    prop_assert_eq!((begin, end), (0, 0));
                }
            }
        }
    }
}
