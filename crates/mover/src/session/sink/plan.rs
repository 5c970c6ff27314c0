// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers to entries.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{mpsc as channel, Arc, Mutex};

use rustix::fs::{readlinkat, renameat, symlinkat, unlinkat, AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::large::Large;
use super::{held, Directory, Sink, Slot};
use crate::session::progress::{shown, Event};
use paceline_conduit::control::short;
use paceline_transfer::chunk::{Tree, CV};
use paceline_transfer::store::{
    file_bits, is_same, other_kind, set_link, set_mode_at, set_owner_at, stamp_of, temporary_name,
    Known, Record, Temporary,
};
use paceline_transfer::wire::{
    Entry, EntryKind, Message, Owner, Stamp, Update, Verify, Want, Wanted, LEAST_SHARED,
    MOST_PENDING, MOST_RANGES, MOST_SMALL,
};

/// Ranges of one message of answers.
const RANGES: usize = 16_384;

impl Sink {
    /// Answers entries until the transfer is over.
    pub(super) fn plan_all(&self, planned: &channel::Receiver<Vec<Entry>>, rename: Option<&[u8]>) {
        while let Ok(batch) = planned.recv() {
            if !self.admit_entries(batch.len() as u64) {
                return;
            }
            let (mut wants, mut ranges, mut answered) = (Vec::new(), 0, 0);
            let mut all_there = Vec::new();
            // The files of an honest source beyond this wait for the disk alone.
            let most_files = 2 * MOST_PENDING as usize;
            for mut entry in batch {
                if !self.wait_for_place(most_files) {
                    return;
                }
                if let Some(name) = rename {
                    entry.path = name.to_vec();
                }
                let (n, stamp, mode) = (entry.n, entry.stamp, entry.mode);
                let wanted = self.plan(entry).unwrap_or_else(|error| {
                    held(&self.summary).failed += 1;
                    self.trouble(&error);
                    Wanted::Failed(short(&error.to_string()))
                });
                answered += 1;
                if let Wanted::Ranges(own) = &wanted {
                    ranges += own.len();
                    if own.is_empty() && stamp.size > MOST_SMALL {
                        all_there.push((n, stamp, mode));
                    }
                }
                wants.push(Want { n, wanted });
                if ranges >= RANGES {
                    self.outbox.send(Message::Wants(std::mem::take(&mut wants)));
                    ranges = 0;
                }
            }
            if !self.options.dry_run {
                if let Err(full) = self.check_room() {
                    return self.stop(full);
                }
            }
            self.outbox.send(Message::Wants(wants));
            // The source's message about them would bring nothing new.
            for (n, stamp, mode) in all_there {
                self.complete_whole(n, stamp, mode);
            }
            held(&self.plan).answered += answered;
            self.progressed.notify_waiters();
            self.commit_what_is_left();
        }
    }

    fn plan(&self, entry: Entry) -> io::Result<Wanted> {
        let Entry {
            n,
            path,
            kind,
            mode,
            stamp,
            root,
            attributes,
            owner,
        } = entry;
        let owner = owner.filter(|_| self.options.owner);
        if self.options.delete.is_some() {
            held(&self.plan).seen.insert(path_hash(&path));
        }
        match kind {
            EntryKind::Directory => self.plan_directory(Directory {
                path,
                stamp,
                mode,
                attributes,
                owner,
            }),
            EntryKind::Link(to) => self.plan_link(&path, &to, &stamp, owner),
            EntryKind::HardLink(of) => self.plan_hard_link(n, path, of),
            EntryKind::Special(special) => self.plan_special(&path, special, (mode, owner, &stamp)),
            EntryKind::File { dense } => {
                self.progress.found(stamp.size);
                let slot = Slot {
                    path,
                    stamp,
                    mode,
                    dense,
                    attributes,
                    owner,
                    large: None,
                };
                self.plan_file(n, slot, root)
            }
        }
    }

    pub(super) fn unchanged(&self) -> Wanted {
        held(&self.summary).unchanged += 1;
        self.progress.entry_done();
        Wanted::Nothing
    }

    fn plan_directory(&self, own: Directory) -> io::Result<Wanted> {
        let path = &own.path;
        self.progress.found(0);
        self.admit_directory(path, &own.attributes)?;
        let mut made = false;
        if !self.options.dry_run && !path.is_empty() {
            made = match self.root.make_directory(path, 0o700) {
                Err(error) if error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) => {
                    // A file or a link has its name, as in the source it has not.
                    self.root.remove(path, false)?;
                    self.root.make_directory(path, 0o700)?
                }
                made => made?,
            };
            if !made {
                let there = self.root.directory(path)?;
                let now = rustix::fs::fstat(&there)?.st_mode & 0o7777;
                if now & 0o700 != 0o700 {
                    rustix::fs::fchmod(&there, Mode::from_raw_mode(now | 0o700))?;
                }
            }
        }
        held(&self.plan).directories.push(own);
        match made {
            true => {
                held(&self.summary).placed += 1;
                self.progress.entry_done();
                Ok(Wanted::Nothing)
            }
            false => Ok(self.unchanged()),
        }
    }

    fn plan_link(
        &self,
        path: &[u8],
        to: &[u8],
        stamp: &Stamp,
        owner: Option<Owner>,
    ) -> io::Result<Wanted> {
        self.progress.found(0);
        let place = match self.root.parent(path) {
            Err(_) if self.options.dry_run => return Ok(Wanted::Nothing),
            place => place?,
        };
        let (parent, name) = place;
        let there = readlinkat(&parent, name, Vec::new());
        if there.is_ok_and(|there| there.to_bytes() == to) {
            if !self.options.dry_run {
                set_owner_at(&parent, name, owner)?;
                set_link(&parent, name, stamp)?;
            }
            return Ok(self.unchanged());
        }
        if self.options.dry_run {
            return Ok(Wanted::Nothing);
        }
        let temporary = temporary_name(name, &self.id);
        let _ = unlinkat(&parent, &temporary, AtFlags::empty());
        symlinkat(OsStr::from_bytes(to), &parent, &temporary)?;
        let placed = set_owner_at(&parent, &temporary, owner)
            .and_then(|()| set_link(&parent, &temporary, stamp))
            .and_then(|()| Ok(renameat(&parent, &temporary, &parent, name)?));
        if placed.is_err() {
            let _ = unlinkat(&parent, &temporary, AtFlags::empty());
        }
        placed?;
        held(&self.summary).placed += 1;
        self.progress.entry_done();
        Ok(Wanted::Nothing)
    }

    fn plan_file(&self, n: u64, mut slot: Slot, root: Option<CV>) -> io::Result<Wanted> {
        let size = slot.stamp.size;
        let there = match self.root.parent(&slot.path) {
            Err(_) if self.options.dry_run => None,
            parent => {
                let (parent, name) = parent?;
                other_kind(&parent, name)?.map(|stat| (parent, name, stat))
            }
        };
        if let Some((parent, name, stat)) = there {
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => return Err(Errno::ISDIR.into()),
                FileType::BlockDevice if !self.options.device => {
                    return Err(io::Error::other(
                        "a block device has its name: see --device",
                    ));
                }
                FileType::RegularFile if self.has(&stat, &slot, root.as_ref()) => {
                    if !self.options.dry_run {
                        self.keep(&parent, name, &stat, &slot)?;
                    }
                    self.progress.done(size, 0);
                    return Ok(self.unchanged());
                }
                _ => {}
            }
        }
        if self.options.dry_run {
            let path = shown(&slot.path);
            self.progress.report(Event::Copied { path, size });
            return Ok(Wanted::Ranges(vec![(0, size)]));
        }
        if let Some(device) = &self.device {
            if size <= MOST_SMALL {
                return Err(io::Error::other(
                    "no more than 256 KiB are not for a device",
                ));
            }
            device.resize(size, true)?;
        }
        self.admit_bytes(size)?;
        let mut ranges = Vec::new();
        let mut is_new = true;
        if size > MOST_SMALL {
            let tree = self.resume(n, &slot)?;
            ranges = tree.missing(size);
            is_new = tree.known() == 0;
            let done = tree.known();
            held(&self.summary).resumed_bytes += done;
            self.progress.done(done, 0);
            let mut large = Large::resumed(tree, size);
            large.is_shared = self.options.part.is_some() && size > LEAST_SHARED;
            // Another session may have reserved its blocks.
            is_new &= !large.is_shared && self.device.is_none();
            slot.large = Some(Arc::new(Mutex::new(large)));
        }
        if is_new {
            self.files_to_come.fetch_add(1, Ordering::Relaxed);
            if slot.dense {
                self.to_come.fetch_add(size, Ordering::Relaxed);
            }
        }
        self.progress.report(Event::Copied {
            path: shown(&slot.path),
            size,
        });
        held(&self.files).insert(n, slot);
        Ok(Wanted::Ranges(ranges))
    }

    /// The file that is there is the source's.
    fn has(&self, stat: &rustix::fs::Stat, source: &Slot, root: Option<&CV>) -> bool {
        let there = stamp_of(stat);
        // It got its name before the machine stopped, perhaps without its data.
        let may_be_incomplete = self
            .unsure_since
            .is_some_and(|since| there.ctime.0 >= since);
        match self.options.update {
            Update::Always => false,
            Update::SizeMtime => !may_be_incomplete && is_same(&there, &source.stamp),
            Update::Hash => {
                there.size == source.stamp.size
                    && root.is_some()
                    && self.hash_there(&source.path).ok().as_ref() == root
            }
        }
    }

    /// A file with the name is as it should be: sets its permissions and time, too.
    fn keep(
        &self,
        parent: &std::os::fd::OwnedFd,
        name: &OsStr,
        stat: &rustix::fs::Stat,
        slot: &Slot,
    ) -> io::Result<()> {
        if !is_same(&stamp_of(stat), &slot.stamp) {
            // Of the name itself, not of a link's target.
            set_link(parent, name, &slot.stamp)?;
        }
        if slot
            .owner
            .is_some_and(|owner| owner != (stat.st_uid, stat.st_gid))
        {
            set_owner_at(parent, name, slot.owner)?;
        }
        if !self.which().is_none() {
            self.set_attributes(self.root.read(&slot.path)?, None, &slot.attributes)?;
        }
        let bits = file_bits(slot.owner);
        // A new owner has taken setuid and setgid from it.
        if (stat.st_mode ^ slot.mode) & bits != 0 || slot.mode & bits & !0o777 != 0 {
            set_mode_at(parent, name, slot.mode & bits)?;
        }
        if self.options.report_hashes {
            self.report_hash(&slot.path, &self.hash_there(&slot.path)?);
        }
        Ok(())
    }

    pub(super) fn hash_there(&self, path: &[u8]) -> io::Result<CV> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(std::fs::File::from(self.root.read(path)?))?;
        Ok(*hasher.finalize().as_bytes())
    }

    /// Reports a file's hash to both sides, if that was asked for.
    pub(super) fn report_hash(&self, path: &[u8], root: &CV) {
        if self.options.report_hashes {
            self.progress.hash(path, root);
            let (path, root) = (path.to_vec(), *root);
            self.outbox.send(Message::Hash { path, root });
        }
    }

    /// The bites of a large file that an earlier run left.
    fn resume(&self, n: u64, slot: &Slot) -> io::Result<Tree> {
        let (size, mut tree) = (slot.stamp.size, Tree::default());
        let known = held(&self.known).remove(&slot.path);
        let Some(known) = known.filter(|known| known.stamp == slot.stamp) else {
            return Ok(tree);
        };
        let temporary = match &self.device {
            Some(device) => Some(Arc::clone(device)),
            None => Temporary::resume(&self.root, &slot.path, &self.id, size)?.map(Arc::new),
        };
        let Some(temporary) = temporary else {
            return Ok(tree);
        };
        let Known { sure, unsure, .. } = known;
        let is_sure = self.options.verify == Verify::None;
        let (mut buffer, mut gone) = (Vec::new(), Vec::new());
        for (bites, is_sure) in [(&sure, is_sure), (&unsure, false)] {
            for (offset, length, cv) in bites.iter() {
                let good = offset + length <= size
                    && (is_sure || {
                        temporary
                            .hash(offset, length, size, &mut buffer)
                            .is_ok_and(|own| own == *cv)
                    });
                match good {
                    true => {
                        tree.add(offset, length, *cv);
                    }
                    false => gone.push((offset, offset + length)),
                }
            }
        }
        // If too many pieces are missing, the rest is sent again.
        if let Some((start, _)) = tree.missing(size).get(MOST_RANGES - 1).copied() {
            tree.remove(start, size);
            gone.push((start, size));
        }
        // They count anew when this run's next commit has synced them.
        self.commits.dirty(n, &temporary, 0);
        let path = slot.path.clone();
        self.journal(&Record::Entry {
            n,
            path,
            stamp: slot.stamp,
        })?;
        for (start, end) in gone {
            self.journal(&Record::Gone { n, start, end })?;
        }
        for (offset, length, cv) in unsure
            .iter()
            .filter(|(at, own, _)| tree.get(*at, *own).is_some())
        {
            self.journal(&Record::Done {
                n,
                offset,
                length,
                cv: *cv,
            })?;
        }
        Ok(tree)
    }
}

/// The remembered hash of a path.
pub(super) fn path_hash(path: &[u8]) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
    hash
}
