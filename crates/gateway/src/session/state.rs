// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's state, and its owner's operations on streams.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use rangemap::RangeSet;

use super::credit::Pool;
use super::frame::{Receipts, MOST_TARGET};
use super::memory::{Wait, WINDOW};
use super::pacer::Pacer;
use super::rate::Law;
use super::receive::ReceiveHalf;
use super::received::Received;
use super::rtt::Rtt;
use super::schedule::Schedule;
use super::send::SendHalf;
use super::sent::Sent;
use super::settings::{Event, Limits, Settings, Side, Statistics, LEAST_MEMORY};
use super::time::{Nanos, MS, SECOND};

/// A record that must arrive. Its values are looked up when it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    Open(u64),
    Accept(u64),
    Reset(u64, u8),
    Credit(u64),
    Streams,
    Receipts,
}

/// Records in the queue of which one is enough.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub streams: bool,
    pub receipts: bool,
}

/// Content of a transmission that must arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Control(Control),
    Data {
        stream: u64,
        range: Range<u64>,
        fin: bool,
    },
}

#[derive(Debug)]
pub(super) struct Stream {
    pub send: SendHalf,
    pub receive: ReceiveHalf,
    pub weight: u8,
    /// Its loan from the pool.
    pub loan: u64,
    /// Of a stream that this side opened.
    pub target: Vec<u8>,
    /// The owner knows of it.
    pub is_known: bool,
    /// The owner was notified that it is readable, and has not read it empty since.
    pub is_notified: bool,
    /// A write took less than it was given: the resource that the writer waits for.
    pub blocked: Option<Wait>,
}

/// Bytes of memory for one transmission that is not settled: each takes some 120.
const UNSETTLED: u64 = 256;

/// One side of a session. It reads no clock and opens no socket: the owner passes time and
/// datagrams in, and sends what [`Session::transmit`] gives.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Settings,
    pub(super) limits: Limits,
    pub(super) streams: HashMap<u64, Stream>,
    /// Streams this side opened so far, and may open.
    pub(super) opened: u64,
    pub(super) may_open: u64,
    /// The peer's: which it opened, how many are over, and how many it may open.
    pub(super) seen: RangeSet<u64>,
    over: u64,
    /// This side's that are open.
    own: u64,
    pub(super) peer_may_open: u64,
    pub(super) sent: Sent<Content>,
    pub(super) received: Received,
    /// Number of the datagram with the latest report.
    pub(super) reported: Option<u64>,
    pub(super) rtt: Rtt,
    pub(super) pacer: Pacer,
    pub(super) law: Law,
    pub(super) pool: Pool,
    pub(super) control: VecDeque<Control>,
    pub(super) waits: Waits,
    pub(super) lost: VecDeque<(u64, Range<u64>, bool)>,
    pub(super) schedule: Schedule,
    pub(super) held: u64,
    /// Writers that hold nothing, have credit and wait for memory. A writer that waits for credit,
    /// or for its own bytes to arrive, is in no list: the records name the stream.
    pub(super) waiting: VecDeque<u64>,
    pub(super) pieces: usize,
    pub(super) events: VecDeque<Event>,
    pub(super) last_report: Nanos,
    pub(super) is_peer_idle: bool,
    pub(super) was_idle: bool,
    pub(super) is_over: bool,
    pub(super) statistics: Statistics,
    pub(super) receipts: Receipts,
    pub(super) peer_receipts: Receipts,
}

