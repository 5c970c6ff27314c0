// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What coordinator and clients say to each other.
//!
//! A frame is a length of four bytes, little-endian, then a byte with the protocol's
//! version and a message in postcard's encoding, then a tag where the channel has no
//! other protection ([`paceline_security::Seal`]). The server speaks first:
//!
//! ```text
//! server                                    client
//! Hello: its nonce, whether it wants a token
//!                                           Join: role, group, nonce, proof of the token
//! Welcome: its own proof          or Refused
//! Poll n                                                          a member, each round
//!                                           Report n: its streams
//! Caps n: windows, lease
//!                                           Request n             status, set
//! Answer n
//!                                           Leave
//! ```
//!
//! Whatever is not expected ends the connection.

use std::time::Duration;

use paceline_security::{Nonce, Proof, Seal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::local::{Cap, StreamSample};
use crate::Error;

/// Of messages and frames. Another one is refused.
pub const VERSION: u8 = 1;
/// Largest frame, bytes: 4,096 streams of 100 bytes, and room.
pub const MOST_FRAME: usize = 512 * 1024;
/// Most streams in a report.
pub const MOST_STREAMS: usize = 4096;
/// Longest name of a group or host, bytes.
pub const MOST_NAME: usize = 64;

/// What a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Reports streams and bounds them.
    Member,
    /// Asks and sets.
    Control,
}

impl Role {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Control => "control",
        }
    }
}

/// What control asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Everything, or one group, as JSON.
    Status {
        /// Its name.
        group: Option<String>,
    },
    /// Another algorithm, from the next round on.
    Set {
        /// For one group, or for all that there are and will be.
        group: Option<String>,
        /// See [`crate::algorithm::Choice`].
        algorithm: String,
    },
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The server's first.
    Hello {
        /// The server's.
        nonce: Nonce,
        /// Whether a proof is wanted.
        token: bool,
    },
    /// The client's first.
    Join {
        /// What it wants to be.
        role: Role,
        /// A member's group; empty for control.
        group: String,
        /// Its host's name, for `status`.
        host: String,
        /// The client's.
        nonce: Nonce,
        /// Zeros if none is wanted.
        proof: Proof,
    },
    /// The client is in.
    Welcome {
        /// The server knows the token, too; zeros if none is wanted.
        proof: Proof,
    },
    /// The last message of a server that closes the connection.
    Refused {
        /// Whether trying again is of no use.
        for_good: bool,
        /// Why.
        text: String,
    },
    /// A round begins: report.
    Poll {
        /// Its number, which only grows.
        round: u64,
    },
    /// A member's streams.
    Report {
        /// The poll that is answered.
        round: u64,
        /// When they were looked at, microseconds since the connection began.
        taken_us: u64,
        /// All of the group on this host.
        streams: Vec<StreamSample>,
    },
    /// The windows of a member's streams.
    Caps {
        /// The round.
        round: u64,
        /// How long they hold, milliseconds.
        lease_ms: u32,
        /// One for each stream.
        caps: Vec<Cap>,
    },
    /// Control asks.
    Request {
        /// Which the answer repeats.
        number: u64,
        /// What.
        request: Request,
    },
    /// And is answered.
    Answer {
        /// The request's.
        number: u64,
        /// JSON, or why not.
        result: Result<String, String>,
    },
    /// A client ends, and says so.
    Leave,
}

/// A message that cannot be read or must not be sent.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// More than a frame holds.
    #[error("a message of {length} bytes is not between 2 and {most}")]
    Length {
        /// Its own.
        length: usize,
        /// Allowed.
        most: usize,
    },
    /// Another release.
    #[error("the other side speaks version {theirs} of the protocol, this one {VERSION}")]
    Version {
        /// As received.
        theirs: u8,
    },
    /// Bytes that are no message.
    #[error("a message cannot be read: {0}")]
    Malformed(#[source] postcard::Error),
    /// A message, and more.
    #[error("{0} bytes follow a message in its frame")]
    Trailing(usize),
    /// Readable, but beyond a limit.
    #[error("{what} beyond the limit of {limit}")]
    Beyond {
        /// What is.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A name that would make a mess of a log or a terminal.
    #[error("{0:?} is no name: 1 to {MOST_NAME} letters, digits and . _ - : @")]
    Name(String),
}

/// A name of a group or host.
///
/// # Errors
/// [`WireError::Name`].
pub fn check_name(name: &str) -> Result<(), WireError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-:@".contains(c);
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(good) {
        return Err(WireError::Name(name.chars().take(MOST_NAME).collect()));
    }
    Ok(())
}

impl Message {
    /// The frame's body, without length and tag.
    ///
    /// # Errors
    /// [`WireError::Length`] for a message that is too large.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), WireError> {
        into.clear();
        into.push(VERSION);
        *into = postcard::to_extend(self, std::mem::take(into)).map_err(WireError::Malformed)?;
        if into.len() > MOST_FRAME {
            return Err(WireError::Length {
                length: into.len(),
                most: MOST_FRAME,
            });
        }
        Ok(())
    }

    /// Reads what [`encode`](Self::encode) wrote. What memory it takes is bounded by the
    /// body's length.
    ///
    /// # Errors
    /// All of [`WireError`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let (version, body) = body.split_first().ok_or(WireError::Length {
            length: 0,
            most: MOST_FRAME,
        })?;
        if *version != VERSION {
            return Err(WireError::Version { theirs: *version });
        }
        let (message, rest) =
            postcard::take_from_bytes::<Self>(body).map_err(WireError::Malformed)?;
        if !rest.is_empty() {
            return Err(WireError::Trailing(rest.len()));
        }
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), WireError> {
        let many = |length: usize, what| match length <= MOST_STREAMS {
            true => Ok(()),
            false => Err(WireError::Beyond {
                what,
                limit: MOST_STREAMS,
            }),
        };
        match self {
            Self::Report { streams, .. } => many(streams.len(), "streams in a report"),
            Self::Caps { caps, .. } => many(caps.len(), "windows for a host"),
            Self::Join {
                role, group, host, ..
            } => {
                check_name(host)?;
                match role {
                    Role::Member => check_name(group),
                    Role::Control => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Messages that come in.
#[derive(Debug)]
pub struct Reader<R>(paceline_security::Reader<R>);

/// And those that go out.
#[derive(Debug)]
pub struct Writer<W> {
    frames: paceline_security::Writer<W>,
    body: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Short messages only, until [`trust`](Self::trust).
    pub fn new(stream: R) -> Self {
        Self(paceline_security::Reader::new(stream))
    }

    /// From now on full frames, with tags if there is a seal.
    pub fn trust(&mut self, seal: Option<Seal>) {
        self.0.trust(seal, MOST_FRAME);
    }

    /// The next message. Not to be called again after an error, nor after it was
    /// dropped before it ended.
    ///
    /// # Errors
    /// [`Error::Frame`], [`Error::Wire`].
    pub async fn next(&mut self, patience: Duration) -> Result<Message, Error> {
        Ok(Message::decode(self.0.next(patience).await?)?)
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Without tags, until [`trust`](Self::trust).
    pub fn new(stream: W) -> Self {
        Self {
            frames: paceline_security::Writer::new(stream),
            body: Vec::new(),
        }
    }

    /// From now on with tags, if there is a seal.
    pub fn trust(&mut self, seal: Option<Seal>) {
        self.frames.trust(seal);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Frame`], [`Error::Wire`].
    pub async fn send(&mut self, message: &Message, patience: Duration) -> Result<(), Error> {
        message.encode(&mut self.body)?;
        Ok(self.frames.send(&self.body, patience).await?)
    }
}
