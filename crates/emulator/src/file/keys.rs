// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a link's file. Their comments are what editors show.

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Percent;
use schemars::JsonSchema;
use serde::Deserialize;

use super::nanos;
use crate::config::{Buffer, Change, Codel, Loss, Red, Step};

/// The weight of an arrival in RED's average that ns takes by default.
const RED_WEIGHT: f64 = 0.002;

/// A WAN link between two interfaces.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Paceline link")]
pub(super) struct Content {
    /// Seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// Framing that each frame adds on the line; absent: 24 bytes, as on Ethernet.
    pub framing: Option<Size>,
    /// Both directions, unless a direction has its own value.
    pub link: Option<Keys>,
    /// From the first interface to the second.
    pub forward: Option<Keys>,
    /// From the second interface to the first.
    pub reverse: Option<Keys>,
}

/// A direction, or both.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    /// Rate of the line, framing included.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Option<Rate>,
    /// Instead of a rate: a file in mahimahi's format, in the directory of this file.
    pub trace: Option<String>,
    /// One-way delay; absent: none.
    pub delay: Option<Time>,
    /// Jitter: up to this much more or less delay, uniform, without reordering.
    pub jitter: Option<Time>,
    /// Instead: the standard deviation of normal jitter.
    pub normal_jitter: Option<Time>,
    /// Drop-tail, bytes of frames with their Ethernet header.
    pub buffer: Option<Size>,
    /// Instead: a number of frames.
    #[schemars(range(min = 1), extend("examples" = [100]))]
    pub buffer_packets: Option<u64>,
    /// Random early detection in the buffer.
    pub red: Option<RedKeys>,
    /// Controlled delay (CoDel, RFC 8289) of the buffer.
    pub codel: Option<CodelKeys>,
    /// A token bucket in front of the buffer.
    pub policer: Option<PolicerKeys>,
    /// Hold packets that crossed the line for this time, then deliver them together.
    pub slots: Option<Time>,
    /// Random loss of the line, as a share of packets.
    pub loss: Option<Percent>,
    /// Instead: the probabilities of a two-state loss model, per packet.
    pub burst_loss: Option<BurstKeys>,
    /// Reordering: packets that others overtake.
    pub reorder: Option<ReorderKeys>,
    /// Share of packets that arrive twice.
    pub duplicate: Option<Percent>,
    /// Changes at times since the start.
    #[serde(default)]
    pub step: Vec<StepKeys>,
}

/// Random early detection.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RedKeys {
    /// Threshold of the average backlog from which packets are dropped.
    pub least: Size,
    /// The upper threshold.
    pub most: Size,
    /// Drop probability at the upper threshold.
    pub probability: Percent,
    /// Weight of an arrival in the average; absent: 0.002.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub weight: Option<f64>,
    /// Above the upper threshold the probability rises gradually; false: all packets are
    /// dropped.
    #[serde(default = "yes")]
    pub gentle: bool,
}

/// Controlled delay (RFC 8289).
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CodelKeys {
    /// Delay that a standing queue may have; below the interval.
    pub target: Time,
    /// Time that the delay must be above the target before the first drop.
    pub interval: Time,
    /// Mark ECN-capable packets instead of dropping them.
    #[serde(default)]
    pub ecn: bool,
}

/// A token bucket; packets without tokens are dropped.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicerKeys {
    /// Rate at which the bucket fills, framing included.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Rate,
    /// Capacity of the bucket.
    pub burst: Size,
}

/// Chances of the two states of Gilbert and Elliott, per packet.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstKeys {
    /// Probability of a change from the good state to the bad one.
    pub to_bad: Percent,
    /// Probability of a change from the bad state to the good one.
    pub to_good: Percent,
    /// Loss in the good state.
    #[serde(default)]
    pub good: Percent,
    /// Loss in the bad state.
    #[serde(default = "all")]
    pub bad: Percent,
}

/// Reordering: packets that others overtake.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReorderKeys {
    /// Share of packets.
    pub share: Percent,
    /// Additional delay of these packets.
    pub by: Time,
}

/// A change of the line.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StepKeys {
    /// Time since the start.
    pub at: Time,
    /// The new rate.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Option<Rate>,
    /// The new delay.
    pub delay: Option<Time>,
    /// The new buffer.
    pub buffer: Option<Size>,
    /// The new loss.
    pub loss: Option<Percent>,
    /// The line stops for this time, and the buffer fills.
    pub outage: Option<Time>,
    /// Drop all packets in flight.
    #[serde(default)]
    pub cut: bool,
}

fn yes() -> bool {
    true
}

fn all() -> Percent {
    Percent::ALL
}

impl RedKeys {
    pub fn red(&self) -> Red {
        Red {
            least_bytes: self.least.bytes(),
            most_bytes: self.most.bytes(),
            probability: self.probability.share(),
            weight: self.weight.unwrap_or(RED_WEIGHT),
            gentle: self.gentle,
        }
    }
}

impl CodelKeys {
    pub fn codel(&self) -> Codel {
        Codel {
            target_ns: nanos(self.target),
            interval_ns: nanos(self.interval),
            ecn: self.ecn,
        }
    }
}

impl BurstKeys {
    pub fn loss(&self) -> Loss {
        Loss::Bursts {
            to_bad: self.to_bad.share(),
            to_good: self.to_good.share(),
            good: self.good.share(),
            bad: self.bad.share(),
        }
    }
}

impl StepKeys {
    pub fn step(&self) -> Step {
        Step {
            at_ns: nanos(self.at),
            change: Change {
                rate_bits: self.rate.map(Rate::bits_per_second),
                delay_ns: self.delay.map(nanos),
                buffer: self.buffer.map(|bytes| Buffer::Bytes(bytes.bytes())),
                loss: self.loss.map(|share| Loss::Random {
                    share: share.share(),
                }),
                cut: self.cut,
                outage_ns: self.outage.map(nanos),
            },
        }
    }
}
