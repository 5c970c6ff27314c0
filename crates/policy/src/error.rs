// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of policies.

use std::io;

use paceline_input::{did_you_mean, Problems};
use thiserror::Error;

/// Why there is no policy.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// The text names neither a preset nor a path.
    #[error(
        "there is no preset {name:?}{}; presets are {}; give a file by its path (./{name} or {name}.toml)",
        did_you_mean(*nearest),
        known.join(", ")
    )]
    UnknownPreset {
        name: String,
        nearest: Option<&'static str>,
        /// All presets.
        known: Vec<&'static str>,
    },
    /// The file cannot be read.
    #[error("{file}: cannot read the policy: {reason}")]
    Read { file: String, reason: io::Error },
    /// The file is not text, or too long to be a policy.
    #[error("{file}: not a policy: {reason}")]
    NotText { file: String, reason: NotText },
    /// Keys that were given another value are no valid policy with the rest of it.
    #[error("{}", .0.join("\n"))]
    Settings(Vec<String>),
    /// The text is no valid policy.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// Why a file is no text of a policy.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NotText {
    #[error("longer than 64 KiB")]
    TooLong,
    #[error("not UTF-8")]
    NotUtf8,
}
