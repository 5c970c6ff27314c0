// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Record of large files' data on the disk: `.paceline/ID/journal` in the destination.
//!
//! Records are only appended: length, postcard, 16 bytes of BLAKE3. They are read until the
//! first that is not whole, and the file is cut there. Small files need no record: they have
//! their names once they are whole.
//!
//! `Done` is appended unsynced after each bite, when the next commit knows of its file. After a kill the page cache has journal and
//! data; after a power cut (another boot_id) only what the last `Commit` counts, which is
//! written when the data of so many records were synced. All else is hashed again before it
//! is used.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{
    fallocate, flock, fsync, openat, unlinkat, AtFlags, Dir, FallocateFlags, FlockOperation, Mode,
    OFlags,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::root::Root;
use crate::chunk::{Tree, CV};
use crate::wire::{Stamp, JOURNALS};

/// Of the records.
const VERSION: u8 = 1;
/// A journal's name, and the beginning of those of several sessions.
const JOURNAL: &str = "journal";
/// Bytes of hash after a record.
const HASH: usize = 16;
/// Longest record, bytes: a path and some.
const MOST_RECORD: usize = 8192;
/// Reserved at once, bytes, so that the journal can be written on a disk that is full.
const RESERVED: u64 = 1 << 20;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The first record of each run.
    Start {
        /// Of the records.
        version: u8,
        /// The transfer.
        id: [u8; 32],
        /// The kernel's, since it booted.
        boot_id: String,
    },
    /// A file that is begun. Numbers are those of one run.
    Entry {
        /// Its number.
        n: u64,
        /// Below the destination.
        path: Vec<u8>,
        /// Its state at the source.
        stamp: Stamp,
    },
    /// A bite is written.
    Done {
        /// The file.
        n: u64,
        /// Bytes.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Its hash.
        cv: CV,
    },
    /// The file's bites that reach into this range do not count.
    Gone {
        /// The file.
        n: u64,
        /// Bytes.
        start: u64,
        /// Bytes.
        end: u64,
    },
    /// All data of the first records are on the disk.
    Commit {
        /// So many of them: later ones were written while the disk was busy.
        upto: u64,
        /// When they began to be written: seconds since 1970.
        since: i64,
    },
    /// A file has its name: its records do not count any more.
    Placed {
        /// The file.
        n: u64,
    },
}

/// A file that an earlier run began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Its state at the source.
    pub stamp: Stamp,
    /// Bites that are on the disk.
    pub sure: Tree,
    /// Bites that may be: to be hashed again.
    pub unsure: Tree,
}

/// State of an earlier run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// By path.
    pub files: HashMap<Vec<u8>, Known>,
    /// The machine was started anew since: a file that got its name after this moment (seconds
    /// since 1970) may not be whole.
    pub unsure_since: Option<i64>,
    /// There was a journal.
    pub is_resumed: bool,
}

/// The journal of a transfer that is under way.
#[derive(Debug)]
pub struct Journal {
    file: File,
    directory: OwnedFd,
    id: String,
    buffer: Vec<u8>,
    /// Bytes of whole records.
    length: u64,
    /// Records in it.
    count: u64,
}

/// /proc/sys/kernel/random/boot_id; empty, which is like no other, if it cannot be read.
pub fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.unwrap_or_default().trim().to_owned()
}

impl Journal {
    /// The journal of the transfer `id`, and the state of an earlier run. `fresh` throws that away.
    ///
    /// # Errors
    /// The kernel's; EWOULDBLOCK if another process has it.
    pub fn open(root: &Root, id: &[u8; 32], fresh: bool) -> io::Result<(Self, Found)> {
        Self::open_of(root, id, fresh, 0)
    }

