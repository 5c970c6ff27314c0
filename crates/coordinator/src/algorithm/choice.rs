// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An algorithm by its name, with parameters: `scoreboard:block=30,headroom=60`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    Algorithm, Even, EvenConfig, Free, Naive, Round, Scoreboard, ScoreboardConfig, Side, Value,
};

/// Name, parameters with their defaults, and description of each algorithm.
pub const CHOICES: [(&str, &str, &str); 8] = [
    (
        "even",
        "queue=0.5, prefix4=24, prefix6=64",
        "all streams finish together, with the path filled",
    ),
    (
        "scoreboard",
        "block=30, headroom=60, decay=0.1, points=3/2/1, period=1s",
        "the paper's majority decision, sizes in segments",
    ),
    (
        "largest",
        "side=both, period=1s",
        "the largest window for all",
    ),
    (
        "larger",
        "side=both, period=1s",
        "the mean of the larger ones",
    ),
    ("average", "side=both, period=1s", "the mean for all"),
    (
        "limit-average",
        "side=upper, period=1s",
        "the mean as a limit",
    ),
    (
        "limit-weighted-average",
        "side=upper, period=1s",
        "the mean weighted by window as a limit",
    ),
    ("none", "period=1s", "only observes"),
];

/// An algorithm and its parameters, as a user chose them.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    text: String,
    kind: Kind,
    period: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Even(EvenConfig),
    Scoreboard(ScoreboardConfig),
    Naive(Value, Side),
    Free,
}

/// Errors in the text of an algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No such algorithm.
    #[error("unknown algorithm {name:?}: use one of {}", names())]
    Unknown {
        /// As given.
        name: String,
    },
    /// A parameter that the algorithm does not have.
    #[error("{algorithm} has no parameter {key:?}; it has {known}")]
    UnknownParameter {
        /// The algorithm.
        algorithm: String,
        /// As given.
        key: String,
        /// Those that it has, with defaults.
        known: &'static str,
    },
    /// An invalid value of a parameter.
    #[error("{key}={value}: expected {expected}")]
    Value {
        /// The parameter.
        key: String,
        /// As given.
        value: String,
        /// The right form.
        expected: &'static str,
    },
    /// A parameter without a value.
    #[error("{text:?} is not a parameter: write KEY=VALUE, as in {example}")]
    Form {
        /// As given.
        text: String,
        /// A right one.
        example: &'static str,
    },
    /// The same parameter again.
    #[error("{key} is given twice")]
    Twice {
        /// The parameter.
        key: String,
    },
}

fn names() -> String {
    CHOICES.map(|(name, ..)| name).join(", ")
}

impl Choice {
    /// The algorithm in its initial state.
    pub fn start(&self) -> Box<dyn Algorithm> {
        match &self.kind {
            Kind::Even(config) => Box::new(Even::new(config.clone())),
            Kind::Scoreboard(config) => Box::new(Scoreboard::new(config.clone())),
            Kind::Naive(value, side) => Box::new(Naive {
                value: *value,
                side: *side,
            }),
            Kind::Free => Box::new(Free),
        }
    }

