// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side that verifies and writes.

mod bounds;
mod commit;
mod disk;
mod finish;
mod large;
mod names;
mod open;
mod plan;
mod receive;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc as channel, Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, Notify};
use tokio::task::JoinSet;

pub use self::bounds::Bounds;
use self::bounds::Used;
use self::commit::Commits;
use self::large::Large;
use super::pool::{Order, Supply};
use super::progress::{shown, Event, Progress};
use super::streams::serve_streams;
use paceline_conduit::control::{short, Inbox, Outbox};
use paceline_conduit::stream::Stream;
use paceline_conduit::{Error, Result};
use paceline_transfer::read::Filter;
use paceline_transfer::store::{set_attributes, set_owner, Journal, Known, Root, Temporary, Which};
use paceline_transfer::wire::{Attribute, Entry, Message, Options, Owner, Stamp, Summary};

/// Messages of entries that wait for the plan.
const PLANNED: usize = 16;
/// Bytes that may be under way or not on the disk yet: two commits.
const WINDOW: u64 = 2 * commit::DIRTY_BYTES;
/// Longest wait for the source's good bye.
const BYE: Duration = Duration::from_secs(10);

/// Place where a sink writes.
#[derive(Debug, Clone)]
pub enum Target {
    /// A path that the operator of this process named.
    Operator(PathBuf),
    /// A path below the operator's root that the other side named, and bounds for it.
    Below(PathBuf, Vec<u8>, Bounds),
}

/// A transfer to be received.
pub struct Job {
    /// The destination.
    pub target: Target,
    /// Entries at the destination that the transfer may delete.
    pub filter: Filter,
    /// How.
    pub options: Options,
    /// The transfer.
    pub id: [u8; 32],
    /// The session's secret.
    pub secret: [u8; 32],
}

/// A file that is not done.
struct Slot {
    path: Vec<u8>,
    stamp: Stamp,
    mode: u32,
    dense: bool,
    attributes: Vec<Attribute>,
    owner: Option<Owner>,
    large: Option<Arc<Mutex<Large>>>,
}

struct Sink {
    options: Options,
    filter: Filter,
    secret: [u8; 32],
    /// First digits of the transfer's identity.
    id: String,
    root: Root,
    outbox: Outbox,
    progress: Arc<Progress>,
    /// None in a dry run.
    journal: Mutex<Option<Journal>>,
    /// Files of an earlier run, until they are asked for.
    known: Mutex<HashMap<Vec<u8>, Known>>,
    unsure_since: Option<i64>,
    is_resumed: bool,
    files: Mutex<HashMap<u64, Slot>>,
    commits: Commits,
    /// Directories whose names are not on the disk yet.
    named: Mutex<Vec<Arc<OwnedFd>>>,
    /// Bytes of payload that came.
    received: AtomicU64,
    /// Bytes that are wanted and not there, and files.
    to_come: AtomicU64,
    files_to_come: AtomicU64,
    bounds: Bounds,
    used: Used,
    /// The destination, if it is a block device.
    device: Option<Arc<Temporary>>,
    /// The disk was full, which was reported.
    is_waiting: AtomicBool,
    plan: Mutex<Plan>,
    summary: Mutex<Summary>,
    /// Something is done: perhaps all is.
    progressed: Notify,
    stopped: Mutex<Option<Error>>,
    is_stopped: AtomicBool,
    /// Nothing is missing: bites that still come are duplicates.
    is_all_there: AtomicBool,
    is_over: AtomicBool,
}

/// A directory, as it is to be at the end.
struct Directory {
    path: Vec<u8>,
    stamp: Stamp,
    mode: u32,
    attributes: Vec<Attribute>,
    owner: Option<Owner>,
}

/// State of the entries.
#[derive(Default)]
struct Plan {
    /// Directories, for their times and permissions at the end.
    directories: Vec<Directory>,
    /// Further names of files: the entry, its path, and the file's first one.
    links: Vec<(u64, Vec<u8>, Vec<u8>)>,
    /// Hashes of all paths, where what is not among them is deleted.
    seen: HashSet<[u8; 16]>,
    /// Entries with an answer.
    answered: u64,
    /// All entries, and parts of the source that could not be read.
    walked: Option<(u64, u64)>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives all, until it is on the disk.
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
        are_own,
        ..
    } = supply;
    let Message::Roots { one_file } = inbox.next().await? else {
        return Err(Error::Unexpected("a source begins with its roots"));
    };
    let (sink, rename) = tokio::task::block_in_place(|| {
        open::open(job, one_file, outbox.clone(), Arc::clone(&progress))
    })?;
    let sink = Arc::new(sink);
    outbox.send(Message::Credit { total: WINDOW });
    let (entries, planned) = channel::sync_channel(PLANNED);
    let planner = {
        let sink = Arc::clone(&sink);
        std::thread::spawn(move || sink.plan_all(&planned, rename.as_deref()))
    };
    let committer = {
        let sink = Arc::clone(&sink);
        std::thread::spawn(move || sink.commit_all())
    };
    // They are closed after the last message.
    let mut running = JoinSet::new();
    let result = tokio::select! {
        ended = sink.listen(inbox, &entries) => ended.map(|()| Summary::default()),
        lost = sink.all_streams(&mut streams, &mut running) => Err(lost),
        done = sink.all_there() => done,
        silent = sink.silent() => Err(silent),
        () = sink.pass_on(orders) => Ok(Summary::default()),
    };
    if are_own {
        // No more are made.
        streams.close();
    }
    sink.is_over.store(true, Ordering::Release);
    sink.commits.wake();
    drop(entries);
    tokio::task::block_in_place(|| {
        if let Err(panic) = planner.join().and(committer.join()) {
            std::panic::resume_unwind(panic);
        }
    });
    let stopped = held(&sink.stopped).take();
    let mut summary = match stopped.map_or(result, Err) {
        Ok(summary) => summary,
        Err(error) => {
            sink.leave();
            return Err(error);
        }
    };
    summary = tokio::task::block_in_place(|| match sink.options.dry_run {
        true => sink.finish_dry(summary),
        false => sink.finish(summary),
    })?;
    outbox.send(Message::Finished(summary.clone()));
    // All is there: the source's good bye changes nothing here.
    let _ = tokio::time::timeout(BYE, async {
        while !matches!(inbox.next().await, Ok(Message::Bye) | Err(_)) {}
    })
    .await;
    Ok(summary)
}

