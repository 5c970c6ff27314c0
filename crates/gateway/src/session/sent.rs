// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unsettled transmissions. A report settles them: arrived, or lost.
//!
//! - *By number*: missing, and three numbers below the report's top, as TCP's three duplicate
//!   ACKs (RFC 5681, 3.2). Each transmission has a number of its own, so a lost
//!   retransmission is found in the same way. Where packets overtake each other, `top` must
//!   also have been sent later by as much as they do (RACK, RFC 8985, 7.1): the window grows
//!   to five quarters of what was seen.
//! - *After silence*: the reporter received nothing for a while, so transmissions that should have
//!   arrived in that while are lost: all above `top` that were sent more than a round trip before
//!   the report. Once each, so a long silence does not repeat it all again.
//!
//! The silence rule alone cannot distinguish a path that lost the packets under way from one that
//! kept them: after a pause, a switch may go on with its full buffer. Then the rule would send
//! everything twice. A path that keeps packets keeps reports, too: reports that were made in the
//! silence then come late, before the first one that is on time. So a late report switches the rule
//! off until `top` moves on; numbers then show the losses.

use std::collections::{BTreeSet, VecDeque};

use super::frame::{Report, WireError};
use super::rtt::{Lateness, Rtt};
use super::time::{Nanos, MS, SECOND};

/// A missing number is lost if so many later ones arrived.
const REORDERED: u64 = 3;
/// Silence of the other side from which on the rule for it applies: three reports of 10 ms,
/// so one lost heartbeat is none.
pub const SILENCE: Nanos = 30 * MS;
/// Overtaking is remembered for one to two times this.
const EPOCH: Nanos = 30 * SECOND;

/// State of a transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Arrived,
    Lost(Nanos),
}

#[derive(Debug)]
struct Transmission<C> {
    at: Nanos,
    bytes: u32,
    state: State,
    content: Vec<C>,
}

/// Transmissions, by number.
#[derive(Debug)]
pub struct Sent<C> {
    /// Of the first in `table`.
    base: u64,
    table: VecDeque<Transmission<C>>,
    /// Numbers below this were looked at; those of them that may still change are in `unsure`.
    covered: u64,
    unsure: BTreeSet<u64>,
    /// Numbers below this are settled as far as the other rules can.
    top: u64,
    top_sent_at: Nanos,
    reorder: Reorder,
    silence: Silence,
    lateness: Lateness,
    /// Datagrams that are open.
    open: u64,
    is_ordered: bool,
}

/// By how much packets overtake each other, as times between their departures.
#[derive(Debug, Default)]
struct Reorder {
    now: Nanos,
    before: Nanos,
    since: Nanos,
}

/// An episode without a change of `top`.
#[derive(Debug, Default)]
struct Silence {
    /// Numbers from this on were sent after the rule was used first.
    once: Option<u64>,
    /// The path kept the packets under way.
    is_kept: bool,
}

/// Transmissions that a report settled.
#[derive(Debug)]
pub struct Settled<C> {
    /// Contents of arrived ones.
    pub arrived: Vec<C>,
    /// Contents of lost ones, oldest first.
    pub lost: Vec<C>,
    /// Bytes that arrived, that are lost by number, and that are lost in silence.
    pub arrived_bytes: u64,
    /// See `arrived_bytes`.
    pub lost_bytes: u64,
    /// See `arrived_bytes`.
    pub silent_bytes: u64,
    /// Transmissions that counted as lost and arrived.
    pub spurious: u64,
}

impl<C: Clone> Sent<C> {
    /// Nothing yet. `is_ordered`: nothing is lost, and all comes in order.
    pub fn new(is_ordered: bool) -> Self {
        Self {
            base: 0,
            table: VecDeque::new(),
            covered: 0,
            unsure: BTreeSet::new(),
            top: 0,
            top_sent_at: 0,
            reorder: Reorder::default(),
            silence: Silence::default(),
            lateness: Lateness::default(),
            open: 0,
            is_ordered,
        }
    }

