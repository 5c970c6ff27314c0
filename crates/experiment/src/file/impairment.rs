// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `[link]` says of packets that are lost, late, overtaken or policed.

use std::fmt;

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Percent;
use serde::de::{value::MapAccessDeserializer, Deserializer, Error, MapAccess, Visitor};
use serde::Deserialize;

use super::link::{nanoseconds, Link};
use crate::plan::{Codel, Loss, Policer, Reorder};

/// Preamble, frame check sequence and gap: on the wire, but in no queue.
const FRAMING_BYTES: u64 = 24;
/// What a netem's time has at least, and at most: an hour.
const MOST_US: u64 = 3_600_000_000;

/// `"0.1%"`, or `{ to_bad = "0.1%", to_good = "20%", bad = "100%", good = "0%" }`.
#[derive(Debug, Clone, Copy)]
pub enum LossKeys {
    /// Each packet by itself.
    Random(Percent),
    /// Gilbert and Elliott.
    Bursts(BurstKeys),
}

/// The chances of two states, per packet.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstKeys {
    /// That the line turns bad.
    pub to_bad: Percent,
    /// That it is good again.
    pub to_good: Percent,
    /// Share that is lost while it is good.
    #[serde(default)]
    pub good: Percent,
    /// Share that is lost while it is bad; absent: all.
    pub bad: Option<Percent>,
}

impl<'de> Deserialize<'de> for LossKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand: serde's untagged enums would say that nothing matched, instead of
        // what is wrong with the value.
        struct LossVisitor;
        impl<'de> Visitor<'de> for LossVisitor {
            type Value = LossKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share such as \"0.1%\", or { to_bad = \"0.1%\", to_good = \"20%\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LossKeys, E> {
                text.parse().map(LossKeys::Random).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LossKeys, A::Error> {
                BurstKeys::deserialize(MapAccessDeserializer::new(map)).map(LossKeys::Bursts)
            }
        }
        deserializer.deserialize_any(LossVisitor)
    }
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

    /// What is wrong with it.
    pub(super) fn problem(self) -> Option<&'static str> {
        match self {
            LossKeys::Random(share) if share.share() >= 1.0 => {
                Some("must be less than 100%, or nothing arrives")
            }
            LossKeys::Bursts(bursts) if bursts.to_good.share() <= 0.0 => {
                Some("to_good must be more than 0%, or a line that turned bad stays so")
            }
            _ => None,
        }
    }
}

/// `{ share = "1%", by = "5ms" }`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReorderKeys {
    /// Share of packets.
    pub share: Percent,
    /// How much later they arrive.
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
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerKeys {
    /// At which its bucket fills, framing included.
    pub rate: Rate,
    /// Most that it holds.
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
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodelKeys {
    /// Longest wait that is no congestion if it lasts.
    pub target: Time,
    /// How long it may last.
    pub interval: Time,
    /// Packets are marked, not dropped.
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

/// The key and the problem of what no link of frames of `frame` bytes can do.
pub(super) fn check(link: &Link, frame: u64) -> Result<(), (&'static str, String)> {
    let wrong = |key, problem: &str| Err((key, problem.to_owned()));
    if let Some(problem) = link.loss.and_then(LossKeys::problem) {
        return wrong("loss", problem);
    }
    if link
        .jitter
        .is_some_and(|jitter| jitter > link.one_way_delay)
    {
        return wrong(
            "jitter",
            "must be at most one_way_delay: no packet is faster than the path",
        );
    }
    if let Some(reorder) = link.reorder {
        if !(0.0001..=0.5).contains(&reorder.share.share()) {
            return wrong(
                "reorder",
                "its share must be 0.01% to 50%, as { share = \"1%\", by = \"5ms\" }",
            );
        }
        if !(1..=MOST_US).contains(&reorder.by.micros()) {
            return wrong(
                "reorder",
                "by must be 1us to 1h, as { share = \"1%\", by = \"5ms\" }",
            );
        }
    }
    if link
        .return_rate
        .is_some_and(|rate| rate.bits_per_second() == 0)
    {
        return wrong("return_rate", "must be more than 0, such as \"10mbit\"");
    }
    if let Some(policer) = link.policer {
        if policer.rate.bits_per_second() == 0 {
            return wrong(
                "policer",
                "its rate must be more than 0, as { rate = \"100mbit\", burst = \"64KiB\" }",
            );
        }
        let least = frame + FRAMING_BYTES;
        if policer.burst.bytes() < least {
            return Err((
                "policer",
                format!("its burst must hold one frame at least: {least}B"),
            ));
        }
    }
    if let Some(codel) = link.codel {
        if !(1..MOST_US).contains(&codel.target.micros()) || codel.interval <= codel.target {
            return wrong(
                "codel",
                "its target must be 1us to 1h and below its interval, as { target = \"5ms\", interval = \"100ms\" }",
            );
        }
        let queue_us = link.buffer.bytes() * 8_000_000 / link.rate.bits_per_second();
        if 2 * codel.target.micros() > queue_us {
            return Err((
                "codel",
                format!("its target must be at most half of what buffer holds at that rate, {queue_us}us, or the queue is full before CoDel acts"),
            ));
        }
    }
    if link
        .ack_slots
        .is_some_and(|slot| !(1..=MOST_US).contains(&slot.micros()))
    {
        return wrong("ack_slots", "must be 1us to 1h, such as \"10ms\"");
    }
    Ok(())
}