    /// As [`open`](Self::open), of one of several sessions that write the same destination:
    /// each has a journal of its own, and reads those of all. The session 0 is the one that
    /// finishes the transfer.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_of(
        root: &Root,
        id: &[u8; 32],
        fresh: bool,
        session: u16,
    ) -> io::Result<(Self, Found)> {
        let name = short(id);
        let path = format!("{JOURNALS}/{name}");
        root.make_directory(JOURNALS.as_bytes(), 0o700)?;
        root.make_directory(path.as_bytes(), 0o700)?;
        root.forget();
        let directory = root.below(path.as_bytes(), false)?;
        let directory = rustix::io::dup(directory.base())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = match session {
            0 => JOURNAL.to_owned(),
            session => format!("{JOURNAL}-{session}"),
        };
        let file = openat(&directory, &own, flags, Mode::from_raw_mode(0o600))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let mut file = File::from(file);
        // Without room for it the first record fails.
        let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, RESERVED);
        let is_new = file.metadata()?.len() == 0;
        if fresh {
            file.set_len(0)?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (records, good) = read(&bytes);
        file.set_len(good as u64)?;
        let boot = boot_id();
        let mut found = gather(&records, id, &boot);
        let mut journal = Self {
            file,
            directory,
            id: name,
            buffer: Vec::new(),
            length: good as u64,
            count: records.len() as u64,
        };
        if !found.is_resumed {
            journal.file.set_len(0)?;
            journal.length = 0;
            journal.count = 0;
        }
        // It may have left temporary files, whatever can be read of it.
        found.is_resumed = !is_new;
        if !fresh {
            read_others(&journal.directory, &own, id, &boot, &mut found)?;
        }
        journal.append(&Record::Start {
            version: VERSION,
            id: *id,
            boot_id: boot,
        })?;
        journal.sync()?;
        fsync(&journal.directory)?;
        Ok((journal, found))
    }

    /// Appends a record, unsynced. After an error it may be tried again: that overwrites a part of
    /// it, because nothing behind half a record would be read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        self.buffer.clear();
        write(record, &mut self.buffer);
        self.file.write_all_at(&self.buffer, self.length)?;
        self.length += self.buffer.len() as u64;
        self.count += 1;
        Ok(())
    }

    /// Records that it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Waits until all records are on the disk.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The transfer is complete: the journal is removed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(self, root: &Root) -> io::Result<()> {
        for name in names(&self.directory)? {
            unlinkat(&self.directory, &name, AtFlags::empty())?;
        }
        let own = format!("{JOURNALS}/{}", self.id);
        root.remove(own.as_bytes(), true)?;
        match root.remove(JOURNALS.as_bytes(), true) {
            // Another transfer's.
            Err(error) if error.raw_os_error() == Some(Errno::NOTEMPTY.raw_os_error()) => Ok(()),
            removed => removed,
        }
    }
}

