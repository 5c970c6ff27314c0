// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sink's answer to each entry, and data that is sent before it.
//!
//! On connections that are made beside the control connection, the first bites of a large file,
//! and the first packs of small ones, would wait a round trip for the answer. They do not: the sink
//! keeps them until it has planned the file, and drops those of a file that it does not want.

use super::{Early, Large, Source, State};
use crate::session::progress::{shown, Event};
use paceline_conduit::{Error, Result};
use paceline_transfer::chunk::{chunk_for, Queue, LEAST_BITE};
use paceline_transfer::wire::{Options, Update, Want, Wanted, LEAST_SHARED, MOST_SMALL};

/// So many small bites go before the sink has answered, on connections that are there by then: one
/// for each of them, more than its initial window. Unwanted data is this much at most.
const AHEAD_BITES: u16 = 16;
/// A small file counts as so many bytes of that at least: it has a name, too.
const LEAST_COUNTED: u64 = 256;

/// Result of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Then {
    /// All that is wanted was sent before.
    Finish,
    /// The file had changed, or could not be read, before.
    BeginAnew,
}

impl Large {
    /// The sink has not answered it.
    fn is_unanswered(&self) -> bool {
        self.wanted == u64::MAX && self.attempt == 0 && !self.is_shared
    }
}

/// Bytes that may be sent unasked.
pub(super) fn ahead(options: &Options) -> u64 {
    let may = !options.dry_run && options.part.is_none() && options.update != Update::Hash;
    match may {
        true => u64::from(options.streams.min(AHEAD_BITES)) * LEAST_BITE,
        false => 0,
    }
}

/// Ranges of a file that are wanted: how many bytes.
fn add_ranges(
    queue: &mut Queue,
    n: u64,
    size: u64,
    ranges: &[(u64, u64)],
    chunk: u64,
) -> Result<u64> {
    let on_grid = |at: u64| at.is_multiple_of(LEAST_BITE);
    let mut wanted = 0;
    for (start, end) in ranges.iter().copied() {
        if start >= end || end > size || !on_grid(start) || !(on_grid(end) || end == size) {
            return Err(Error::Unexpected("a range that is none"));
        }
        wanted += end - start;
        queue.add_range(n, size, 0, (start, end), chunk);
    }
    Ok(wanted)
}

impl State {
    /// How many bytes of a file go unasked: not all, so that its end waits for the answer.
    pub(super) fn take_ahead(&mut self, size: u64) -> u64 {
        if size <= MOST_SMALL || self.is_taken {
            return 0;
        }
        // Small files may have taken a part of it.
        let ahead = self.ahead.min(size - 1) / LEAST_BITE * LEAST_BITE;
        self.ahead -= ahead;
        ahead
    }
}

impl State {
    /// Whether a small file goes unasked, in a pack.
    pub(super) fn take_small_ahead(&mut self, size: u64) -> Early {
        let counted = size.max(LEAST_COUNTED);
        if size > MOST_SMALL || self.is_taken || counted > self.ahead {
            return Early::No;
        }
        self.ahead -= counted;
        Early::Sent
    }
}

impl Source {
    /// A small file that could not be read: see [`Early::Troubled`].
    pub(super) fn small_failed(&self, n: u64, is_changed: bool, text: &str) {
        let mut state = self.lock();
        match state.files.get_mut(&n).map(|file| &mut file.early) {
            Some(early @ (Early::Sent | Early::Troubled)) => *early = Early::Troubled,
            // It was a copy that could not be read: the file is there, or was given up.
            Some(Early::There) | None => {}
            Some(Early::No) => self.abandon(&mut state, n, is_changed, text),
        }
    }

    /// A small file that came in a pack. One without an answer waits for it.
    pub(super) fn small_there(&self, state: &mut State, n: u64) {
        match state.files.get_mut(&n) {
            Some(file) if file.early != Early::No => file.early = Early::There,
            Some(_) => {
                state.files.remove(&n);
                self.progress.entry_done();
            }
            None => {}
        }
    }

    /// Whether the file has no answer yet: an error of it waits for the answer, because the sink
    /// does not know the file before.
    pub(super) fn is_unasked(&self, n: u64) -> bool {
        let mut state = self.lock();
        let file = state.files.get_mut(&n).and_then(|file| file.large.as_mut());
        let unasked = file.filter(|large| large.ahead > 0 && large.is_unanswered());
        unasked.map(|large| large.is_troubled = true).is_some()
    }

    /// A file that cannot be read.
    pub(super) fn unreadable(&self, n: u64, error: &std::io::Error) {
        if !self.is_unasked(n) {
            self.abandon(&mut self.lock(), n, false, &error.to_string());
        }
    }

