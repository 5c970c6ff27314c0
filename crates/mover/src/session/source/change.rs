// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that change while they are sent.
//!
//! A file's state is looked at when it is opened and after its last byte was read. If it is
//! another one, the file is read again, and bites with another hash are sent again: three
//! times, then it is given up, and what the destination had before stays.

use std::sync::Arc;

use super::{Large, Source};
use crate::session::progress::{shown, Event};
use paceline_transfer::chunk::{chunk_for, hash_bite};
use paceline_transfer::read::{open, read_bite};

/// So often a file is begun anew.
const ATTEMPTS: u16 = 3;

impl Source {
    /// All of a file was read: says so, if it is as it was at the beginning.
    pub(super) fn finish(&self, n: u64, attempt: u16) {
        let (place, stamp) = {
            let state = self.lock();
            let Some(file) = state.files.get(&n) else {
                return;
            };
            (file.place.clone(), file.stamp)
        };
        match open(&place) {
            Ok((_, now, _)) if now == stamp => {}
            Ok(_) => return self.changed(n, attempt),
            Err(error) => return self.abandon(&mut self.lock(), n, true, &error.to_string()),
        }
        let mut state = self.lock();
        let large = state.files.get(&n).and_then(|file| file.large.as_ref());
        // Data from before a change must not come after data from after it. A file that other
        // sessions send, too, is reported complete when it is there.
        let ready = large
            .filter(|large| large.attempt == attempt)
            .is_some_and(|large| (attempt == 0 && !large.is_shared) || large.unacked == 0);
        if ready {
            self.complete(&mut state, n);
        }
    }

    /// A file is not what it was in this attempt.
    pub(super) fn changed(&self, n: u64, attempt: u16) {
        if self.is_unasked(n) {
            return;
        }
        let (place, mut bites, before, path) = {
            let mut state = self.lock();
            let state = &mut *state;
            let Some(file) = state.files.get_mut(&n) else {
                return;
            };
            let Some(large) = file.large.as_mut().filter(|large| large.attempt == attempt) else {
                return; // another stream has seen it, too
            };
            if attempt >= ATTEMPTS || large.is_shared {
                let text = "it kept changing while it was sent";
                return self.abandon(state, n, true, text);
            }
            let mut bites = std::mem::take(&mut large.bites);
            large.attempt += 1;
            large.file = None;
            // So that it does not count as complete.
            large.wanted = u64::MAX;
            large.is_complete = false;
            // Bites that are on their way may be lost.
            for (offset, length) in state.queue.cancel(n) {
                bites.remove(offset, offset + length);
            }
            (file.place.clone(), bites, file.stamp, file.path.clone())
        };
        self.progress.report(Event::Changed { path: shown(&path) });
        let (file, stamp, mode) = match open(&place) {
            Ok(opened) => opened,
            Err(error) => return self.abandon(&mut self.lock(), n, true, &error.to_string()),
        };
        let mut body = Vec::new();
        let known: Vec<_> = bites
            .iter()
            .map(|(at, length, cv)| (at, length, *cv))
            .collect();
        for (offset, length, cv) in known {
            body.clear();
            // The bite at the end of another size is another one.
            let is_same_cut =
                before.size == stamp.size || offset + length < before.size.min(stamp.size);
            let same = is_same_cut
                && read_bite(&file, offset, length, &mut body).unwrap_or(false)
                && hash_bite(&body, offset, stamp.size) == cv;
            if !same {
                bites.remove(offset, offset + length);
            }
        }
        let gaps = bites.missing(stamp.size);
        let attempt = attempt + 1;
        {
            let mut state = self.lock();
            let state = &mut *state;
            let Some(own) = state.files.get_mut(&n) else {
                return;
            };
            (own.stamp, own.mode) = (stamp, mode);
            let dense = own.dense;
            let unacked = own.large.as_ref().map_or(0, |large| large.unacked);
            own.large = Some(Large {
                file: Some(Arc::new(file)),
                bites,
                wanted: stamp.size,
                is_whole: true,
                attempt,
                unacked,
                ..Large::default()
            });
            let own = self.options.chunk;
            let chunk = own.unwrap_or_else(|| chunk_for(stamp.size, dense));
            for gap in &gaps {
                state.queue.add_range(n, stamp.size, attempt, *gap, chunk);
            }
        }
        self.wake.notify_waiters();
        if gaps.is_empty() {
            self.finish(n, attempt);
        }
    }
}
