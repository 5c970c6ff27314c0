// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[paper]]`: a paper's printed values of the same metrics.

use indexmap::IndexMap;
use paceline_input::units::Rate;
use paceline_input::{did_you_mean, nearest, Place};
use paceline_report::paper::{self, NotPrinted, Printed, Traffic};
use schemars::JsonSchema;
use serde::Deserialize;

use super::File;

/// The variant that stands for the physical limit.
const BOUND: &str = "bound";

/// A table or figure of a paper, redrawn beside ours.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Such as `matsuda-2005, Table 2`.
    pub source: String,
    /// The statement of the paper, in words.
    pub says: String,
    /// The differences to this experiment.
    pub differs: String,
    /// Metric of the values: its name, or its name without the tail.
    pub metric: Option<String>,
    /// Per variant, or for `bound`.
    #[serde(default)]
    pub values: IndexMap<String, Values>,
    /// The variant that the paper divides by.
    pub relative_to: Option<String>,
    /// Variants that are shown although the paper has no value of them.
    #[serde(default)]
    pub also: Vec<String>,
    /// Rate of the paper's link. If given, rates are compared as shares of it.
    pub link: Option<Rate>,
    /// Variants whose traffic is drawn one below the other.
    #[serde(default)]
    pub traffic: Vec<String>,
    /// Parts of the experiment that are drawn; empty: the parts of the values.
    #[serde(default)]
    pub parts: Vec<String>,
    /// A metric against a number in which the variants differ.
    pub against: Option<Against>,
}

/// A metric plotted against a number.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Values {
    /// The value of the metric itself.
    One(Value),
    /// Values by the tail of the metric's name.
    ByTail(IndexMap<String, Value>),
}

/// A [`Printed`] in its file format: a number, "A to B" or "over A".
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "Written")]
#[schemars(with = "Written")]
pub struct Value(Printed);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Number(#[schemars(range(min = f64::MIN, max = f64::MAX))] f64),
    Text(#[schemars(extend("format" = "printed", "examples" = ["1.5 to 2"]))] String),
}

impl TryFrom<Written> for Value {
    type Error = NotPrinted;

    fn try_from(written: Written) -> Result<Self, NotPrinted> {
        let text = match written {
            Written::Number(number) => number.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map(Value)
    }
}

/// The error of a value that is no number.
pub(super) fn check_printed(text: &str) -> Result<(), String> {
    let printed: Result<Printed, NotPrinted> = text.parse();
    printed.map(drop).map_err(|error| error.to_string())
}

impl Paper {
    /// As the results carry it.
    pub fn for_results(&self) -> paper::Paper {
        let metric = self.metric.as_deref().unwrap_or_default();
        let named = |values: &Values| match values {
            Values::One(value) => IndexMap::from([(metric.to_owned(), value.0)]),
            Values::ByTail(values) => values
                .iter()
                .map(|(tail, value)| (format!("{metric}/{tail}"), value.0))
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

    fn check(&self, file: &File, place: &Place<'_>) {
        let wrong = |key: &str, problem: &str| place.key(key).wrong(problem);
        let words = [
            ("source", &self.source),
            ("says", &self.says),
            ("differs", &self.differs),
        ];
        for (key, text) in words {
            if text.trim().is_empty() {
                wrong(key, "must not be empty");
            }
        }
        if self.metric.as_deref().map(str::trim) == Some("") {
            wrong("metric", "must not be empty");
        }
        if self.values.is_empty() != self.metric.is_none() {
            let problem = "give both metric and values, or neither";
            wrong("metric", problem);
        }
        let known = |name: &str| file.variants.contains_key(name);
        let names = || file.variants.keys().map(String::as_str);
        let unknown = |name: &str, place: &Place<'_>| {
            let meant = did_you_mean(nearest(name, names()));
            let known = names().collect::<Vec<_>>().join(", ");
            place.wrong(format!(
                "the experiment has no variant \"{name}\"{meant}; it has {known}"
            ))
        };
        for (variant, values) in &self.values {
            let place = place.key("values").key(variant);
            if variant != BOUND && !known(variant) {
                unknown(variant, &place);
            }
            if matches!(values, Values::ByTail(of) if of.is_empty()) {
                place.wrong("must have at least one value");
            }
        }
        for (key, names) in [("also", &self.also), ("traffic", &self.traffic)] {
            for (index, name) in names.iter().enumerate().filter(|(_, name)| !known(name)) {
                unknown(name, &place.key(key).item(index));
            }
        }
        if self.traffic.len() == 1 {
            let problem = "must name at least two variants: one to plot above, the others below";
            wrong("traffic", problem);
        }
        if self.traffic.is_empty() && !self.parts.is_empty() {
            let problem = "are parts of the traffic to plot: name its variants in traffic";
            wrong("parts", problem);
        }
        if let Some(of) = &self.against {
            let place = place.key("against");
            for name in of.at.keys().filter(|name| !known(name)) {
                unknown(name, &place.key("at").key(name));
            }
            let sensible = |number: &f64| number.is_finite() && *number >= 0.0;
            if of.at.len() < 2 || !of.at.values().all(sensible) {
                let problem = "at needs the numbers of at least two variants, none below zero";
                place.wrong(problem);
            }
            if of.metric.trim().is_empty() || of.label.trim().is_empty() {
                place.wrong("metric and label must not be empty");
            }
        }
        let Some(reference) = &self.relative_to else {
            return;
        };
        let positive = |value: &Printed| matches!(value, Printed::Exactly(n) if *n > 0.0);
        match self.for_results().values.get(reference) {
            None => {
                let problem =
                    format!("values.{reference} is missing: the other values are divided by it");
                wrong("relative_to", &problem);
            }
            Some(of) if !of.values().all(positive) => {
                let problem = "must be numbers above zero: others are divided by them";
                place.key("values").key(reference).wrong(problem);
            }
            Some(_) => {}
        }
    }
}

/// Checks the file's `[[paper]]`.
pub(super) fn check(file: &File, place: &Place<'_>) {
    for (index, paper) in file.paper.iter().enumerate() {
        paper.check(file, &place.key("paper").item(index));
    }
}
