// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Progress of a transfer, for display.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use paceline_transfer::chunk::CV;
use serde::Serialize;

/// An event of a single entry.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An entry that could not be read, sent or written.
    Failed {
        /// Below the destination.
        path: String,
        /// Why.
        text: String,
    },
    /// A file whose content changes (or would, in a dry run).
    Copied {
        /// Below the destination.
        path: String,
        /// Bytes.
        size: u64,
    },
    /// An entry that was deleted (or would be).
    Deleted {
        /// Below the destination.
        path: String,
    },
    /// A data connection is gone; the others go on.
    StreamLost {
        /// Its number.
        stream: u16,
        /// Why.
        text: String,
    },
    /// A data connection of this side's has ended.
    Stream {
        /// Its number.
        stream: u16,
        /// Bytes of files that it carried.
        bytes: u64,
        /// When the last of them was acknowledged, since the transfer began, microseconds.
        last_us: u64,
    },
    /// A bite came damaged and is sent again.
    SentAgain {
        /// Below the destination.
        path: String,
    },
    /// A file changed while it was sent and is looked at again.
    Changed {
        /// Below the destination.
        path: String,
    },
    /// A file is at the destination with this hash, if that was asked for.
    Hash {
        /// Below the destination.
        path: String,
        /// BLAKE3, in hexadecimal digits.
        blake3: String,
    },
    /// Bytes that a pair of hosts has carried, where there are several.
    Carried {
        /// The source.
        from: String,
        /// The sink.
        to: String,
        /// Bytes of files.
        bytes: u64,
    },
    /// The destination's disk is full: it waits for room.
    Full {
        /// What is missing.
        text: String,
    },
}

/// Counters of a transfer, and the receiver of its events.
pub struct Progress {
    /// Entries and bytes of files that were found.
    pub entries: AtomicU64,
    /// Bytes of files that were found.
    pub bytes: AtomicU64,
    /// No more will be found.
    pub is_walked: AtomicBool,
    /// Entries that need nothing any more.
    pub entries_done: AtomicU64,
    /// Bytes of files that need not be sent any more.
    pub bytes_done: AtomicU64,
    /// Bytes of those that were sent in this run.
    pub bytes_sent: AtomicU64,
    /// Data connections.
    pub streams: AtomicU64,
    /// Rate that the path was seen to carry, and rate of the last round trip, bytes per second.
    pub(super) path: [AtomicU64; 2],
    report: Box<dyn Fn(Event) + Send + Sync>,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").finish_non_exhaustive()
    }
}

impl Progress {
    /// At the beginning.
    pub fn new(report: impl Fn(Event) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_walked: AtomicBool::new(false),
            entries_done: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            path: Default::default(),
            report: Box::new(report),
        })
    }

    /// Reports an event.
    pub fn report(&self, event: Event) {
        (self.report)(event);
    }

    /// A file is at the destination.
    pub(super) fn hash(&self, path: &[u8], root: &CV) {
        self.report(Event::Hash {
            path: shown(path),
            blake3: blake3::Hash::from_bytes(*root).to_hex().to_string(),
        });
    }

    /// Rates that a source sees of its path: see [`Progress::path`].
    pub(super) fn sees(&self, most: u64, now: u64) {
        self.path[0].store(most, Ordering::Relaxed);
        self.path[1].store(now, Ordering::Relaxed);
    }

    /// An entry was found.
    pub(super) fn found(&self, bytes: u64) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes need not be sent any more; `sent` of them were, in this run.
    pub(super) fn done(&self, bytes: u64, sent: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        self.bytes_sent.fetch_add(sent, Ordering::Relaxed);
    }

    /// An entry needs nothing any more.
    pub(super) fn entry_done(&self) {
        self.entries_done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A path as text.
pub fn shown(path: &[u8]) -> String {
    match path.is_empty() {
        true => ".".to_owned(),
        false => String::from_utf8_lossy(path).into_owned(),
    }
}
