// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of a standing receiver since it began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::progress::Progress;

/// Counts of a standing receiver, which it keeps.
#[derive(Debug, Default)]
pub struct Counts {
    refused: AtomicU64,
    transfers: Mutex<Transfers>,
}

#[derive(Debug, Default)]
struct Transfers {
    running: Vec<Arc<Progress>>,
    /// Of those that ended.
    ended: Counted,
}

/// Counts at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Transfers that are under way.
    pub running: u64,
    /// Transfers that are complete.
    pub done: u64,
    /// Those that ended early.
    pub failed: u64,
    /// Connections without a valid proof or message.
    pub refused: u64,
    /// Bytes of files that came and were written.
    pub bytes: u64,
    /// Entries that were made, replaced or found as they should be.
    pub entries: u64,
}

impl Counts {
    /// Those of now.
    pub fn now(&self) -> Counted {
        let transfers = self
            .transfers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut now = Counted {
            running: transfers.running.len() as u64,
            refused: self.refused.load(Ordering::Relaxed),
            ..transfers.ended.clone()
        };
        transfers.running.iter().for_each(|own| now.add(own));
        now
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A transfer begins; it ends when the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>, progress: &Arc<Progress>) -> Running {
        let mut transfers = self
            .transfers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        transfers.running.push(Arc::clone(progress));
        Running {
            counts: Arc::clone(self),
            progress: Arc::clone(progress),
            is_done: false,
        }
    }
}

impl Counted {
    fn add(&mut self, progress: &Progress) {
        self.bytes += progress.bytes_sent.load(Ordering::Relaxed);
        self.entries += progress.entries_done.load(Ordering::Relaxed);
    }
}

/// A transfer that is counted as running until this is dropped.
pub(super) struct Running {
    counts: Arc<Counts>,
    progress: Arc<Progress>,
    /// All is there.
    pub is_done: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        let transfers = self.counts.transfers.lock();
        let mut transfers = transfers.unwrap_or_else(PoisonError::into_inner);
        let own = &self.progress;
        transfers.running.retain(|other| !Arc::ptr_eq(other, own));
        transfers.ended.add(own);
        match self.is_done {
            true => transfers.ended.done += 1,
            false => transfers.ended.failed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_transfers_count_and_still_count_after_they_end() {
        let counts = Arc::<Counts>::default();
        let (one, other) = (Progress::new(|_| {}), Progress::new(|_| {}));
        let (mut first, second) = (counts.begin(&one), counts.begin(&other));
        one.done(10, 7);
        one.entry_done();
        other.done(5, 5);
        let under_way = counts.now();
        assert_eq!(
            (under_way.running, under_way.bytes, under_way.entries),
            (2, 12, 1)
        );
        first.is_done = true;
        drop((first, second));
        counts.refuse();
        let ended = Counted {
            running: 0,
            done: 1,
            failed: 1,
            refused: 1,
            bytes: 12,
            entries: 1,
        };
        assert_eq!(counts.now(), ended);
    }
}
