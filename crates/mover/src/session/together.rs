// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files from several hosts that see the same source to several that see the same destination.
//!
//! Each pair of hosts has a session of its own ([`super::across`]), and all of them walk the
//! same source. The head, through which their messages go, gives each entry to one of them, and
//! large files in parts: when a pair has little left to do it gets more, so all end together.
//! Each sink keeps a journal of its writes. At the end one more session of the first pair goes over
//! all of it: it finds the data of the journals, sends the rest, gives large files their names, and
//! does the final work: deletions, times of directories.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paceline_transfer::identity::identity;
use paceline_transfer::wire::{
    Direction, Entry, EntryKind, Message, Options, Reason, Start, Summary, Update, Verify, Want,
    Wanted, MOST_ENTRIES_BYTES, MOST_SMALL,
};
use tokio::sync::{watch, Notify};
use tokio::task::JoinSet;

use super::across::{across_as, end_both, pass_on, Across, Side, Sides};
use super::progress::{Event, Progress};
use super::share::{is_large, weight, Load, Shares};
use super::tuning::Tuning;
use paceline_conduit::control::{Inbox, Outbox};
use paceline_conduit::draw;
use paceline_conduit::ssh::{Ssh, SshHost};
use paceline_conduit::{Error, Result};

/// Interval of a pair's looks for work, unless it is notified.
const LOOK: Duration = Duration::from_millis(100);
/// Large files that a pair has begun, so that it never waits for an answer.
const BEGUN: usize = 2;
/// Entries of one message.
const BATCH: usize = 64;
/// Longest wait for the source's good bye.
const BYE: Duration = Duration::from_secs(10);

/// A transfer between several other hosts.
#[derive(Debug, Clone)]
pub struct Together {
    /// Calls of ssh to all.
    pub ssh: Ssh,
    /// Hosts that see the source, and paths there.
    pub from: (Vec<SshHost>, Vec<Vec<u8>>),
    /// Hosts that see the destination, and the path there.
    pub to: (Vec<SshHost>, Vec<u8>),
    /// How.
    pub options: Options,
}

impl Together {
    /// Its identity.
    pub fn identity(&self) -> [u8; 32] {
        let names = |hosts: &[SshHost]| {
            let names: Vec<_> = hosts.iter().map(SshHost::host).collect();
            names.join(",")
        };
        identity(
            (&names(&self.from.0), &self.from.1),
            (&names(&self.to.0), &self.to.1),
            &self.options,
        )
    }

    /// Each host is in one at least.
    fn pairs(&self) -> Vec<(SshHost, SshHost)> {
        let (from, to) = (&self.from.0, &self.to.0);
        let all = from.iter().cycle().zip(to.iter().cycle());
        let all = all.take(from.len().max(to.len()));
        all.map(|(from, to)| (from.clone(), to.clone())).collect()
    }

    /// The session that goes over all of it.
    fn last(&self) -> Result<Across> {
        let none = || Error::stop(Reason::Usage, "expected a host at each side");
        let mut options = self.options.clone();
        if !options.dry_run {
            // The others have compared, and hashed again what an earlier run left.
            options.update = Update::SizeMtime;
            if options.verify == Verify::Resume {
                options.verify = Verify::None;
            }
        }
        Ok(Across {
            ssh: self.ssh.clone(),
            from: (
                self.from.0.first().cloned().ok_or_else(none)?,
                self.from.1.clone(),
            ),
            to: (
                self.to.0.first().cloned().ok_or_else(none)?,
                self.to.1.clone(),
            ),
            options,
        })
    }
}

