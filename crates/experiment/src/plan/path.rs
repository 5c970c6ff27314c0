// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Impairments of a link beside its rate, its delay and its queue, and its changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Topology;
use crate::record::LEAST_QUEUED;

/// Largest IP packet of an Ethernet, bytes.
pub const ETHERNET_MTU: u32 = 1500;
/// Hosts of either of two clusters: the numbers of their links, a byte each, must not meet.
pub const MOST_HOSTS: u32 = 64;

/// Largest relative deviation of a link's rate from the requested one.
const RATE_TOLERANCE: f64 = 0.01;
/// Ethernet header, bytes.
const ETHERNET_HEADER_BYTES: u32 = 14;

/// Queueing discipline of the hosts' own interfaces, in front of their link's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostQueue {
    /// Holds each packet until the departure time that TCP set.
    Fq,
    /// Three bands, first in first out.
    PfifoFast,
    /// Fair among flows; drops or marks packets that wait for too long.
    FqCodel,
}

impl HostQueue {
    /// As `tc` calls it.
    pub fn name(self) -> &'static str {
        match self {
            HostQueue::Fq => "fq",
            HostQueue::PfifoFast => "pfifo_fast",
            HostQueue::FqCodel => "fq_codel",
        }
    }
}

/// Impairments of packets beside a drop-tail queue. They are off while the link is read
/// back, and then on.
// Absent ones are left out, so that the text of other plans stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Impairments {
    /// Lost towards the receiver, behind the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// The delay towards the receiver is up to so much more or less, evenly, nanoseconds;
    /// packets keep their order. 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ns: u64,
    /// Towards the receiver some packets are overtaken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Rate of the way back, bits per second, framing included, behind a queue of the
    /// bottleneck's size; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_rate_bps: Option<u64>,
    /// In front of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<Policer>,
    /// In the queue, which then holds as many packets as it has room for full ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codel: Option<Codel>,
    /// Packets on the way back are held for so long and then arrive together, nanoseconds; 0:
    /// they are not held.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ack_slot_ns: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Random loss behind the queue; shares are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Each by itself.
    Random {
        /// Share that is lost.
        share: f64,
    },
    /// Gilbert and Elliott: two states, which change from packet to packet.
    Bursts {
        /// Chance that the line turns bad.
        to_bad: f64,
        /// Chance that it is good again.
        to_good: f64,
        /// Loss in the good state.
        good: f64,
        /// Share that is lost while it is bad.
        bad: f64,
    },
}

/// Packets that those behind them overtake.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reorder {
    /// Share, from 0 to 1.
    pub share: f64,
    /// How much later they arrive, nanoseconds.
    pub by_ns: u64,
}

/// A token bucket without a queue: packets without tokens are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policer {
    /// Bits per second, framing included.
    pub rate_bps: u64,
    /// Most that it holds, bytes.
    pub burst_bytes: u64,
}

/// CoDel (RFC 8289) at the head of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Codel {
    /// Longest wait that is no congestion if it lasts, nanoseconds.
    pub target_ns: u64,
    /// How long it may last, nanoseconds.
    pub interval_ns: u64,
    /// ECN-capable packets are marked, not dropped, and the hosts' TCP requests ECN.
    pub ecn: bool,
}

impl Loss {
    /// The share that is lost over a long time.
    pub fn mean(self) -> f64 {
        match self {
            Loss::Random { share } => share,
            Loss::Bursts {
                to_bad,
                to_good,
                good,
                bad,
            } => (to_good * good + to_bad * bad) / (to_good + to_bad),
        }
    }

    /// Variation of the number of losses: the variance of their sum over that of as many
    /// independent ones.
    pub fn clustering(self) -> f64 {
        let Loss::Bursts {
            to_bad,
            to_good,
            good,
            bad,
        } = self
        else {
            return 1.0;
        };
        let mean = self.mean();
        let in_bad = to_bad / (to_good + to_bad);
        let between = in_bad * (1.0 - in_bad) * (bad - good).powi(2);
        let memory = (1.0 - to_good - to_bad).clamp(-1.0, 0.999_999);
        let whole = (mean * (1.0 - mean)).max(f64::MIN_POSITIVE);
        1.0 + 2.0 * (between / whole) * memory / (1.0 - memory)
    }
}

/// A change of the link in mid-run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When it happens.
    pub when: When,
    /// The change.
    pub change: Change,
}

/// When a link changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// With a burst of each burst workload.
    Burst {
        /// Which, from 1.
        number: u32,
        /// So long after its first write, nanoseconds; 0: before it.
        after_ns: u64,
    },
    /// So long after the beginning of each workload, nanoseconds.
    Time {
        /// Since the first burst or flow may start.
        at_ns: u64,
    },
}

/// The values that change; the rest stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way_delay_ns: Option<u64>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u64>,
    /// Towards the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// All that is under way, there and back, is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether from now on all packets are lost, there and back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<bool>,
}

