// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of groups, read and bounded by their coordinator's client: often, so
//! the programs are loaded once.

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use paceline_abi::{as_bytes, from_bytes, pl_stream_record, pl_uwnd};
use paceline_net::clock::monotonic_us;

use super::records::records;
use super::{discover, read_iterator, KernelSide};
use crate::error::{Error, Result};

/// The iterator that writes one record per connection of any group.
pub(super) const STREAMS_PROGRAM: &str = "pl_streams";

/// The programs and maps that read and bound streams.
#[derive(Debug)]
pub(crate) struct Streams {
    side: KernelSide,
}

impl Streams {
    /// The live kernel side's maps; `None` without a kernel side, and so without a job.
    ///
    /// # Errors
    /// [`Error::OtherBuild`], [`Error::Bpf`].
    pub fn open() -> Result<Option<Self>> {
        let Some(found) = discover::find()? else {
            return Ok(None);
        };
        found.require_ours(|| "see paceline status of that build".to_owned())?;
        let side = KernelSide::load(Some(&found), None, Some(&[STREAMS_PROGRAM]))?;
        Ok(Some(Self { side }))
    }

    /// Whether it is still the live one: it ends with the last job.
    pub fn is_live(&self) -> bool {
        self.side.is_live()
    }

    /// Every connection of any group of this host.
    pub fn read(&self) -> Result<Vec<pl_stream_record>> {
        self.side.streams()
    }

    /// Bounds the window of one connection; without bounds it is free at once.
    pub fn bound(&self, cookie: u64, uwnd: &pl_uwnd) -> Result<()> {
        let bounds = self.side.map("pl_bounds")?;
        let key = cookie.to_ne_bytes();
        let done = if uwnd.min_segs == 0 && uwnd.max_segs == 0 {
            bounds.delete(&key)
        } else {
            bounds
                .update(&key, as_bytes(uwnd), MapFlags::ANY)
                .or_else(|error| match error.kind() {
                    ErrorKind::TooBig => {
                        forget_ended(&bounds)?;
                        bounds.update(&key, as_bytes(uwnd), MapFlags::ANY)
                    }
                    _ => Err(error),
                })
        };
        match done {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::bpf("cannot bound a connection's window", error))
            }
            _ => Ok(()),
        }
    }
}

impl KernelSide {
    /// Every connection of any group, in all network namespaces.
    pub(crate) fn streams(&self) -> Result<Vec<pl_stream_record>> {
        let connections = self.map("pl_connections")?;
        let link = self
            .program(STREAMS_PROGRAM)?
            .attach_iter(std::os::fd::AsFd::as_fd(&connections))
            .map_err(|error| Error::bpf("cannot read the groups' connections", error))?;
        records(&read_iterator(&link)?, |record: &pl_stream_record| {
            record.cookie
        })
    }
}

/// Deletes the bounds of connections that ended while they were bounded.
fn forget_ended(bounds: &libbpf_rs::Map<'_>) -> libbpf_rs::Result<()> {
    let now = monotonic_us();
    for key in bounds.keys() {
        let value = bounds.lookup(&key, MapFlags::ANY)?;
        let uwnd = value.and_then(|value| from_bytes::<pl_uwnd>(&value).ok());
        if uwnd.is_none_or(|uwnd| uwnd.until_us <= now) {
            // Already gone: success.
            let _ = bounds.delete(&key);
        }
    }
    Ok(())
}
