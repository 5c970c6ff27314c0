// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a policy comes from text.

use serde::{Deserialize, Deserializer};

use crate::error::PolicyError;
use crate::parse;
use crate::policy::Policy;

impl Policy {
    /// Reads a policy from TOML text; `file` is the name for messages.
    ///
    /// # Errors
    /// [`PolicyError::Invalid`] with every problem found, each with line,
    /// column, key and the right form.
    pub fn parse(text: &str, file: &str) -> Result<Self, PolicyError> {
        parse::policy(text).map_err(|problems| PolicyError::Invalid {
            file: file.to_owned(),
            problems,
        })
    }
}

/// A policy inside another document (an experiment, a message): the same rules
/// as in a file of its own, so that there is one reader of policies.
impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let table = toml::Table::deserialize(deserializer)?;
        let text = toml::to_string(&table).map_err(D::Error::custom)?;
        parse::policy(&text).map_err(|problems| {
            let lines: Vec<_> = problems.iter().map(|p| p.without_place()).collect();
            D::Error::custom(lines.join("; "))
        })
    }
}