impl When {
    /// The first burst, from 1, that is wholly on the changed link; `None` where that is a
    /// matter of time.
    pub fn first_burst(self) -> Option<u32> {
        match self {
            When::Burst {
                number,
                after_ns: 0,
            } => Some(number),
            When::Burst { number, .. } => Some(number + 1),
            When::Time { .. } => None,
        }
    }
}

impl Topology {
    /// The same link after a change.
    #[must_use]
    pub fn changed(&self, change: &Change) -> Self {
        Topology {
            rate_bps: change.rate_bps.unwrap_or(self.rate_bps),
            one_way_delay_ns: change.one_way_delay_ns.unwrap_or(self.one_way_delay_ns),
            buffer_bytes: change.buffer_bytes.unwrap_or(self.buffer_bytes),
            down: change.down.unwrap_or(self.down),
            impairments: Impairments {
                loss: change.loss.or(self.impairments.loss),
                ..self.impairments
            },
            ..self.clone()
        }
    }

    /// The times since the workload began in which the link is down, nanoseconds; the last
    /// may have no end.
    pub fn outages(&self) -> Vec<(u64, Option<u64>)> {
        let mut outages: Vec<(u64, Option<u64>)> = Vec::new();
        for step in &self.steps {
            let (When::Time { at_ns }, Some(down)) = (step.when, step.change.down) else {
                continue;
            };
            match (down, outages.last_mut()) {
                (true, _) => outages.push((at_ns, None)),
                (false, Some((_, end))) => *end = end.or(Some(at_ns)),
                (false, None) => {}
            }
        }
        outages
    }

    /// How long the last packet of a full queue waits, nanoseconds, framing left out.
    pub fn queue_ns(&self) -> u64 {
        self.buffer_bytes * 8_000_000_000 / self.rate_bps.max(1)
    }

    /// Packets that a queue of packets holds instead of bytes.
    pub fn queue_packets(&self) -> u64 {
        (self.buffer_bytes / u64::from(self.mtu + ETHERNET_HEADER_BYTES)).max(1)
    }

    /// The link after the first `steps` changes.
    #[must_use]
    pub fn after(&self, steps: usize) -> Self {
        let passed = self.steps.iter().take(steps);
        passed.fold(self.clone(), |link, step| link.changed(&step.change))
    }

    /// Number of changes before burst `number`, from 1, which began `began_ns` after its
    /// workload did: it was wholly on that link.
    pub fn steps_before(&self, number: u32, began_ns: Option<u64>) -> usize {
        let passed = |step: &&Step| match (step.when, step.when.first_burst()) {
            (_, Some(first)) => first <= number,
            (When::Time { at_ns }, _) => began_ns.is_some_and(|began| at_ns <= began),
            _ => false,
        };
        self.steps.iter().take_while(passed).count()
    }

    /// Whether each direction needs a line of its own: else the whole delay can be on the way
    /// back, as TCP sees only the sum.
    pub fn has_two_ways(&self) -> bool {
        let steps = self.steps.iter();
        let mut changes = steps.map(|step| step.change.cut || step.change.loss.is_some());
        self.far_hosts > 0
            || self.gateways
            || self.impairments != Impairments::default()
            || changes.any(|two| two)
    }

    /// The same link as it is read back: only its rates, delay and queue.
    #[must_use]
    pub fn unimpaired(&self) -> Self {
        Topology {
            impairments: Impairments {
                return_rate_bps: self.impairments.return_rate_bps,
                ..Impairments::default()
            },
            ..self.clone()
        }
    }

    /// Whether some of the changes come at a time, not with a burst.
    pub fn changes_by_time(&self) -> bool {
        let timed = |step: &Step| step.when.first_burst().is_none();
        self.steps.iter().any(timed)
    }

    /// Whether a measured rate, bits per second, is the requested one.
    pub fn is_rate(&self, read_bps: u64) -> bool {
        let asked_bps = self.seen_rate_bps();
        // A queue that holds a few packets is read to within half of one.
        let held = self.buffer_bytes / u64::from(self.mtu + ETHERNET_HEADER_BYTES);
        let tolerance = match held as usize {
            held if held < LEAST_QUEUED => 0.5 / held.max(1) as f64,
            _ => RATE_TOLERANCE,
        };
        (read_bps as f64 / asked_bps as f64 - 1.0).abs() <= tolerance
    }

    /// The measurable rate of the link, bits per second: the smaller one of the edge's and the
    /// bottleneck's.
    pub fn seen_rate_bps(&self) -> u64 {
        self.rate_bps.min(self.edge_rate_bps)
    }

    /// A full packet of this link.
    pub fn frame(&self) -> crate::bounds::Frame {
        crate::bounds::Frame::of(self.ip, self.mtu)
    }
}