/// Moves files from several other hosts to several.
///
/// # Errors
/// The error that ends the transfer early, with the name of the host.
pub async fn together(
    transfer: Together,
    tuning: &Tuning,
    progress: Arc<Progress>,
) -> Result<Summary> {
    let (mut last, id) = (transfer.last()?, transfer.identity());
    let ending = Arc::new(Notify::new());
    let call = || Sides::call(&last.ssh, &last.from.0, &last.to.0);
    // The last session's two sides start while the others send the rest.
    let early = async {
        ending.notified().await;
        call().await
    };
    let (carried, sides) = {
        let carried = carry(&transfer, tuning, &progress, &ending);
        tokio::pin!(early, carried);
        tokio::select! {
            sides = &mut early => (carried.await, Some(sides)),
            carried = &mut carried => (carried, None),
        }
    };
    let (carried, sides) = match (carried, sides) {
        (Ok(carried), Some(sides)) => (carried, sides?),
        (Ok(carried), None) => (carried, call().await?),
        (Err(error), Some(Ok(sides))) => return sides.leave(error).await,
        (Err(error), _) => return Err(error),
    };
    // The user may have changed it.
    (_, last.options.rate_bps) = tuning.now();
    // It finds all of it once more.
    for counter in [&progress.entries, &progress.bytes, &progress.bytes_done] {
        counter.store(0, Ordering::Relaxed);
    }
    progress.is_walked.store(false, Ordering::Relaxed);
    let sum = across_as(id, sides, last, tuning, progress).await?;
    Ok(Summary {
        placed: sum.placed + carried.placed,
        unchanged: sum.unchanged.saturating_sub(carried.placed),
        written_bytes: sum.written_bytes + carried.written_bytes,
        resumed_bytes: carried.resumed_bytes,
        ..sum
    })
}

/// All pairs, until nothing is left for any of them. `ending`: one has all that it will get.
async fn carry(
    transfer: &Together,
    tuning: &Tuning,
    progress: &Arc<Progress>,
    ending: &Arc<Notify>,
) -> Result<Summary> {
    if transfer.options.dry_run {
        return Ok(Summary::default());
    }
    let pairs = transfer.pairs();
    let count = pairs.len() as u64;
    let shares = Arc::new(Shares::new(count));
    let (stop, stopped) = watch::channel(false);
    let mut options = transfer.options.clone();
    options.rate_bps = options.rate_bps.map(|bps| (bps / count).max(1));
    options.delete = None;
    options.report_hashes = false;
    options.pairs = u16::try_from(count).unwrap_or(u16::MAX);
    options.streams = tuning.now().0.first_of(options.pairs);
    if options.verify == Verify::None {
        // The last session trusts it.
        options.verify = Verify::Resume;
    }
    let mut running = JoinSet::new();
    let mut tunings = Vec::new();
    for (number, (from, to)) in (1..).zip(pairs) {
        let (streams, rate) = tuning.now();
        let own = Arc::new(Tuning::new(streams, rate.map(|bps| (bps / count).max(1))));
        tunings.push(Arc::clone(&own));
        let pair = Pair {
            transfer: transfer.clone(),
            options: Options {
                part: Some(number),
                ..options.clone()
            },
            from,
            to,
            shares: Arc::clone(&shares),
            progress: Arc::clone(progress),
            ending: Arc::clone(ending),
            state: Mutex::default(),
            wake: Notify::new(),
        };
        let stopped = stopped.clone();
        running.spawn(async move { pair.run(&own, stopped).await });
    }
    let (mut streams, mut rate) = tuning.watch();
    let (mut sum, mut failed) = (Summary::default(), None);
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                None => break,
                Some(Ok(Ok(own))) => {
                    sum.placed += own.placed;
                    sum.written_bytes += own.written_bytes;
                }
                Some(Ok(Err(error))) => {
                    // The first reason counts; the others end because of it.
                    failed.get_or_insert(error);
                    let _ = stop.send(true);
                }
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            },
            Ok(()) = streams.changed() => {
                let streams = *streams.borrow_and_update();
                tunings.iter().for_each(|own| own.set_streams(streams));
            }
            Ok(()) = rate.changed() => {
                let rate = rate.borrow_and_update().map(|bps| (bps / count).max(1));
                tunings.iter().for_each(|own| own.set_rate(rate));
            }
        }
    }
    sum.resumed_bytes = shares.resumed();
    failed.map_or(Ok(sum), Err)
}

