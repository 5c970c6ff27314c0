// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds on a peer's use of a standing receiver: bytes, memory, and time.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline_security::FrameError;
use paceline_transfer::wire::{Attribute, Reason};
use rustix::io::Errno;

use super::{held, Sink};
use paceline_conduit::Error;

/// Entries of a transfer at a standing receiver, unless configured.
pub const ENTRIES: u64 = 10_000_000;
/// Its directories are remembered to the end, for their times: so many bytes of them.
const DIRECTORY_BYTES: u64 = 256 << 20;
/// Bytes of a remembered directory beside its path.
const DIRECTORY: u64 = 120;
/// Longest wait for a source that lives, but sends nothing. It may be hashing a file of terabytes
/// anew that has changed.
const SILENCE: Duration = Duration::from_secs(3600);
/// Answers that the source has not taken: it waits for the rest until it reads them.
const BACKLOG: u64 = 32;
/// Interval of looks at a condition that blocks.
const LOOK: Duration = Duration::from_millis(10);

/// Bounds of one transfer.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Bytes of its files, holes included.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of the paths of its directories, and what is remembered with them.
    pub directory_bytes: u64,
    /// Longest time with nothing but signs of life from the source.
    pub silence: Duration,
}

impl Default for Bounds {
    /// Of a standing receiver.
    fn default() -> Self {
        Self {
            bytes: u64::MAX,
            entries: ENTRIES,
            directory_bytes: DIRECTORY_BYTES,
            silence: SILENCE,
        }
    }
}

impl Bounds {
    /// Of a source that the operator of this process chose.
    pub fn none() -> Self {
        Self {
            bytes: u64::MAX,
            entries: u64::MAX,
            directory_bytes: u64::MAX,
            silence: Duration::MAX,
        }
    }
}

/// Used part of the bounds.
#[derive(Debug, Default)]
pub(super) struct Used {
    bytes: AtomicU64,
    entries: AtomicU64,
    directory_bytes: AtomicU64,
}

fn add(to: &AtomicU64, more: u64) -> u64 {
    let sum = |before: u64| Some(before.saturating_add(more));
    let before = to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    before.unwrap_or_default().saturating_add(more)
}

impl Sink {
    /// Counts entries that were announced. False if they are too many, which ends it.
    pub(super) fn admit_entries(&self, more: u64) -> bool {
        let most = self.bounds.entries;
        let fits = add(&self.used.entries, more) <= most;
        if !fits {
            let text =
                format!("more than the {most} entries that this receiver takes (--max-entries)");
            self.stop(Error::stop(Reason::Refused, text));
        }
        fits
    }

    /// Counts bytes of a file that is to be written.
    ///
    /// # Errors
    /// EDQUOT; the transfer ends.
    pub(super) fn admit_bytes(&self, more: u64) -> io::Result<()> {
        let most = self.bounds.bytes;
        if add(&self.used.bytes, more) <= most {
            return Ok(());
        }
        let text = format!("more than the {most} bytes that this receiver takes (--quota)");
        self.stop(Error::stop(Reason::Full, text));
        Err(Errno::DQUOT.into())
    }

    /// Counts a directory that is to be remembered.
    ///
    /// # Errors
    /// Too many of them.
    pub(super) fn admit_directory(&self, path: &[u8], with: &[Attribute]) -> io::Result<()> {
        let with = with.iter().map(|(name, value)| name.len() + value.len());
        let more = (path.len() + with.sum::<usize>()) as u64 + DIRECTORY;
        match add(&self.used.directory_bytes, more) <= self.bounds.directory_bytes {
            true => Ok(()),
            false => Err(io::Error::other(
                "more directories than this receiver remembers",
            )),
        }
    }

    /// Waits until there is a place for more: files that wait for the disk, and answers that
    /// the source has not read. False if the transfer is over.
    pub(super) fn wait_for_place(&self, most_files: usize) -> bool {
        while !self.is_over() {
            if self.outbox.is_gone() {
                // While this side waits, it does not read the connection and so does not detect its
                // end.
                self.stop(Error::Frame(FrameError::Closed));
                break;
            }
            if held(&self.files).len() < most_files && self.outbox.backlog() < BACKLOG {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }

    /// Ends when nothing has come for too long.
    pub(super) async fn silent(&self) -> Error {
        let count = || {
            let frames = self.received.load(Ordering::Relaxed);
            let entries = self.used.entries.load(Ordering::Relaxed);
            let placed = held(&self.summary).placed;
            // A wait for this side's own disk does not count.
            let waits = self.is_waiting.load(Ordering::Relaxed);
            (frames, entries, placed, waits)
        };
        let mut last = count();
        loop {
            tokio::time::sleep(self.bounds.silence).await;
            let now = count();
            if now == last && !now.3 {
                let text = format!("the source sent nothing for {:?}", self.bounds.silence);
                return Error::stop(Reason::Interrupted, text);
            }
            last = now;
        }
    }
}
