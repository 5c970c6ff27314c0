// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream: verifies a frame, writes it, acknowledges it.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::block_in_place;

use super::large::Failure;
use super::{held, Sink};
use paceline_conduit::stream::{tags, Stream};
use paceline_conduit::{Error, Result};
use paceline_transfer::store::{file_bits, set_file, Temporary};
use paceline_transfer::wire::{Ack, Frame, Kind, PackItem, Packed};

/// Interval of looks at whether a file's entry was answered, without a notification.
const PLANNED_SOON: Duration = Duration::from_millis(100);

impl Sink {
    /// Serves one data connection to its end.
    pub(super) async fn stream(self: Arc<Self>, stream: Stream) -> Result<()> {
        let Stream {
            number,
            mut reader,
            mut writer,
            socket: _socket,
            guard: _guard,
        } = stream;
        let (mut frame_tags, mut ack_tags) = tags(&self.secret, number);
        let mut buffer = Vec::new();
        loop {
            let frame = reader.frame(&mut frame_tags).await?;
            let payload = u64::from(frame.header.payload);
            let is_good = match frame.header.kind {
                Kind::End => return Ok(()),
                Kind::Chunk | Kind::Sparse => {
                    self.planned(frame.header.file).await;
                    block_in_place(|| self.take_bite(&frame, &mut buffer))?
                }
                Kind::Pack => match block_in_place(|| frame.pack())? {
                    None => false,
                    Some(files) => {
                        let last = files.iter().map(|(item, _)| item.n).max();
                        self.planned(last.unwrap_or(0)).await;
                        block_in_place(|| self.take_pack(files));
                        true
                    }
                },
            };
            self.received.fetch_add(payload, Ordering::Relaxed);
            // A repeated bite may come after the last one: the source does not know yet that all is
            // there, and would count the end of this stream as a lost connection.
            if self.is_over() && !self.is_all_there.load(Ordering::Relaxed) {
                // Data that could not be written is not acknowledged.
                return Err(Error::Unexpected("the transfer was stopped here"));
            }
            let ack = match is_good {
                true => Ack::Have(frame.number),
                false => Ack::Again(frame.number),
            };
            writer.send(&ack_tags.seal_ack(ack)).await?;
        }
    }

    /// The first bites and packs may come before their files are planned: they wait.
    async fn planned(&self, n: u64) {
        // Of several hosts' sessions nothing goes ahead, and the numbers of each have gaps.
        if self.options.part.is_some() {
            return;
        }
        loop {
            let notified = self.progressed.notified();
            if self.is_over() || n < held(&self.plan).answered {
                return;
            }
            let _ = tokio::time::timeout(PLANNED_SOON, notified).await;
        }
    }

    fn take_bite(&self, frame: &Frame, buffer: &mut Vec<u8>) -> Result<bool> {
        let Some(bite) = frame.bite(buffer)? else {
            return Ok(false);
        };
        self.write_bite(&frame.header, &bite, frame.cv);
        Ok(true)
    }

    fn take_pack(&self, files: Vec<Packed>) {
        for (item, bytes) in files {
            if self.is_over() {
                break;
            }
            self.take_small(&item, bytes);
        }
        self.commit_what_is_left();
    }

    fn take_small(&self, item: &PackItem, bytes: &[u8]) {
        // In this order: a file that is placed leaves the list before its claim ends.
        if !self.commits.claim(item.n) {
            return;
        }
        if !self.write_small(item, bytes) {
            self.commits.release(item.n);
        }
    }

    /// False if it does not wait for the next commit.
    fn write_small(&self, item: &PackItem, bytes: &[u8]) -> bool {
        let (path, announced, owner, attributes) = {
            let files = held(&self.files);
            match files.get(&item.n) {
                Some(slot) if slot.large.is_none() => (
                    slot.path.clone(),
                    slot.stamp.size,
                    slot.owner,
                    slot.attributes.clone(),
                ),
                _ => return false,
            }
        };
        let more = item.stamp.size.saturating_sub(announced);
        if self.admit_bytes(more).is_err() {
            return false;
        }
        if *blake3::hash(bytes).as_bytes() != item.root {
            self.fail(item.n, &Failure::Wrong("its hash is not the source's"));
            return false;
        }
        let create = || {
            crate::fault::disk("sink-creates")?;
            let temporary = Temporary::create(&self.root, &path, &self.id)?;
            let write = crate::fault::disk("sink-writes")
                .and_then(|()| temporary.write(bytes, 0))
                .and_then(|()| self.set_attributes(temporary.file(), owner, &attributes))
                .and_then(|()| {
                    set_file(temporary.file(), &item.stamp, item.mode & file_bits(owner))
                });
            match write {
                Ok(()) => Ok(temporary.close()),
                Err(error) => {
                    temporary.placement().discard();
                    Err(error)
                }
            }
        };
        match self.with_room(create) {
            Ok(placement) => {
                crate::fault::point("sink-wrote-small");
                let length = bytes.len() as u64;
                held(&self.summary).written_bytes += length;
                self.progress.done(length, length);
                self.came(length, 1);
                self.commits.small(item.n, placement, length, item.root);
                true
            }
            Err(error) => {
                self.fail(item.n, &Failure::Io(error));
                false
            }
        }
    }
}