/// A session of two hosts, from the head's view.
struct Pair {
    transfer: Together,
    options: Options,
    from: SshHost,
    to: SshHost,
    shares: Arc<Shares>,
    progress: Arc<Progress>,
    ending: Arc<Notify>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    /// Undecided entries.
    waiting: VecDeque<Entry>,
    is_walked: bool,
    /// The source has its `Ready`, which must be its first message.
    is_ready: bool,
    /// Entries that were sent to the sink.
    announced: u64,
    /// The pair's work.
    load: Load,
    /// Large files that the sink has not answered yet.
    asked: HashMap<u64, Entry>,
    /// Large files that it carries parts of, and their ranges that the destination lacks.
    begun: VecDeque<(Entry, Vec<(u64, u64)>)>,
    streams: u64,
    sent: u64,
    /// The pairs do not share a bottleneck; and the source has the message.
    is_apart: bool,
    knows_apart: bool,
    /// Entries that other pairs have, until they can be sent to the source.
    others: Vec<Want>,
}

impl Pair {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(&self) -> Result<(Side, Side)> {
        let (session, secret) = (draw()?, draw()?);
        let id = self.transfer.identity();
        let start = |direction, paths| Start {
            direction,
            id,
            secret,
            paths,
            options: self.options.clone(),
        };
        let ssh = &self.transfer.ssh;
        let push = start(Direction::Push, vec![self.transfer.to.1.clone()]);
        let send = start(Direction::Across, self.transfer.from.1.clone());
        let begin = async |host, start| {
            let side = Side::begin(ssh, host, session, start).await;
            side.map_err(|error| at(host, &error))
        };
        tokio::try_join!(begin(&self.from, send), begin(&self.to, push))
    }

    async fn run(self, tuning: &Tuning, mut stopped: watch::Receiver<bool>) -> Result<Summary> {
        let (mut source, mut sink) = self.begin().await?;
        let (to_source, to_sink) = (source.control.outbox.clone(), sink.control.outbox.clone());
        let ready = Notify::new();
        let (result, is_sinks) = {
            let up = self.serve_source(&mut source.control.inbox, &to_sink);
            let down = self.serve_sink(&mut sink.control.inbox, &to_source, &ready);
            let feed = self.feed(&to_source, &to_sink);
            let tuned = pass_on(tuning, &to_source, &ready);
            tokio::pin!(up);
            let ended = tokio::select! {
                ended = &mut up => (ended.and(Err(Error::Unexpected("the source left"))), false),
                ended = down => (ended, true),
                never = tuned => match never {},
                never = feed => match never {},
                _ = stopped.wait_for(|is| *is) => {
                    let text = "another pair of hosts ended the transfer";
                    (Err(Error::stop(Reason::Interrupted, text)), true)
                }
            };
            if ended.0.is_ok() {
                // So that the sink need not wait for its good bye.
                let _ = tokio::time::timeout(BYE, up).await;
            }
            ended
        };
        drop((to_source, to_sink));
        self.shares.saw(self.options.part, (0, 0));
        let result = end_both(source, sink, result, is_sinks).await;
        let State { streams, sent, .. } = *self.lock();
        self.progress.streams.fetch_sub(streams, Ordering::Relaxed);
        if result.is_ok() {
            self.progress.report(Event::Carried {
                from: self.from.host().to_owned(),
                to: self.to.host().to_owned(),
                bytes: sent,
            });
        }
        result.map_err(|error| match is_sinks {
            true => at(&self.to, &error),
            false => at(&self.from, &error),
        })
    }

