// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Problems in a file, and their places.

use std::fmt;

use crate::units::quoted;

/// One step from a table or list to an item in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    /// From 0.
    Item(usize),
}

/// One thing that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The full key, as `startup.breaker.loss`; empty if the text is not TOML.
    pub key: String,
    /// The problem and the right form: one line.
    pub what: String,
    pub(crate) path: Vec<Step>,
}

impl Problem {
    /// Key and message, for texts whose lines the reader has not seen.
    pub fn without_place(&self) -> String {
        if self.key.is_empty() {
            self.what.clone()
        } else {
            format!("{}: {}", self.key, self.what)
        }
    }
}

/// `LINE:COLUMN: KEY: MESSAGE`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.without_place())
    }
}

/// All that is wrong in a file, in the order of its text. There is at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file's name for messages.
    pub file: String,
    /// Never empty.
    pub list: Vec<Problem>,
}

/// A line `FILE:LINE:COLUMN: KEY: MESSAGE` for each problem.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.list.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:{problem}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A path as a dotted key. Items of lists have no names: their line says which one it is.
pub(crate) fn dotted(path: &[Step]) -> String {
    let keys = path.iter().filter_map(|step| match step {
        Step::Key(key) => Some(bare_or_quoted(key)),
        Step::Item(_) => None,
    });
    keys.collect::<Vec<_>>().join(".")
}

/// A key as messages show it: in quotes where it would be hard to read without them.
pub(crate) fn bare_or_quoted(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let key = quoted(key);
    if !key.is_empty() && key.chars().all(bare) {
        key
    } else {
        format!("{key:?}")
    }
}
