// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is no scenario.

use std::path::PathBuf;

use paceline_input::Problems;

/// Why a scenario was refused.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It could not be read.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    Invalid(#[from] Problems),
    /// A name on the command line is not in it.
    #[error("the scenario has no {what} \"{asked}\"; it has {known}")]
    Unknown {
        /// `variant`, `axis` or `value`.
        what: &'static str,
        /// The name on the command line.
        asked: String,
        /// The names that it has.
        known: String,
    },
}