    /// Until the source says good bye.
    async fn serve_source(&self, inbox: &mut Inbox, sink: &Outbox) -> Result<()> {
        loop {
            let message = inbox.next().await?;
            match message {
                Message::Entries(entries) => {
                    let mut state = self.lock();
                    for entry in &entries {
                        if self.shares.sees(entry) {
                            let is_file = matches!(entry.kind, EntryKind::File { .. });
                            let bytes = if is_file { entry.stamp.size } else { 0 };
                            self.progress.found(bytes);
                        }
                    }
                    state.waiting.extend(entries);
                }
                Message::Walked { .. } => self.lock().is_walked = true,
                Message::Report {
                    bytes_sent,
                    streams,
                    path,
                    ..
                } => {
                    let is_apart = self.shares.saw(self.options.part, path);
                    let mut state = self.lock();
                    state.is_apart = is_apart;
                    let sent = bytes_sent.saturating_sub(state.sent);
                    state.sent += sent;
                    self.progress.done(sent, sent);
                    let total = &self.progress.streams;
                    total.fetch_add(streams, Ordering::Relaxed);
                    total.fetch_sub(state.streams, Ordering::Relaxed);
                    state.streams = streams;
                    state.load.reported(bytes_sent);
                }
                Message::Trouble {
                    stream: Some(stream),
                    text,
                    ..
                } => self.progress.report(Event::StreamLost { stream, text }),
                // The last session finds out about it.
                Message::Trouble { .. } | Message::Unreadable { .. } => continue,
                Message::Abandon { n, .. } => {
                    self.lock().forget(n);
                    sink.send(message);
                }
                Message::Bye => {
                    sink.send(message);
                    return Ok(());
                }
                message => sink.send(message),
            }
            self.wake.notify_one();
        }
    }

    /// Until the sink has all.
    async fn serve_sink(
        &self,
        inbox: &mut Inbox,
        source: &Outbox,
        is_ready: &Notify,
    ) -> Result<Summary> {
        loop {
            let mut message = inbox.next().await?;
            match &mut message {
                Message::Ready(ready) => {
                    // If the address by which it was reached from here leads nowhere from there.
                    self.to.host().clone_into(&mut ready.host);
                    source.send(message);
                    is_ready.notify_one();
                    self.lock().is_ready = true;
                    self.wake.notify_one();
                    continue;
                }
                Message::Wants(wants) => {
                    let mut state = self.lock();
                    wants
                        .iter_mut()
                        .for_each(|want| self.wanted(&mut state, want));
                }
                Message::Failed { n, .. } => self.lock().forget(*n),
                Message::Full { text } => {
                    let text = format!("{}: {text}", self.to.host());
                    self.progress.report(Event::Full { text });
                }
                Message::Finished(summary) => {
                    let summary = summary.clone();
                    source.send(message);
                    return Ok(summary);
                }
                _ => {}
            }
            source.send(message);
            self.wake.notify_one();
        }
    }

    /// The sink's answer to an entry.
    fn wanted(&self, state: &mut State, want: &mut Want) {
        let missing = match &want.wanted {
            Wanted::Ranges(ranges) => ranges.iter().map(|(start, end)| end - start).sum(),
            _ => 0,
        };
        let Some(entry) = state.asked.remove(&want.n) else {
            let is_wanted = matches!(want.wanted, Wanted::Ranges(_));
            // Small files have no ranges: all of them is wanted, or nothing.
            let is_small = state.load.size(want.n) <= MOST_SMALL;
            let missing = (!(is_wanted && is_small)).then_some(missing);
            let there = state.load.answered(want.n, missing);
            if is_wanted {
                self.shares.resumes(there);
            }
            return;
        };
        match &mut want.wanted {
            Wanted::Ranges(ranges) => {
                // The source begins it; the head assigns its parts one by one.
                let ranges = std::mem::take(ranges);
                self.shares.lacks(&entry, missing);
                state.begun.push_back((entry, ranges));
            }
            Wanted::Nothing => self.shares.exhaust(&entry),
            Wanted::Failed(_) => {}
        }
    }