    /// An answer. Returns the next step for a file of which something went before.
    pub(super) fn wanted(&self, state: &mut State, want: Want) -> Result<Option<Then>> {
        let Some(pending) = state.pending.checked_sub(1) else {
            return Err(Error::Unexpected("an answer to no entry"));
        };
        state.pending = pending;
        let n = want.n;
        match want.wanted {
            Wanted::Nothing => {
                state.queue.cancel(n);
                if let Some(file) = state.files.remove(&n) {
                    // One that went counts with its pack.
                    if matches!(file.early, Early::No | Early::Troubled) {
                        self.progress.done(file.stamp.size, 0);
                    }
                }
                self.progress.entry_done();
            }
            Wanted::Failed(text) => {
                state.queue.cancel(n);
                let path = state.files.remove(&n).map(|file| file.path);
                self.failed(&path.unwrap_or_default(), &text);
            }
            Wanted::Ranges(ranges) => {
                let State { queue, files, .. } = state;
                let Some(file) = files.get_mut(&n) else {
                    return Err(Error::Unexpected("bytes are wanted of what has none"));
                };
                self.progress.report(Event::Copied {
                    path: shown(&file.path),
                    size: file.stamp.size,
                });
                if self.options.dry_run {
                    files.remove(&n);
                    return Ok(None);
                }
                let size = file.stamp.size;
                if size <= MOST_SMALL {
                    match std::mem::take(&mut file.early) {
                        Early::No | Early::Troubled => queue.add_small(n, size),
                        Early::Sent => {}
                        Early::There => {
                            files.remove(&n);
                            self.progress.entry_done();
                        }
                    }
                    return Ok(None);
                }
                let chunk = self
                    .options
                    .chunk
                    .unwrap_or_else(|| chunk_for(size, file.dense));
                let ahead = file.large.as_ref().map_or(0, |large| large.ahead);
                let rest: Vec<_> = ranges
                    .iter()
                    .map(|(start, end)| ((*start).max(ahead), *end))
                    .filter(|(start, end)| ahead == 0 || start < end)
                    .collect();
                let wanted = ahead + add_ranges(queue, n, size, &rest, chunk)?;
                if wanted > size {
                    return Err(Error::Unexpected("ranges that overlap"));
                }
                if self.options.part.is_some() && size > LEAST_SHARED {
                    file.large = Some(Large {
                        // So that it does not count as complete.
                        wanted: u64::MAX,
                        is_shared: true,
                        asked: wanted,
                        ..Large::default()
                    });
                    return Ok(None);
                }
                self.progress.done(size - wanted, 0);
                let large = file.large.get_or_insert_default();
                large.wanted = wanted;
                large.is_whole = wanted == size;
                if ahead > 0 {
                    let is_sent = large.bites.known() == wanted;
                    return Ok(match large.is_troubled {
                        true => Some(Then::BeginAnew),
                        false => is_sent.then_some(Then::Finish),
                    });
                }
                if wanted == 0 {
                    // All of it is there since an earlier run, but for its name.
                    self.complete(state, n);
                }
            }
        }
        Ok(None)
    }

    /// More of a file that several sessions send.
    pub(super) fn more(&self, n: u64, ranges: &[(u64, u64)], is_last: bool) -> Result<()> {
        let mut state = self.lock();
        let State { queue, files, .. } = &mut *state;
        let Some(file) = files.get_mut(&n) else {
            // It was given up.
            return Ok(());
        };
        let size = file.stamp.size;
        let Some(large) = file.large.as_mut().filter(|large| large.is_shared) else {
            return Err(Error::Unexpected(
                "a part of an entry is requested that is not shared",
            ));
        };
        let own = self.options.chunk;
        let chunk = own.unwrap_or_else(|| chunk_for(size, file.dense));
        large.asked += add_ranges(queue, n, size, ranges, chunk)?;
        if large.asked > size {
            return Err(Error::Unexpected("ranges that overlap"));
        }
        if !is_last {
            return Ok(());
        }
        large.wanted = large.asked;
        let is_all = large.bites.known() == large.wanted;
        drop(state);
        if is_all {
            tokio::task::block_in_place(|| self.finish(n, 0));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use tokio::sync::Notify;

    use super::super::SourceFile;
    use super::*;
    use crate::session::fixtures::{controls, progress, runtime, SECRET};
    use paceline_transfer::read::Place;
    use paceline_transfer::store::Root;
    use paceline_transfer::wire::Stamp;

    /// A source that has sent one small file, 0, and has no answer to it.
    async fn with_one_sent() -> Source {
        let root = Root::open(Path::new("/"), false).expect("there");
        let file = SourceFile {
            path: b"file".to_vec(),
            place: Place {
                root: Arc::new(root),
                path: b"file".to_vec(),
                is_device: false,
            },
            stamp: Stamp::default(),
            mode: 0o644,
            dense: true,
            early: Early::Sent,
            large: None,
        };
        let state = State {
            files: [(0, file)].into(),
            pending: 1,
            ..State::default()
        };
        Source {
            tuning: None,
            options: Options::default(),
            secret: SECRET,
            outbox: controls().await.0.outbox,
            progress: progress().0,
            state: Mutex::new(state),
            wake: Notify::new(),
            began: Instant::now(),
        }
    }

    /// A stream that waits repeats the pack of another one. One copy is there, the other one
    /// could not be read, before or after that.
    #[test]
    fn a_copy_that_cannot_be_read_changes_nothing_of_the_one_that_is_there() {
        for fails_first in [true, false] {
            let source = runtime().block_on(with_one_sent());
            let fails = || source.small_failed(0, false, "it is gone");
            if fails_first {
                fails();
            }
            source.small_there(&mut source.lock(), 0);
            if !fails_first {
                fails();
            }
            let mut state = source.lock();
            let want = Want {
                n: 0,
                wanted: Wanted::Ranges(vec![(0, 0)]),
            };
            let then = source.wanted(&mut state, want).expect("it is known");
            assert!(then.is_none() && state.files.is_empty() && state.queue.is_idle());
        }
    }
}
