// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A problem of a user's TOML, with the place where it is.

use std::path::Path;

/// What is wrong in a file, and where: `FILE:LINE: KEY: PROBLEM`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}: {problem}")]
pub struct Located {
    /// The file.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// The key or table.
    pub key: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Located {
    /// An error of the TOML parser, with the line it points to and the key there.
    pub fn syntax(text: &str, path: &Path, error: &toml::de::Error) -> Self {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        let content = text.lines().nth(line - 1).unwrap_or_default();
        let key = content.split('=').next().unwrap_or_default().trim();
        Located {
            file: path.display().to_string(),
            line,
            key: if key.is_empty() {
                "file".to_owned()
            } else {
                key.to_owned()
            },
            problem: error.message().replace('\n', " "),
        }
    }
}

/// The line, from 1, of the byte at `offset`.
pub fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
