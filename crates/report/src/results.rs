// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content of `results.json`.
//!
//! Names are fixed so that results can be compared across experiments. A metric
//! is `NAME` or `NAME/TAIL`; the suffix of NAME is its unit: `_s` seconds,
//! `_bps` bits per second, `_share` a share of one.
//!
//! Numbers are rounded to [`SIGNIFICANT_DIGITS`] when they are written, and
//! entries keep the order in which they were put in: equal runs give equal
//! bytes, and reading and writing a file again changes nothing.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::paper::Paper;

/// Significant decimal digits of each floating-point number in `results.json`.
///
/// Nine hold a rate of 999 Mbit/s to the bit and a time of 999 s to the
/// microsecond, and drop the last bits in which a sum depends on its order.
pub const SIGNIFICANT_DIGITS: usize = 9;

/// Why results could not be made, written or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A median of no runs.
    #[error("a metric needs at least one run, and there is none")]
    NoRuns,
    /// JSON has no NaN and no infinity.
    #[error("{place} is {value}: results hold finite numbers only")]
    NotFinite {
        /// Where in the results, such as `variants.cubic.first_s.median`.
        place: String,
        /// The value there.
        value: f64,
    },
    /// The file could not be opened, read, made or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is not the JSON of results. The source names line and column.
    #[error("{} does not hold results: {source}", path.display())]
    NotResults {
        /// The file.
        path: PathBuf,
        /// The problem, with line and column.
        source: serde_json::Error,
    },
}

/// The results of one run of one experiment: the content of `results.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The experiment's name: its file's, without `.toml`.
    pub experiment: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The question, and the derivation of the bounds. Paragraphs are separated by an empty
    /// line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The command line that makes these results again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// `virtual`, `live` or `sim`.
    pub backend: String,
    /// Release of the kernel whose TCP ran, such as `6.1.0-28-cloud-amd64`.
    pub kernel: String,
    /// Seed of whatever was random.
    pub seed: u64,
    /// False if the run is of no use, because it was CPU-bound or its link was not the
    /// requested one. `warnings` says why.
    pub valid: bool,
    /// Warnings to read before using a number of this run.
    pub warnings: Vec<String>,
    /// Other remarks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Share of the CPU time that was idle, 0 to 1.
    pub cpu_idle: f64,
    /// The bottleneck.
    pub link: Link,
    /// The links of an experiment that draws them, by the last part of their metrics' names.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub paths: IndexMap<String, PathLink>,
    /// Per variant, its metrics.
    pub variants: IndexMap<String, IndexMap<String, Metric>>,
    /// Per metric, the physical limit on this link, in the metric's unit.
    pub bounds: IndexMap<String, f64>,
    /// The claims, and whether they hold.
    pub holds: Vec<Hold>,
    /// Papers' values of the same; absent in results of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paper: Vec<Paper>,
}

/// The link that the variants shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Bits per second.
    pub rate_bps: Checked,
    /// Seconds, one way.
    pub one_way_delay_s: Checked,
    /// Requested bytes, drop-tail.
    pub buffer_bytes: u64,
    /// Bytes that were found to fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_measured_bytes: Option<u64>,
    /// Bits per second of the links between the hosts and the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_rate_bps: Option<f64>,
    /// Seconds there and back, with nothing queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_s: Option<f64>,
}

/// A setting, requested and measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The experiment's value.
    pub asked: f64,
    /// The value measured on the link, in the same unit.
    pub measured: f64,
}

/// One metric of one variant, in the unit that the metric's name ends in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The middle run, or the mean of the two in the middle.
    pub median: f64,
    /// The least run.
    pub min: f64,
    /// The greatest run.
    pub max: f64,
    /// Every run, in the order in which they were made.
    pub runs: Vec<f64>,
}

impl Metric {
    /// Sums up `runs`, which are kept in their order.
    ///
    /// # Errors
    /// [`ResultsError::NoRuns`] without a run, [`ResultsError::NotFinite`] if one
    /// is NaN or infinite.
    pub fn from_runs(runs: Vec<f64>) -> Result<Self, ResultsError> {
        if let Some((index, &value)) = runs.iter().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(ResultsError::NotFinite {
                place: format!("runs[{index}]"),
                value,
            });
        }
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Err(ResultsError::NoRuns);
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            sorted[middle - 1] / 2.0 + sorted[middle] / 2.0
        };
        Ok(Metric {
            median,
            min,
            max,
            runs,
        })
    }
}

/// A link that was drawn at random.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathLink {
    /// Bits per second.
    pub rate_bps: f64,
    /// Seconds there and back, with nothing queued.
    pub rtt_s: f64,
    /// Bytes, drop-tail.
    pub buffer_bytes: u64,
    /// Whether the hosts had segmentation offload.
    pub offload: bool,
}

/// Something that had to hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// The claim, its wildcards filled in.
    pub claim: String,
    /// The value of its left side, as a ratio where it has one: see
    /// [`claims`](crate::claims).
    pub value: f64,
    /// Whether it holds.
    pub pass: bool,
}

/// Whether more of `metric` is better: true for rates of useful data, fairness
/// and speed-up, false for times and losses.
#[must_use]
pub fn larger_is_better(metric: &str) -> bool {
    let name = metric.split('/').next().unwrap_or(metric);
    matches!(name, "jain" | "mop_per_s" | "speed")
        || name.starts_with("speedup")
        || name.ends_with("_bps")
        || name.ends_with("_per_s")
}

