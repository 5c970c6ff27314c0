// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors between coordinator and clients.

use std::io;
use std::path::PathBuf;

use paceline_security::{Error as SecurityError, FrameError};

use crate::wire_error::WireError;

/// All errors of this crate's services.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Authorization and authentication.
    #[error(transparent)]
    Security(SecurityError),
    /// The connection.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The messages.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message out of turn.
    #[error("unexpected message: {0}")]
    Unexpected(&'static str),
    /// The server refuses this client.
    #[error("the coordinator refused: {text}")]
    Refused {
        /// Trying again is of no use.
        for_good: bool,
        /// Its reason.
        text: String,
    },
    /// A limit of the server.
    #[error("the coordinator is full: {what} (limit {limit})")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// A group that is not served here.
    #[error("this coordinator does not serve group {group:?}: it serves {}", .served.join(", "))]
    NoSuchGroup {
        /// As requested.
        group: String,
        /// Those that are.
        served: Vec<String>,
    },
    /// No coordinator within the user's timeout.
    #[error("no coordinator was reachable within {patience:?}: {last}")]
    GivenUp {
        /// How long it was looked for.
        patience: std::time::Duration,
        /// Why the last try failed.
        last: Box<Error>,
    },
    /// An address that cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// As given.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// No process listens on a Unix socket.
    #[error(
        "{path}: no coordinator listens on this socket: start one with paceline coordinate serve"
    )]
    Absent {
        /// The socket.
        path: String,
    },
    /// An address that cannot be reached.
    #[error("cannot reach the coordinator at {address}: {source}")]
    Connect {
        /// As given.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Text that is no address.
    #[error("{address:?} is not an address: expected HOST:PORT, [IPV6]:PORT or a socket's path with a slash")]
    Address {
        /// As given.
        address: String,
    },
    /// The log of rounds.
    #[error("cannot write the log {path}: {source}", path = path.display())]
    Log {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A request that was answered with an error.
    #[error("{0}")]
    Answer(String),
}

impl From<SecurityError> for Error {
    fn from(error: SecurityError) -> Self {
        match error {
            SecurityError::Frame(error) => Self::Frame(error),
            SecurityError::NoListener { path } => Self::Absent { path },
            SecurityError::Refused { for_good, text } => Self::Refused { for_good, text },
            error => Self::Security(error),
        }
    }
}

impl Error {
    /// The kind of a refusal, for `status`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Security(SecurityError::Proof) => "wrong token",
            Self::Security(SecurityError::TokenMissing(_)) => "no token",
            Self::Security(SecurityError::Handshake(_)) => "TLS",
            Self::Security(SecurityError::NotAuthorized { .. }) => "another user",
            Self::Security(SecurityError::Version { .. }) => "another version",
            Self::Security(SecurityError::Purpose { .. }) => "another service",
            Self::Security(SecurityError::Displaced) => "no proof",
            Self::Security(SecurityError::Left) => "left at the greeting",
            Self::Security(SecurityError::Malformed | SecurityError::Unexpected(_)) => {
                "protocol error"
            }
            Self::Security(_) => "not allowed",
            Self::Frame(FrameError::Slow(_)) => "too slow",
            Self::Frame(FrameError::Seal) => "frame not authentic",
            Self::Frame(_) | Self::Wire(_) | Self::Unexpected(_) => "protocol error",
            Self::Full { .. } => "full",
            Self::NoSuchGroup { .. } => "group not served",
            _ => "other",
        }
    }
}

/// With this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