impl Session {
    /// Begins at `now`, after the handshake.
    pub fn new(now: Nanos, settings: Settings) -> Self {
        let limits = settings.limits();
        let law = Law::new(settings.rate);
        let memory = settings.memory.max(LEAST_MEMORY);
        Self {
            limits,
            streams: HashMap::new(),
            opened: 0,
            may_open: settings.peer.streams,
            seen: RangeSet::new(),
            over: 0,
            own: 0,
            peer_may_open: limits.streams,
            sent: Sent::new(settings.is_ordered),
            received: Received::new(now),
            reported: None,
            rtt: Rtt::new(settings.rtt),
            pacer: Pacer::new(law.rate(), settings.burst, settings.catch_up),
            law,
            pool: Pool::new(memory / 4, limits.credit),
            control: VecDeque::new(),
            waits: Waits::default(),
            lost: VecDeque::new(),
            schedule: Schedule::default(),
            held: 0,
            waiting: VecDeque::new(),
            pieces: 0,
            events: VecDeque::new(),
            last_report: now,
            is_peer_idle: true,
            was_idle: true,
            is_over: false,
            statistics: Statistics::default(),
            receipts: Receipts::default(),
            peer_receipts: Receipts::default(),
            settings,
        }
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Statistics so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// A connection of this side ended in order in both directions: its host has acknowledged all
    /// of it, or not. The session reports it to the peer.
    pub fn receipt(&mut self, is_delivered: bool) {
        match is_delivered {
            true => self.receipts.delivered += 1,
            false => self.receipts.unconfirmed += 1,
        }
        self.queue_once(Control::Receipts);
    }

    /// Queues a record of which only the latest counts, unless one waits already.
    pub(super) fn queue_once(&mut self, control: Control) {
        let waits = match control {
            Control::Receipts => &mut self.waits.receipts,
            _ => &mut self.waits.streams,
        };
        if !std::mem::replace(waits, true) {
            self.control.push_back(control);
        }
    }

    /// Of this side's connections, and of the peer's.
    pub fn receipts(&self) -> (Receipts, Receipts) {
        (self.receipts, self.peer_receipts)
    }

    /// Smoothed round-trip time.
    pub fn round_trip(&self) -> Nanos {
        self.rtt.smoothed()
    }

    /// Rate in force, bits per second on the wire.
    pub fn rate(&self) -> u64 {
        self.pacer.rate()
    }

    /// Streams that are open.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Bytes that the peer has not acknowledged.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Time of the last arrival.
    pub fn last_arrival(&self) -> Nanos {
        self.received.last_arrival()
    }

    pub(super) fn is_own(&self, stream: u64) -> bool {
        stream.is_multiple_of(2) == (self.settings.side == Side::Client)
    }

    /// Opens a stream with a share of the rate from 1. `None`: the limit of streams is reached, or
    /// the target is longer than 300 bytes.
    pub fn open(&mut self, target: &[u8], weight: u8) -> Option<u64> {
        // The peer's limit may be larger than this side's memory.
        let is_full = self.opened >= self.may_open || self.own >= self.limits.streams;
        if is_full || self.is_over || target.len() > MOST_TARGET {
            return None;
        }
        self.own += 1;
        let number = 2 * self.opened + u64::from(self.settings.side == Side::Server);
        self.opened += 1;
        let mut stream = self.stream(weight);
        stream.target = target.to_vec();
        stream.is_known = true;
        self.streams.insert(number, stream);
        self.control.push_back(Control::Open(number));
        self.lend(number);
        Some(number)
    }

    pub(super) fn stream(&self, weight: u8) -> Stream {
        Stream {
            send: SendHalf::new(self.settings.peer.credit),
            receive: ReceiveHalf::new(self.limits.credit),
            weight: weight.max(1),
            loan: 0,
            target: Vec::new(),
            is_known: false,
            is_notified: false,
            blocked: None,
        }
    }

    /// Reports to the peer that the target of its stream has answered.
    pub fn accept(&mut self, stream: u64) {
        if self.streams.contains_key(&stream) {
            self.control.push_back(Control::Accept(stream));
        }
    }

    /// Lends a new stream the bytes of a round trip, so that it can have the whole rate from its
    /// first bytes on if it is alone. The credit reaches the peer before the answer to its opening.
    /// The rate is this side's: the peer's is not known here. Windows that are too small for it
    /// grow.
    pub(super) fn lend(&mut self, stream: u64) {
        let product = self.product();
        let Some(one) = self.streams.get_mut(&stream) else {
            return;
        };
        one.loan = self.pool.lend(product);
        if one.loan > 0 {
            one.receive.lend(one.loan);
            self.control.push_back(Control::Credit(stream));
        }
    }

    /// Bytes of a round trip at the rate.
    pub(super) fn product(&self) -> u64 {
        let product = u128::from(self.pacer.rate()) / 8 * u128::from(self.rtt.smoothed());
        (product / u128::from(SECOND)) as u64
    }

    /// Most unsettled transmissions, from which on no more data leaves: a peer that reports nothing
    /// must not fill this side's memory with their state. Full datagrams that are held are fewer.
    pub(super) fn most_unsettled(&self) -> u64 {
        self.settings.memory.max(LEAST_MEMORY) / UNSETTLED
    }

    /// Nothing more will be written: the peer reads the end after the last byte.
    pub fn finish(&mut self, stream: u64) {
        if let Some(one) = self.streams.get_mut(&stream) {
            one.send.finish();
            self.wake(stream);
        }
    }

    /// Schedules the stream if it has something new.
    pub(super) fn wake(&mut self, stream: u64) {
        if let Some(one) = self.streams.get(&stream) {
            if one.send.has_new() {
                let quantum = u64::from(one.weight) * self.settings.datagram as u64;
                self.schedule.add(stream, quantum);
            }
        }
    }

    /// Ends both directions at once, whatever is under way.
    pub fn reset(&mut self, stream: u64, reason: u8) {
        if self.streams.contains_key(&stream) {
            self.remove(stream);
            self.control.push_back(Control::Reset(stream, reason));
        }
    }

    /// Reads up to `most` bytes to the end of `to`. `None`: the stream has ended, and all of
    /// it was read.
    pub fn read(&mut self, stream: u64, most: usize, to: &mut Vec<u8>) -> Option<usize> {
        let one = self.streams.get_mut(&stream)?;
        let count = one.receive.read(most, to);
        if count == 0 {
            one.is_notified = false;
            if one.receive.is_finished() {
                return None;
            }
        }
        Some(count)
    }

    /// The far socket took so many of the bytes that were read: credit for as many returns.
    pub fn consume(&mut self, now: Nanos, stream: u64, bytes: u64) {
        let often = WINDOW * self.rtt.smoothed().max(MS);
        let Some(one) = self.streams.get_mut(&stream) else {
            return;
        };
        let before = one.receive.window();
        let most = self.pool.most(before);
        one.receive.consume(now, bytes, often, most);
        if one.receive.is_covered() {
            self.pool.settle(std::mem::take(&mut one.loan));
        }
        self.pool.change(before, one.receive.window());
        if one.receive.grant() > 0 {
            self.control.push_back(Control::Credit(stream));
        }
        self.close_if_done(stream);
    }

    /// Removes a stream whose both directions are over.
    pub(super) fn close_if_done(&mut self, stream: u64) {
        let is_done = |one: &Stream| one.send.is_done() && one.receive.is_done();
        if self.streams.get(&stream).is_some_and(is_done) {
            self.remove(stream);
            self.events.push_back(Event::Closed(stream));
        }
    }

    pub(super) fn remove(&mut self, stream: u64) {
        let Some(one) = self.streams.remove(&stream) else {
            return;
        };
        self.held -= one.send.held();
        self.pieces -= one.receive.pieces();
        self.pool.settle(one.loan);
        self.pool.change(one.receive.window(), 0);
        match self.is_own(stream) {
            true => self.own -= 1,
            false => self.count_over(),
        }
    }

    /// A stream of the peer's is over: it may open another one.
    pub(super) fn count_over(&mut self) {
        self.over += 1;
        let limit = self.over + self.limits.streams;
        // Not for each: an eighth of them is worth a record.
        let is_worth = limit - self.peer_may_open >= self.limits.streams.div_ceil(8);
        if is_worth {
            self.peer_may_open = limit;
            self.queue_once(Control::Streams);
        }
    }
}
