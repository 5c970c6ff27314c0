// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handling of a disk that has no room, or fails.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use paceline_transfer::store::{is_broken, is_full, missing};
use paceline_transfer::wire::{Message, Reason};

use super::Sink;
use crate::session::progress::Event;
use paceline_conduit::control::short;
use paceline_conduit::{Error, Result};

/// Interval of looks at a full disk.
const LOOK: Duration = Duration::from_millis(500);

/// Errors of the disk itself, not of a single file.
pub(super) fn of_the_disk(error: &io::Error) -> Option<Error> {
    let text = if is_full(error) {
        format!("the destination is full: {error}")
    } else if is_broken(error) {
        format!("the destination's disk fails: {error}")
    } else {
        return None;
    };
    Some(Error::stop(Reason::Full, text))
}

impl Sink {
    /// An error of this host's disk: true if it ends the transfer, and is not of one entry.
    pub(super) fn trouble(&self, error: &io::Error) -> bool {
        let stop = of_the_disk(error);
        let ends = stop.is_some();
        if let Some(stop) = stop {
            self.stop(stop);
        }
        ends
    }

    /// Tries again while the disk is full, if the transfer is to wait for room.
    pub(super) fn with_room<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut waited = false;
        loop {
            match act() {
                Err(error) if is_full(&error) && self.may_wait() => {
                    self.wait_for_room(&error.to_string());
                    waited = true;
                }
                result => {
                    if waited {
                        self.is_waiting.store(false, Ordering::Relaxed);
                    }
                    return result;
                }
            }
        }
    }

    /// Ends unless there is room for the missing data.
    pub(super) fn check_room(&self) -> Result<()> {
        let mut waited = false;
        loop {
            let bytes = self.to_come.load(Ordering::Relaxed);
            let files = self.files_to_come.load(Ordering::Relaxed);
            let Some(missing) = missing(self.root.base(), bytes, files) else {
                if waited {
                    self.is_waiting.store(false, Ordering::Relaxed);
                }
                return Ok(());
            };
            if !self.may_wait() {
                let text = format!("no room at the destination: {missing}");
                return Err(Error::stop(Reason::Full, text));
            }
            self.wait_for_room(&missing.to_string());
            waited = true;
        }
    }

    fn may_wait(&self) -> bool {
        self.options.wait_space && !self.is_over() && !self.outbox.is_gone()
    }

    fn wait_for_room(&self, what: &str) {
        if !self.is_waiting.swap(true, Ordering::Relaxed) {
            let text = short(what);
            self.progress.report(Event::Full { text: text.clone() });
            self.outbox.send(Message::Full { text });
        }
        std::thread::sleep(LOOK);
    }
}
