// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side that reads and sends.

mod asked;
mod change;
mod pace;
mod send;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, Notify};
use tokio::task::JoinSet;

use self::asked::Then;
use self::pace::{Look, Pacer};
use super::across::report_once;
use super::pool::{Order, Supply};
use super::progress::{shown, Event, Progress};
use super::streams::serve_streams;
use super::tuning::{Streams, Tuning};
use paceline_conduit::control::{short, Inbox, Outbox};
use paceline_conduit::stream::Stream;
use paceline_conduit::{look, set_rate};
use paceline_conduit::{Error, Result};
use paceline_transfer::chunk::{Queue, Tree, LEAST_BITE};
use paceline_transfer::read::{walk, Filter, More, Place, Seen, Tops};
use paceline_transfer::store::Which;
use paceline_transfer::wire::{
    Entry, EntryKind, Message, Options, Stamp, Summary, Update, MOST_ENTRIES, MOST_ENTRIES_BYTES,
    MOST_PENDING,
};

/// Entries between the walk and the connection.
const WALKED: usize = 4096;
/// Entries of the first message; each has twice as many as the one before, up to the most that
/// fit. The control connection begins with a few kilobytes in a round trip, as any does: a message
/// of thousands of entries would be whole, and answered, round trips later.
const FIRST_ENTRIES: usize = 32;
/// So long a message waits for more entries: each alone would be a packet, of which a new
/// connection may send ten, too.
const GATHERING: Duration = Duration::from_millis(1);
/// Acknowledgements take so long, as long as none has come.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Interval of looks at connections.
const LOOK: Duration = Duration::from_millis(1);
/// Longest wait for the ends of streams.
const CLOSING: Duration = Duration::from_secs(2);

/// A transfer to be sent.
pub struct Job {
    /// The sources.
    pub tops: Tops,
    /// Which of their entries.
    pub filter: Filter,
    /// How.
    pub options: Options,
    /// The session's secret.
    pub secret: [u8; 32],
    /// Of connections that this side makes for a head elsewhere.
    pub tuning: Option<Arc<Tuning>>,
}

struct Source {
    tuning: Option<Arc<Tuning>>,
    options: Options,
    secret: [u8; 32],
    outbox: Outbox,
    progress: Arc<Progress>,
    state: Mutex<State>,
    /// There may be something to do for a stream, or for the walk.
    wake: Notify,
    began: Instant,
}

#[derive(Default)]
struct State {
    queue: Queue,
    /// Files that are not done.
    files: HashMap<u64, SourceFile>,
    /// Entries without an answer.
    pending: u64,
    /// Bytes that may be sent, and that were, since the beginning.
    credit: u64,
    sent: u64,
    /// Delay of acknowledgements, smoothed.
    ack_delay: Option<Duration>,
    /// Of all streams together, bits per second.
    rate_bps: Option<u64>,
    /// Rate that the path carries, as far as it is known: bytes per second.
    path_rate: Option<u64>,
    /// The head has reported that other hosts do not share the path's narrowest link.
    is_apart: bool,
    /// Of streams, whose share of the rate changes with their number.
    sockets: HashMap<u16, OwnedFd>,
    /// Streams that share the rate; 0: all of them.
    sending: usize,
    /// Streams that are to end.
    retired: HashSet<u16>,
    /// Of each stream: bytes of files that the sink has by it, and since when.
    carried: BTreeMap<u16, (u64, Duration)>,
    /// Bytes of files that may go before the sink has answered.
    ahead: u64,
    /// The sink has sent a message: it takes the transfer.
    is_taken: bool,
    is_over: bool,
}

struct SourceFile {
    /// Below the destination.
    path: Vec<u8>,
    place: Place,
    stamp: Stamp,
    mode: u32,
    dense: bool,
    early: Early,
    large: Option<Large>,
}

/// A small file that goes into a pack before the sink has answered.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Early {
    /// It does not, or was answered.
    #[default]
    No,
    /// It is to go, or went.
    Sent,
    /// Its pack was acknowledged before it was answered.
    There,
    /// It could not be read. The sink does not know it before its answer.
    Troubled,
}

/// A file that is sent in bites.
#[derive(Default)]
struct Large {
    file: Option<Arc<File>>,
    /// Bites that were read in this run, or compared with earlier ones.
    bites: Tree,
    /// Bytes of bites when all is read.
    wanted: u64,
    /// Other sessions send parts of it, too: the head assigns this one's bit by bit.
    is_shared: bool,
    /// Bytes of it that were asked for.
    asked: u64,
    /// Bytes from its beginning that are sent unasked, and whether that failed.
    ahead: u64,
    is_troubled: bool,
    /// That is the whole file, so its hash is known.
    is_whole: bool,
    attempt: u16,
    /// Frames on their way.
    unacked: u64,
    is_complete: bool,
}

