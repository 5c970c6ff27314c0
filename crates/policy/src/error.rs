// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with a policy.

use std::fmt;
use std::io;

use thiserror::Error;

use paceline_input::units::{Time, UnitError};

/// Why there is no policy.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// Neither a preset nor a path.
    #[error(
        "there is no preset {name:?}{}; presets are {}; a file is given by its path (./{name} or {name}.toml)",
        did_you_mean(*.nearest),
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
    /// The text is no valid policy. One line for each problem, in the order of
    /// the file; there is at least one.
    #[error("{}", lines(file, problems))]
    Invalid {
        file: String,
        problems: Vec<Problem>,
    },
}

/// Why a file is no text of a policy.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NotText {
    #[error("longer than 64 KiB")]
    TooLong,
    #[error("not UTF-8")]
    NotUtf8,
}

/// One thing that is wrong in a policy's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The full key, as `startup.breaker.loss`; empty if the text is not TOML.
    pub key: String,
    /// What is wrong with it and what would be right.
    pub kind: ProblemKind,
}

impl Problem {
    /// Key and message, for texts whose lines the reader has not seen.
    pub(crate) fn without_place(&self) -> String {
        if self.key.is_empty() {
            self.kind.to_string()
        } else {
            format!("{}: {}", self.key, self.kind)
        }
    }
}

/// `LINE:COLUMN: KEY: MESSAGE`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.without_place())
    }
}

/// What is wrong with a key, and the right form.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProblemKind {
    #[error("not TOML: {0}")]
    Syntax(String),
    #[error("unknown key{}; known here: {}", did_you_mean(*.nearest), .known.join(", "))]
    UnknownKey {
        nearest: Option<&'static str>,
        known: &'static [&'static str],
    },
    #[error("not a key of this table: write it under [{table}]")]
    MisplacedKey { table: &'static str },
    #[error("missing: {right}")]
    Missing { right: &'static str },
    #[error("{found} does not fit: {right}")]
    WrongType {
        found: &'static str,
        right: &'static str,
    },
    #[error("{0}")]
    Unit(#[from] UnitError),
    #[error("{text:?} is not known{}; write one of {}", did_you_mean(*.nearest), quoted_list(.choices))]
    UnknownChoice {
        text: String,
        nearest: Option<&'static str>,
        choices: &'static [&'static str],
    },
    #[error("{value} is out of range: {least} to {most}")]
    OutOfRange {
        value: String,
        least: String,
        most: String,
    },
    #[error("{text:?} is not a name: 1 to {longest} of a-z A-Z 0-9 . _ -")]
    BadName { text: String, longest: usize },
    #[error(
        "not one line: leave out line breaks and control characters, at most {longest} characters"
    )]
    BadDescription { longest: usize },
    #[error("needs a wrapped algorithm, and base is \"keep\": write base = \"cubic\" (or \"reno\", \"bbr\")")]
    TargetWithoutBase,
    #[error("base \"bbr\" keeps no ssthresh to start from: write target = \"delivery-rate\", or base = \"cubic\"")]
    SsthreshOfBbr,
    #[error("has no effect with base \"bbr\", which the kernel takes for a stream in its first slow start: leave this out, or write base = \"cubic\"")]
    LinearOfBbr,
    #[error("has no effect while startup.target is off: write target = \"delivery-rate\" (or \"ssthresh\"), or leave this out")]
    NeedsTarget,
    #[error("has no effect with target \"ssthresh\", which remembers nothing: write target = \"delivery-rate\", or leave this out")]
    NeedsDeliveryRate,
    #[error("has no effect with base \"bbr\", which paces its own start: leave this out, or write base = \"cubic\"")]
    ClusteredOfBbr,
    #[error("has no effect without spacing.gap: write gap = \"64B\" (8 to 1023 bytes), or leave this out")]
    NeedsGap,
    #[error("says nothing without the interface's rate: write line_rate = \"1gbit\"")]
    NeedsLineRate,
    #[error("has no effect without rto.least: write least = \"tick\", or leave this out")]
    NeedsLeast,
    #[error(
        "comes to {sum} with rto.least, and the kernel takes {most} at most (a \"tick\" is up to 10ms): {}",
        jitter_advice(*.room)
    )]
    JitterTooLong {
        sum: Time,
        most: Time,
        /// What is left above `rto.least`.
        room: Time,
    },
}

fn jitter_advice(room: Time) -> String {
    if room == Time::default() {
        "lower rto.least, or leave this out".to_owned()
    } else {
        format!("write \"{room}\" or less")
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| {
        format!(", did you mean \"{nearest}\"?")
    })
}

fn quoted_list(choices: &[&str]) -> String {
    let quoted: Vec<_> = choices
        .iter()
        .map(|choice| format!("\"{choice}\""))
        .collect();
    quoted.join(", ")
}

fn lines(file: &str, problems: &[Problem]) -> String {
    let lines: Vec<_> = problems
        .iter()
        .map(|problem| format!("{file}:{problem}"))
        .collect();
    lines.join("\n")
}
