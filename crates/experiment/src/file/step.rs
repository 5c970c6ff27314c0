// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[link.step]]` and `[[scenario.step]]`: changes of the link during a run.

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Place;
use schemars::JsonSchema;
use serde::Deserialize;

use super::impairment::{self, LossKeys};
use super::link::{nanoseconds, one_frame, Link, HEADER_BYTES};
use super::File;
use crate::plan;

/// A link a thousand times as fast, or as slow, is another link.
const MOST_FACTOR: f64 = 1000.0;

/// A change of the bottleneck, with a burst or at a time.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Number of the first burst on the changed link, from 1.
    #[schemars(range(min = 1))]
    pub at_burst: Option<u32>,
    /// Time after that burst's first write; absent: before the write.
    pub after: Option<Time>,
    /// Instead of a burst: time after the start of each workload.
    pub at: Option<Time>,
    /// The new rate.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Option<Rate>,
    /// Instead: a multiple of the link's own rate, for links that are drawn.
    #[schemars(range(min = MOST_FACTOR.recip(), max = MOST_FACTOR))]
    pub rate_factor: Option<f64>,
    /// The new one-way propagation delay.
    pub one_way_delay: Option<Time>,
    /// Instead: a multiple of the link's own delay.
    #[schemars(range(min = MOST_FACTOR.recip(), max = MOST_FACTOR))]
    pub delay_factor: Option<f64>,
    /// The new queue.
    pub buffer: Option<Size>,
    /// The new loss.
    pub loss: Option<LossKeys>,
    /// Drop all packets in flight.
    #[serde(default)]
    pub cut: bool,
    /// Drop all packets in flight, and all that arrive during this time.
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
    pub(super) fn plans(&self, link: &Link) -> impl Iterator<Item = plan::Step> {
        let end = self.at.zip(self.cut_for).map(|(at, length)| plan::Step {
            when: plan::When::Time {
                at_ns: nanoseconds(at) + nanoseconds(length),
            },
            change: plan::Change {
                down: Some(false),
                ..plan::Change::default()
            },
        });
        std::iter::once(self.plan(link)).chain(end)
    }

    /// The new rate on this link.
    fn rate_on(&self, link: &Link) -> Option<Rate> {
        let times = |factor: f64| (link.rate.bits_per_second() as f64 * factor).round() as u64;
        let multiple = self.rate_factor.map(times);
        self.rate.or(multiple.map(Rate::from_bits_per_second))
    }

    /// The new propagation on this link, one way.
    fn delay_on(&self, link: &Link) -> Option<Time> {
        let times = |factor: f64| (link.one_way_delay.micros() as f64 * factor).round() as u64;
        let multiple = self.delay_factor.map(times);
        self.one_way_delay.or(multiple.map(Time::from_micros))
    }

    fn plan(&self, link: &Link) -> plan::Step {
        plan::Step {
            when: self.when(),
            change: plan::Change {
                rate_bps: self.rate_on(link).map(Rate::bits_per_second),
                one_way_delay_ns: self.delay_on(link).map(nanoseconds),
                buffer_bytes: self.buffer.map(Size::bytes),
                loss: self.loss.map(LossKeys::plan),
                cut: self.cut || self.cut_for.is_some(),
                down: self.cut_for.map(|_| true),
            },
        }
    }
}

/// Checks the steps of the link and of each scenario.
pub(super) fn check(file: &File, place: &Place<'_>) {
    let fastest = file.paths.as_ref().map(|paths| paths.rate[1]);
    let on = |link: &Link, place: &Place<'_>| {
        let rate = fastest.unwrap_or(link.rate);
        let link = Link {
            rate,
            ..link.clone()
        };
        steps(file, &link, place);
    };
    on(&file.link, &place.key("link").key("step"));
    for (index, scenario) in file.scenario.iter().enumerate() {
        if !scenario.step.is_empty() {
            let place = place.key("scenario").item(index).key("step");
            on(&file.link.with(scenario), &place);
        }
    }
}

/// The steps of a link, which has the fastest rate that is drawn.
fn steps(file: &File, link: &Link, place: &Place<'_>) {
    for (index, step) in link.step.iter().enumerate() {
        let place = place.item(index);
        when(step, file, &place);
        change(step, link, &place);
        if file.paths.is_some() {
            drawn(step, &place);
        }
        if index > 0 && !in_order(&link.step[index - 1], step) {
            let key = if step.at_burst.is_some() {
                "at_burst"
            } else {
                "at"
            };
            place
                .key(key)
                .wrong("steps must ascend, and all must have at_burst or all must have at");
        }
    }
}

/// Checks the time of a change.
fn when(step: &Step, file: &File, place: &Place<'_>) {
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
    if step.at_burst.is_some() && file.burst.is_empty() {
        wrong(
            "at_burst",
            "needs a [[burst]]; for another workload write at = \"10s\"",
        );
    }
}

/// Checks the changes.
fn change(step: &Step, link: &Link, place: &Place<'_>) {
    let wrong = |key: &str, problem: &str| place.key(key).wrong(problem);
    if step.plan(link).change == plan::Change::default() {
        wrong(
            "rate",
            "changes nothing: give at least one of rate, rate_factor, one_way_delay, delay_factor, buffer, loss, cut and cut_for",
        );
    }
    if step.rate.is_some() && step.rate_factor.is_some() {
        wrong("rate_factor", "give either rate or rate_factor");
    }
    if step.one_way_delay.is_some() && step.delay_factor.is_some() {
        wrong("delay_factor", "give either one_way_delay or delay_factor");
    }
    if let Some(rate) = step.rate_on(link) {
        let key = if step.rate.is_some() {
            "rate"
        } else {
            "rate_factor"
        };
        if rate > link.edge_rate() {
            let problem = format!("must be at most the hosts' edge_rate, and is {rate}");
            wrong(key, &problem);
        } else if rate.bits_per_second() == 0 {
            wrong(key, "must leave the link a bit per second at least");
        }
    }
    let jitter = link.jitter.unwrap_or_default();
    if let Some(delay) = step.delay_on(link).filter(|delay| jitter > *delay) {
        let key = match step.one_way_delay {
            Some(_) => "one_way_delay",
            None => "delay_factor",
        };
        let problem =
            format!("must leave the delay, {delay}, at least as long as the link's jitter");
        wrong(key, &problem);
    }
    if let Some(problem) = step.loss.and_then(LossKeys::problem) {
        wrong("loss", problem);
    }
    let frame = u64::from(link.mtu) + HEADER_BYTES;
    if step.buffer.is_some_and(|buffer| buffer.bytes() < frame) {
        wrong("buffer", &one_frame(frame));
    }
}

/// Checks a change of links that are drawn: each has values of its own.
fn drawn(step: &Step, place: &Place<'_>) {
    for (is_there, key, right) in [
        (step.rate.is_some(), "rate", "rate_factor = 0.5"),
        (
            step.one_way_delay.is_some(),
            "one_way_delay",
            "delay_factor = 4",
        ),
        (step.buffer.is_some(), "buffer", "no buffer"),
    ] {
        if is_there {
            let problem = format!("each of the [paths] has its own: give {right}");
            place.key(key).wrong(problem);
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
