// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong in a scenario file, and where.

use std::path::{Path, PathBuf};

/// Why a scenario was refused.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It could not be read.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}: {key}: {problem}")]
    Invalid {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// The key or table.
        key: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// What was asked for on the command line is not in it.
    #[error("the scenario has no {what} \"{asked}\"; it has {known}")]
    Unknown {
        /// `variant`, `axis` or `value`.
        what: &'static str,
        /// What was asked for.
        asked: String,
        /// What there is.
        known: String,
    },
}

/// Finds places in a file's text.
#[derive(Debug, Clone)]
pub struct Place {
    file: String,
    text: String,
}

impl Place {
    pub(super) fn new(path: &Path, text: &str) -> Self {
        Place {
            file: path.display().to_string(),
            text: text.to_owned(),
        }
    }

    /// An error of the TOML reader, which says where it is.
    pub(super) fn syntax(&self, error: &toml::de::Error) -> ScenarioError {
        let at = error.span().map_or(0, |span| span.start);
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let content = self.text.lines().nth(line).unwrap_or_default();
        let key = content.split('=').next().unwrap_or_default().trim();
        ScenarioError::Invalid {
            file: self.file.clone(),
            line: line + 1,
            key: if key.is_empty() { "file" } else { key }.to_owned(),
            problem: error.message().replace('\n', " "),
        }
    }

    /// A problem with the key at a dotted path, such as `link.gateway.rate`: the line of
    /// the key, or of the table that would hold it.
    pub(super) fn wrong(&self, path: &str, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::Invalid {
            file: self.file.clone(),
            line: self.line_of(path),
            key: path.to_owned(),
            problem: problem.into(),
        }
    }

    fn line_of(&self, path: &str) -> usize {
        let mut best = (0, 1);
        let mut table = String::new();
        for (number, content) in (1..).zip(self.text.lines()) {
            let content = content.trim();
            let name = if content.starts_with('[') {
                table = content
                    .trim_matches(|c| c == '[' || c == ']')
                    .replace('"', "");
                table.clone()
            } else if let Some((key, _)) = content.split_once('=') {
                let key = key.trim().replace('"', "");
                match table.is_empty() {
                    true => key,
                    false => format!("{table}.{key}"),
                }
            } else {
                continue;
            };
            let fits = path == name
                || path
                    .strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.starts_with('.'));
            if fits && name.len() > best.0 {
                best = (name.len(), number);
            }
        }
        best.1
    }
}
