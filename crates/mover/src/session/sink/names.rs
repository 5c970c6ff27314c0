// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hard links, devices, FIFOs and sockets: entries without data of their own.

use std::io;

use super::{held, Sink};
use crate::session::progress::shown;
use paceline_conduit::control::short;
use paceline_transfer::store::{hard_link, make_special, Made};
use paceline_transfer::wire::{Message, Owner, Special, Stamp, Summary, Wanted};

impl Sink {
    /// Another name of a file waits until all files have theirs.
    pub(super) fn plan_hard_link(&self, n: u64, path: Vec<u8>, of: Vec<u8>) -> io::Result<Wanted> {
        self.progress.found(0);
        if self.options.dry_run || self.options.part.is_some() {
            // Of several sessions, the one after all of them makes it.
            self.progress.entry_done();
            return Ok(Wanted::Nothing);
        }
        self.admit_directory(&[&path[..], &of].concat(), &[])?;
        held(&self.plan).links.push((n, path, of));
        Ok(Wanted::Nothing)
    }

    /// Makes them.
    pub(super) fn link_all(&self, summary: &mut Summary) {
        let links = std::mem::take(&mut held(&self.plan).links);
        for (n, path, of) in links {
            let made = hard_link(&self.root, &of, &path, &self.id).and_then(|made| {
                if self.options.report_hashes {
                    self.report_hash(&path, &self.hash_there(&path)?);
                }
                match self.root.parent(&path)? {
                    (parent, _) if made == Made::New => held(&self.named).push(parent),
                    _ => {}
                }
                Ok(made)
            });
            match made {
                Ok(Made::New) => summary.placed += 1,
                Ok(Made::Before) => summary.unchanged += 1,
                Err(error) => {
                    summary.failed += 1;
                    let text = format!("it cannot be a name of {}: {error}", shown(&of));
                    self.report_failed(&path, &text);
                    let text = short(&format!("{}: {text}", shown(&path)));
                    let wrong = false;
                    self.outbox.send(Message::Failed { n, wrong, text });
                }
            }
            self.progress.entry_done();
        }
        crate::fault::point("sink-linked");
    }

    pub(super) fn plan_special(
        &self,
        path: &[u8],
        special: Special,
        (mode, owner, stamp): (u32, Option<Owner>, &Stamp),
    ) -> io::Result<Wanted> {
        self.progress.found(0);
        if self.options.dry_run {
            return Ok(Wanted::Nothing);
        }
        if !self.options.specials {
            return Err(io::Error::other("it was not requested (--specials)"));
        }
        match make_special(&self.root, path, special, (mode, owner, stamp), &self.id)? {
            Made::Before => return Ok(self.unchanged()),
            Made::New => held(&self.named).push(self.root.parent(path)?.0),
        }
        held(&self.summary).placed += 1;
        self.progress.entry_done();
        Ok(Wanted::Nothing)
    }
}
