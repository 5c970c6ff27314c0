// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session, shared by the thread that paces it and the tasks of its connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, Notify};

use crate::session::{Event, Nanos, Receipts, Session, SessionError, Settings, Statistics};

/// Events that the task of a connection waits for. Each has one waiter.
#[derive(Debug)]
pub struct Signals {
    /// Something can be read.
    pub readable: Notify,
    /// There is room again.
    pub writable: Notify,
    changed: Notify,
    is_accepted: AtomicBool,
    /// Reason of the reset; negative: none.
    reset: AtomicI16,
}

impl Signals {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            readable: Notify::new(),
            writable: Notify::new(),
            changed: Notify::new(),
            is_accepted: AtomicBool::new(false),
            reset: AtomicI16::new(-1),
        })
    }

    fn end(&self, reason: u8) {
        self.reset.store(i16::from(reason), Ordering::Release);
        self.changed.notify_one();
    }

    fn reset(&self) -> Option<u8> {
        u8::try_from(self.reset.load(Ordering::Acquire)).ok()
    }

    /// Waits until the stream is reset, and returns the reason.
    pub async fn ended(&self) -> u8 {
        loop {
            if let Some(reason) = self.reset() {
                return reason;
            }
            self.changed.notified().await;
        }
    }

    /// Waits until the target answered.
    ///
    /// # Errors
    /// The reason of a reset.
    pub async fn accepted(&self) -> Result<(), u8> {
        loop {
            if let Some(reason) = self.reset() {
                return Err(reason);
            }
            if self.is_accepted.load(Ordering::Acquire) {
                return Ok(());
            }
            self.changed.notified().await;
        }
    }
}

/// A stream that the peer opened.
pub struct Incoming {
    /// Its number.
    pub stream: u64,
    /// Its target.
    pub target: Vec<u8>,
    /// Its events.
    pub signals: Arc<Signals>,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes; none: wait for [`Signals::readable`].
    Bytes(usize),
    /// The stream's end.
    End,
    /// The stream was reset, or the session is over.
    Reset,
}

/// See the module's text.
pub struct Hub {
    inner: Mutex<Inner>,
    /// There may be something to send.
    pub work: Notify,
    /// The session is over.
    pub over: Notify,
    began: Instant,
    is_ordered: bool,
}

struct Inner {
    session: Session,
    streams: HashMap<u64, Arc<Signals>>,
    incoming: mpsc::UnboundedSender<Incoming>,
    is_over: bool,
    is_broken: bool,
}

/// A session as `status` shows it.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Seen {
    /// Transport of the session: udp or tcp.
    pub leg: &'static str,
    /// Bits per second on the wire.
    pub rate: u64,
    /// Microseconds.
    pub round_trip_us: u64,
    /// Open connections.
    pub connections: usize,
    /// Bytes that the peer has not acknowledged.
    pub held_bytes: u64,
    /// Time since the peer's last datagram, milliseconds.
    pub silent_ms: u64,
    /// The breaker ended the reservation.
    pub breaker: bool,
    /// Connections of hosts here that ended in order.
    pub receipts: Receipts,
    /// The same of the peer's hosts, as it reports.
    pub peer_receipts: Receipts,
    /// Statistics of the session.
    #[serde(flatten)]
    pub statistics: Statistics,
}

impl Hub {
    /// Begins a session. Streams that the peer opens come out of the receiver; their number is
    /// bounded by the session's limits.
    pub fn new(settings: Settings) -> (Arc<Self>, mpsc::UnboundedReceiver<Incoming>) {
        let (incoming, receiver) = mpsc::unbounded_channel();
        let hub = Self {
            is_ordered: settings.is_ordered,
            inner: Mutex::new(Inner {
                session: Session::new(0, settings),
                streams: HashMap::new(),
                incoming,
                is_over: false,
                is_broken: false,
            }),
            work: Notify::new(),
            over: Notify::new(),
            began: Instant::now(),
        };
        (Arc::new(hub), receiver)
    }

    fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` on the session, and passes its events to the tasks.
    fn with<R>(&self, act: impl FnOnce(&mut Session, Nanos) -> R) -> R {
        let now = self.now();
        let mut inner = self.lock();
        let result = act(&mut inner.session, now);
        if inner.dispatch() {
            self.over.notify_one();
        }
        drop(inner);
        self.work.notify_one();
        result
    }

    /// The next datagrams, up to `most`, and when there are more.
    pub fn transmit(&self, most: usize, datagrams: &mut Vec<Vec<u8>>) -> Instant {
        let now = self.now();
        let mut inner = self.lock();
        while datagrams.len() < most {
            let mut datagram = Vec::with_capacity(1_500);
            if !inner.session.transmit(now, &mut datagram) {
                break;
            }
            datagrams.push(datagram);
        }
        if inner.dispatch() {
            self.over.notify_one();
        }
        let next = inner.session.next_time();
        // An hour is for ever.
        let wait = Duration::from_nanos(next.saturating_sub(now)).min(Duration::from_secs(3_600));
        Instant::now() + wait
    }

    /// A datagram of the peer's.
    ///
    /// # Errors
    /// [`SessionError`]: the session must end.
    pub fn receive(&self, datagram: &[u8]) -> Result<(), SessionError> {
        self.with(|session, now| session.receive(now, datagram))
    }

    /// The session is over: all connections are reset.
    pub fn end(&self) {
        self.lock().end();
        self.over.notify_one();
    }

    /// Opens a stream; `None`: the limit of streams is reached, or the session is over.
    /// It gets `weight` times as much of the rate as one of weight 1.
    pub fn open(&self, target: &[u8], weight: u8) -> Option<(u64, Arc<Signals>)> {
        let mut inner = self.lock();
        if inner.is_over {
            return None;
        }
        let stream = inner.session.open(target, weight)?;
        let signals = Signals::new();
        inner.streams.insert(stream, Arc::clone(&signals));
        drop(inner);
        self.work.notify_one();
        Some((stream, signals))
    }

    /// See [`Session::accept`].
    pub fn accept(&self, stream: u64) {
        self.with(|session, _| session.accept(stream));
    }

    /// See [`Session::room`].
    pub fn room(&self, stream: u64) -> usize {
        self.lock().session.room(stream)
    }

    /// See [`Session::write`].
    pub fn write(&self, stream: u64, bytes: &[u8]) -> usize {
        self.with(|session, _| session.write(stream, bytes))
    }

    /// See [`Session::finish`].
    pub fn finish(&self, stream: u64) {
        self.with(|session, _| session.finish(stream));
    }

    /// See [`Session::receipt`].
    pub fn receipt(&self, is_delivered: bool) {
        self.with(|session, _| session.receipt(is_delivered));
    }

    /// See [`Session::reset`].
    pub fn reset(&self, stream: u64, reason: u8) {
        self.with(|session, _| session.reset(stream, reason));
        self.lock().streams.remove(&stream);
    }

    /// See [`Session::read`].
    pub fn read(&self, stream: u64, signals: &Signals, most: usize, to: &mut Vec<u8>) -> Read {
        let mut inner = self.lock();
        if inner.is_over || signals.reset().is_some() {
            return Read::Reset;
        }
        match inner.session.read(stream, most, to) {
            Some(count) => Read::Bytes(count),
            None => Read::End,
        }
    }

    /// See [`Session::consume`].
    pub fn consume(&self, stream: u64, bytes: u64) {
        self.with(|session, now| session.consume(now, stream, bytes));
    }

    /// For `status`.
    pub fn seen(&self) -> Seen {
        let now = self.now();
        let inner = self.lock();
        let session = &inner.session;
        let (receipts, peer_receipts) = session.receipts();
        Seen {
            leg: if self.is_ordered { "tcp" } else { "udp" },
            rate: session.rate(),
            round_trip_us: session.round_trip() / 1_000,
            connections: session.open_streams(),
            held_bytes: session.held(),
            silent_ms: now.saturating_sub(session.last_arrival()) / 1_000_000,
            breaker: inner.is_broken,
            receipts,
            peer_receipts,
            statistics: session.statistics(),
        }
    }
}

impl Inner {
    /// Passes events to the tasks; true: the session is over.
    fn dispatch(&mut self) -> bool {
        while let Some(event) = self.session.event() {
            match event {
                Event::Opened { stream, target } => {
                    let signals = Signals::new();
                    self.streams.insert(stream, Arc::clone(&signals));
                    // The receiver may be gone if the session is over.
                    let _ = self.incoming.send(Incoming {
                        stream,
                        target,
                        signals,
                    });
                }
                Event::Accepted(stream) => {
                    if let Some(signals) = self.streams.get(&stream) {
                        signals.is_accepted.store(true, Ordering::Release);
                        signals.changed.notify_one();
                    }
                }
                Event::Readable(stream) => {
                    if let Some(signals) = self.streams.get(&stream) {
                        signals.readable.notify_one();
                    }
                }
                Event::Writable(stream) => {
                    if let Some(signals) = self.streams.get(&stream) {
                        signals.writable.notify_one();
                    }
                }
                Event::Reset { stream, reason } => {
                    if let Some(signals) = self.streams.remove(&stream) {
                        signals.end(reason);
                    }
                }
                Event::Closed(stream) => {
                    self.streams.remove(&stream);
                }
                Event::Broken => {
                    self.is_broken = true;
                    tracing::warn!(
                        "less than 80 % of what is sent at the reserved rate arrives: \
                         the rate is learned from now on"
                    );
                }
                Event::Silent => self.end(),
            }
        }
        self.is_over
    }

    fn end(&mut self) {
        self.is_over = true;
        for (_, signals) in self.streams.drain() {
            signals.end(0);
        }
    }
}
