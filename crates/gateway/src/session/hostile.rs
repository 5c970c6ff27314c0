// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests: an authenticated peer that lies. Its session ends, or it harms itself alone.

use super::error::SessionError;
use super::frame::{push, Head, Receipts, Record, Report, WireError, MOST_OFFSET, MOST_STREAM};
use super::rate::Rate;
use super::settings::{Event, Limits, Settings, Side, LEAST_MEMORY};
use super::state::Session;
use super::time::{MS, SECOND};

/// A server with one stream of its own; the test is its peer.
struct Victim {
    session: Session,
    own: u64,
    number: u64,
    now: u64,
}

const RATE: u64 = 10_000_000;

fn victim(rate: Rate) -> Victim {
    let most = Limits {
        streams: u64::MAX,
        credit: MOST_OFFSET,
    };
    let settings = Settings {
        memory: LEAST_MEMORY,
        streams: 16,
        peer: most,
        ..Settings::new(Side::Server, rate)
    };
    let mut session = Session::new(0, settings);
    let own = session.open(b"target", 1).expect("the first one");
    Victim {
        session,
        own,
        number: 0,
        now: 0,
    }
}

impl Victim {
    fn new() -> Self {
        victim(Rate::Reserve(RATE))
    }

    /// Receives a datagram with these records.
    fn receives(&mut self, records: &[Record]) -> Result<(), SessionError> {
        let (number, open) = (self.number, 0);
        self.number += 1;
        let mut datagram = Vec::new();
        push(&mut datagram, &Head { number, open });
        for record in records {
            push(&mut datagram, record);
        }
        self.session.receive(self.now, &datagram)
    }

    /// Bytes on the wire that leave until `end`.
    fn sends_until(&mut self, end: u64) -> u64 {
        let before = self.session.statistics().sent_bytes;
        let mut datagram = Vec::new();
        while self.session.next_time() <= end {
            self.now = self.now.max(self.session.next_time());
            while self.session.transmit(self.now, &mut datagram) {}
        }
        self.now = end;
        self.session.statistics().sent_bytes - before
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.event()).collect()
    }
}

fn data(stream: u64, offset: u64, fin: bool, bytes: &[u8]) -> Record<'_> {
    Record::Data {
        stream,
        offset,
        fin,
        bytes,
    }
}

fn open(stream: u64) -> Record<'static> {
    Record::Open {
        stream,
        weight: 255,
        target: b"target",
    }
}

#[test]
fn a_protocol_violation_of_a_peer_ends_its_session() {
    let first = Victim::new().session.limits.credit;
    // The first stream's loan is a part of it.
    let credit = LEAST_MEMORY;
    let report = |top, to| {
        Record::Report(Report {
            top,
            to,
            ..Report::default()
        })
    };
    let cases: Vec<(Vec<Record>, SessionError)> = vec![
        (
            vec![open(0), data(0, credit, false, b"x")],
            SessionError::Credit,
        ),
        (
            vec![data(0, MOST_OFFSET - 1, false, b"x")],
            SessionError::Credit,
        ),
        (
            vec![data(0, 0, true, b"12"), data(0, 2, false, b"3")],
            SessionError::End,
        ),
        (
            vec![data(0, 0, true, b"12"), data(0, 0, true, b"1")],
            SessionError::End,
        ),
        // Beyond what it may open; only this side may open it; this side has not yet.
        (vec![open(32)], SessionError::Stream(32)),
        (
            vec![data(MOST_STREAM, 0, false, b"x")],
            SessionError::Stream(MOST_STREAM),
        ),
        (vec![open(1)], SessionError::Stream(1)),
        (vec![data(3, 0, false, b"x")], SessionError::Stream(3)),
        // Numbers that were never sent.
        (
            vec![report(1_000, 1_000)],
            SessionError::Wire(WireError::Report),
        ),
        (vec![report(0, 1)], SessionError::Wire(WireError::Report)),
    ];
    for (records, error) in cases {
        assert_eq!(Victim::new().receives(&records), Err(error), "{records:?}");
    }
    // And records that it may send.
    let mut victim = Victim::new();
    let may = [
        open(30),
        data(30, first - 1, false, b"x"),
        data(30, 0, false, b"x"),
    ];
    assert_eq!(victim.receives(&may), Ok(()));
}