    /// Length of the next round of `started`, which is of this choice: that of `period=`,
    /// or the algorithm's own.
    pub fn period_of(&self, started: &dyn Algorithm) -> Duration {
        self.period.unwrap_or_else(|| started.period())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<bool, ChoiceError> {
        let error = |expected| ChoiceError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let number = |least: f64, most: f64, expected| match value.parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(error(expected)),
        };
        let bits = |most: u8, expected| match value.parse::<u8>() {
            Ok(bits) if bits <= most => Ok(bits),
            _ => Err(error(expected)),
        };
        match (&mut self.kind, key) {
            (Kind::Even(config), "queue") => {
                config.queue = number(0.1, 0.9, "a share of the queue, 0.1 to 0.9")?;
            }
            (Kind::Even(config), "prefix4") => config.prefix_v4 = bits(32, "bits, 0 to 32")?,
            (Kind::Even(config), "prefix6") => config.prefix_v6 = bits(128, "bits, 0 to 128")?,
            (Kind::Scoreboard(config), "block") => {
                config.block_segs = number(1.0, 1e6, "segments, 1 to 1000000")?;
            }
            (Kind::Scoreboard(config), "headroom") => {
                config.headroom_segs = number(0.0, 1e6, "segments, 0 to 1000000")?;
            }
            (Kind::Scoreboard(config), "decay") => {
                config.decay = number(0.0, 0.99, "a share that is lost in a round, 0 to 0.99")?;
            }
            (Kind::Scoreboard(config), "points") => {
                let expected = "three numbers from 0 to 1000, as in 3/2/1";
                let points: Vec<f64> = value
                    .split('/')
                    .filter_map(|point| point.parse().ok())
                    .filter(|point| (0.0..=1000.0).contains(point))
                    .collect();
                config.points = points.try_into().map_err(|_| error(expected))?;
            }
            (Kind::Naive(_, side), "side") => {
                *side = match value {
                    "both" => Side::Both,
                    "upper" => Side::Upper,
                    "lower" => Side::Lower,
                    _ => return Err(error("both, upper or lower")),
                };
            }
            (Kind::Scoreboard(config), "period") if value.ends_with("rtt") => {
                let trips = value.trim_end_matches("rtt").parse::<f64>().ok();
                let trips = trips.filter(|trips| (0.1..=100.0).contains(trips));
                let expected = "a time, or 0.1rtt to 100rtt";
                config.round = Round::RoundTrips(trips.ok_or_else(|| error(expected))?);
            }
            (Kind::Scoreboard(_) | Kind::Naive(..) | Kind::Free, "period") => {
                let period = duration(value).filter(|period| PERIODS.contains(period));
                let period = period.ok_or_else(|| error("20ms to 60s, with its unit"))?;
                self.period = Some(period);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Rounds that a user may ask for.
pub(crate) const PERIODS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(60);

/// A time with its unit, `ms` or `s`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit_s;
    Duration::try_from_secs_f64(seconds).ok()
}

impl Choice {
    /// The error in the text of a choice, for readers of files.
    ///
    /// # Errors
    /// As [`FromStr`].
    pub fn check(text: &str) -> Result<(), String> {
        let choice = text.parse::<Self>();
        choice.map(drop).map_err(|error| error.to_string())
    }
}

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        let kind = match name {
            "even" => Kind::Even(EvenConfig::default()),
            "scoreboard" => Kind::Scoreboard(ScoreboardConfig::PAPER),
            "largest" => Kind::Naive(Value::Largest, Side::Both),
            "larger" => Kind::Naive(Value::Larger, Side::Both),
            "average" => Kind::Naive(Value::Average, Side::Both),
            "limit-average" => Kind::Naive(Value::Average, Side::Upper),
            "limit-weighted-average" => Kind::Naive(Value::WeightedAverage, Side::Upper),
            "none" => Kind::Free,
            _ => {
                return Err(ChoiceError::Unknown {
                    name: name.to_owned(),
                })
            }
        };
        let known = CHOICES.iter().find(|(other, ..)| *other == name);
        let known = known.map_or("", |(_, parameters, _)| parameters);
        let mut choice = Self {
            text: text.to_owned(),
            kind,
            period: None,
        };
        let mut seen = Vec::new();
        for parameter in parameters.into_iter().flat_map(|text| text.split(',')) {
            let (key, value) = parameter.split_once('=').ok_or_else(|| ChoiceError::Form {
                text: parameter.to_owned(),
                example: known,
            })?;
            if seen.contains(&key) {
                return Err(ChoiceError::Twice {
                    key: key.to_owned(),
                });
            }
            seen.push(key);
            if !choice.set(key, value)? {
                return Err(ChoiceError::UnknownParameter {
                    algorithm: name.to_owned(),
                    key: key.to_owned(),
                    known,
                });
            }
        }
        Ok(choice)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Choice>().expect_err(text).to_string()
    }

    #[test]
    fn all_names_and_their_defaults_are_read() {
        for (name, parameters, _) in CHOICES {
            let spelled = format!("{name}:{}", parameters.replace(", ", ","));
            let (choice, full) = (name.parse::<Choice>(), spelled.parse::<Choice>());
            let (choice, full) = (choice.expect(name), full.expect(&spelled));
            assert_eq!(choice.kind, full.kind, "{spelled}");
            choice.start();
        }
    }

    #[test]
    fn errors_name_the_correct_form() {
        assert!(error("evn").contains("use one of even, scoreboard"));
        assert!(error("even:side=both").contains("it has queue=0.5"));
        assert!(error("scoreboard:decay=2").contains("0 to 0.99"));
        assert!(error("scoreboard:points=3/2").contains("as in 3/2/1"));
        assert!(error("scoreboard:period=0rtt").contains("0.1rtt"));
        assert!(error("none:period=1rtt").contains("with its unit"));
        assert!(error("none:period=1").contains("with its unit"));
        assert!(error("none:period=NaNs").contains("with its unit"));
        assert!(error("largest:upper").contains("KEY=VALUE"));
        assert!(error("even:queue=0.5,queue=0.4").contains("twice"));
    }
}
