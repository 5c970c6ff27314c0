// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data connections, from the command's side: as many as are wanted. A lost one is made again;
//! a surplus one ends when its bites are acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use paceline_transfer::wire::MOST_STREAMS;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::progress::{Event, Progress};
use super::tuning::{Steps, Streams, INTERVAL};
use paceline_conduit::connect::{attach, dial, Credentials};
use paceline_conduit::stream::{Guard, Stream};
use paceline_conduit::{Error, Result};

/// So many are made at once.
const AT_ONCE: usize = 32;
/// A lost connection is made again after this pause, and after twice as long each time that
/// nothing was sent in between.
const PAUSE: Duration = Duration::from_millis(100);
/// After so many times in a row there is no way.
const TRIES: u32 = 6;

/// An order to the side that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Bits per second, all connections together; `None`: without a limit.
    Rate(Option<u64>),
    /// This connection ends when all that it has sent is acknowledged.
    Retire(u16),
}

/// Data connections of a side, and orders to it meanwhile.
pub struct Supply {
    /// As they are made.
    pub streams: mpsc::Receiver<Stream>,
    /// To the side that makes them.
    pub orders: mpsc::UnboundedReceiver<Order>,
    /// The first ones are made beside the control connection, and do not wait for its answer.
    pub are_early: bool,
    /// They are made here. Else the other side may make more until all is done.
    pub are_own: bool,
}

impl From<mpsc::Receiver<Stream>> for Supply {
    /// Of a side that makes none.
    fn from(streams: mpsc::Receiver<Stream>) -> Self {
        let (_, orders) = mpsc::unbounded_channel();
        Self {
            streams,
            orders,
            are_early: false,
            are_own: false,
        }
    }
}

/// The way of data connections.
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// The first one that answers.
    pub addresses: Vec<String>,
    pub credentials: Credentials,
    pub session: [u8; 16],
    pub is_plain: bool,
}

/// A connection that is being made.
pub(super) type Making = JoinSet<(u16, Result<Stream>)>;

impl Way {
    /// Makes one.
    pub async fn connect(self, number: u16) -> (u16, Result<Stream>) {
        let mut failed = Error::Unexpected("there is no address for data connections");
        for address in &self.addresses {
            let token = self.credentials.token.as_ref();
            let attached = match dial(address, &self.credentials).await {
                Ok(raw) => attach(raw, token, (self.session, number), self.is_plain).await,
                Err(error) => Err(error),
            };
            match attached {
                Ok(stream) => return (number, Ok(stream)),
                Err(error) => failed = error,
            }
        }
        (number, Err(failed))
    }
}

/// See the module's text.
pub(super) struct Pool {
    pub way: Way,
    /// Those that are being made already, numbered from 0.
    pub making: Making,
    pub made: mpsc::Sender<Stream>,
    pub orders: mpsc::UnboundedSender<Order>,
    pub streams: watch::Receiver<Streams>,
    pub rate: watch::Receiver<Option<u64>>,
    /// Pairs of hosts that begin together.
    pub pairs: u16,
    pub progress: Arc<Progress>,
}

/// The counts.
struct Count {
    /// Numbers are not used twice: keys belong to them.
    next: u16,
    wanted: u16,
    live: BTreeSet<u16>,
    /// In a row, without a byte in between.
    failures: u32,
    bytes: u64,
    /// Nothing is made before.
    pause: Option<Instant>,
}

impl Pool {
    /// Runs until no more connections are wanted, or none can be made.
    pub async fn run(mut self) {
        let (ended, mut ends) = mpsc::unbounded_channel();
        let mut count = Count {
            next: self.making.len() as u16,
            wanted: self.streams.borrow_and_update().first_of(self.pairs),
            live: BTreeSet::new(),
            failures: 0,
            bytes: 0,
            pause: None,
        };
        let mut steps = Steps::default();
        let mut tick = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        let mut sent_before = None;
        loop {
            self.fit(&mut count);
            if count.live.is_empty() && self.making.is_empty() && count.pause.is_none() {
                return;
            }
            let pause = count.pause;
            tokio::select! {
                () = self.made.closed() => return,
                Ok(()) = self.streams.changed() => {
                    count.wanted = self.streams.borrow_and_update().first_of(self.pairs);
                    steps = Steps::default();
                    sent_before = None;
                }
                Ok(()) = self.rate.changed() => {
                    let rate = *self.rate.borrow_and_update();
                    let _ = self.orders.send(Order::Rate(rate));
                }
                Some(made) = self.making.join_next() => match made {
                    Ok((number, Ok(mut stream))) => {
                        stream.guard = Some(Guard::new(number, ended.clone()));
                        count.live.insert(number);
                        if self.made.send(stream).await.is_err() {
                            return;
                        }
                    }
                    Ok((number, Err(error))) => {
                        if self.made.is_closed() {
                            return; // all is over: it came too late
                        }
                        if count.failures == 0 {
                            let text = error.to_string();
                            self.progress.report(Event::StreamLost { stream: number, text });
                        }
                        self.failed(&mut count);
                    }
                    Err(_) => self.failed(&mut count),
                },
                Some(number) = ends.recv() => {
                    // A retired one does not count any more.
                    if count.live.remove(&number) {
                        self.failed(&mut count);
                    }
                }
                () = tokio::time::sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {
                    count.pause = None;
                }
                _ = tick.tick(), if *self.streams.borrow() == Streams::Auto => {
                    let sent = self.progress.bytes_sent.load(Ordering::Relaxed);
                    if let Some(before) = sent_before.replace(sent) {
                        let rate = (sent - before) / INTERVAL.as_secs();
                        count.wanted = steps.next(count.wanted, rate, self.left());
                    }
                }
            }
        }
    }

    /// Bytes that are to be sent. More may be found.
    fn left(&self) -> u64 {
        let progress = &self.progress;
        if !progress.is_walked.load(Ordering::Relaxed) {
            return u64::MAX;
        }
        let done = progress.bytes_done.load(Ordering::Relaxed);
        progress.bytes.load(Ordering::Relaxed).saturating_sub(done)
    }

    /// Makes missing connections, and ends surplus ones.
    fn fit(&mut self, count: &mut Count) {
        let wanted = usize::from(count.wanted).min(MOST_STREAMS);
        let is_pausing = count.pause.is_some() || count.next == u16::MAX;
        while !is_pausing
            && count.live.len() + self.making.len() < wanted
            && self.making.len() < AT_ONCE
            && count.next < u16::MAX
        {
            self.making.spawn(self.way.clone().connect(count.next));
            count.next += 1;
        }
        while count.live.len() > wanted {
            if let Some(number) = count.live.pop_last() {
                let _ = self.orders.send(Order::Retire(number));
            }
        }
    }

    /// One is lost, or could not be made.
    fn failed(&self, count: &mut Count) {
        let bytes = self.progress.bytes_done.load(Ordering::Relaxed);
        if std::mem::replace(&mut count.bytes, bytes) < bytes {
            count.failures = 0;
        }
        count.failures += 1;
        // If the first ones fail there is no way at all, which is reported at once.
        let is_hopeless = bytes == 0 && self.making.is_empty() && count.live.is_empty();
        count.pause = match count.failures > TRIES || is_hopeless {
            true => None,
            false => Some(Instant::now() + PAUSE * 2u32.pow(count.failures - 1)),
        };
        if count.pause.is_none() {
            // Those that are left go on alone.
            count.wanted = (count.live.len() + self.making.len()) as u16;
        }
    }
}
