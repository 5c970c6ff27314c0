// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a transfer at the sink.

use std::io;
use std::sync::atomic::Ordering;

use super::plan::path_hash;
use super::{held, Directory, Sink};
use crate::session::progress::{shown, Event};
use paceline_conduit::{Error, Result};
use paceline_transfer::store::{delete, set_directory, temporaries, Deletion};
use paceline_transfer::wire::{Message, Reason, Summary};

impl Sink {
    /// All entries are done: deletes surplus ones, gives directories their times, and removes the
    /// journal.
    pub(super) fn finish(&self, mut summary: Summary) -> Result<Summary> {
        let at = |path: &[u8]| {
            let path = shown(path);
            move |source| Error::Io { path, source }
        };
        if self.options.part.is_some() {
            // Others go on: the session after all of them does the rest.
            self.sync_names(false).map_err(at(b""))?;
            return Ok(summary);
        }
        if self.is_resumed && self.device.is_none() {
            for path in temporaries(&self.root, b"", &self.id).map_err(at(b""))? {
                self.root.remove(&path, false).map_err(at(&path))?;
            }
        }
        self.link_all(&mut summary);
        let deleted = self.delete(&mut summary)?;
        let mut plan = std::mem::take(&mut *held(&self.plan));
        // Inner ones first: a change in one changes the time of the one above it.
        plan.directories
            .sort_by(|one, other| other.path.cmp(&one.path));
        for directory in &plan.directories {
            let set = self.root.directory(&directory.path).and_then(|fd| {
                self.set_attributes(&fd, directory.owner, &directory.attributes)?;
                set_directory(&fd, &directory.stamp, directory.mode, directory.owner)
            });
            if let Err(error) = set {
                summary.failed += 1;
                self.report_failed(&directory.path, &error.to_string());
            }
        }
        crate::fault::point("sink-finishes");
        self.sync_names(deleted > 0).map_err(at(b""))?;
        if let Some(journal) = held(&self.journal).take() {
            journal.remove(&self.root).map_err(at(b".paceline"))?;
        }
        self.touch_base(&plan.directories);
        Ok(summary)
    }

    /// The journal was in the destination itself, whose time is to be the source's.
    fn touch_base(&self, directories: &[Directory]) {
        let base = directories.iter().find(|own| own.path.is_empty());
        if let Some(own) = base {
            // It was set before, so it can be again.
            let _ = set_directory(self.root.base(), &own.stamp, own.mode, own.owner);
        }
    }

    /// Entries that a dry run would delete.
    pub(super) fn finish_dry(&self, mut summary: Summary) -> Result<Summary> {
        self.delete(&mut summary)?;
        Ok(summary)
    }

    fn delete(&self, summary: &mut Summary) -> Result<u64> {
        let Some(most) = self.options.delete else {
            return Ok(0);
        };
        let plan = held(&self.plan);
        if plan.walked.is_none_or(|(_, errors)| errors > 0) || summary.failed > 0 {
            drop(plan);
            let text = "nothing is deleted: a part of the source could not be read or written";
            self.report_failed(b"", text);
            return Ok(0);
        }
        let keep = |path: &[u8], is_directory: bool| {
            plan.seen.contains(&path_hash(path)) || !self.filter.takes_all_of(path, is_directory)
        };
        let tops = plan.directories.iter().map(|own| &own.path);
        let tops: Vec<_> = tops.filter(|path| !path.contains(&b'/')).collect();
        let is_all = tops.iter().any(|path| path.is_empty());
        let mut found: Vec<Deletion> = Vec::new();
        for top in tops.into_iter().filter(|path| path.is_empty() || !is_all) {
            match delete(&self.root, top, &keep) {
                Ok(own) => found.extend(own),
                // A dry run into a directory that is not there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    let path = shown(top);
                    return Err(Error::Io { path, source });
                }
            }
        }
        let count = found.len() as u64;
        if count > most {
            let text = format!(
                "{count} entries would be deleted at the destination, more than --max-delete {most}: \
                 none was; all else is done"
            );
            return Err(Error::stop(Reason::MaxDelete, text));
        }
        for (path, is_directory) in found {
            if !self.options.dry_run {
                if let Err(error) = self.root.remove(&path, is_directory) {
                    summary.failed += 1;
                    self.report_failed(&path, &error.to_string());
                    continue;
                }
            }
            summary.deleted += 1;
            self.progress.report(Event::Deleted { path: shown(&path) });
            self.outbox.send(Message::Deleted(path));
        }
        self.root.forget();
        Ok(count)
    }

    /// The transfer ends early. Its data stays, for the next run.
    pub(super) fn leave(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        held(&self.files).clear();
    }
}
