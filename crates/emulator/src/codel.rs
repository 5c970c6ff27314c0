// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CoDel: RFC 8289, sections 4.4 and 5, as Linux has it (include/net/codel_impl.h): a packet
//! is judged at dequeue, by its sojourn time. With `ecn` ECN-capable packets are marked
//! instead of dropped (RFC 3168).

use crate::config::Codel;

/// A dropping state that ended less than so many intervals ago resumes its count: 16 in
/// RFC 8289's appendix A and in Linux.
const REMEMBERED_INTERVALS: u64 = 16;

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is dropped.
    Drop,
    /// It goes on with Congestion Experienced in its IP header.
    Mark,
}

/// The first packet of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    /// Its sojourn time, nanoseconds.
    pub waited: u64,
    /// Bytes.
    pub size: u32,
    /// Bytes that wait behind it.
    pub behind: u64,
    /// Its transport is ECN-capable.
    pub capable: bool,
}

/// State of one queue. Times are nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct CodelQueue {
    /// When the delay will have exceeded the target for an interval; `None`: it does not.
    over_at: Option<u64>,
    dropping: bool,
    /// Time of the next drop, while `dropping`.
    next_at: u64,
    /// Packets dropped or marked in this state, and how many there were as it began.
    count: u32,
    count_before: u32,
    /// The verdict on the packet before.
    dropped: Dropped,
    /// Bytes of the largest packet.
    largest: u32,
}

/// Whether the packet before was dropped: the next one takes its turn, and its judgement.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Dropped {
    /// It was not.
    #[default]
    No,
    /// As the first one of a state of dropping.
    First,
    /// As a later one.
    Later,
}

impl CodelQueue {
    /// The line turns at `now` to a packet.
    pub fn judge(&mut self, codel: &Codel, now: u64, first: Waiting) -> Option<Verdict> {
        let over = self.is_over(codel, now, first);
        let capable = first.capable;
        match std::mem::take(&mut self.dropped) {
            Dropped::First => {
                self.begin(codel, now);
                return None;
            }
            Dropped::Later if over => self.next_at = self.after(codel, self.next_at),
            Dropped::Later => self.dropping = false,
            Dropped::No if self.dropping => self.dropping = over,
            Dropped::No if over => {
                let verdict = verdict(codel, capable);
                if verdict == Verdict::Drop {
                    self.dropped = Dropped::First;
                } else {
                    self.begin(codel, now);
                }
                return Some(verdict);
            }
            Dropped::No => return None,
        }
        if !self.dropping || now < self.next_at {
            return None;
        }
        self.count = self.count.saturating_add(1);
        let verdict = verdict(codel, capable);
        if verdict == Verdict::Drop {
            self.dropped = Dropped::Later;
        } else {
            self.next_at = self.after(codel, self.next_at);
        }
        Some(verdict)
    }

    /// Whether packets have waited above the target for an interval.
    fn is_over(&mut self, codel: &Codel, now: u64, first: Waiting) -> bool {
        self.largest = self.largest.max(first.size);
        // A line that has no more than one full frame to send is not congested.
        if first.waited < codel.target_ns || first.behind <= u64::from(self.largest) {
            self.over_at = None;
            return false;
        }
        let over_at = self.over_at.get_or_insert(now + codel.interval_ns);
        now > *over_at
    }

    fn begin(&mut self, codel: &Codel, now: u64) {
        let since = self.count - self.count_before;
        let remembered = REMEMBERED_INTERVALS * codel.interval_ns;
        // `next_at` may be ahead: that is as recent.
        let recent = now.saturating_sub(self.next_at) < remembered;
        self.count = if since > 1 && recent { since } else { 1 };
        self.count_before = self.count;
        self.dropping = true;
        self.next_at = self.after(codel, now);
    }

    /// The control law: the more drops, the shorter the time between them.
    fn after(&self, codel: &Codel, at: u64) -> u64 {
        at + (codel.interval_ns as f64 / f64::from(self.count.max(1)).sqrt()) as u64
    }
}

fn verdict(codel: &Codel, capable: bool) -> Verdict {
    match codel.ecn && capable {
        true => Verdict::Mark,
        false => Verdict::Drop,
    }
}