#[test]
fn limits_that_the_peer_invents_take_no_memory() {
    let mut victim = Victim::new();
    // Fifteen beside the one that is there, though the peer would take any number.
    let more = (0..100).filter(|_| victim.session.open(b"target", 1).is_some());
    assert_eq!(more.count(), 15);
    let limit = MOST_OFFSET;
    let stream = victim.own;
    let records = [
        Record::Credit { stream, limit },
        Record::Streams { limit },
        Record::Credit { stream: 4, limit },
    ];
    assert_eq!(victim.receives(&records), Ok(()));
    assert_eq!(victim.session.open(b"target", 1), None);
    let mut written = 0;
    while let count @ 1.. = victim.session.write(stream, &[7; 10_000]) {
        written += count as u64;
    }
    assert!(written <= LEAST_MEMORY / 2, "{written}");
}

#[test]
fn a_peer_cannot_raise_the_rate() {
    for rate in [Rate::Reserve(RATE), Rate::Learned { most: RATE }] {
        let mut victim = victim(rate);
        let stream = victim.own;
        let limit = MOST_OFFSET;
        victim
            .receives(&[Record::Credit { stream, limit }])
            .expect("it may");
        let mut sent = 0;
        for step in 1..=100 {
            while victim.session.write(stream, &[7; 10_000]) > 0 {}
            sent += victim.sends_until(step * 100 * MS);
            // All of it is there, at once, and its clock says that it was there before.
            let top = victim.session.sent.next();
            let report = Report {
                top,
                to: top,
                clock: step * 7_000_000,
                held: u64::MAX,
                quiet: if step % 3 == 0 { u64::MAX } else { 0 },
                ..Report::default()
            };
            victim.receives(&[Record::Report(report)]).expect("it may");
        }
        let most = RATE / 8 * 10 + 20 * victim.session.settings.burst;
        assert!(sent <= most, "{rate:?}: {sent} of {most}");
        assert!(victim.session.rate() <= RATE);
    }
}

#[test]
fn a_peer_that_reports_nothing_is_let_go_before_it_takes_the_memory() {
    let mut victim = Victim::new();
    let stream = victim.own;
    let limit = MOST_OFFSET;
    victim
        .receives(&[Record::Credit { stream, limit }])
        .expect("it may");
    let most = victim.session.most_unsettled();
    let mut ended = None;
    for step in 1..100_000u64 {
        // A byte at a time: each is a datagram.
        victim.session.write(stream, &[7]);
        victim.sends_until(step * 40 * MS);
        let open = victim.session.sent.open();
        assert!(open <= most, "{open} of {most}");
        if let Err(error) = victim.receives(&[Record::Streams { limit: 0 }]) {
            ended = Some(error);
            break;
        }
    }
    let unsettled = victim.session.sent.unsettled();
    match ended {
        Some(error) => assert_eq!(error, SessionError::Unreported),
        None => panic!("{unsettled} transmissions"),
    }
}

#[test]
fn duplicate_and_late_records_have_no_effect() {
    let mut victim = Victim::new();
    let mut datagram = Vec::new();
    push(&mut datagram, &Head { number: 0, open: 0 });
    push(&mut datagram, &open(0));
    push(&mut datagram, &data(0, 0, false, b"bytes"));
    victim.session.receive(0, &datagram).expect("it may");
    assert_eq!(victim.events().len(), 2, "opened, readable");
    let mut read = Vec::new();
    victim.session.read(0, 100, &mut read);
    victim.session.consume(0, 0, 5);
    victim.session.reset(0, 1);
    for later in [1, SECOND, 80 * SECOND] {
        victim.session.receive(later, &datagram).expect("no news");
    }
    assert_eq!(victim.session.statistics().duplicates, 3);
    // The same with numbers of their own: the stream is over, and is not opened again.
    victim.number = 1;
    let again = [open(0), data(0, 0, false, b"bytes")];
    assert_eq!(victim.receives(&again), Ok(()));
    let accept = [
        Record::Accept { stream: 0 },
        Record::Reset {
            stream: 0,
            reason: 9,
        },
    ];
    assert_eq!(victim.receives(&accept), Ok(()));
    assert_eq!(victim.events(), vec![]);
    assert_eq!(read, b"bytes");
    // A late record lowers no count.
    let receipts = |delivered| {
        Record::Receipts(Receipts {
            delivered,
            unconfirmed: 0,
        })
    };
    victim.receives(&[receipts(5)]).expect("it may");
    victim.receives(&[receipts(3)]).expect("it may");
    assert_eq!(victim.session.receipts().1.delivered, 5);
}
