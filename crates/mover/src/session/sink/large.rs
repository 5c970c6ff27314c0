// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A large file, bite by bite.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::{held, Sink};
use paceline_transfer::chunk::{Tree, CV, MOST_CHUNK};
use paceline_transfer::store::{file_bits, set_file, Record, Temporary};
use paceline_transfer::wire::{Attribute, Bite, Header, Owner, Stamp, Verify};

/// The source's last message about a file.
#[derive(Debug, Clone)]
pub(super) struct Complete {
    pub attempt: u16,
    pub stamp: Stamp,
    pub mode: u32,
    pub root: Option<CV>,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Large {
    pub temporary: Option<Arc<Temporary>>,
    pub tree: Tree,
    /// Bites that were sent again: where each begins, its end, and its attempt.
    newer: BTreeMap<u64, (u64, u16)>,
    pub attempt: u16,
    /// As the temporary file has it.
    pub size: u64,
    pub complete: Option<Complete>,
    /// It has an entry in the journal.
    is_journalled: bool,
    /// Other sessions write parts of it, too. None of them places it.
    pub is_shared: bool,
    /// It was handed over to be placed, or is given up.
    pub is_closed: bool,
}

impl Large {
    /// Bites of an earlier run.
    pub fn resumed(tree: Tree, size: u64) -> Self {
        Self {
            tree,
            size,
            ..Self::default()
        }
    }

    /// The newest attempt of which a bite within these bytes is there: an older one that comes
    /// after it, in whatever cut, is of a former file. All of it is sent again. No bite is longer
    /// than `MOST_CHUNK`.
    fn newest(&self, offset: u64, end: u64) -> u16 {
        let near = self.newer.range(offset.saturating_sub(MOST_CHUNK)..end);
        let within = near.filter(|(_, (until, _))| *until > offset);
        within.map(|(_, (_, attempt))| *attempt).max().unwrap_or(0)
    }

    /// Nothing of it is kept.
    pub fn give_up(&mut self) {
        self.is_closed = true;
        if let Some(temporary) = self.temporary.take() {
            if !self.is_shared {
                temporary.placement().discard();
            }
        }
    }

