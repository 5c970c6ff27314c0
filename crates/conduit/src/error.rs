// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of a transfer.

use std::io;

use paceline_security::{Error as SecurityError, FrameError};

use paceline_transfer::read::FilterError;
use paceline_transfer::store::{is_broken, is_full};
use paceline_transfer::wire::{Reason, WireError};

/// Why a transfer ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Authentication of the other side.
    #[error(transparent)]
    Security(SecurityError),
    /// The connection.
    #[error("the connection to the other side broke: {0}")]
    Frame(#[from] FrameError),
    /// A message of the other side.
    #[error("the other side breaks the protocol: {0}")]
    Wire(#[from] WireError),
    /// A message out of turn.
    #[error("the other side breaks the protocol: {0}")]
    Unexpected(&'static str),
    /// The other side ends the transfer.
    #[error("the other side: {text}")]
    Stopped {
        /// By kind.
        reason: Reason,
        /// In words.
        text: String,
    },
    /// This side ends it.
    #[error("{text}")]
    Stop {
        /// By kind.
        reason: Reason,
        /// In words.
        text: String,
    },
    /// An invalid pattern.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// An address where listening or connecting failed.
    #[error("{what} {address}: {source}")]
    Address {
        /// The attempt.
        what: &'static str,
        /// The address.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Text that is no address.
    #[error("{address:?} is not an address: expected {expected}")]
    NoAddress {
        /// The text.
        address: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A file or directory.
    #[error("{path}: {source}")]
    Io {
        /// Its path.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// ssh did not start the other side.
    #[error("{0}")]
    Ssh(String),
    /// A data connection is of no use.
    #[error("it damages all that it carries")]
    Damaged,
    /// All data connections are gone.
    #[error("all data connections broke, the last one: {0}")]
    NoStreams(String),
}

impl Error {
    /// This side ends the transfer.
    pub fn stop(reason: Reason, text: impl Into<String>) -> Self {
        Self::Stop {
            reason,
            text: text.into(),
        }
    }

    /// By kind: the command's exit status.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Stopped { reason, .. } | Self::Stop { reason, .. } => *reason,
            Self::Filter(_) | Self::NoAddress { .. } => Reason::Usage,
            Self::Security(SecurityError::File { .. }) => Reason::Usage,
            Self::Security(SecurityError::Left) => Reason::Interrupted,
            Self::Security(_) => Reason::Refused,
            Self::Wire(_) | Self::Unexpected(_) => Reason::Refused,
            Self::Frame(_) | Self::Address { .. } | Self::NoStreams(_) | Self::Damaged => {
                Reason::Interrupted
            }
            Self::Ssh(_) => Reason::Interrupted,
            Self::Io { source, .. } => match is_full(source) || is_broken(source) {
                true => Reason::Full,
                false => Reason::Usage,
            },
        }
    }
}

impl From<SecurityError> for Error {
    fn from(error: SecurityError) -> Self {
        match error {
            SecurityError::Frame(error) => Self::Frame(error),
            error => Self::Security(error),
        }
    }
}

/// With this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
