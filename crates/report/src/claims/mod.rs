// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sentences of an experiment that must hold.
//!
//! ```text
//! paceline/completion_s/1MB <= 1.10 * bound
//! paceline/completion_s/1MB <= 1.02 * best(cubic, cubic-no-idle-restart, bbr)
//! lfn/round_s/*             <= max(1.25 * bound, bound + 0.024)
//! paceline/completion_s/{100KB,1MB} <= 1.10 * bound
//! lfn/round_s/*@max         <= 0.100
//! a/goodput_bps             >= 0.85 * b/goodput_bps
//! geomean of lfn/completion_s/* <= 1.03 * bound
//! 95% of lfn/retransmitted_share/* <= 0.005
//! ```
//!
//! # Form
//!
//! `REFERENCE OPERATOR EXPRESSION`, where the operator is `<=`, `<`, `>=` or `>`.
//! Numbers are in the unit that the metric's name ends in, without a suffix.
//!
//! A reference is `VARIANT/METRIC` and means the median of the runs; `@min`,
//! `@max` and `@mean` after it mean the least, the greatest and the arithmetic
//! mean. On the right side, `VARIANT` alone means the metric of the left side,
//! `bound` means the bound of that metric, and `bound/METRIC` that of another.
//!
//! An expression has `+`, `-`, `*`, `/`, parentheses, and the functions `min`,
//! `max` and `best`: the least where less is better, the greatest of goodput,
//! fairness and speed-up. Names may contain `-` and `/`, so these two operators
//! and `+` need a space on each side.
//!
//! In the left reference `*` stands for any text and `{a,b}` for a choice. Each match is a
//! [`Hold`](crate::results::Hold) of its own, in the order of the choices and then of the
//! results. Wildcards in a reference on the right side are filled in with the matches of
//! those on the left side, in their order, all of them or none:
//! `lfn/round_s/* <= cubic/round_s/*` compares each with its namesake.
//!
//! Two forms make one [`Hold`](crate::results::Hold) of all that the left side matches, which
//! its text keeps as wildcards. `geomean of CLAIM` compares the geometric mean of the values
//! with that of their right sides. `N% of CLAIM` asks that CLAIM holds for so many of them;
//! its value is the share for which it does.
//!
//! # Value
//!
//! [`Hold::value`](crate::results::Hold::value) is the left side, divided by the measure of
//! the right side:
//! - right side a number times (or over) a quantity, `1.10 * bound`: left over
//!   that quantity, to be compared with the number;
//! - right side only numbers: the left side itself;
//! - else (sums, or functions of scaled quantities): left over the whole right
//!   side, to be compared with 1;
//! - where that divisor is zero: the left side itself.

mod evaluate;
mod parse;

pub use evaluate::{evaluate_all, EvaluateError};
pub use parse::{ParseError, Problem};

use std::ops::Range;

/// Why claims could not be judged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClaimError {
    /// The text is not a claim.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The claim does not fit the results.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
}

/// A claim, parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    text: String,
    over: Over,
    left: Reference,
    operator: Operator,
    right: Expression,
}

impl Claim {
    /// Variant and metric on the left side, if it has no wildcard: the cell of
    /// the table that the claim is about.
    #[must_use]
    pub fn subject(&self) -> Option<(String, String)> {
        let metric = self.left.metric.as_ref()?;
        let wildcards = self.left.variant.wildcards() + metric.wildcards();
        if wildcards > 0 || self.over != Over::Each {
            return None;
        }
        Some((self.left.variant.fill(&[]), metric.fill(&[])))
    }

    /// Whether it makes one statement about all that its left side matches.
    #[must_use]
    pub fn is_about_all(&self) -> bool {
        self.over != Over::Each
    }

    /// The claim about each match by itself: without `geomean of` or `N% of`.
    #[must_use]
    pub fn each(&self) -> Claim {
        Claim {
            over: Over::Each,
            ..self.clone()
        }
    }
}

/// The scope of a claim among the matches of its left side.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Over {
    /// Each match by itself.
    Each,
    /// Their geometric mean.
    Geomean,
    /// So many of them, from 0 to 1.
    Share(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    AtMost,
    Less,
    AtLeast,
    Greater,
}

impl Operator {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Operator::AtMost => left <= right,
            Operator::Less => left < right,
            Operator::AtLeast => left >= right,
            Operator::Greater => left > right,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Expression {
    Number(f64),
    Reference(Reference),
    Arithmetic(Box<Expression>, Arithmetic, Box<Expression>),
    Function(Function, Vec<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    Min,
    Max,
    Best,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Statistic {
    Median,
    Min,
    Max,
    Mean,
}

/// `VARIANT[/METRIC][@STATISTIC]`.
#[derive(Debug, Clone, PartialEq)]
struct Reference {
    /// Bytes of the claim's text, for filling wildcards in.
    span: Range<usize>,
    variant: Pattern,
    metric: Option<Pattern>,
    statistic: Option<Statistic>,
}

/// A name with wildcards.
#[derive(Debug, Clone, PartialEq)]
struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Literal(String),
    Any,
    OneOf(Vec<String>),
}

impl Pattern {
    fn wildcards(&self) -> usize {
        self.0
            .iter()
            .filter(|piece| !matches!(piece, Piece::Literal(_)))
            .count()
    }

    /// The name with each wildcard replaced. The parser has seen to it that there
    /// are enough `captures`.
    fn fill(&self, captures: &[String]) -> String {
        let mut captures = captures.iter();
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Literal(text) => text.as_str(),
                Piece::Any | Piece::OneOf(_) => captures.next().map_or("", String::as_str),
            })
            .collect()
    }
}
