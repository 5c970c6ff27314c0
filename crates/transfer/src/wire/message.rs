// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the control connection, in postcard's encoding.
//!
//! ```text
//! the command's side                        the other side
//! Start: direction, identity, paths
//!                                           Ready: where data connections go
//! the source                                the sink
//! Roots, Entries ..., Walked
//!                                           Wants ..., Credit ...
//!          (frames of data, on the data connections)
//! Complete, Abandon: of large files
//!                                           Rate, Retire: what the user changes
//!                                           Finished: the sum of it
//! Bye
//! ```
//!
//! Between two other hosts a head stands in the middle. It passes all of that on, sends `Streams`
//! to the source, and keeps `Report` and `Trouble`, which the source sends to the head alone.
//!
//! Between several hosts at each side there is such a session for each pair of them
//! (`Options::part`). The head itself answers entries that another pair has, and asks for large
//! files bit by bit, by `More`.
//!
//! Either side may send `Ping` at any time, and `Stop` as its last message.

use serde::{Deserialize, Serialize};

use super::{
    most, Entry, Stamp, WireError, MOST_ENTRIES, MOST_MESSAGE, MOST_PATH, MOST_PATTERNS,
    MOST_RANGES, MOST_STREAMS, MOST_TEXT,
};
use crate::chunk::{CV, LEAST_BITE, MOST_CHUNK};

/// Purpose of a connection: within the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intent {
    /// A new transfer.
    Control {
        /// Drawn at random: data connections name it.
        session: [u8; 16],
    },
    /// A data connection of a transfer that is under way.
    Attach {
        /// The transfer's.
        session: [u8; 16],
        /// Its number.
        stream: u16,
    },
}

/// Direction of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// The command's side.
    Push,
    /// The other side.
    Pull,
    /// From the side that is asked to a third host: it makes the data connections, to the address
    /// in a `Ready` that the head passes on.
    Across,
}

/// Data that is read back from the sink's disk and hashed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verify {
    /// Only data that may not have reached the disk before a kill.
    None,
    /// Also data of a file that an earlier run left.
    Resume,
    /// Each file before it gets its name.
    All,
}

/// Which files of the destination are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Update {
    /// Those of another size or modification time.
    SizeMtime,
    /// Those of another content: both sides read all of what has the same size.
    Hash,
    /// All.
    Always,
}

/// Options for both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Data connections.
    pub streams: u16,
    /// Largest bite, bytes: a power of two. `None`: by the file's size.
    pub chunk: Option<u64>,
    /// Bits per second on the wire, all streams together.
    pub rate_bps: Option<u64>,
    /// Data connections without encryption.
    pub plain: bool,
    /// Which files are copied.
    pub update: Update,
    /// Data that is read back.
    pub verify: Verify,
    /// The state of an earlier run is thrown away.
    pub fresh: bool,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
    /// Delete at the destination what the source does not have, this many entries at most.
    pub delete: Option<u64>,
    /// Patterns in their order: include or not, and the pattern.
    pub filters: Vec<(bool, String)>,
    /// A sink whose disk is full waits for room.
    pub wait_space: bool,
    /// The sink reports the hash of each file.
    pub report_hashes: bool,
    /// Extended attributes of users are kept.
    pub xattrs: bool,
    /// Access control lists are.
    pub acls: bool,
    /// Owners are, and so setuid and setgid: the sink is root.
    pub owner: bool,
    /// Names of one file stay names of one file.
    pub hard_links: bool,
    /// Devices, FIFOs and sockets are made.
    pub specials: bool,
    /// The content of a block device is read, and written onto one that is the destination.
    pub device: bool,
    /// This session is one of several that write the same destination, by this number (from 1).
    /// It gives names to files that it has whole, and finishes nothing.
    pub part: Option<u16>,
    /// Such sessions, which begin at the same time: until it is known, they are taken to share
    /// the path's narrowest link.
    pub pairs: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            streams: 2,
            chunk: None,
            rate_bps: None,
            plain: false,
            update: Update::SizeMtime,
            verify: Verify::Resume,
            fresh: false,
            dry_run: false,
            delete: None,
            filters: Vec::new(),
            wait_space: false,
            report_hashes: false,
            xattrs: false,
            acls: false,
            owner: false,
            hard_links: false,
            specials: false,
            device: false,
            part: None,
            pairs: 1,
        }
    }
}

/// A transfer is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The direction.
    pub direction: Direction,
    /// The transfer's identity: the same command has the same one.
    pub id: [u8; 32],
    /// Keys of this session are derived from it.
    pub secret: [u8; 32],
    /// Push: the destination, one path. Pull: the sources.
    pub paths: Vec<Vec<u8>>,
    /// Options for both sides.
    pub options: Options,
}

