// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes a datagram in.

use super::error::SessionError;
use super::frame::{decode, Receipts, Record, Report};
use super::rate::Sample;
use super::sent::SILENCE;
use super::settings::Event;
use super::state::{Content, Control, Session};
use super::time::Nanos;

/// Bytes of memory for one piece that waits out of order: their number is bounded, for each
/// costs some 100 bytes beside its own.
const PIECE: u64 = 2_048;

/// Reports that may be under way beyond the memory's limit: more than one each millisecond of a
/// silence of two minutes.
const UNREPORTED: u64 = 1 << 18;

impl Session {
    /// A datagram of the peer's, authenticated by the layer below.
    ///
    /// # Errors
    /// [`SessionError`]: the peer broke the protocol, and the session must end.
    pub fn receive(&mut self, now: Nanos, datagram: &[u8]) -> Result<(), SessionError> {
        let (head, records) = decode(datagram)?;
        if !self.received.is_news(head.number) {
            self.statistics.duplicates += 1;
            return Ok(());
        }
        // As if it were lost: it comes again when there is room for its pieces.
        if !self.has_room_for(&records) {
            self.statistics.refused += 1;
            return Ok(());
        }
        self.received.receive(now, head);
        self.statistics.received += 1;
        for record in records {
            self.record(now, head.number, record)?;
        }
        // The peer sends, but does not report received datagrams.
        match self.sent.unsettled() > self.most_unsettled() + UNREPORTED {
            true => Err(SessionError::Unreported),
            false => Ok(()),
        }
    }

    fn has_room_for(&self, records: &[Record]) -> bool {
        if (self.pieces as u64) < self.settings.memory / PIECE {
            return true;
        }
        !records.iter().any(|record| match record {
            Record::Data { stream, offset, .. } => {
                let one = self.streams.get(stream);
                one.is_some_and(|one| one.receive.is_early(*offset))
            }
            _ => false,
        })
    }

    fn record(&mut self, now: Nanos, number: u64, record: Record) -> Result<(), SessionError> {
        match record {
            Record::Report(report) => return self.report(now, number, &report),
            Record::Open {
                stream,
                weight,
                target,
            } => self.was_opened(stream, weight, target)?,
            Record::Accept { stream } => {
                if self.is_own(stream) && self.streams.contains_key(&stream) {
                    self.events.push_back(Event::Accepted(stream));
                }
            }
            Record::Reset { stream, reason } => self.was_reset(stream, reason)?,
            // It may overtake the record that opens the stream.
            Record::Credit { stream, limit } => {
                if self.is_there(stream)? {
                    self.credit(stream, limit);
                }
            }
            Record::Streams { limit } => self.may_open = self.may_open.max(limit),
            // The counts only grow, so a late record changes nothing.
            Record::Receipts(Receipts {
                delivered,
                unconfirmed,
            }) => {
                let known = &mut self.peer_receipts;
                known.delivered = known.delivered.max(delivered);
                known.unconfirmed = known.unconfirmed.max(unconfirmed);
            }
            Record::Data {
                stream,
                offset,
                fin,
                bytes,
            } => self.data(stream, offset, fin, bytes)?,
            // The decoder returns it as data.
            Record::Rest { .. } => {}
        }
        self.is_peer_idle = false;
        Ok(())
    }

    /// Whether a stream exists; a new one of the peer's is made.
    fn is_there(&mut self, stream: u64) -> Result<bool, SessionError> {
        if self.streams.contains_key(&stream) {
            return Ok(true);
        }
        let place = stream / 2;
        if self.is_own(stream) {
            return match place < self.opened {
                true => Ok(false),
                false => Err(SessionError::Stream(stream)),
            };
        }
        if place >= self.peer_may_open {
            return Err(SessionError::Stream(stream));
        }
        if self.seen.contains(&place) {
            return Ok(false);
        }
        self.seen.insert(place..place + 1);
        let one = self.stream(1);
        self.streams.insert(stream, one);
        Ok(true)
    }