    /// The number of the next transmission.
    pub fn next(&self) -> u64 {
        self.base + self.table.len() as u64
    }

    /// Transmissions, reports alone among them, that are not settled.
    pub fn unsettled(&self) -> u64 {
        self.table.len() as u64
    }

    /// The lowest number that the other side should still report about.
    pub fn oldest(&self) -> u64 {
        self.base
    }

    /// Transmissions with a content whose fate is open.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// The next number was sent.
    pub fn send(&mut self, now: Nanos, bytes: usize, content: Vec<C>) {
        self.open += u64::from(!content.is_empty());
        self.table.push_back(Transmission {
            at: now,
            bytes: bytes as u32,
            state: State::Open,
            content,
        });
    }

    fn get(&mut self, number: u64) -> Option<&mut Transmission<C>> {
        let index = number.checked_sub(self.base)?;
        self.table.get_mut(index as usize)
    }

    /// A report that is newer than those before.
    ///
    /// # Errors
    /// [`WireError`] if it reports numbers that were never sent.
    pub fn report(
        &mut self,
        now: Nanos,
        report: &Report,
        rtt: &mut Rtt,
    ) -> Result<Settled<C>, WireError> {
        let missing = report.ranges()?;
        if report.top > self.next() {
            return Err(WireError::Report);
        }
        let mut settled = Settled {
            arrived: Vec::new(),
            lost: Vec::new(),
            arrived_bytes: 0,
            lost_bytes: 0,
            silent_bytes: 0,
            spurious: 0,
        };
        let late = self.lateness.of(now, report.clock.saturating_mul(1_000));
        self.advance(now, report, rtt);
        self.overtaken(now, report, rtt);
        self.arrivals(report, &missing, &mut settled);
        self.losses(now, report, &mut settled);
        self.silent(now, late, report, rtt, &mut settled);
        self.forget(now, rtt);
        Ok(settled)
    }

    fn advance(&mut self, now: Nanos, report: &Report, rtt: &mut Rtt) {
        if report.top <= self.top {
            return;
        }
        self.top = report.top;
        self.silence = Silence::default();
        if let Some(highest) = self.get(report.top - 1) {
            let at = highest.at;
            let held = report.held.saturating_mul(1_000);
            self.top_sent_at = at;
            rtt.sample((now - at).saturating_sub(held));
        }
    }

    /// Learns how far packets overtake each other.
    fn overtaken(&mut self, now: Nanos, report: &Report, rtt: &Rtt) {
        if now >= self.reorder.since + EPOCH {
            self.reorder.before = std::mem::take(&mut self.reorder.now);
            self.reorder.since = now;
        }
        let Some((late, top)) = report.late else {
            return;
        };
        if top <= late || top > self.top {
            return;
        }
        let Some(early) = self.get(late).map(|one| one.at) else {
            return;
        };
        if let Some(later) = self.get(top - 1).map(|one| one.at) {
            // A peer cannot put off its own retransmissions by more than a round trip.
            let by = ((later - early) * 5 / 4).min(rtt.smoothed());
            self.reorder.now = self.reorder.now.max(by);
        }
    }

    fn arrivals(
        &mut self,
        report: &Report,
        missing: &[std::ops::Range<u64>],
        settled: &mut Settled<C>,
    ) {
        let is_missing = |number: u64| {
            let after = missing.partition_point(|range| range.end <= number);
            missing
                .get(after)
                .is_some_and(|range| range.contains(&number))
        };
        let old: Vec<u64> = self.unsure.range(report.from..report.to).copied().collect();
        for number in old {
            if !is_missing(number) {
                self.unsure.remove(&number);
                self.arrive(number, settled);
            }
        }
        if report.from <= self.covered.max(self.base) {
            for number in self.covered.max(self.base)..report.to {
                match is_missing(number) {
                    true => {
                        self.unsure.insert(number);
                    }
                    false => self.arrive(number, settled),
                }
            }
            self.covered = self.covered.max(report.to);
        }
        // The reporter never reports numbers that it has forgotten.
        let forgotten: Vec<u64> = self.unsure.range(..report.known).copied().collect();
        for number in forgotten {
            self.unsure.remove(&number);
            self.lose(number, self.top_sent_at, settled);
        }
    }

