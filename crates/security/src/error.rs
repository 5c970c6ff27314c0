// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the handshake and of frames.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::purpose::{Purpose, VERSION};

/// A wrong key, certificate, socket or peer, or a failed handshake.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be used.
    #[error("{path}: {what}")]
    File {
        /// Which.
        path: String,
        /// Why not, and what would be right.
        what: String,
    },
    /// TLS refuses the settings.
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
    /// An invalid certificate, or no TLS at all.
    #[error("TLS handshake: {0}")]
    Handshake(#[source] io::Error),
    /// Settings that would admit any client.
    #[error("{0}")]
    Open(String),
    /// A process of another user.
    #[error("the process at the other end belongs to user {user}, which is not authorized")]
    NotAuthorized {
        /// Its user's number.
        user: u32,
    },
    /// The proof is invalid: another token, purpose or connection.
    #[error("the tokens of the two sides differ")]
    Proof,
    /// A token is required, and one side has none.
    #[error("{0}")]
    TokenMissing(&'static str),
    /// Other connections took the place of an unauthenticated one.
    #[error("too many unauthenticated connections: this was the oldest")]
    Displaced,
    /// The other side is another service.
    #[error("the other side uses service {theirs}, this side {ours}: check the address")]
    Purpose {
        /// The other side's.
        theirs: Purpose,
        /// This side's.
        ours: Purpose,
    },
    /// The other side is another release.
    #[error(
        "the other side speaks version {theirs} of {of}, this one version {ours}: \
         use one release of Paceline on both"
    )]
    Version {
        /// The handshake, or a service's name.
        of: &'static str,
        /// The other side's.
        theirs: u8,
        /// This side's.
        ours: u8,
    },
    /// A client hung up after the greeting, as version 1 of the handshake does.
    #[error(
        "the other side closed during the greeting: it does not speak version {VERSION} of \
         the handshake, or it only probed the port"
    )]
    Left,
    /// The server refused this client.
    #[error("the other side refused: {text}")]
    Refused {
        /// Trying again is of no use.
        for_good: bool,
        /// The server's reason.
        text: String,
    },
    /// Bytes that are no message of the handshake.
    #[error("the other side does not use the handshake of Paceline")]
    Malformed,
    /// A message out of turn.
    #[error("unexpected message: {0}")]
    Unexpected(&'static str),
    /// getrandom(2) failed.
    #[error("getrandom(2) failed")]
    Random,
    /// snow reports an error other than a failed proof.
    #[error("Noise: {0}")]
    Noise(#[source] snow::Error),
    /// No process listens at a Unix socket.
    #[error("{path}: no process listens on this socket")]
    NoListener {
        /// The socket.
        path: String,
    },
    /// The connection.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// A frame that does not come, cannot be sent, or is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Nothing, or half a frame, and then the end.
    #[error("the other side closed the connection")]
    Closed,
    /// The connection broke.
    #[error("connection: {0}")]
    Io(#[source] io::Error),
    /// Not a frame of Paceline, or an attack.
    #[error("a frame has {length} bytes: expected {least} to {most}")]
    Length {
        /// As announced.
        length: usize,
        /// The shortest that is allowed.
        least: usize,
        /// The longest that is allowed.
        most: usize,
    },
    /// An encrypted frame was changed, or is out of order.
    #[error("a frame is not authentic: it was changed, or is not the next one")]
    Seal,
    /// It took too long.
    #[error("no answer within {0:?}")]
    Slow(Duration),
}

/// With this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn file_error(path: &Path, what: impl Into<String>) -> Error {
    Error::File {
        path: path.display().to_string(),
        what: what.into(),
    }
}
