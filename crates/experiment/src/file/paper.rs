// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[paper]]`: what a paper printed of the same thing.

use std::fmt;

use indexmap::IndexMap;
use paceline_input::units::Rate;
use paceline_report::paper::{self, Printed, Traffic};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::Deserialize;

use super::check::Place;
use super::{ExperimentError, File};

/// The variant that stands for the physical limit.
const BOUND: &str = "bound";

/// A table or figure of a paper, redrawn beside ours.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Such as `matsuda-2005, Table 2`.
    pub source: String,
    /// What it shows, in words.
    pub says: String,
    /// What is different here.
    pub differs: String,
    /// What the values are of: a metric, or its name without the tail.
    pub metric: Option<String>,
    /// Per variant, or for `bound`.
    #[serde(default)]
    pub values: IndexMap<String, Values>,
    /// The variant that the paper divides by.
    pub relative_to: Option<String>,
    /// Variants that are shown although the paper has no value of them.
    #[serde(default)]
    pub also: Vec<String>,
    /// The paper's link, where rates are to be compared as shares of it.
    pub link: Option<Rate>,
    /// Variants whose traffic is drawn one below the other.
    #[serde(default)]
    pub traffic: Vec<String>,
    /// Of which parts of the experiment; empty: of those that the values are of.
    #[serde(default)]
    pub parts: Vec<String>,
    /// A metric against a number in which the variants differ.
    pub against: Option<Against>,
}

/// What is drawn against a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Against {
    /// The metric.
    pub metric: String,
    /// Name and unit of the number, such as `gap (bytes)`.
    pub label: String,
    /// The number of each variant.
    pub at: IndexMap<String, f64>,
}

/// The values of one variant: one, or one for each tail of the metric.
#[derive(Debug, Clone)]
pub enum Values {
    /// Of the metric itself.
    One(Printed),
    /// By tail.
    ByTail(IndexMap<String, Printed>),
}

/// A [`Printed`] as a file has it: a number, or text.
struct Value(Printed);

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number, \"A to B\" or \"over A\", in the metric's own unit")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        number
            .to_string()
            .parse()
            .map(Value)
            .map_err(E::custom::<paper::NotPrinted>)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        text.parse()
            .map(Value)
            .map_err(E::custom::<paper::NotPrinted>)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        ValueVisitor.expecting(f)?;
        f.write_str(", or a table of these by the metric's tail")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Values, E> {
        ValueVisitor
            .visit_f64(number)
            .map(|value| Values::One(value.0))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Values, E> {
        self.visit_f64(number as f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Values, E> {
        ValueVisitor
            .visit_str(text)
            .map(|value| Values::One(value.0))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
        let mut values = IndexMap::new();
        while let Some((tail, Value(value))) = map.next_entry::<String, Value>()? {
            values.insert(tail, value);
        }
        Ok(Values::ByTail(values))
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValuesVisitor)
    }
}

impl Paper {
    /// As the results carry it.
    pub fn for_results(&self) -> paper::Paper {
        let metric = self.metric.as_deref().unwrap_or_default();
        let named = |values: &Values| match values {
            Values::One(value) => IndexMap::from([(metric.to_owned(), *value)]),
            Values::ByTail(values) => values
                .iter()
                .map(|(tail, value)| (format!("{metric}/{tail}"), *value))
                .collect(),
        };
        let traffic = self.traffic.split_first().map(|(above, below)| Traffic {
            above: above.clone(),
            below: below.to_vec(),
            parts: self.parts.clone(),
        });
        let against = self.against.as_ref().map(|of| paper::Against {
            metric: of.metric.clone(),
            label: of.label.clone(),
            at: of.at.clone(),
        });
        paper::Paper {
            source: self.source.clone(),
            says: self.says.trim().to_owned(),
            differs: self.differs.trim().to_owned(),
            values: self
                .values
                .iter()
                .map(|(variant, values)| (variant.clone(), named(values)))
                .collect(),
            relative_to: self.relative_to.clone(),
            also: self.also.clone(),
            link_rate_bps: self.link.map(|rate| rate.bits_per_second() as f64),
            traffic,
            against,
        }
    }

    /// The first problem: its key, and what would be right.
    fn problem(&self, file: &File) -> Option<(String, String)> {
        let wrong = |key: &str, problem: String| Some((key.to_owned(), problem));
        let words = [
            ("source", &self.source),
            ("says", &self.says),
            ("differs", &self.differs),
        ];
        for (key, text) in words {
            if text.trim().is_empty() {
                return wrong(key, "must not be empty".to_owned());
            }
        }
        if self.metric.as_deref().map(str::trim) == Some("") {
            return wrong("metric", "must not be empty".to_owned());
        }
        if self.values.is_empty() != self.metric.is_none() {
            return wrong(
                "metric",
                "metric and values are given together or not at all".to_owned(),
            );
        }
        let known = |name: &String| file.variants.contains_key(name);
        let unknown = |name: &String| {
            let names: Vec<&str> = file.variants.keys().map(String::as_str).collect();
            format!(
                "the experiment has no variant \"{name}\"; it has {}",
                names.join(", ")
            )
        };
        for (variant, values) in &self.values {
            let key = format!("values.{variant}");
            if variant != BOUND && !known(variant) {
                return wrong(&key, unknown(variant));
            }
            if matches!(values, Values::ByTail(of) if of.is_empty()) {
                return wrong(&key, "must have at least one value".to_owned());
            }
        }
        for (key, names) in [("also", &self.also), ("traffic", &self.traffic)] {
            if let Some(name) = names.iter().find(|name| !known(name)) {
                return wrong(key, unknown(name));
            }
        }
        if self.traffic.len() == 1 {
            let problem = "must name two variants at least: one above, the others below it";
            return wrong("traffic", problem.to_owned());
        }
        if self.traffic.is_empty() && !self.parts.is_empty() {
            let problem = "are parts of which traffic is drawn: name its variants in traffic";
            return wrong("parts", problem.to_owned());
        }
        if let Some(of) = &self.against {
            if let Some(name) = of.at.keys().find(|name| !known(name)) {
                return wrong("against", unknown(name));
            }
            let sensible = |number: &f64| number.is_finite() && *number >= 0.0;
            if of.at.len() < 2 || !of.at.values().all(sensible) {
                let problem = "at needs the numbers of two variants at least, none below zero";
                return wrong("against", problem.to_owned());
            }
            if of.metric.trim().is_empty() || of.label.trim().is_empty() {
                return wrong("against", "metric and label must not be empty".to_owned());
            }
        }
        let reference = self.relative_to.as_ref()?;
        let Some(of) = self.for_results().values.shift_remove(reference) else {
            let problem = format!("values.{reference} is needed to divide by");
            return wrong("relative_to", problem);
        };
        let positive = |value: &Printed| matches!(value, Printed::Exactly(n) if *n > 0.0);
        if !of.values().all(positive) {
            let key = format!("values.{reference}");
            return wrong(
                &key,
                "must be numbers above zero: others are divided by them".to_owned(),
            );
        }
        None
    }
}

/// The first problem of the file's `[[paper]]`.
pub fn check(file: &File, place: &Place) -> Result<(), ExperimentError> {
    for (index, paper) in file.paper.iter().enumerate() {
        if let Some((key, problem)) = paper.problem(file) {
            return Err(place.wrong("[[paper]]", index, &key, problem));
        }
    }
    Ok(())
}