/// Sends all, until the sink says that it has it.
///
/// # Errors
/// The error that ends the transfer early.
pub async fn run(
    inbox: &mut Inbox,
    outbox: &Outbox,
    supply: Supply,
    job: Job,
    progress: Arc<Progress>,
) -> Result<Summary> {
    let Supply {
        mut streams,
        orders,
        are_early,
        ..
    } = supply;
    let rate_bps = job.options.rate_bps;
    let ahead = match are_early {
        true => asked::ahead(&job.options),
        false => 0,
    };
    let source = Arc::new(Source {
        tuning: job.tuning,
        options: job.options,
        secret: job.secret,
        outbox: outbox.clone(),
        progress,
        state: Mutex::new(State {
            rate_bps,
            ahead,
            credit: ahead,
            ..State::default()
        }),
        wake: Notify::new(),
        began: Instant::now(),
    });
    outbox.send(Message::Roots {
        one_file: job.tops.is_one_file(),
    });
    let (seen, walked) = mpsc::channel(WALKED);
    let (tops, filter) = (job.tops, job.filter);
    let more = More {
        hash: source.options.update == Update::Hash,
        attributes: Which {
            of_user: source.options.xattrs,
            acls: source.options.acls,
        },
        owner: source.options.owner,
        hard_links: source.options.hard_links,
        specials: source.options.specials,
        device: source.options.device,
    };
    let walker = std::thread::spawn(move || {
        walk(&tops, &filter, more, &|entry| {
            seen.blocking_send(entry).is_ok()
        });
    });
    let mut running = JoinSet::new();
    let result = tokio::select! {
        result = source.listen(inbox) => result,
        lost = source.all_streams(&mut streams, &mut running) => Err(lost),
        never = source.announce(walked) => match never {},
        never = source.apply_orders(orders) => match never {},
        never = source.pace() => match never {},
    };
    source.lock().is_over = true;
    source.wake.notify_waiters();
    // No more are made.
    streams.close();
    if result.is_ok() {
        let closing = async { while running.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSING, closing).await;
    }
    for (stream, (bytes, last)) in std::mem::take(&mut source.lock().carried) {
        source.progress.report(Event::Stream {
            stream,
            bytes,
            last_us: last.as_micros() as u64,
        });
    }
    // It ends with its channel.
    let _ = walker.join();
    result
}

enum Never {}

impl State {
    /// A stream begins, or ends.
    fn share_rate(&self) {
        let asked = self.rate_bps.map(|bps| bps / 8);
        if let Some(rate) = asked.or(self.path_rate) {
            self.pace(rate);
        }
    }

    /// Paces all sockets, `u64::MAX`: not at all.
    fn pace(&self, bytes_per_s: u64) {
        let own = match bytes_per_s {
            u64::MAX => u64::MAX,
            all => {
                let sending = match self.sending {
                    0 => self.sockets.len(),
                    sending => sending,
                };
                (all / sending.max(1) as u64).max(1)
            }
        };
        for socket in self.sockets.values() {
            if let Err(error) = set_rate(socket, own) {
                tracing::warn!("--rate: cannot set a socket's rate: {error}");
            }
        }
    }
}

impl Source {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reads the sink's messages.
    async fn listen(self: &Arc<Self>, inbox: &mut Inbox) -> Result<Summary> {
        loop {
            let message = inbox.next().await?;
            self.lock().is_taken = true;
            match message {
                Message::Wants(wants) => {
                    let mut sent: Vec<(u64, Then)> = Vec::new();
                    {
                        let mut state = self.lock();
                        for want in wants {
                            let n = want.n;
                            let then = self.wanted(&mut state, want)?;
                            sent.extend(then.map(|then| (n, then)));
                        }
                    }
                    for (n, then) in sent {
                        tokio::task::block_in_place(|| match then {
                            Then::Finish => self.finish(n, 0),
                            Then::BeginAnew => self.changed(n, 0),
                        });
                    }
                }
                Message::Credit { total } => {
                    let mut state = self.lock();
                    state.credit = state.credit.max(total);
                }
                Message::Failed { n, text, .. } => {
                    let mut state = self.lock();
                    state.queue.cancel(n);
                    // The text names a file that is not known here any more.
                    let path = state.files.remove(&n).map(|file| file.path);
                    self.failed(&path.unwrap_or_default(), &text);
                }
                Message::Hash { path, root } => self.progress.hash(&path, &root),
                Message::Full { text } => self.progress.report(Event::Full { text }),
                Message::Deleted(path) => {
                    self.progress.report(Event::Deleted { path: shown(&path) })
                }
                Message::Streams { count } => {
                    if let Some(tuning) = &self.tuning {
                        tuning.set_streams(count.map_or(Streams::Auto, Streams::Fixed));
                    }
                }
                Message::More { n, ranges, last } => self.more(n, &ranges, last)?,
                Message::Apart => self.lock().is_apart = true,
                Message::Rate { bps } => self.order(Order::Rate(bps)),
                Message::Retire { stream } => self.order(Order::Retire(stream)),
                Message::Finished(summary) => {
                    self.lock().is_over = true;
                    self.wake.notify_waiters();
                    // Only where a head passes messages on: the bytes sent since the last report.
                    if self.tuning.is_some() {
                        report_once(&self.outbox, &self.progress);
                    }
                    self.outbox.send(Message::Bye);
                    return Ok(summary);
                }
                _ => return Err(Error::Unexpected("a sink asks, grants, and finishes")),
            }
            self.wake.notify_waiters();
        }
    }

