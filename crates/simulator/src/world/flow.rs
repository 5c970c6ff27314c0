// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of a world's flows.

use crate::event::NEVER;
use crate::receiver::Receiver;
use crate::sender::config::SenderConfig;
use crate::sender::Sender;
use crate::source::{Source, SourceConfig};

/// Flows of a kind.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Their senders and receivers.
    pub sender: SenderConfig,
    /// Their applications.
    pub source: SourceConfig,
    /// Of [`SourceConfig::Phases`]: flows that are not done with this one,
    pub pending: u32,
    /// how many are behind, and when the last of each flow of them arrived.
    pub rounds: Vec<(u64, u64)>,
    /// When this one began.
    pub round_began: u64,
    /// The flows, in the order of their numbers.
    pub flows: std::ops::Range<u32>,
}

/// Links of a flow's way that are kept with the flow.
pub(super) const NEAR: usize = 4;

/// One flow. The data of each of its events lies together: with a million flows none is
/// in a cache.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Flow {
    /// The group.
    pub group: u32,
    /// Its links, there and back, if they are [`NEAR`] at most; else the first is where
    /// they begin in the world's routes.
    pub(super) links: [u32; NEAR],
    pub(super) there: u8,
    pub(super) back: u8,
    /// Packets of data that links dropped.
    pub dropped: u32,
    /// Number of its law's state in the world's paths and turns.
    pub(super) path: u32,
    pub(super) turn: u32,
    /// When the last segment that was written had arrived; [`NEVER`](crate::event::NEVER): it has not.
    pub completed: u64,
    pub(super) timer_event: u64,
    pub(super) delayed_event: u64,
    /// The receiver.
    pub receiver: Receiver,
    /// The sender.
    pub sender: Sender,
    pub(super) source: Source,
    /// When it starts.
    pub start: u64,
    /// When its connection is there.
    pub(super) opens: u64,
    pub(super) pace_event: u64,
}

impl Flow {
    /// The link at place `at` of its way there and back.
    #[inline(always)]
    pub(super) fn link(&self, routes: &[u32], at: usize) -> u32 {
        match usize::from(self.there) + usize::from(self.back) <= NEAR {
            true => self.links[at],
            false => routes[self.links[0] as usize + at],
        }
    }
}

/// Values that were sampled over time.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Nanoseconds between samples; 0: none are taken.
    pub every_ns: u64,
    /// The flows whose windows are sampled.
    pub flows: Vec<u32>,
    /// Times.
    pub times: Vec<u64>,
    /// Packets in the queue of the measured link, and RED's average.
    pub queue: Vec<(u32, Option<f64>)>,
    /// Window and ssthresh of each flow, flow after flow within a sample.
    pub windows: Vec<(f64, f64)>,
    /// Names of the groups of flows.
    pub group_names: Vec<String>,
    /// Each of them, group after group within a sample.
    pub groups: Vec<GroupSample>,
}

/// A group of flows at one moment; those that are complete do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupSample {
    /// Flows.
    pub active: u32,
    /// Segments in flight of the flow that has the fewest.
    pub least_in_flight: u32,
    /// Of the one that has the most.
    pub most_in_flight: u32,
    /// Of all.
    pub in_flight: u64,
    /// Arrived so far, each segment once with its headers, of the complete flows too.
    pub arrived_bytes: u64,
}

impl GroupSample {
    /// Of these flows, whose packets are of this size.
    pub(super) fn of(flows: &[Flow], packet_bytes: u32) -> Self {
        let mut sample = GroupSample::default();
        for flow in flows {
            sample.arrived_bytes += flow.receiver.distinct() * u64::from(packet_bytes);
            if flow.completed != NEVER {
                continue;
            }
            let in_flight = flow.sender.in_flight();
            sample.least_in_flight = match sample.active {
                0 => in_flight,
                _ => sample.least_in_flight.min(in_flight),
            };
            sample.most_in_flight = sample.most_in_flight.max(in_flight);
            sample.in_flight += u64::from(in_flight);
            sample.active += 1;
        }
        sample
    }
}

/// A flow's links, and its state that other flows share.
#[derive(Debug, Clone)]
pub struct Way {
    /// Links of its data.
    pub there: Vec<u32>,
    /// Links of its ACKs.
    pub back: Vec<u32>,
    /// Number of its host's path to its destination.
    pub path: u32,
    /// Number of its host.
    pub turn: u32,
}