    /// Gives the pair more work, whenever it has little left.
    async fn feed(&self, source: &Outbox, sink: &Outbox) -> super::across::Never {
        let mut is_over = false;
        loop {
            if !is_over {
                is_over = self.feed_once(source, sink);
                if is_over {
                    self.ending.notify_one();
                }
            }
            let _ = tokio::time::timeout(LOOK, self.wake.notified()).await;
        }
    }

    /// True when nothing will come any more.
    fn feed_once(&self, source: &Outbox, sink: &Outbox) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let is_all = loop {
            if !state.load.is_low() {
                break false;
            }
            if self.give_part(state, source) {
                continue;
            }
            let Some(entry) = state.waiting.front() else {
                break state.is_walked && state.asked.is_empty() && state.begun.is_empty();
            };
            let is_shared = is_large(entry);
            if is_shared && state.asked.len() + state.begun.len() >= BEGUN {
                break false;
            }
            let Some(entry) = state.waiting.pop_front() else {
                break false;
            };
            if !self.shares.claim(&entry) {
                state.others.push(Want {
                    n: entry.n,
                    wanted: Wanted::Nothing,
                });
                continue;
            }
            if is_shared {
                state.asked.insert(entry.n, entry.clone());
            } else if matches!(entry.kind, EntryKind::File { .. }) {
                state.load.gave(entry.n, entry.stamp.size);
            }
            state.announced += 1;
            bytes += weight(&entry);
            entries.push(entry);
            if entries.len() >= BATCH || bytes >= MOST_ENTRIES_BYTES {
                sink.send(Message::Entries(std::mem::take(&mut entries)));
                bytes = 0;
            }
        };
        // An entry that another pair has needs nothing here, however busy this one is.
        while let Some(entry) = state.waiting.front() {
            if is_large(entry) || !self.shares.is_claimed(entry) {
                break;
            }
            let n = entry.n;
            state.waiting.pop_front();
            let wanted = Wanted::Nothing;
            state.others.push(Want { n, wanted });
        }
        if state.is_ready {
            if state.is_apart && !std::mem::replace(&mut state.knows_apart, true) {
                source.send(Message::Apart);
            }
            for batch in std::mem::take(&mut state.others).chunks(BATCH) {
                source.send(Message::Wants(batch.to_vec()));
            }
        }
        if !entries.is_empty() {
            sink.send(Message::Entries(entries));
        }
        if is_all {
            sink.send(Message::Walked {
                entries: state.announced,
                bytes: 0,
                errors: 0,
            });
        }
        is_all
    }

    /// A part of a large file that it has begun, or the message that there is no more of it. False
    /// if it has begun none.
    fn give_part(&self, state: &mut State, source: &Outbox) -> bool {
        let Some((entry, missing)) = state.begun.front() else {
            return false;
        };
        let n = entry.n;
        let (ranges, is_last) = match self.shares.part(entry, state.load.window()) {
            None => (Vec::new(), true),
            Some((start, end)) => {
                let within = missing
                    .iter()
                    .map(|(at, to)| (*at.max(&start), *to.min(&end)));
                (within.filter(|(at, to)| at < to).collect(), false)
            }
        };
        let given: u64 = ranges.iter().map(|(at, to)| to - at).sum();
        if is_last {
            state.begun.pop_front();
        }
        if is_last || given > 0 {
            state.load.gave_part(n, given);
            source.send(Message::More {
                n,
                ranges,
                last: is_last,
            });
        }
        true
    }
}

impl State {
    /// A file that failed.
    fn forget(&mut self, n: u64) {
        self.load.forget(n);
        self.begun.retain(|(entry, _)| entry.n != n);
    }
}

/// Adds the host's name.
fn at(host: &SshHost, error: &Error) -> Error {
    Error::stop(error.reason(), format!("{}: {error}", host.host()))
}
