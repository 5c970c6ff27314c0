// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[link.step]]`: changes of the link during a run.

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Place;
use schemars::JsonSchema;
use serde::Deserialize;

use super::impairment::{self, LossKeys};
use super::link::{nanoseconds, one_frame, HEADER_BYTES};
use super::File;
use crate::plan;

/// A change of the bottleneck, with a burst or at a time.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The first burst, from 1, on the changed link.
    #[schemars(range(min = 1))]
    pub at_burst: Option<u32>,
    /// Time after that burst's first write; absent: before the write.
    pub after: Option<Time>,
    /// Or the time after the beginning of each workload.
    pub at: Option<Time>,
    /// The new rate.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Option<Rate>,
    /// The new propagation, one way.
    pub one_way_delay: Option<Time>,
    /// The new queue.
    pub buffer: Option<Size>,
    /// The new loss.
    pub loss: Option<LossKeys>,
    /// Drop all packets in flight.
    #[serde(default)]
    pub cut: bool,
    /// Drop all packets in flight, and all that come in this time.
    #[schemars(extend("x-range" = ["1us", impairment::MOST]))]
    pub cut_for: Option<Time>,
}

impl Step {
    pub(super) fn when(&self) -> plan::When {
        match self.at {
            Some(at) => plan::When::Time {
                at_ns: nanoseconds(at),
            },
            None => plan::When::Burst {
                number: self.at_burst.unwrap_or(0),
                after_ns: nanoseconds(self.after.unwrap_or_default()),
            },
        }
    }

    /// The change, and at the end of a cut that lasts the one back.
    pub(super) fn plans(&self) -> impl Iterator<Item = plan::Step> {
        let end = self.at.zip(self.cut_for).map(|(at, length)| plan::Step {
            when: plan::When::Time {
                at_ns: nanoseconds(at) + nanoseconds(length),
            },
            change: plan::Change {
                down: Some(false),
                ..plan::Change::default()
            },
        });
        std::iter::once(self.plan()).chain(end)
    }

    fn plan(&self) -> plan::Step {
        plan::Step {
            when: self.when(),
            change: plan::Change {
                rate_bps: self.rate.map(Rate::bits_per_second),
                one_way_delay_ns: self.one_way_delay.map(nanoseconds),
                buffer_bytes: self.buffer.map(Size::bytes),
                loss: self.loss.map(LossKeys::plan),
                cut: self.cut || self.cut_for.is_some(),
                down: self.cut_for.map(|_| true),
            },
        }
    }
}

/// Checks the steps.
pub(super) fn check(file: &File, place: &Place<'_>) {
    let steps = &file.link.step;
    for (index, step) in steps.iter().enumerate() {
        let place = place.item(index);
        let wrong = |key: &str, problem: &str| place.key(key).wrong(problem);
        match (step.at_burst, step.at) {
            (None, None) => {
                wrong(
                    "at_burst",
                    "give the time of the change: at_burst = 6, the first burst on the changed link, or at = \"10s\", the time since the workload began",
                );
            }
            (Some(_), Some(_)) => {
                wrong("at", "give either at_burst or at");
            }
            (Some(1), None) if step.after.is_none() => {
                wrong(
                    "at_burst",
                    "must be at least 2: the first burst uses the values of [link]",
                );
            }
            _ => {}
        }
        if step.after.is_some() && step.at_burst.is_none() {
            wrong(
                "after",
                "needs at_burst: it is the time after that burst's first write",
            );
        }
        if step.plan().change == plan::Change::default() {
            wrong(
                "rate",
                "changes nothing: give at least one of rate, one_way_delay, buffer, loss, cut and cut_for",
            );
        }
        if step.rate.is_some_and(|rate| rate > file.link.edge_rate()) {
            wrong("rate", "must be at most the hosts' edge_rate");
        }
        if let Some(problem) = step.loss.and_then(LossKeys::problem) {
            wrong("loss", problem);
        }
        if step.cut && matches!(step.when(), plan::When::Burst { after_ns: 0, .. }) {
            wrong(
                "cut",
                "cut drops packets in flight, and there are none before a burst: give the time in the burst, after = \"30ms\", or at = \"10s\"",
            );
        }
        if step.cut_for.is_some() && (step.at.is_none() || step.cut) {
            wrong(
                "cut_for",
                "needs a time, at = \"10s\", and no cut, which it begins with",
            );
        }
        let frame = u64::from(file.link.mtu) + HEADER_BYTES;
        if step.buffer.is_some_and(|buffer| buffer.bytes() < frame) {
            wrong("buffer", &one_frame(frame));
        }
        let only_bursts = step.at_burst.is_some();
        if only_bursts && file.burst.is_empty() {
            wrong(
                "at_burst",
                "needs a [[burst]]; for another workload write at = \"10s\"",
            );
        }
        if index > 0 && !in_order(&steps[index - 1], step) {
            wrong(
                if only_bursts { "at_burst" } else { "at" },
                "steps must ascend, and all must have at_burst or all must have at",
            );
        }
    }
}

/// Whether a step comes after another one: both with bursts, or both at times.
fn in_order(before: &Step, step: &Step) -> bool {
    let of = |step: &Step| (step.at_burst, step.after.unwrap_or_default(), step.at);
    let end = |step: &Step| {
        step.at
            .zip(step.cut_for)
            .map(|(at, length)| nanoseconds(at) + nanoseconds(length))
    };
    before.at.is_some() == step.at.is_some()
        && of(before) < of(step)
        && end(before) < step.at.map(nanoseconds).or(Some(u64::MAX))
}