    /// Keeps all streams together at the path's rate, unless the user sets one.
    async fn pace(&self) -> Never {
        let mut pacer = Pacer::new(self.options.pairs);
        // Bytes that each stream had delivered at the last look.
        let mut before = HashMap::new();
        let mut delivered = 0;
        while !pacer.is_over() {
            tokio::time::sleep(LOOK).await;
            let mut state = self.lock();
            let (mut in_flight, mut base, mut rtts, mut busy) = (0, u32::MAX, 0, 0);
            let mut sending = 0;
            for (number, socket) in &state.sockets {
                let Ok(seen) = look(socket) else {
                    continue;
                };
                let last = before.insert(*number, seen.delivered);
                delivered += seen
                    .delivered
                    .saturating_sub(last.unwrap_or(seen.delivered));
                in_flight += seen.in_flight;
                sending += usize::from(seen.unsent > 0);
                if seen.least_rtt_us > 0 {
                    base = base.min(seen.least_rtt_us);
                }
                if seen.in_flight > 0 && seen.rtt_us > 0 {
                    rtts += u64::from(seen.rtt_us);
                    busy += 1;
                }
            }
            if busy == 0 || base == u32::MAX {
                self.progress.sees(pacer.path().0, 0);
                continue;
            }
            let look = Look {
                now: self.now(),
                delivered,
                in_flight,
                base: Duration::from_micros(base.into()),
                rtt: Duration::from_micros(rtts / busy),
            };
            if state.is_apart {
                pacer.part();
            }
            let rate = pacer.next(&look);
            let (most, now) = pacer.path();
            self.progress.sees(most, now);
            // At the end, streams with something left take the shares of the others.
            if !state.queue.is_empty() {
                sending = 0;
            }
            if rate != state.path_rate || sending != state.sending {
                (state.path_rate, state.sending) = (rate, sending);
                let asked = state.rate_bps.map(|bps| bps / 8);
                state.pace(asked.or(rate).unwrap_or(u64::MAX));
            }
        }
        self.progress.sees(0, 0);
        std::future::pending().await
    }

    async fn apply_orders(&self, mut orders: mpsc::UnboundedReceiver<Order>) -> Never {
        while let Some(order) = orders.recv().await {
            self.order(order);
            self.wake.notify_waiters();
        }
        std::future::pending().await
    }

    fn order(&self, order: Order) {
        let mut state = self.lock();
        match order {
            Order::Rate(rate_bps) => {
                state.rate_bps = rate_bps;
                // Sockets may have a limit from before.
                let asked = rate_bps.map(|bps| bps / 8);
                state.pace(asked.or(state.path_rate).unwrap_or(u64::MAX));
            }
            Order::Retire(stream) if state.sockets.contains_key(&stream) => {
                state.retired.insert(stream);
            }
            Order::Retire(_) => {}
        }
    }

    fn failed(&self, path: &[u8], text: &str) {
        self.progress.report(Event::Failed {
            path: shown(path),
            text: text.to_owned(),
        });
    }

    /// Reports that all of a large file was sent.
    fn complete(&self, state: &mut State, n: u64) {
        let Some(file) = state.files.get_mut(&n) else {
            return;
        };
        let (stamp, mode) = (file.stamp, file.mode);
        let Some(large) = file.large.as_mut().filter(|large| !large.is_complete) else {
            return;
        };
        large.is_complete = true;
        large.file = None;
        let root = match large.is_whole {
            true => large.bites.root(stamp.size),
            false => None,
        };
        self.outbox.send(Message::Complete {
            n,
            attempt: large.attempt,
            stamp,
            mode,
            root,
        });
        // A bite that was lost is read once more.
        if large.unacked == 0 && !state.queue.has(n) {
            state.files.remove(&n);
            self.progress.entry_done();
        }
    }