    fn is_ready(&self) -> bool {
        let complete = self.complete.as_ref();
        complete.is_some_and(|complete| {
            complete.attempt >= self.attempt
                && self.size == complete.stamp.size
                && self.tree.known() == self.size
        })
    }
}

/// The file fails: its disk, or its hash.
pub(super) enum Failure {
    Io(std::io::Error),
    Wrong(&'static str),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Path, state, whether it is dense, and its bites.
type Held = (Vec<u8>, Stamp, bool, Arc<Mutex<Large>>);

impl Sink {
    fn large(&self, n: u64) -> Option<Held> {
        let files = held(&self.files);
        let slot = files.get(&n)?;
        let large = slot.large.as_ref()?;
        Some((slot.path.clone(), slot.stamp, slot.dense, Arc::clone(large)))
    }

    /// Writes a verified bite. One of a file that is done, or that is there already, is fine.
    pub(super) fn write_bite(&self, header: &Header, bite: &Bite, cv: CV) {
        let n = header.file;
        let Some((path, stamp, dense, large)) = self.large(n) else {
            return;
        };
        let mut own = held(&large);
        let written = self.write_into(&mut own, header, bite, cv, (&path, stamp, dense));
        let ready = match written {
            Ok(()) => !own.is_closed && own.is_ready(),
            Err(error) => {
                drop(own);
                return self.fail(n, &Failure::Io(error));
            }
        };
        if ready {
            self.close(n, &large, own);
        }
    }

    fn write_into(
        &self,
        own: &mut Large,
        header: &Header,
        bite: &Bite,
        cv: CV,
        (path, stamp, dense): (&[u8], Stamp, bool),
    ) -> std::io::Result<()> {
        let Header {
            file: n,
            offset,
            length,
            size,
            attempt,
            ..
        } = *header;
        let end = offset + length;
        let newest = own.newest(offset, end);
        if own.is_closed || attempt < newest || (attempt < own.attempt && size != own.size) {
            return Ok(());
        }
        let temporary = self.temporary(own, n, path, stamp, dense)?;
        if attempt > own.attempt {
            self.begin_anew(own, n, attempt, size)?;
        }
        if attempt == newest && own.tree.get(offset, length) == Some(&cv) {
            return Ok(());
        }
        // Sent before the source knew that an earlier run left it, in another cut.
        if attempt == 0 && newest == 0 && own.tree.covers(offset, end) {
            return Ok(());
        }
        let data: usize = bite.extents.iter().map(|(_, length)| length).sum();
        let may_have = own.is_shared || temporary.is_device();
        let was_there = attempt > 0 || (may_have && (data as u64) < length);
        if was_there {
            // Data of an earlier attempt must not show through the holes of this one.
            self.with_room(|| temporary.punch(offset, length))?;
        }
        for (at, own) in &bite.extents {
            let part = &bite.bytes[*at..at + own];
            self.with_room(|| {
                crate::fault::disk("sink-writes")?;
                temporary.write(part, offset + *at as u64)
            })?;
        }
        own.tree.remove(offset, end);
        own.tree.add(offset, length, cv);
        if attempt > 0 {
            own.newer.insert(offset, (end, attempt));
        }
        let record = Record::Done {
            n,
            offset,
            length,
            cv,
        };
        crate::fault::point("sink-wrote");
        // Before its record, so that a commit that counts the record has synced the data.
        self.commits.dirty(n, &temporary, data as u64);
        self.journal(&record)?;
        crate::fault::point("sink-noted");
        held(&self.summary).written_bytes += length;
        self.progress.done(length, length);
        Ok(())
    }

    /// Fewer bytes and files are to come.
    pub(super) fn came(&self, bytes: u64, files: u64) {
        for (to_come, came) in [(&self.to_come, bytes), (&self.files_to_come, files)] {
            let less = |to_come: u64| Some(to_come.saturating_sub(came));
            let _ = to_come.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// The temporary file, made at the first bite.
    fn temporary(
        &self,
        own: &mut Large,
        n: u64,
        path: &[u8],
        stamp: Stamp,
        dense: bool,
    ) -> std::io::Result<Arc<Temporary>> {
        if let Some(temporary) = &own.temporary {
            return Ok(Arc::clone(temporary));
        }
        let temporary = match &self.device {
            Some(device) => {
                own.size = stamp.size;
                Arc::clone(device)
            }
            None => Arc::new(self.make_temporary(own, path, stamp, dense)?),
        };
        if !own.is_journalled {
            let path = path.to_vec();
            self.journal(&Record::Entry { n, path, stamp })?;
            own.is_journalled = true;
        }
        own.temporary = Some(Arc::clone(&temporary));
        Ok(temporary)
    }

    fn make_temporary(
        &self,
        own: &mut Large,
        path: &[u8],
        stamp: Stamp,
        dense: bool,
    ) -> std::io::Result<Temporary> {
        let resumed =
            match own.tree.known() {
                _ if own.is_shared => Some(self.with_room(|| {
                    Temporary::share(&self.root, path, &self.id, stamp.size, dense)
                })?),
                0 => None,
                _ => Temporary::resume(&self.root, path, &self.id, own.size)?,
            };
        Ok(match resumed {
            Some(temporary) => temporary,
            None => {
                if own.tree.known() > 0 {
                    // It existed a moment ago: another process removed it.
                    return Err(std::io::Error::other("its temporary file is gone"));
                }
                let new = self.with_room(|| {
                    crate::fault::disk("sink-creates")?;
                    let new = Temporary::create(&self.root, path, &self.id)?;
                    match new.resize(stamp.size, dense) {
                        Ok(()) => Ok(new),
                        Err(error) => {
                            new.placement().discard();
                            Err(error)
                        }
                    }
                })?;
                own.size = stamp.size;
                self.came(if dense { stamp.size } else { 0 }, 1); // it has its blocks
                new
            }
        })
    }

    /// The source's file has changed: another size, other bites.
    fn begin_anew(&self, own: &mut Large, n: u64, attempt: u16, size: u64) -> std::io::Result<()> {
        let before = own.size;
        self.admit_bytes(size.saturating_sub(before))?;
        own.attempt = attempt;
        // The new state is not known yet: the next records are not for a later run.
        let gone = Record::Gone {
            n,
            start: 0,
            end: u64::MAX,
        };
        self.journal(&gone)?;
        if size != before {
            if let Some(temporary) = &own.temporary {
                self.with_room(|| temporary.resize(size, false))?;
            }
            own.size = size;
            let least = size.min(before);
            // The bite at the end of another size is another one.
            own.tree.remove(least.saturating_sub(1), u64::MAX);
        }
        Ok(())
    }

    /// The source says that all was sent.
    pub(super) fn complete(&self, n: u64, complete: Complete) {
        let Some((path, stamp, dense, large)) = self.large(n) else {
            return;
        };
        let mut own = held(&large);
        if own.is_shared {
            // The next commit has it. The session that finishes the transfer places it.
            own.is_closed = true;
            held(&self.files).remove(&n);
            self.progress.entry_done();
            self.progressed.notify_waiters();
            return;
        }
        if own.is_closed {
            // `complete_whole` was first. The commit has its temporary file, or has renamed it.
            return;
        }
        let begun = self
            .temporary(&mut own, n, &path, stamp, dense)
            .and_then(|_| {
                if complete.attempt > own.attempt || complete.stamp.size != own.size {
                    self.begin_anew(&mut own, n, complete.attempt, complete.stamp.size)?;
                }
                Ok(())
            });
        if let Err(error) = begun {
            drop(own);
            return self.fail(n, &Failure::Io(error));
        }
        own.complete = Some(complete);
        if own.is_ready() {
            self.close(n, &large, own);
        }
    }

    /// Nothing is missing of a file that an earlier session left: it takes the state of the
    /// source's entry, without another message.
    pub(super) fn complete_whole(&self, n: u64, stamp: Stamp, mode: u32) {
        if self.options.part.is_none() && !self.options.dry_run && self.device.is_none() {
            let complete = Complete {
                attempt: 0,
                stamp,
                mode,
                root: None,
            };
            self.complete(n, complete);
        }
    }

    /// All of it is there: compares its hash, and hands it over to be placed.
    fn close(&self, n: u64, large: &Arc<Mutex<Large>>, mut own: std::sync::MutexGuard<'_, Large>) {
        own.is_closed = true;
        let (owner, attributes) = match held(&self.files).get(&n) {
            Some(slot) => (slot.owner, slot.attributes.clone()),
            None => (None, Vec::new()),
        };
        let checked = self.check(&own, owner, &attributes);
        drop(own);
        match checked {
            Ok(()) => self.commits.ready(n, large),
            Err(failure) => self.fail(n, &failure),
        }
    }

    fn check(
        &self,
        own: &Large,
        owner: Option<Owner>,
        attributes: &[Attribute],
    ) -> Result<(), Failure> {
        let wrong = Failure::Wrong("its hash at the destination is not the source's");
        let (Some(complete), Some(temporary)) = (&own.complete, &own.temporary) else {
            return Err(wrong);
        };
        let root = own.tree.root(own.size);
        if root.is_none() || (complete.root.is_some() && complete.root != root) {
            return Err(wrong);
        }
        if self.options.verify == Verify::All {
            temporary.file().sync_data()?;
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(temporary.file(), 0, None, advice).map_err(std::io::Error::from)?;
            let mut buffer = Vec::new();
            for (offset, length, cv) in own.tree.iter() {
                if temporary.hash(offset, length, own.size, &mut buffer)? != *cv {
                    return Err(Failure::Wrong(
                        "the data that was read back differs from the written data",
                    ));
                }
            }
        }
        if temporary.is_device() {
            return Ok(()); // what it is called, and to whom it belongs, is not the source's
        }
        self.set_attributes(temporary.file(), owner, attributes)?;
        let mode = complete.mode & file_bits(owner);
        set_file(temporary.file(), &complete.stamp, mode)?;
        Ok(())
    }

    pub(super) fn fail(&self, n: u64, failure: &Failure) {
        match failure {
            Failure::Io(error) => {
                if !self.trouble(error) {
                    self.failed(n, false, &error.to_string());
                }
            }
            Failure::Wrong(text) => self.failed(n, true, text),
        }
    }

    pub(super) fn journal(&self, record: &Record) -> std::io::Result<()> {
        self.with_room(|| {
            crate::fault::disk("sink-notes")?;
            match &mut *held(&self.journal) {
                Some(journal) => journal.append(record),
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{open, Job, Slot, Target};
    use super::*;
    use crate::session::fixtures;

    /// The source's message about a file that the sink has completed itself comes with the rename.
    #[test]
    fn a_file_that_is_being_placed_is_not_begun_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let job = Job {
            target: Target::Operator(directory.path().to_owned()),
            filter: Default::default(),
            options: Default::default(),
            id: [1; 32],
            secret: [2; 32],
        };
        let (progress, _) = fixtures::progress();
        let sink = fixtures::runtime().block_on(async {
            let (_, own) = fixtures::controls().await;
            let opened = open::open(job, false, own.outbox, progress);
            opened.expect("ours").0
        });
        let (n, size) = (7, 1 << 20);
        let stamp = Stamp {
            size,
            ..Stamp::default()
        };
        let mut tree = Tree::default();
        tree.add(0, size, [0; 32]);
        let mut large = Large::resumed(tree, size);
        large.is_closed = true; // the commit has taken the temporary file
        let slot = Slot {
            path: b"f".to_vec(),
            stamp,
            mode: 0o600,
            dense: false,
            attributes: Vec::new(),
            owner: None,
            large: Some(Arc::new(Mutex::new(large))),
        };
        held(&sink.files).insert(n, slot);
        sink.complete_whole(n, stamp, 0o600);
        assert_eq!(held(&sink.summary).failed, 0);
        assert!(held(&sink.files).contains_key(&n), "the commit ends it");
    }

    /// The first attempt's bites are cut longer than those that are sent again.
    #[test]
    fn a_bite_is_old_where_any_part_of_it_is_newer() {
        let mut large = Large::default();
        large.newer.insert(65_536, (131_072, 1));
        large.newer.insert(131_072, (196_608, 2));
        let bites = [
            (0, 65_536),
            (0, 131_072),
            (131_071, 200_000),
            (196_608, 200_000),
        ];
        assert_eq!(bites.map(|(at, end)| large.newest(at, end)), [0, 1, 2, 0]);
    }
}