/// The journals in a directory.
fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if entry.file_name().to_bytes().starts_with(JOURNAL.as_bytes()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Reads the journals of other sessions of the transfer. They may be written meanwhile. Their hosts
/// booted at other times than this one, so only their synced data counts here; each file was synced
/// before it got its name, so none of them is doubtful.
fn read_others(
    directory: &OwnedFd,
    own: &str,
    id: &[u8; 32],
    boot: &str,
    found: &mut Found,
) -> io::Result<()> {
    for name in names(directory)? {
        if name.to_bytes() == own.as_bytes() {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut bytes = Vec::new();
        File::from(openat(directory, &name, flags, Mode::empty())?).read_to_end(&mut bytes)?;
        let other = gather(&read(&bytes).0, id, boot);
        found.is_resumed = true;
        for (path, other) in other.files {
            let Some(known) = found.files.get_mut(&path) else {
                found.files.insert(path, other);
                continue;
            };
            if known.stamp != other.stamp {
                if known.stamp.ctime < other.stamp.ctime {
                    *known = other;
                }
                continue;
            }
            for (offset, length, cv) in other.sure.iter() {
                known.sure.add(offset, length, *cv);
            }
            for (offset, length, cv) in other.unsure.iter() {
                known.unsure.add(offset, length, *cv);
            }
        }
    }
    Ok(())
}

/// Short identity of a transfer in names: the first 16 hexadecimal digits.
pub fn short(id: &[u8; 32]) -> String {
    id[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(record: &Record, into: &mut Vec<u8>) {
    let body = postcard::to_stdvec(record).expect("memory takes it");
    into.extend_from_slice(&(body.len() as u32).to_le_bytes());
    into.extend_from_slice(&body);
    into.extend_from_slice(&blake3::hash(&body).as_bytes()[..HASH]);
}

/// The records up to the first that is not whole, and where they end.
fn read(bytes: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some((record, length)) = next(&bytes[at..]) {
        records.push(record);
        at += length;
    }
    (records, at)
}

fn next(bytes: &[u8]) -> Option<(Record, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > MOST_RECORD {
        return None;
    }
    let (body, rest) = rest.split_at_checked(length)?;
    if rest.get(..HASH)? != &blake3::hash(body).as_bytes()[..HASH] {
        return None;
    }
    let (record, more) = postcard::take_from_bytes(body).ok()?;
    more.is_empty().then_some((record, 4 + length + HASH))
}

/// Entry point for the fuzzer: any bytes are a journal, or the beginning of one.
pub fn fuzz(bytes: &[u8]) {
    let (records, good) = read(bytes);
    let mut again = Vec::new();
    records.iter().for_each(|record| write(record, &mut again));
    assert_eq!(read(&again).0, records);
    assert!(good <= bytes.len());
    gather(&records, &[0; 32], "boot");
}

fn gather(records: &[Record], id: &[u8; 32], boot: &str) -> Found {
    let mut found = Found::default();
    let mut names: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut booted = None;
    // Bites of this run that no commit has counted: number of the record, file, place.
    let mut waiting: Vec<(u64, u64, u64, u64)> = Vec::new();
    for (number, record) in (0..).zip(records) {
        match record {
            Record::Start {
                version,
                id: own,
                boot_id,
            } => {
                if *version != VERSION || own != id {
                    return Found::default();
                }
                let is_new = booted.as_ref().is_some_and(|before| before != boot_id);
                if is_new || (booted.is_some() && boot_id.is_empty()) {
                    forget_unsure(&mut found);
                }
                booted = Some(boot_id.clone());
                found.is_resumed = true;
                names.clear();
                waiting.clear();
            }
            Record::Entry { n, path, stamp } => {
                names.insert(*n, path.clone());
                let known = found.files.entry(path.clone()).or_default();
                if known.stamp != *stamp {
                    *known = Known {
                        stamp: *stamp,
                        ..Known::default()
                    };
                }
            }
            Record::Done {
                n,
                offset,
                length,
                cv,
            } => {
                let known = names.get(n).and_then(|path| found.files.get_mut(path));
                if let (Some(known), Some(end)) = (known, offset.checked_add(*length)) {
                    known.sure.remove(*offset, end);
                    known.unsure.remove(*offset, end);
                    known.unsure.add(*offset, *length, *cv);
                    waiting.push((number, *n, *offset, *length));
                }
            }
            Record::Gone { n, start, end } => {
                if let Some(known) = names.get(n).and_then(|path| found.files.get_mut(path)) {
                    known.sure.remove(*start, *end);
                    known.unsure.remove(*start, *end);
                }
            }
            Record::Commit { upto, since } => {
                let later = waiting.partition_point(|(number, ..)| number < upto);
                for (_, n, offset, length) in waiting.drain(..later) {
                    let known = names.get(&n).and_then(|path| found.files.get_mut(path));
                    let Some(known) = known else {
                        continue;
                    };
                    if let Some(cv) = known.unsure.get(offset, length).copied() {
                        known.unsure.remove(offset, offset + length);
                        known.sure.add(offset, length, cv);
                    }
                }
                found.unsure_since = Some(*since);
            }
            Record::Placed { n } => {
                if let Some(path) = names.get(n) {
                    found.files.remove(path);
                }
            }
        }
    }
    let is_other_boot = booted.is_some_and(|booted| booted != boot || boot.is_empty());
    match is_other_boot {
        true => {
            forget_unsure(&mut found);
            // Before the first commit nothing is sure.
            found.unsure_since.get_or_insert(i64::MIN);
        }
        false => found.unsure_since = None,
    }
    found
}

fn forget_unsure(found: &mut Found) {
    for known in found.files.values_mut() {
        known.unsure = Tree::default();
    }
}

#[cfg(test)]
mod tests;