    /// Gives up a file.
    fn abandon(&self, state: &mut State, n: u64, is_changed: bool, text: &str) {
        state.queue.cancel(n);
        if let Some(file) = state.files.remove(&n) {
            self.failed(&file.path, text);
        }
        self.outbox.send(Message::Abandon {
            n,
            changed: is_changed,
            text: short(text),
        });
    }

    /// Announces the entries that the walk finds to the sink.
    async fn announce(&self, mut walked: mpsc::Receiver<Seen>) -> Never {
        let (mut entries, mut bytes, mut errors) = (0, 0, 0);
        let mut most = FIRST_ENTRIES;
        while let Some(first) = walked.recv().await {
            let (mut batch, mut size, mut next) = (Vec::new(), 0, Some(first));
            let until = tokio::time::Instant::now() + GATHERING;
            while let Some(seen) = next.take() {
                match seen {
                    Seen::Trouble(path, text) => {
                        errors += 1;
                        self.failed(&path, &text);
                        let text = short(&text);
                        self.outbox.send(Message::Unreadable { path, text });
                    }
                    Seen::Entry(mut entry, place) => {
                        entry.n = entries;
                        entries += 1;
                        let is_file = matches!(entry.kind, EntryKind::File { .. });
                        let own = if is_file { entry.stamp.size } else { 0 };
                        bytes += own;
                        self.progress.found(own);
                        size += entry.path.len() + 128;
                        for (name, value) in &entry.attributes {
                            size += name.len() + value.len() + 8;
                        }
                        if let EntryKind::Link(to) | EntryKind::HardLink(to) = &entry.kind {
                            size += to.len();
                        }
                        batch.push((entry, place));
                    }
                }
                if batch.len() < most && size < MOST_ENTRIES_BYTES {
                    let more = tokio::time::timeout_at(until, walked.recv());
                    next = more.await.ok().flatten();
                }
            }
            self.announce_batch(batch).await;
            most = MOST_ENTRIES.min(2 * most);
        }
        self.outbox.send(Message::Walked {
            entries,
            bytes,
            errors,
        });
        self.progress.is_walked.store(true, Ordering::Relaxed);
        std::future::pending().await
    }

    /// So much was announced that is not done: the rest need not be in memory yet.
    fn is_far_ahead(&self) -> bool {
        let state = self.lock();
        state.pending.max(state.files.len() as u64) >= MOST_PENDING
    }

    async fn announce_batch(&self, batch: Vec<(Entry, Place)>) {
        if batch.is_empty() {
            return;
        }
        while self.is_far_ahead() {
            let _ = tokio::time::timeout(FIRST_DELAY, self.wake.notified()).await;
        }
        let mut entries = Vec::with_capacity(batch.len());
        {
            let mut state = self.lock();
            state.pending += batch.len() as u64;
            for (entry, place) in batch {
                if let EntryKind::File { dense } = entry.kind {
                    let (n, size) = (entry.n, entry.stamp.size);
                    let ahead = state.take_ahead(size);
                    let early = state.take_small_ahead(size);
                    if early == Early::Sent {
                        state.queue.add_small(n, size);
                    }
                    state.queue.add_range(n, size, 0, (0, ahead), LEAST_BITE);
                    let file = SourceFile {
                        path: entry.path.clone(),
                        place,
                        stamp: entry.stamp,
                        mode: entry.mode,
                        dense,
                        early,
                        large: (ahead > 0).then(|| Large {
                            // So that it does not count as complete.
                            wanted: u64::MAX,
                            ahead,
                            ..Large::default()
                        }),
                    };
                    state.files.insert(n, file);
                }
                entries.push(entry);
            }
        }
        self.outbox.send(Message::Entries(entries));
        self.wake.notify_waiters();
    }

    /// Serves the data connections. Ends when none is left and no more can come.
    async fn all_streams(
        self: &Arc<Self>,
        streams: &mut mpsc::Receiver<Stream>,
        running: &mut JoinSet<(u16, Result<()>)>,
    ) -> Error {
        let serve = |stream| {
            let source = Arc::clone(self);
            async move { source.stream(stream).await }
        };
        // A refused transfer also loses its early connections: one error is enough.
        let is_over = || {
            let state = self.lock();
            state.is_over || !state.is_taken
        };
        serve_streams(&self.progress, streams, running, serve, is_over).await
    }
}