    fn arrive(&mut self, number: u64, settled: &mut Settled<C>) {
        let Some(one) = self.get(number) else {
            return;
        };
        let before = std::mem::replace(&mut one.state, State::Arrived);
        let bytes = one.bytes;
        let content = std::mem::take(&mut one.content);
        match before {
            State::Arrived => return,
            State::Lost(_) => settled.spurious += u64::from(!content.is_empty()),
            State::Open => {
                self.open -= u64::from(!content.is_empty());
                settled.arrived_bytes += u64::from(bytes);
            }
        }
        settled.arrived.extend(content);
    }

    fn losses(&mut self, now: Nanos, report: &Report, settled: &mut Settled<C>) {
        let window = self.reorder.now.max(self.reorder.before);
        let mut lost = Vec::new();
        let top_sent_at = self.top_sent_at;
        let below = self.top.min(report.top).saturating_sub(REORDERED - 1);
        for &number in self.unsure.range(..below) {
            let index = number.checked_sub(self.base).map(|index| index as usize);
            let Some(one) = index.and_then(|index| self.table.get(index)) else {
                continue;
            };
            if one.at + window > top_sent_at {
                break;
            }
            if one.state == State::Open {
                lost.push(number);
            }
        }
        for number in lost {
            settled.lost_bytes += self.lose(number, now, settled);
        }
    }

    fn silent(
        &mut self,
        now: Nanos,
        late: Nanos,
        report: &Report,
        rtt: &Rtt,
        settled: &mut Settled<C>,
    ) {
        let quiet = report.quiet.saturating_mul(1_000);
        if self.is_ordered || quiet < SILENCE || report.top < self.top {
            return;
        }
        // The path kept this report, which was under way in the silence.
        self.silence.is_kept |= late >= SILENCE;
        if self.silence.is_kept {
            return;
        }
        let Some(before) = now.checked_sub(rtt.upper() + late) else {
            return;
        };
        let first = self.top.max(self.base) - self.base;
        let end = self.silence.once.unwrap_or(self.next()).max(self.base) - self.base;
        let mut lost = Vec::new();
        for index in first..end {
            let one = &self.table[index as usize];
            if one.at >= before {
                break;
            }
            if one.state == State::Open {
                lost.push(self.base + index);
            }
        }
        if lost.is_empty() {
            return;
        }
        let next = self.next();
        self.silence.once.get_or_insert(next);
        for number in lost {
            settled.silent_bytes += self.lose(number, now, settled);
        }
    }

    /// Bytes of it, unless it was lost already.
    fn lose(&mut self, number: u64, now: Nanos, settled: &mut Settled<C>) -> u64 {
        let Some(one) = self.get(number) else {
            return 0;
        };
        if one.state != State::Open {
            return 0;
        }
        one.state = State::Lost(now);
        let bytes = u64::from(one.bytes);
        // Kept: should it arrive after all, that settles its content.
        settled.lost.extend(one.content.iter().cloned());
        let had_content = !one.content.is_empty();
        self.open -= u64::from(had_content);
        bytes
    }

    /// Removes settled transmissions that no report will name again.
    fn forget(&mut self, now: Nanos, rtt: &Rtt) {
        while let Some(first) = self.table.front() {
            match first.state {
                State::Arrived => {}
                // A late arrival within a round trip is news about the path.
                State::Lost(at) if at + rtt.smoothed() < now && self.base < self.top => {}
                _ => break,
            }
            self.unsure.remove(&self.base);
            self.table.pop_front();
            self.base += 1;
        }
    }
}
