// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A paper's values of the thing that an experiment does again: the content of
//! [`Results::paper`](crate::results::Results::paper). Numbers are the paper's own, in the
//! units of our metrics; values that a figure shows only as a curve are left out.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::quantity::tail;

/// A table or figure of a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paper {
    /// Such as `matsuda-2005, Table 2`.
    pub source: String,
    /// Its content, in words.
    pub says: String,
    /// The differences here.
    pub differs: String,
    /// Its values per variant and metric, as in
    /// [`Results::variants`](crate::results::Results::variants). The variant `bound` is
    /// the physical limit of a metric.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub values: IndexMap<String, IndexMap<String, Printed>>,
    /// The variant that the paper divides by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_to: Option<String>,
    /// Further variants to show, of which the paper has no value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The paper's link, bits per second, where rates are to be compared as shares of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_rate_bps: Option<f64>,
    /// Traffic over time, drawn as the paper has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// A metric against a number in which the variants differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
}

/// A metric against a number that each variant has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The metric.
    pub metric: String,
    /// Name and unit of the number, such as `gap (bytes)`.
    pub label: String,
    /// The number of each variant.
    pub at: IndexMap<String, f64>,
}

/// Traffic of several variants on the same axes, one below the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// On top: the paper's standard TCP.
    pub above: String,
    /// Below it, in this order: the changed variants.
    pub below: Vec<String>,
    /// Of which parts of the experiment; empty: of those that the paper's values are of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
}

impl Paper {
    /// Whether it is about a part of the experiment, such as `10MB`: where it names parts,
    /// about these, where it has values, about those that they are of, else about all.
    pub(crate) fn is_about(&self, part: &str) -> bool {
        let named = self.traffic.as_ref().map_or(&[][..], |of| &of.parts);
        if !named.is_empty() {
            return named.iter().any(|name| name == part);
        }
        let mut metrics = self.values.values().flat_map(|values| values.keys());
        self.values.is_empty() || metrics.any(|metric| tail(metric) == part)
    }
}

impl Traffic {
    /// All variants from the top down.
    pub fn variants(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.above)
            .chain(&self.below)
            .map(String::as_str)
    }
}

/// A value as it was printed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Printed {
    /// `29`
    Exactly(f64),
    /// `1.8 to 2.0`
    Between {
        /// The less one.
        from: f64,
        /// The greater one.
        to: f64,
    },
    /// `over 200`
    Over {
        /// More than this.
        over: f64,
    },
}

/// Why a text is no printed value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no value: a number, \"A to B\" or \"over A\" is needed, in the metric's own unit"
)]
pub struct NotPrinted(pub String);

impl std::str::FromStr for Printed {
    type Err = NotPrinted;

    fn from_str(text: &str) -> Result<Self, NotPrinted> {
        let number = |part: &str| part.trim().parse().ok().filter(|n: &f64| n.is_finite());
        let found = if let Some(over) = text.trim().strip_prefix("over ") {
            number(over).map(|over| Printed::Over { over })
        } else if let Some((from, to)) = text.split_once(" to ") {
            let both = number(from).zip(number(to));
            both.filter(|(from, to)| from < to)
                .map(|(from, to)| Printed::Between { from, to })
        } else {
            number(text).map(Printed::Exactly)
        };
        found.ok_or_else(|| NotPrinted(text.to_owned()))
    }
}

impl Printed {
    /// One number for a drawing: the middle of two, the least of what is over.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Printed::Exactly(value) => value,
            Printed::Between { from, to } => from / 2.0 + to / 2.0,
            Printed::Over { over } => over,
        }
    }

    /// As words, each number shown by `show`.
    #[must_use]
    pub fn text(self, show: impl Fn(f64) -> String) -> String {
        match self {
            Printed::Exactly(value) => show(value),
            Printed::Between { from, to } => format!("{} to {}", show(from), show(to)),
            Printed::Over { over } => format!("over {}", show(over)),
        }
    }

    /// Calls `visit` with each of its numbers.
    pub(crate) fn each_number<E>(
        &mut self,
        mut visit: impl FnMut(&mut f64) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Printed::Exactly(value) | Printed::Over { over: value } => visit(value),
            Printed::Between { from, to } => {
                visit(from)?;
                visit(to)
            }
        }
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|number| number.to_string()))
    }
}
