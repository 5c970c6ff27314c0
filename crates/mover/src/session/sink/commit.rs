// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of files are written to the disk together, and then get their names.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{fstat, fsync};

use super::disk::of_the_disk;
use super::large::{Failure, Large};
use super::{held, Sink, WINDOW};
use crate::fault;
use paceline_conduit::{Error, Result};
use paceline_transfer::chunk::CV;
use paceline_transfer::store::{sync_where_it_lies, Journal, Placement, Record, Temporary};
use paceline_transfer::wire::{Message, Verify};

/// After so much time, so many bytes or so many files all is written to the disk.
const PERIOD: Duration = Duration::from_secs(1);
/// See [`PERIOD`].
pub(super) const DIRTY_BYTES: u64 = 256 << 20;
const FILES: usize = 4096;
/// Fewer files or directories are synced one by one, more with all of their filesystem.
const SINGLY: usize = 8;

/// Work of the next commit.
#[derive(Default)]
pub(super) struct Commits {
    waiting: Mutex<Waiting>,
    woken: Condvar,
    /// Small files that are being written, or wait.
    claimed: Mutex<HashSet<u64>>,
}

#[derive(Default)]
struct Waiting {
    dirty: HashMap<u64, Arc<Temporary>>,
    bytes: u64,
    small: HashMap<u64, (Placement, CV)>,
    large: Vec<(u64, Arc<Mutex<Large>>)>,
    is_urgent: bool,
}

impl Commits {
    /// A large file was written to.
    pub fn dirty(&self, n: u64, temporary: &Arc<Temporary>, bytes: u64) {
        let mut waiting = held(&self.waiting);
        waiting
            .dirty
            .entry(n)
            .or_insert_with(|| Arc::clone(temporary));
        waiting.bytes += bytes;
        self.wake_if_full(&waiting);
    }

    /// All of a large file is there.
    pub fn ready(&self, n: u64, large: &Arc<Mutex<Large>>) {
        let mut waiting = held(&self.waiting);
        waiting.large.push((n, Arc::clone(large)));
        // It may be the last one.
        waiting.is_urgent = true;
        self.woken.notify_all();
    }

    /// A small file is there.
    pub fn small(&self, n: u64, placement: Placement, bytes: u64, root: CV) {
        let mut waiting = held(&self.waiting);
        waiting.small.insert(n, (placement, root));
        waiting.bytes += bytes;
        self.wake_if_full(&waiting);
    }

    /// A small file is to be written. False if another stream brought it, too.
    pub fn claim(&self, n: u64) -> bool {
        held(&self.claimed).insert(n)
    }

    /// It is done.
    pub fn release(&self, n: u64) {
        held(&self.claimed).remove(&n);
    }

    fn wake_if_full(&self, waiting: &Waiting) {
        if waiting.bytes >= DIRTY_BYTES || waiting.small.len() >= FILES {
            self.woken.notify_all();
        }
    }

    /// The next commit begins at once.
    pub fn wake(&self) {
        held(&self.waiting).is_urgent = true;
        self.woken.notify_all();
    }

    /// Waits for the next commit's time.
    fn wait(&self) {
        let waiting = held(&self.waiting);
        let not_yet = |waiting: &mut Waiting| {
            !waiting.is_urgent && waiting.bytes < DIRTY_BYTES && waiting.small.len() < FILES
        };
        let woken = self.woken.wait_timeout_while(waiting, PERIOD, not_yet);
        drop(woken);
    }

    /// Takes the work of a commit.
    fn take(&self) -> Waiting {
        std::mem::take(&mut *held(&self.waiting))
    }
}

impl Sink {
    /// Commits at once if all that is not done waits for the next commit.
    pub(super) fn commit_what_is_left(&self) {
        if self.only_commits_are_left() {
            self.commits.wake();
        }
    }

    fn only_commits_are_left(&self) -> bool {
        let is_planned = {
            let plan = held(&self.plan);
            plan.walked.is_some_and(|(all, _)| all == plan.answered)
        };
        is_planned && {
            let files = held(&self.files).len();
            let waiting = held(&self.commits.waiting);
            files == waiting.small.len() + waiting.large.len()
        }
    }

    /// Commits, until the transfer is over. A thread of its own: the disk may take long.
    pub(super) fn commit_all(&self) {
        while !self.is_over() {
            self.commits.wait();
            if let Err(error) = self.commit() {
                self.stop(error);
                return;
            }
            let total = self.received.load(Ordering::Relaxed) + WINDOW;
            self.outbox.send(Message::Credit { total });
        }
        // So the next run does not send it again.
        if let Err(error) = self.commit() {
            self.stop(error);
        }
    }

