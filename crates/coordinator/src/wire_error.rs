// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that break the protocol.

/// Longest name of a group or host, bytes.
pub const MOST_NAME: usize = 64;

/// A message that cannot be read or must not be sent.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// More than a frame holds.
    #[error("a message of {length} bytes is larger than {most}")]
    Length {
        /// Its own.
        length: usize,
        /// Allowed.
        most: usize,
    },
    /// Bytes that are no message.
    #[error("cannot decode a message: {0}")]
    Malformed(#[source] postcard::Error),
    /// A message, and more.
    #[error("{0} bytes follow a message in its frame")]
    Trailing(usize),
    /// Readable, but beyond a limit.
    #[error("{what} beyond the limit of {limit}")]
    Beyond {
        /// The item.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A name that would garble a log or a terminal.
    #[error("{0:?} is not a name: write 1 to {MOST_NAME} letters, digits and . _ - : @")]
    Name(String),
}
