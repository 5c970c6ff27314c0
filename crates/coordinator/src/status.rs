// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status of a group: a record per round, and a history of the last ones.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Rounds whose records are kept.
const KEPT_RECORDS: usize = 120;
/// Rounds whose latencies are kept: 99 % of 1,000 leaves out ten.
const KEPT_LATENCIES: usize = 1000;

/// Progress of a stream.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Progress {
    /// Its host's name.
    pub host: String,
    /// [`crate::local::StreamSample::cookie`].
    pub cookie: u64,
    /// Acknowledged, bytes.
    pub acked_bytes: u64,
    /// Declared, bytes; 0: not said.
    pub total_bytes: u64,
}

/// The record of a round.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct RoundRecord {
    /// Its number.
    pub round: u64,
    /// When it began, seconds since the server did.
    pub time_s: f64,
    /// The algorithm, as it was chosen.
    pub algorithm: String,
    /// Members of the group.
    pub clients: usize,
    /// Those that reported in time.
    pub reported: usize,
    /// Streams.
    pub streams: usize,
    /// Smallest, largest and mean number of segments in flight, and all together.
    pub inflight_min: u32,
    /// Largest.
    pub inflight_max: u32,
    /// Mean.
    pub inflight_mean: f64,
    /// Sum.
    pub inflight_total: u64,
    /// Largest less smallest, as a share of the mean; 0 with nothing in flight.
    pub inflight_spread: f64,
    /// Sum of the upper limits, segments; 0: none was set.
    pub limit_total: u64,
    /// Acknowledged by all streams that are open, bytes.
    pub acked_bytes: u64,
    /// Retransmitted by them, segments.
    pub retransmitted_segs: u64,
    /// In Recovery or Loss.
    pub recovering: usize,
    /// The stream that is furthest, by its share of the total or by bytes.
    pub fastest: Option<Progress>,
    /// The one that is least far.
    pub slowest: Option<Progress>,
}

/// How long rounds took, from the first poll until the last answer was on its way.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Latency {
    /// Rounds that this is about.
    pub rounds: usize,
    /// Half were faster, milliseconds.
    pub p50_ms: f64,
    /// 99 % were faster, milliseconds.
    pub p99_ms: f64,
    /// The slowest, milliseconds.
    pub max_ms: f64,
}

/// The last rounds.
#[derive(Debug, Default)]
pub(crate) struct History {
    records: VecDeque<RoundRecord>,
    latencies: VecDeque<Duration>,
}

impl History {
    pub fn add(&mut self, record: RoundRecord) {
        if self.records.len() == KEPT_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub fn add_latency(&mut self, latency: Duration) {
        if self.latencies.len() == KEPT_LATENCIES {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
    }

    pub fn last(&self) -> Option<&RoundRecord> {
        self.records.back()
    }

    pub fn records(&self) -> impl Iterator<Item = &RoundRecord> {
        self.records.iter()
    }

    pub fn latency(&self) -> Latency {
        let mut all: Vec<Duration> = self.latencies.iter().copied().collect();
        all.sort_unstable();
        let at = |share: f64| {
            let place = ((all.len() as f64 * share).ceil() as usize).max(1) - 1;
            all.get(place).map_or(0.0, |d| d.as_secs_f64() * 1e3)
        };
        Latency {
            rounds: all.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    }
}

/// A client, for `status`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct ClientStatus {
    /// Its host's name.
    pub host: String,
    /// Streams that it reported last.
    pub streams: usize,
    /// Seconds since it reported.
    pub silent_s: f64,
    /// Rounds in which it was late.
    pub late: u64,
}

/// A group, for `status`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct GroupStatus {
    /// Its name.
    pub group: String,
    /// As it was chosen.
    pub algorithm: String,
    /// The algorithm's estimates.
    pub beliefs: Vec<String>,
    /// Length of a round, seconds.
    pub period_s: f64,
    /// How long windows hold without a coordinator, seconds.
    pub lease_s: f64,
    /// Rounds.
    pub latency: Latency,
    /// Members.
    pub clients: Vec<ClientStatus>,
    /// The last round.
    pub last: Option<RoundRecord>,
    /// Those before it, oldest first; empty where there are too many groups.
    pub history: Vec<RoundRecord>,
}

/// Refusals for one reason, for `status`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Refusal {
    /// The kind.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// The last one: peer and reason.
    pub last: String,
    /// Seconds since then.
    pub last_ago_s: f64,
}

/// A coordinator, for `status`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// Seconds since it began.
    pub uptime_s: f64,
    /// The algorithm of new groups.
    pub algorithm: String,
    /// Connections that were refused, and members that were dismissed.
    pub refused: u64,
    /// Why, one entry for each reason.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
    /// By name.
    pub groups: Vec<GroupStatus>,
}