    fn commit(&self) -> Result<()> {
        // First: the data of these records waits for this commit, or was synced before.
        let upto = held(&self.journal).as_ref().map_or(0, Journal::count);
        let waiting = self.commits.take();
        // This thread alone has it, until it ends.
        let mut directories = held(&self.named);
        let Waiting {
            dirty,
            small,
            large,
            ..
        } = waiting;
        if dirty.is_empty() && small.is_empty() && large.is_empty() && directories.is_empty() {
            return Ok(());
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_secs() as i64);
        let synced = self.sync(&dirty, &small, &directories);
        if let Err(source) = synced {
            // The kernel may mark pages that it could not write as clean, so that the next sync
            // finds nothing to do: their data is sent again (fsync(2), EIO).
            for n in dirty.keys() {
                let (start, end) = (0, u64::MAX);
                let _ = self.journal(&Record::Gone { n: *n, start, end });
            }
            return Err(self.disk(source));
        }
        fault::point("sink-synced");
        self.journal(&Record::Commit { upto, since })
            .and_then(|()| match &*held(&self.journal) {
                Some(journal) => journal.sync(),
                None => Ok(()),
            })
            .map_err(|source| self.disk(source))?;
        fault::point("sink-committed");
        directories.clear();
        for (n, (placement, root)) in small {
            let read_back = match self.options.verify == Verify::All {
                true => read_back(&placement, &root),
                false => Ok(()),
            };
            let placed = read_back.and_then(|()| Ok(placement.place()?));
            directories.push(Arc::clone(placement.directory()));
            if placed.is_err() {
                placement.discard();
            }
            self.placed(n, placed.map(|()| Some(root)));
            self.commits.release(n);
            fault::point("sink-placed-small");
        }
        for (n, large) in large {
            let (temporary, root) = {
                let mut own = held(&large);
                let root = own.tree.root(own.size);
                (own.temporary.take(), root)
            };
            let Some(temporary) = temporary else {
                continue;
            };
            let placed = temporary.placement().place();
            directories.push(Arc::clone(temporary.placement().directory()));
            fault::point("sink-placed");
            if placed.is_err() {
                temporary.placement().discard();
            }
            if let Err(source) = self.journal(&Record::Placed { n }) {
                return Err(self.disk(source));
            }
            self.placed(n, placed.map(|()| root).map_err(Failure::Io));
        }
        Ok(())
    }

    /// The names of all files, and of their directories with `all`.
    pub(super) fn sync_names(&self, all: bool) -> io::Result<()> {
        let mut directories = std::mem::take(&mut *held(&self.named));
        if all {
            directories.push(self.root.directory(b"")?);
        }
        self.sync(&HashMap::new(), &HashMap::new(), &directories)
    }

    fn disk(&self, source: io::Error) -> Error {
        of_the_disk(&source).unwrap_or_else(|| Error::Io {
            path: "the destination's disk".to_owned(),
            source,
        })
    }

    fn placed(&self, n: u64, placed: std::result::Result<Option<CV>, Failure>) {
        let root = match placed {
            Ok(root) => root,
            Err(failure) => return self.fail(n, &failure),
        };
        let slot = held(&self.files).remove(&n);
        if let Some(slot) = slot {
            if let Some(root) = root {
                self.report_hash(&slot.path, &root);
            }
            held(&self.summary).placed += 1;
            self.progress.entry_done();
        }
        self.progressed.notify_waiters();
    }

    /// Data of files, and names in directories of the last commit.
    fn sync(
        &self,
        dirty: &HashMap<u64, Arc<Temporary>>,
        small: &HashMap<u64, (Placement, CV)>,
        directories: &[Arc<OwnedFd>],
    ) -> io::Result<()> {
        fault::disk("sink-syncs")?;
        let mut seen = HashSet::new();
        let directories: Vec<_> = directories
            .iter()
            .filter(|directory| seen.insert(Arc::as_ptr(directory)))
            .collect();
        if dirty.len() + small.len() + directories.len() <= SINGLY {
            for temporary in dirty.values() {
                temporary.file().sync_data()?;
            }
            for (placement, _) in small.values() {
                placement.read()?.sync_data()?;
            }
            for directory in directories {
                fsync(directory)?;
            }
            return Ok(());
        }
        // A destination may have several filesystems.
        let mut devices = HashSet::new();
        let files = dirty.values().map(|temporary| temporary.file().as_fd());
        let small = small
            .values()
            .map(|(placement, _)| placement.directory().as_fd());
        let directories = directories.iter().map(|directory| directory.as_fd());
        for fd in files.chain(small).chain(directories) {
            if devices.insert(fstat(fd)?.st_dev) {
                sync_where_it_lies(fd)?;
            }
        }
        Ok(())
    }
}

fn read_back(placement: &Placement, root: &CV) -> std::result::Result<(), Failure> {
    let mut file = placement.read()?;
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(&file, 0, None, advice).map_err(io::Error::from)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    match blake3::hash(&bytes).as_bytes() == root {
        true => Ok(()),
        false => Err(Failure::Wrong(
            "the data that was read back differs from the written data",
        )),
    }
}
