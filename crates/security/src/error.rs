// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong until both sides know each other, and with frames afterwards.

use std::io;
use std::path::Path;
use std::time::Duration;

/// What is wrong with keys, certificates, sockets, or with who uses them.
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
    /// TLS does not take what was given.
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
    /// A certificate that does not convince, or no TLS at all.
    #[error("TLS handshake: {0}")]
    Handshake(#[source] io::Error),
    /// Settings that leave a door open.
    #[error("{0}")]
    Open(String),
    /// A process of somebody else's.
    #[error("the process at the other end belongs to user {user}, which may not take part")]
    Stranger {
        /// Its user's number.
        user: u32,
    },
    /// The token was not proven.
    #[error("the token is not the same on both sides")]
    Proof,
    /// One side wants a token, the other has none.
    #[error("{0}")]
    TokenMissing(&'static str),
    /// Others wanted the place of a connection that had not proven anything.
    #[error("too many connections that prove nothing: this was the oldest")]
    Crowded,
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
    /// Not one of ours, or somebody who means harm.
    #[error("a frame of {length} bytes is not between 1 and {most}")]
    Length {
        /// As announced.
        length: usize,
        /// Allowed.
        most: usize,
    },
    /// Changed on its way, or sent before.
    #[error("a frame's tag is wrong: it was changed, or is not the next one")]
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