impl Sink {
    fn stop(&self, error: Error) {
        // The first reason counts, also when it was taken already.
        if !self.is_stopped.swap(true, Ordering::Relaxed) {
            *held(&self.stopped) = Some(error);
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.commits.wake();
        self.progressed.notify_waiters();
    }

    /// Extended attributes that are kept.
    fn which(&self) -> Which {
        Which {
            of_user: self.options.xattrs,
            acls: self.options.acls,
        }
    }

    /// Gives a file or directory its owner and extended attributes, if they are kept.
    fn set_attributes(
        &self,
        fd: impl AsFd,
        owner: Option<Owner>,
        wanted: &[Attribute],
    ) -> std::io::Result<()> {
        set_owner(&fd, owner)?;
        match self.which() {
            which if which.is_none() => Ok(()),
            which => set_attributes(fd, which, wanted),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// An entry failed here.
    fn failed(&self, n: u64, wrong: bool, text: &str) {
        let Some(slot) = held(&self.files).remove(&n) else {
            return;
        };
        if let Some(large) = &slot.large {
            held(large).give_up();
        }
        {
            let mut summary = held(&self.summary);
            match wrong {
                true => summary.wrong += 1,
                false => summary.failed += 1,
            }
        }
        self.report_failed(&slot.path, text);
        let text = short(text);
        self.outbox.send(Message::Failed { n, wrong, text });
        self.progressed.notify_waiters();
    }

    fn report_failed(&self, path: &[u8], text: &str) {
        self.progress.report(Event::Failed {
            path: shown(path),
            text: text.to_owned(),
        });
    }

    async fn listen(
        &self,
        inbox: &mut Inbox,
        entries: &channel::SyncSender<Vec<Entry>>,
    ) -> Result<()> {
        loop {
            match inbox.next().await? {
                Message::Entries(batch) => {
                    // It waits if the plan is behind; so does the source.
                    let queued = tokio::task::block_in_place(|| entries.send(batch));
                    if queued.is_err() {
                        // The plan ended: the transfer has.
                        std::future::pending::<()>().await;
                    }
                }
                Message::Walked {
                    entries, errors, ..
                } => {
                    held(&self.plan).walked = Some((entries, errors));
                    self.progress.is_walked.store(true, Ordering::Relaxed);
                    self.progressed.notify_waiters();
                    self.commit_what_is_left();
                }
                Message::Complete {
                    n,
                    attempt,
                    stamp,
                    mode,
                    root,
                } => {
                    let complete = large::Complete {
                        attempt,
                        stamp,
                        mode,
                        root,
                    };
                    tokio::task::block_in_place(|| self.complete(n, complete));
                }
                Message::Abandon { n, changed, text } => {
                    let Some(slot) = held(&self.files).remove(&n) else {
                        continue;
                    };
                    if let Some(large) = &slot.large {
                        held(large).give_up();
                    }
                    {
                        let mut summary = held(&self.summary);
                        match changed {
                            true => summary.changed += 1,
                            false => summary.failed += 1,
                        }
                    }
                    self.report_failed(&slot.path, &text);
                    self.progressed.notify_waiters();
                }
                Message::Unreadable { path, text } => {
                    held(&self.summary).failed += 1;
                    self.report_failed(&path, &text);
                }
                _ => return Err(Error::Unexpected("a source announces and completes")),
            }
        }
    }

    /// The source sends, so it carries out the orders of this side's user.
    async fn pass_on(&self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            self.outbox.send(match order {
                Order::Rate(bps) => Message::Rate { bps },
                Order::Retire(stream) => Message::Retire { stream },
            });
        }
        std::future::pending().await
    }

    /// Serves the data connections. Ends when none is left and no more can come.
    async fn all_streams(
        self: &Arc<Self>,
        streams: &mut mpsc::Receiver<Stream>,
        running: &mut JoinSet<(u16, Result<()>)>,
    ) -> Error {
        let serve = |stream| {
            let sink = Arc::clone(self);
            async move { sink.stream(stream).await }
        };
        let is_over = || self.is_over();
        serve_streams(&self.progress, streams, running, serve, is_over).await
    }

    /// Ends when all entries are done, or the transfer was stopped here.
    async fn all_there(&self) -> Result<Summary> {
        loop {
            let notified = self.progressed.notified();
            if let Some(error) = held(&self.stopped).take() {
                return Err(error);
            }
            let is_all = {
                let plan = held(&self.plan);
                let files = held(&self.files);
                files.is_empty() && plan.walked.is_some_and(|(all, _)| all == plan.answered)
            };
            if is_all {
                self.is_all_there.store(true, Ordering::Relaxed);
                return Ok(held(&self.summary).clone());
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), notified).await;
        }
    }
}
