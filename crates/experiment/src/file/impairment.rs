// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The impairments of `[link]`: loss, jitter, reordering, policing.

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Percent;
use schemars::JsonSchema;
use serde::Deserialize;

use super::link::{nanoseconds, Link, Wrong};
use crate::plan::{Codel, Loss, Policer, Reorder};

/// Preamble, frame check sequence and gap: on the wire, but in no queue.
const FRAMING_BYTES: u64 = 24;
/// Longest time of a netem: an hour.
pub(super) const MOST: Time = Time::from_secs(3600);

/// `"0.1%"`, or `{ to_bad = "0.1%", to_good = "20%", bad = "100%", good = "0%" }`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LossKeys {
    /// Independent for each packet.
    Random(Percent),
    /// The model of Gilbert and Elliott.
    Bursts(BurstKeys),
}

/// The chances of two states, per packet.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstKeys {
    /// Probability of a change from the good state to the bad one.
    pub to_bad: Percent,
    /// Probability of a change from the bad state to the good one.
    pub to_good: Percent,
    /// Loss in the good state.
    #[serde(default)]
    pub good: Percent,
    /// Loss in the bad state; absent: all packets.
    pub bad: Option<Percent>,
}

impl LossKeys {
    /// As the plan has it.
    pub(super) fn plan(self) -> Loss {
        match self {
            LossKeys::Random(share) => Loss::Random {
                share: share.share(),
            },
            LossKeys::Bursts(bursts) => Loss::Bursts {
                to_bad: bursts.to_bad.share(),
                to_good: bursts.to_good.share(),
                good: bursts.good.share(),
                bad: bursts.bad.map_or(1.0, Percent::share),
            },
        }
    }

    /// Its error, if any.
    pub(super) fn problem(self) -> Option<&'static str> {
        match self {
            LossKeys::Random(share) if share.share() >= 1.0 => {
                Some("must be less than 100%: else no packet arrives")
            }
            LossKeys::Bursts(bursts) if bursts.to_good.share() <= 0.0 => {
                Some("to_good must be more than 0%: else the line stays in the bad state")
            }
            _ => None,
        }
    }
}

/// `{ share = "1%", by = "5ms" }`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReorderKeys {
    /// Share of packets.
    pub share: Percent,
    /// Additional delay of these packets.
    #[schemars(extend("x-range" = ["1us", MOST]))]
    pub by: Time,
}

impl ReorderKeys {
    pub(super) fn plan(self) -> Reorder {
        Reorder {
            share: self.share.share(),
            by_ns: nanoseconds(self.by),
        }
    }
}

/// `{ rate = "100mbit", burst = "64KiB" }`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicerKeys {
    /// Rate at which the bucket fills, framing included.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Rate,
    /// Size of the bucket.
    pub burst: Size,
}

impl PolicerKeys {
    pub(super) fn plan(self) -> Policer {
        Policer {
            rate_bps: self.rate.bits_per_second(),
            burst_bytes: self.burst.bytes(),
        }
    }
}

/// `{ target = "5ms", interval = "100ms", ecn = true }`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodelKeys {
    /// Target of a standing queue's delay; below the interval.
    #[schemars(extend("x-range" = ["1us", MOST]))]
    pub target: Time,
    /// Time that the delay may stay above the target.
    #[schemars(extend("x-range" = ["1us", MOST]))]
    pub interval: Time,
    /// Mark packets (ECN) instead of dropping them.
    #[serde(default)]
    pub ecn: bool,
}

impl CodelKeys {
    pub(super) fn plan(self) -> Codel {
        Codel {
            target_ns: nanoseconds(self.target),
            interval_ns: nanoseconds(self.interval),
            ecn: self.ecn,
        }
    }
}

/// Checks for impairments that are impossible with frames of `frame` bytes.
pub(super) fn problems(link: &Link, frame: u64) -> Vec<Wrong> {
    let mut found = Vec::new();
    let mut wrong = |key, problem: &str| found.push((key, problem.to_owned()));
    if let Some(problem) = link.loss.and_then(LossKeys::problem) {
        wrong("loss", problem);
    }
    let delay = link.one_way_delay;
    if link.jitter.is_some_and(|jitter| jitter > delay) {
        wrong(
            "jitter",
            "must be at most one_way_delay: no packet is faster than the path",
        );
    }
    let share = link.reorder.map(|reorder| reorder.share.share());
    if share.is_some_and(|share| !(0.0001..=0.5).contains(&share)) {
        wrong(
            "reorder",
            "its share must be 0.01% to 50%, as { share = \"1%\", by = \"5ms\" }",
        );
    }
    let least = frame + FRAMING_BYTES;
    if link
        .policer
        .is_some_and(|policer| policer.burst.bytes() < least)
    {
        let problem = format!("its burst must hold one frame at least: {least}B");
        wrong("policer", &problem);
    }
    if let Some(codel) = link.codel {
        if codel.interval <= codel.target {
            wrong(
                "codel",
                "its target must be below its interval, as { target = \"5ms\", interval = \"100ms\" }",
            );
        }
        let rate = link.rate.bits_per_second().max(1);
        let queue_us = link.buffer.bytes() * 8_000_000 / rate;
        if 2 * codel.target.micros() > queue_us {
            let problem = format!("its target must be at most half of the buffer's queueing delay, {queue_us}us: else the buffer overflows before CoDel acts");
            wrong("codel", &problem);
        }
    }
    found
}