impl Results {
    /// Whether `metric` rates the outcome: metrics with a bound, and the times and speeds of
    /// programs, which have none.
    #[must_use]
    pub fn is_compared(&self, metric: &str) -> bool {
        let name = metric.split('/').next().unwrap_or(metric);
        self.bounds.contains_key(metric) || matches!(name, "time_s" | "speed")
    }

    /// True if every claim holds.
    #[must_use]
    pub fn all_hold(&self) -> bool {
        self.holds.iter().all(|hold| hold.pass)
    }

    /// The JSON text: two spaces of indentation, a line feed at the end, numbers
    /// rounded to [`SIGNIFICANT_DIGITS`].
    ///
    /// # Errors
    /// [`ResultsError::NotFinite`] if a number is NaN or infinite.
    pub fn to_json(&self) -> Result<String, ResultsError> {
        let mut rounded = self.clone();
        rounded.each_number(&mut |place, number| {
            if !number.is_finite() {
                return Err(ResultsError::NotFinite {
                    place,
                    value: *number,
                });
            }
            *number = round(*number);
            Ok(())
        })?;
        let mut text = serde_json::to_string_pretty(&rounded)
            .expect("string keys and finite numbers always serialise");
        text.push('\n');
        Ok(text)
    }

    /// Reads results from JSON text. Unknown fields are ignored, so that results
    /// of a later version can be read.
    ///
    /// # Errors
    /// [`ResultsError::NotResults`] with line and column; `path` is named in it.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, ResultsError> {
        serde_json::from_str(text).map_err(|source| ResultsError::NotResults {
            path: path.to_owned(),
            source,
        })
    }

    /// Writes `results.json` to `path`, by way of a new file beside it: a reader of `path`
    /// finds the old results or the new ones, never a part.
    ///
    /// # Errors
    /// [`ResultsError::NotFinite`] before anything is written, and
    /// [`ResultsError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), ResultsError> {
        let text = self.to_json()?;
        let io = |source| ResultsError::Io {
            action: "write",
            path: path.to_owned(),
            source,
        };
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        std::fs::write(&part, text).map_err(io)?;
        std::fs::rename(&part, path).map_err(io)
    }

    /// Reads `path`.
    ///
    /// # Errors
    /// [`ResultsError::Io`], [`ResultsError::NotResults`].
    pub fn read(path: &Path) -> Result<Self, ResultsError> {
        let text = std::fs::read_to_string(path).map_err(|source| ResultsError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        Self::from_json(&text, path)
    }

    /// Calls `visit` with the place and a reference of every float.
    fn each_number(
        &mut self,
        visit: &mut dyn FnMut(String, &mut f64) -> Result<(), ResultsError>,
    ) -> Result<(), ResultsError> {
        visit("cpu_idle".into(), &mut self.cpu_idle)?;
        let link = &mut self.link;
        for (name, checked) in [
            ("rate_bps", &mut link.rate_bps),
            ("one_way_delay_s", &mut link.one_way_delay_s),
        ] {
            visit(format!("link.{name}.asked"), &mut checked.asked)?;
            visit(format!("link.{name}.measured"), &mut checked.measured)?;
        }
        for (name, number) in [
            ("edge_rate_bps", &mut link.edge_rate_bps),
            ("rtt_s", &mut link.rtt_s),
        ] {
            if let Some(number) = number {
                visit(format!("link.{name}"), number)?;
            }
        }
        for (name, path) in &mut self.paths {
            visit(format!("paths.{name}.rate_bps"), &mut path.rate_bps)?;
            visit(format!("paths.{name}.rtt_s"), &mut path.rtt_s)?;
        }
        for (variant, metrics) in &mut self.variants {
            for (name, metric) in metrics {
                let place = format!("variants.{variant}.{name}");
                visit(format!("{place}.median"), &mut metric.median)?;
                visit(format!("{place}.min"), &mut metric.min)?;
                visit(format!("{place}.max"), &mut metric.max)?;
                for (index, run) in metric.runs.iter_mut().enumerate() {
                    visit(format!("{place}.runs[{index}]"), run)?;
                }
            }
        }
        for (metric, bound) in &mut self.bounds {
            visit(format!("bounds.{metric}"), bound)?;
        }
        for hold in &mut self.holds {
            visit(
                format!("value of the claim `{}`", hold.claim),
                &mut hold.value,
            )?;
        }
        for paper in &mut self.paper {
            for (variant, values) in &mut paper.values {
                for (metric, value) in values {
                    let place = format!("paper.values.{variant}.{metric}");
                    value.each_number(|number| visit(place.clone(), number))?;
                }
            }
            if let Some(rate) = &mut paper.link_rate_bps {
                visit("paper.link_rate_bps".into(), rate)?;
            }
            for (variant, number) in paper.against.iter_mut().flat_map(|of| &mut of.at) {
                visit(format!("paper.against.at.{variant}"), number)?;
            }
        }
        Ok(())
    }
}

/// Rounds a finite number to [`SIGNIFICANT_DIGITS`]. Rounding twice changes
/// nothing more; minus zero becomes zero.
#[must_use]
pub fn round(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number + 0.0;
    }
    // Decimal formatting rounds correctly, which no multiplication by a power of
    // ten does. The greatest doubles round up past the range: they stay.
    let rounded: f64 = format!("{number:.*e}", SIGNIFICANT_DIGITS - 1)
        .parse()
        .expect("a formatted float parses");
    if rounded.is_finite() {
        rounded
    } else {
        number
    }
}