/// Address of data connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// To the same address, with the same proof.
    Same,
    /// To another port, with the session's secret as the token.
    Port {
        /// TCP.
        port: u16,
        /// SHA-256 of the certificate there; without one there is no TLS.
        fingerprint: Option<[u8; 32]>,
        /// An address by which this host was reached, if it is known.
        address: Option<String>,
    },
}

/// The other side takes the transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Data connections.
    pub access: Access,
    /// Its host's name, for messages.
    pub host: String,
}

/// Result of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// It is there already, or was made from the entry alone.
    Nothing,
    /// These ranges of it.
    Ranges(Vec<(u64, u64)>),
    /// It cannot be.
    Failed(String),
}

/// An answer to an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// The entry's number.
    pub n: u64,
    /// The answer.
    pub wanted: Wanted,
}

/// Why a transfer ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// It goes on with the same command.
    Interrupted,
    /// No space or quota.
    Full,
    /// Not allowed.
    Refused,
    /// The request cannot be met.
    Usage,
    /// More entries would be deleted than were allowed.
    MaxDelete,
}

/// The sum of a transfer, as the sink has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Entries that were made or replaced.
    pub placed: u64,
    /// Entries that were as they should be.
    pub unchanged: u64,
    /// Entries that were deleted.
    pub deleted: u64,
    /// Entries that failed at the sink.
    pub failed: u64,
    /// Entries that the source gave up because they kept changing.
    pub changed: u64,
    /// Entries whose hash at the end was not the source's.
    pub wrong: u64,
    /// Bytes of files that were written.
    pub written_bytes: u64,
    /// Bytes of files that an earlier run had left.
    pub resumed_bytes: u64,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A transfer is asked for.
    Start(Box<Start>),
    /// And taken.
    Ready(Ready),
    /// The source's first: there is one root, and it is a file.
    Roots {
        /// So the destination may be its new name.
        one_file: bool,
    },
    /// Entries, directories before what they contain.
    Entries(Vec<Entry>),
    /// There are no more.
    Walked {
        /// All of them.
        entries: u64,
        /// Bytes of files.
        bytes: u64,
        /// Parts could not be read: nothing may be deleted.
        errors: u64,
    },
    /// Answers to entries.
    Wants(Vec<Want>),
    /// Bytes that may be sent, since the beginning.
    Credit {
        /// Their sum.
        total: u64,
    },
    /// All of a large file was sent, and it did not change meanwhile.
    Complete {
        /// The entry.
        n: u64,
        /// How often it was begun anew.
        attempt: u16,
        /// Its state.
        stamp: Stamp,
        /// Permission bits.
        mode: u32,
        /// Its hash, if the source read all of it.
        root: Option<CV>,
    },
    /// A path of the source that cannot be read: it is no entry.
    Unreadable {
        /// Below the destination.
        path: Vec<u8>,
        /// Why.
        text: String,
    },
    /// A file is given up.
    Abandon {
        /// The entry.
        n: u64,
        /// It kept changing; else it could not be read.
        changed: bool,
        /// Why.
        text: String,
    },
    /// An entry failed at the sink.
    Failed {
        /// The entry.
        n: u64,
        /// Its hash is wrong.
        wrong: bool,
        /// Why.
        text: String,
    },
    /// A path at the sink that is, or would be, deleted.
    Deleted(Vec<u8>),
    /// All is done.
    Finished(Summary),
    /// The transfer ends early.
    Stop {
        /// Why, by kind.
        reason: Reason,
        /// Why, in words.
        text: String,
    },
    /// Still here.
    Ping,
    /// The last message of the source.
    Bye,
    /// To the source: no faster from now on.
    Rate {
        /// Bits per second, all streams together; `None`: as the network allows.
        bps: Option<u64>,
    },
    /// To a source that makes its data connections itself.
    Streams {
        /// So many; `None`: as many as bring something.
        count: Option<u16>,
    },
    /// From such a source, to the head: its progress.
    Report {
        /// Entries that need nothing any more.
        entries_done: u64,
        /// Bytes of files that need not be sent any more.
        bytes_done: u64,
        /// Of those, sent in this run.
        bytes_sent: u64,
        /// Data connections.
        streams: u64,
        /// Rate that the path was seen to carry, and rate of the last round trip, bytes per second.
        path: (u64, u64),
    },
    /// To a source that is one of several: the others do not share its path's narrowest link.
    Apart,
    /// And a failure.
    Trouble {
        /// A data connection; else an entry.
        stream: Option<u16>,
        /// Below the destination.
        path: Vec<u8>,
        /// Why.
        text: String,
    },
    /// To the source: this stream ends when all that it has sent is acknowledged.
    Retire {
        /// Its number.
        stream: u16,
    },
    /// The sink's disk is full: it waits for room.
    Full {
        /// What is missing.
        text: String,
    },
    /// A file is at the destination, if that was asked for.
    Hash {
        /// Below the destination.
        path: Vec<u8>,
        /// Its hash.
        root: CV,
    },
    /// To the source of one of several sessions: more of a file that all of them carry.
    More {
        /// The entry.
        n: u64,
        /// Of it.
        ranges: Vec<(u64, u64)>,
        /// There is no more.
        last: bool,
    },
}

