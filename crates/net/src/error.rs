// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why something of the network could not be made or read.

use std::io;

/// Why something of the network could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// The action that failed.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
    /// `ip`, `tc` or `nft` refused.
    #[error("{tool} refused ({status}): {message}\nits input was:\n{input}")]
    Tool {
        /// Its name.
        tool: &'static str,
        /// Exit status.
        status: std::process::ExitStatus,
        /// Its standard error.
        message: String,
        /// Its standard input.
        input: String,
    },
    /// A connection has another congestion control than the one that it should have.
    #[error("a connection has the congestion control {found} instead of {expected}: see the output of paceline doctor on this kernel")]
    Congestion {
        /// The socket's.
        found: String,
        /// The one that was expected.
        expected: String,
    },
}

/// Adds the failed action to an error of the system.
pub trait Doing<T> {
    /// `what` stands before the error's own text, as in "opening a socket".
    ///
    /// # Errors
    /// [`Error::System`] for the error that there was.
    fn doing(self, what: impl Into<String>) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, Error> {
        self.map_err(|source| Error::System {
            doing: what.into(),
            source,
        })
    }
}

impl<T> Doing<T> for nix::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, Error> {
        self.map_err(|errno| Error::System {
            doing: what.into(),
            source: errno.into(),
        })
    }
}
