// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol of coordinator and clients.
//!
//! A connection begins with the handshake of [`paceline_security`], in which the client
//! names its role ([`Join`]). From then on each frame has one [`Message`] in
//! postcard's encoding:
//!
//! ```text
//! server                                    client
//! Poll n                                                          a member, each round
//!                                           Report n: its streams
//! Caps n: windows, lease
//!                                           Request n             status, set
//! Answer n
//!                                           Leave
//! Refused                                                         the server's last
//! ```
//!
//! An unexpected message ends the connection.

use std::time::Duration;

use paceline_security::{self as security, Protection, Purpose, Service, Token};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::local::{Cap, StreamSample};
pub use crate::wire_error::{WireError, MOST_NAME};
use crate::Error;

/// Of the messages. 1 had the handshake among them.
pub const VERSION: u8 = 2;
/// Largest message, bytes: 4,096 streams of 100 bytes, and room.
pub const MOST_FRAME: usize = 512 * 1024;
/// The version of the protocol.
pub const SERVICE: Service = Service {
    purpose: Purpose::Coordinate,
    version: VERSION,
    most_frame: MOST_FRAME,
};
/// Most streams in a report.
pub const MOST_STREAMS: usize = 4096;

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Reports streams and bounds them.
    Member,
    /// Asks and sets.
    Control,
}

/// A client's intent, within the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The role that it requests.
    pub role: Role,
    /// A member's group; empty for control.
    pub group: String,
    /// Its host's name, for `status`.
    pub host: String,
}

/// A control request.
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

fn decode<M: serde::de::DeserializeOwned>(body: &[u8]) -> Result<M, WireError> {
    let (message, rest) = postcard::take_from_bytes(body).map_err(WireError::Malformed)?;
    match rest.len() {
        0 => Ok(message),
        more => Err(WireError::Trailing(more)),
    }
}

impl Join {
    /// The encoding within the handshake.
    ///
    /// # Errors
    /// [`WireError::Name`] for a name that the server would not take.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        self.check()?;
        postcard::to_stdvec(self).map_err(WireError::Malformed)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`WireError::Malformed`], [`WireError::Trailing`], [`WireError::Name`].
    pub fn decode(intent: &[u8]) -> Result<Self, WireError> {
        let join: Self = decode(intent)?;
        join.check()?;
        Ok(join)
    }

    fn check(&self) -> Result<(), WireError> {
        check_name(&self.host)?;
        match self.role {
            Role::Member => check_name(&self.group),
            Role::Control => Ok(()),
        }
    }
}

impl Message {
    /// A frame's body.
    ///
    /// # Errors
    /// [`WireError::Length`] for a message that is too large.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), WireError> {
        into.clear();
        *into = postcard::to_extend(self, std::mem::take(into)).map_err(WireError::Malformed)?;
        if into.len() > MOST_FRAME {
            return Err(WireError::Length {
                length: into.len(),
                most: MOST_FRAME,
            });
        }
        Ok(())
    }

    /// Decodes the output of [`encode`](Self::encode). Its memory is bounded by the body's
    /// length.
    ///
    /// # Errors
    /// All of [`WireError`] but [`WireError::Length`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let message: Self = decode(body)?;
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
            _ => Ok(()),
        }
    }
}

/// Messages that come in.
#[derive(Debug)]
pub struct Reader<R>(security::Reader<R>);

/// And those that go out.
#[derive(Debug)]
pub struct Writer<W> {
    frames: security::Writer<W>,
    body: Vec<u8>,
}

/// The client's side of a new connection, until it is in.
///
/// # Errors
/// [`Error::Wire`] for names that the server would not take, and the handshake's.
pub async fn enter<R, W>(
    (read, write): (R, W),
    token: Option<&Token>,
    protection: &Protection,
    join: &Join,
) -> Result<(Reader<R>, Writer<W>), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let intent = join.encode()?;
    let (mut reader, mut writer) = (security::Reader::new(read), security::Writer::new(write));
    security::join(
        &mut reader,
        &mut writer,
        &SERVICE,
        token,
        protection,
        &intent,
    )
    .await?;
    Ok((Reader::new(reader), Writer::new(writer)))
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// After the handshake.
    pub fn new(frames: security::Reader<R>) -> Self {
        Self(frames)
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
    /// After the handshake.
    pub fn new(frames: security::Writer<W>) -> Self {
        let body = Vec::new();
        Self { frames, body }
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
