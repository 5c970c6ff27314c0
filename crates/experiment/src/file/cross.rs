// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cross traffic: other traffic on the link while bursts run.

use paceline_input::units::{Rate, Size};
use paceline_input::{Percent, Place};
use schemars::JsonSchema;
use serde::Deserialize;

use super::link::Link;
use super::File;
use crate::plan::Cross;

/// Each has threads of its own at both ends.
const MOST_FLOWS: u32 = 100;
/// Shortest flow: one segment, about.
const LEAST_BYTES: u64 = 1000;
/// A link with more short flows than this has no room for the measured traffic.
const MOST_LOAD: f64 = 0.9;
/// Flows per second that a host can open without being the bottleneck itself.
const MOST_PER_SECOND: f64 = 1000.0;

/// `{ flows = 1 }`, endless, or `{ load = "20%", size = "30KB" }`, Poisson arrivals of short
/// flows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrossKeys {
    /// Number of endless flows.
    #[schemars(range(min = 1, max = MOST_FLOWS))]
    pub flows: Option<u32>,
    /// Instead of endless flows, short ones: their offered payload, as a share of the link's rate.
    pub load: Option<Percent>,
    /// Bytes of each short flow.
    pub size: Option<Size>,
    /// Congestion control of these flows.
    #[serde(default = "cubic")]
    pub congestion: String,
}

fn cubic() -> String {
    "cubic".to_owned()
}

impl CrossKeys {
    /// As the plan has it, on a link of this rate.
    pub(super) fn plan(&self, rate: Rate) -> Cross {
        let congestion = self.congestion.clone();
        match (self.load, self.size) {
            (Some(load), Some(size)) => Cross::Short {
                congestion,
                size_bytes: size.bytes(),
                per_second: load.share() * rate.bits_per_second() as f64
                    / 8.0
                    / size.bytes() as f64,
            },
            _ => Cross::Endless {
                congestion,
                flows: self.flows.unwrap_or(1),
            },
        }
    }
}

/// Checks the cross traffic of the link and of each scenario.
pub(super) fn check(file: &File, place: &Place<'_>) {
    one(file, &file.link, &place.key("link"));
    for (index, scenario) in file.scenario.iter().enumerate() {
        if scenario.cross.is_some() {
            let place = place.key("scenario").item(index);
            one(file, &file.link.with(scenario), &place);
        }
    }
}

fn one(file: &File, link: &Link, place: &Place<'_>) {
    let Some(cross) = &link.cross else {
        return;
    };
    let place = place.key("cross");
    let wrong = |key: &str, problem: String| place.key(key).wrong(problem);
    match (cross.flows, cross.load, cross.size) {
        (Some(_), None, None) => {}
        (None, Some(load), Some(size)) => {
            if !(0.0..=MOST_LOAD).contains(&load.share()) || load.share() == 0.0 {
                wrong("load", "must be above 0% and at most 90%".to_owned());
            }
            if size.bytes() < LEAST_BYTES {
                wrong("size", format!("must be {LEAST_BYTES}B at least"));
                return;
            }
            let fastest = file.paths.as_ref().map_or(link.rate, |paths| paths.rate[1]);
            if let Cross::Short { per_second, .. } = cross.plan(fastest) {
                if per_second > MOST_PER_SECOND {
                    let problem = format!(
                        "makes {per_second:.0} flows a second, {MOST_PER_SECOND} at most: give longer ones"
                    );
                    wrong("size", problem);
                }
            }
        }
        _ => {
            place.wrong(
                "give flows = 1 for endless flows, or load and size for short ones, as \
                 { load = \"20%\", size = \"30KB\" }",
            );
        }
    }
    if file.burst.is_empty() || !file.link.clusters.is_empty() {
        place.wrong(
            "is beside [[burst]]: give one, and no clusters; [[bulk]] has [[bulk.flows]], and \
             [[streams]] and [[transfer]] have beside",
        );
    }
}
