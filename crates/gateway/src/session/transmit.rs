// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents and times of datagrams: a report if it is time, then control records, lost bytes, and
//! new ones.

use super::frame::{data_overhead, push, rest_overhead, Head, Record};
use super::settings::Event;
use super::state::{Content, Control, Session};
use super::time::{Nanos, MS, SECOND};

/// Reports are no further apart while anything is under way, nanoseconds; nor than an eighth
/// of the round trip.
const REPORT: Nanos = 10 * MS;
/// Nor closer than this: a report costs a system call on both sides.
const LEAST_REPORT: Nanos = MS;
/// A report waits for as long at most for data to ride with: one alone costs the rate a
/// datagram's headers.
const RIDE: Nanos = MS;
/// Apart while both sides have nothing to say.
const IDLE: Nanos = 250 * MS;
/// Bytes of a report on the wire, typically, and share of the rate for reports: one fiftieth.
const REPORT_BITS: u64 = 100 * 8;
const REPORT_SHARE: u64 = 50;
/// Bytes of a range in a report at most, typically, and of all that is beside ranges.
const RANGE: usize = 8;
const BESIDE: usize = 100;
/// Least space in a datagram to which bytes of a stream are added.
const LEAST_PIECE: usize = 32;

impl Session {
    /// Interval of reports.
    pub(super) fn report_interval(&self) -> Nanos {
        let few = REPORT_BITS * REPORT_SHARE * SECOND / self.pacer.rate().max(1);
        let often = (self.rtt.smoothed() / 8)
            .clamp(LEAST_REPORT, REPORT)
            .max(few);
        match self.is_idle() && self.is_peer_idle {
            true => often.max(IDLE),
            false => often,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.sent.open() == 0 && !self.has_waiting()
    }

    fn has_work(&self) -> bool {
        self.sent.unsettled() < self.most_unsettled() && self.has_waiting()
    }

    fn has_waiting(&self) -> bool {
        !self.control.is_empty() || !self.lost.is_empty() || !self.schedule.is_empty()
    }

    /// When the next report leaves.
    fn report_at(&self) -> Nanos {
        let due = self.last_report + self.report_interval();
        let turn = self.pacer.ready_at(self.paced_bytes());
        match self.has_work() && turn <= due + RIDE {
            true => turn.max(due),
            false => due,
        }
    }

    fn paced_bytes(&self) -> usize {
        self.settings.datagram + self.settings.overhead
    }

    /// When [`Session::transmit`] has something next, if nothing else happens before.
    pub fn next_time(&self) -> Nanos {
        if self.is_over {
            return Nanos::MAX;
        }
        let mut next = self.report_at();
        if self.has_work() {
            next = next.min(self.pacer.ready_at(self.paced_bytes()));
        }
        next.min(self.received.last_arrival() + self.settings.patience)
    }

    /// Writes the next datagram to `datagram`, which is cleared. False: there is none before
    /// [`Session::next_time`].
    pub fn transmit(&mut self, now: Nanos, datagram: &mut Vec<u8>) -> bool {
        datagram.clear();
        if now >= self.received.last_arrival() + self.settings.patience && !self.is_over {
            self.is_over = true;
            self.events.push_back(Event::Silent);
        }
        if self.is_over {
            return false;
        }
        let is_report_due = now >= self.report_at();
        let may_send = now >= self.pacer.ready_at(self.paced_bytes());
        if may_send && !self.has_work() {
            self.was_idle = true;
        }
        let is_turn = may_send && self.has_work();
        if !is_report_due && !is_turn {
            return false;
        }
        let number = self.sent.next();
        let open = number - self.sent.oldest();
        push(datagram, &Head { number, open });
        if is_report_due {
            let ranges = self.settings.datagram.saturating_sub(BESIDE) / RANGE;
            let is_idle = self.is_idle();
            let report = self.received.report(now, is_idle, ranges);
            push(datagram, &Record::Report(report));
            self.last_report = now;
        }
        let mut contents = Vec::new();
        if is_turn {
            self.fill_control(datagram, &mut contents);
            self.fill_lost(datagram, &mut contents);
            self.fill_new(datagram, &mut contents);
        }
        if contents.is_empty() && !is_report_due {
            // The lost bytes have arrived meanwhile.
            datagram.clear();
            return false;
        }
        let bytes = datagram.len() + self.settings.overhead;
        self.sent.send(now, bytes, contents);
        self.pacer.sent(now, bytes);
        self.statistics.sent += 1;
        self.statistics.sent_bytes += bytes as u64;
        true
    }

    fn space(&self, datagram: &[u8]) -> usize {
        self.settings.datagram.saturating_sub(datagram.len())
    }

    fn fill_control(&mut self, datagram: &mut Vec<u8>, contents: &mut Vec<Content>) {
        while let Some(control) = self.control.front() {
            let record = match *control {
                Control::Open(stream) => self.streams.get(&stream).map(|one| Record::Open {
                    stream,
                    weight: one.weight,
                    target: &one.target,
                }),
                Control::Accept(stream) => {
                    let is_there = self.streams.contains_key(&stream);
                    is_there.then_some(Record::Accept { stream })
                }
                Control::Reset(stream, reason) => Some(Record::Reset { stream, reason }),
                Control::Credit(stream) => {
                    let one = self.streams.get(&stream);
                    one.map(|one| Record::Credit {
                        stream,
                        limit: one.receive.limit(),
                    })
                }
                Control::Receipts => Some(Record::Receipts(self.receipts)),
                Control::Streams => Some(Record::Streams {
                    limit: self.peer_may_open,
                }),
            };
            if let Some(record) = record {
                let before = datagram.len();
                push(datagram, &record);
                if datagram.len() > self.settings.datagram {
                    datagram.truncate(before);
                    return;
                }
                contents.push(Content::Control(control.clone()));
            }
            match self.control.pop_front() {
                Some(Control::Streams) => self.waits.streams = false,
                Some(Control::Receipts) => self.waits.receipts = false,
                _ => {}
            }
        }
    }

    fn fill_lost(&mut self, datagram: &mut Vec<u8>, contents: &mut Vec<Content>) {
        while let Some((stream, range, fin)) = self.lost.pop_front() {
            let Some(one) = self.streams.get(&stream) else {
                continue;
            };
            let fin_left = fin && !one.send.fin_arrived();
            let piece = match one.send.still_lost(&range) {
                Some(piece) => piece,
                None if fin_left => range.end..range.end,
                None => continue,
            };
            let space = self.space(datagram);
            let length = piece.end - piece.start;
            let rest = space.saturating_sub(rest_overhead(stream, piece.start)) as u64;
            let is_full = rest >= LEAST_PIECE as u64 && fills(length, rest, fin);
            let overhead = match is_full {
                true => rest_overhead(stream, piece.start),
                false => data_overhead(stream, piece.start),
            };
            let most = space.saturating_sub(overhead);
            if space < overhead || (most as u64) < length.min(LEAST_PIECE as u64) {
                self.lost.push_front((stream, range, fin));
                return;
            }
            let end = piece.start + length.min(most as u64);
            if end < range.end {
                self.lost.push_front((stream, end..range.end, fin));
            }
            let fin = fin && end == range.end;
            self.statistics.again_bytes += end - piece.start;
            self.push_data(datagram, contents, stream, piece.start..end, fin, is_full);
            if is_full {
                return;
            }
        }
    }

    fn fill_new(&mut self, datagram: &mut Vec<u8>, contents: &mut Vec<Content>) {
        while let Some(stream) = self.schedule.turn() {
            let Some(one) = self.streams.get_mut(&stream) else {
                self.schedule.empty(0);
                continue;
            };
            let space = self.settings.datagram.saturating_sub(datagram.len());
            let rest = space.saturating_sub(rest_overhead(stream, one.send.next()));
            let (new, fin) = one.send.new_bytes();
            let is_full = fills(new, rest as u64, fin);
            let most = match is_full {
                true => rest,
                false => space.saturating_sub(data_overhead(stream, one.send.next())),
            };
            if most < LEAST_PIECE {
                return;
            }
            let Some((range, fin)) = one.send.take_new(most) else {
                self.schedule.empty(0);
                continue;
            };
            let is_empty = !one.send.has_new();
            let length = range.end - range.start;
            self.statistics.new_bytes += length;
            self.push_data(datagram, contents, stream, range, fin, is_full);
            match is_empty {
                true => self.schedule.empty(length),
                false => self.schedule.sent(length.max(1)),
            }
            if is_full {
                return;
            }
        }
    }

    fn push_data(
        &mut self,
        datagram: &mut Vec<u8>,
        contents: &mut Vec<Content>,
        stream: u64,
        range: std::ops::Range<u64>,
        fin: bool,
        is_full: bool,
    ) {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        if let Some(one) = self.streams.get(&stream) {
            one.send.copy(range.clone(), &mut bytes);
        }
        let offset = range.start;
        if is_full {
            push(datagram, &Record::Rest { stream, offset });
            datagram.extend_from_slice(&bytes);
        } else {
            let data = Record::Data {
                stream,
                offset,
                fin,
                bytes: &bytes,
            };
            push(datagram, &data);
        }
        contents.push(Content::Data { stream, range, fin });
    }
}

/// Whether so many bytes fill the space that is left to the datagram's end; an end of the stream
/// with them has no place there.
fn fills(bytes: u64, space: u64, fin: bool) -> bool {
    bytes > space || (bytes == space && !fin)
}
