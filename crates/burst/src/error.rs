// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why packets cannot be counted.

use std::io;

use paceline_bpf::permission::NotPermitted;
use paceline_bpf::refusal;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why packets cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither root nor the capabilities that loading BPF takes.
    #[error(transparent)]
    NotPermitted(#[from] NotPermitted),

    /// No such interface in this network namespace.
    #[error(transparent)]
    NoInterface(#[from] paceline_bpf::interface::Error),

    /// The request is not possible at this interface.
    #[error("{interface}: {why}")]
    Interface {
        /// Its name.
        interface: String,
        /// The obstacle, and the right form.
        why: String,
    },

    /// libbpf or the verifier refused.
    #[error("{action}: {source}{}", refusal::hint(source))]
    Bpf {
        /// The action that failed.
        action: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },

    /// A system call failed.
    #[error("{action}: {source}")]
    System {
        /// The action that failed.
        action: String,
        /// The system's error.
        source: io::Error,
    },

    /// The embedded object lacks a part: a defect of the build.
    #[error("the embedded BPF object has no {what}")]
    Incomplete {
        /// Name of the missing map or program.
        what: &'static str,
    },
}

impl Error {
    /// An I/O error with the failed action.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Error::System {
            action: action.into(),
            source,
        }
    }

    /// A libbpf error with the failed action.
    pub(crate) fn bpf(action: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Error::Bpf {
            action: action.into(),
            source,
        }
    }
}