    fn was_opened(&mut self, stream: u64, weight: u8, target: &[u8]) -> Result<(), SessionError> {
        if self.is_own(stream) {
            return Err(SessionError::Stream(stream));
        }
        if !self.is_there(stream)? {
            return Ok(());
        }
        let one = self.streams.get_mut(&stream).expect("it is there");
        if one.is_known {
            return Ok(());
        }
        one.is_known = true;
        one.weight = weight.max(1);
        let target = target.to_vec();
        self.lend(stream);
        self.events.push_back(Event::Opened { stream, target });
        self.notify_readable(stream);
        Ok(())
    }

    fn was_reset(&mut self, stream: u64, reason: u8) -> Result<(), SessionError> {
        if !self.is_there(stream)? {
            return Ok(());
        }
        let is_known = self.streams.get(&stream).is_some_and(|one| one.is_known);
        self.remove(stream);
        if is_known {
            self.events.push_back(Event::Reset { stream, reason });
        }
        Ok(())
    }

    fn data(
        &mut self,
        stream: u64,
        offset: u64,
        fin: bool,
        bytes: &[u8],
    ) -> Result<(), SessionError> {
        if !self.is_there(stream)? {
            return Ok(());
        }
        let one = self.streams.get_mut(&stream).expect("it is there");
        let before = one.receive.pieces();
        one.receive.receive(offset, bytes, fin)?;
        self.pieces = self.pieces - before + one.receive.pieces();
        self.notify_readable(stream);
        self.close_if_done(stream);
        Ok(())
    }

    fn notify_readable(&mut self, stream: u64) {
        if let Some(one) = self.streams.get_mut(&stream) {
            if one.is_known && !one.is_notified && one.receive.is_readable() {
                one.is_notified = true;
                self.events.push_back(Event::Readable(stream));
            }
        }
    }

    fn report(&mut self, now: Nanos, number: u64, report: &Report) -> Result<(), SessionError> {
        // A report that a newer one has overtaken has no news.
        if self.reported.is_some_and(|newest| newest > number) {
            return Ok(());
        }
        self.reported = Some(number);
        self.is_peer_idle = report.idle;
        let settled = self.sent.report(now, report, &mut self.rtt)?;
        self.statistics.spurious += settled.spurious;
        for content in settled.arrived {
            self.arrived(content);
        }
        self.statistics.lost += settled.lost.len() as u64;
        for content in settled.lost {
            self.was_lost(content);
        }
        let sample = Sample {
            now,
            arrived: settled.arrived_bytes,
            lost: settled.lost_bytes,
            rtt: self.rtt.latest(),
            least_rtt: self.rtt.least(),
            was_idle: std::mem::take(&mut self.was_idle),
            was_silent: settled.silent_bytes > 0 || report.quiet.saturating_mul(1_000) >= SILENCE,
        };
        if self.law.sample(&sample) {
            self.events.push_back(Event::Broken);
        }
        self.pacer.set_rate(self.law.rate());
        self.unblock();
        Ok(())
    }

    fn arrived(&mut self, content: Content) {
        let Content::Data { stream, range, fin } = content else {
            return;
        };
        let Some(one) = self.streams.get_mut(&stream) else {
            return;
        };
        let gone = one.send.arrive(range, fin);
        self.held -= gone;
        if gone > 0 {
            self.reconsider(stream);
        }
        self.close_if_done(stream);
    }

    fn was_lost(&mut self, content: Content) {
        match content {
            Content::Data { stream, range, fin } => self.lost.push_back((stream, range, fin)),
            // Only the latest limit counts, and it may be under way already.
            Content::Control(control @ (Control::Streams | Control::Receipts)) => {
                self.queue_once(control);
            }
            Content::Control(control) => self.control.push_back(control),
        }
    }
}