fn decode<M: serde::de::DeserializeOwned>(body: &[u8]) -> Result<M, WireError> {
    let (message, rest) = postcard::take_from_bytes(body).map_err(WireError::Malformed)?;
    match rest.len() {
        0 => Ok(message),
        more => Err(WireError::Trailing(more)),
    }
}

impl Intent {
    /// For the handshake.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes it")
    }

    /// Reads the output of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`WireError::Malformed`], [`WireError::Trailing`].
    pub fn decode(intent: &[u8]) -> Result<Self, WireError> {
        decode(intent)
    }
}

impl Options {
    fn check(&self) -> Result<(), WireError> {
        most(self.filters.len(), "filters", MOST_PATTERNS)?;
        for (_, pattern) in &self.filters {
            most(pattern.len(), "bytes of a pattern", MOST_PATH)?;
        }
        let streams = usize::from(self.streams);
        if streams == 0 || streams > MOST_STREAMS {
            return Err(WireError::Beyond {
                what: "streams",
                limit: MOST_STREAMS as u64,
            });
        }
        let good =
            |chunk: u64| chunk.is_power_of_two() && (LEAST_BITE..=MOST_CHUNK).contains(&chunk);
        match self.chunk.is_none_or(good) {
            true => Ok(()),
            false => Err(WireError::Beyond {
                what: "a chunk",
                limit: MOST_CHUNK,
            }),
        }
    }
}

impl Message {
    /// A frame's body.
    ///
    /// # Errors
    /// [`WireError::Beyond`] for a message that is too large.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let body = postcard::to_stdvec(self).map_err(WireError::Malformed)?;
        most(body.len(), "bytes of a message", MOST_MESSAGE)?;
        Ok(body)
    }

    /// Decodes the output of [`encode`](Self::encode). Its memory is bounded by the body's
    /// length.
    ///
    /// # Errors
    /// All of [`WireError`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        most(body.len(), "bytes of a message", MOST_MESSAGE)?;
        let message: Self = decode(body)?;
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), WireError> {
        match self {
            Self::Start(start) => {
                most(start.paths.len(), "paths", MOST_PATTERNS)?;
                for path in &start.paths {
                    most(path.len(), "bytes of a path", MOST_PATH)?;
                    if path.is_empty() || path.contains(&0) {
                        return Err(WireError::Frame("a path that is none"));
                    }
                }
                let paths = match start.direction {
                    Direction::Push => start.paths.len() == 1,
                    Direction::Pull | Direction::Across => !start.paths.is_empty(),
                };
                if !paths {
                    return Err(WireError::Frame("a destination, or sources"));
                }
                start.options.check()
            }
            Self::Entries(entries) => {
                most(entries.len(), "entries", MOST_ENTRIES)?;
                entries.iter().try_for_each(Entry::check)
            }
            Self::Wants(wants) => {
                most(wants.len(), "answers", MOST_ENTRIES)?;
                wants.iter().try_for_each(|want| match &want.wanted {
                    Wanted::Ranges(ranges) => most(ranges.len(), "ranges", MOST_RANGES),
                    Wanted::Failed(text) => most(text.len(), "bytes of text", MOST_TEXT),
                    Wanted::Nothing => Ok(()),
                })
            }
            Self::More { ranges, .. } => most(ranges.len(), "ranges", MOST_RANGES),
            Self::Complete { stamp, .. } => stamp.check(),
            Self::Ready(ready) => {
                if let Access::Port {
                    address: Some(address),
                    ..
                } = &ready.access
                {
                    most(address.len(), "bytes of an address", MOST_TEXT)?;
                }
                most(ready.host.len(), "bytes of a name", MOST_TEXT)
            }
            Self::Streams { count: Some(count) } => {
                most(usize::from(*count), "streams", MOST_STREAMS)
            }
            Self::Unreadable { path, text } | Self::Trouble { path, text, .. } => {
                most(path.len(), "bytes of a path", 2 * MOST_PATH)?;
                most(text.len(), "bytes of text", MOST_TEXT)
            }
            Self::Deleted(path) | Self::Hash { path, .. } => {
                most(path.len(), "bytes of a path", MOST_PATH)
            }
            Self::Full { text } => most(text.len(), "bytes of text", MOST_TEXT),
            Self::Abandon { text, .. } | Self::Failed { text, .. } | Self::Stop { text, .. } => {
                most(text.len(), "bytes of text", MOST_TEXT)
            }
            _ => Ok(()),
        }
    }
}
