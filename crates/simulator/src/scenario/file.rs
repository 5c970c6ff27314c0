// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a scenario file; `docs/simulator.md` describes them.

use indexmap::IndexMap;
use paceline_coordinator::algorithm::Choice;
use paceline_input::units::{Rate, Size, Time};
use schemars::JsonSchema;
use serde::Deserialize;

use super::controls::{AtoTable, Preset, RtoTable, RttTable};
use crate::red::RedConfig;
use crate::sender::config::{Algorithm, Halves, Stack};

/// Parts of a window that arrivals are counted in, for other time scales.
pub const WINDOW_PARTS: u64 = 4;
/// Runs of a point at most.
const MOST_SEEDS: u32 = 10_000;
/// Four months: all times fit 64 bits of nanoseconds, with room.
pub(super) const LONGEST: Time = Time::from_secs(10_000_000);
/// Of a window, for instance: their sums fit 64 bits.
const MOST_SEGMENTS: u32 = 1_000_000_000;
pub(super) const MICROSECOND: Time = Time::from_micros(1);
/// A window of so many parts, each a microsecond.
const LEAST_WINDOW: Time = Time::from_micros(WINDOW_PARTS);
/// Least length of a packet.
const LEAST_PACKET: Size = Size::from_bytes(1);
const MOST_PACKET: Size = Size::from_bytes(1 << 16);

/// A simulation: network, flows, variants to compare and axes to vary.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Paceline scenario")]
pub struct File {
    /// One line.
    pub title: String,
    /// The question, and the derivation of the bounds.
    #[serde(default)]
    pub description: String,
    /// Seed of the first run.
    #[serde(default = "one")]
    pub seed: u64,
    /// Runs of each point, with a seed each.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = MOST_SEEDS))]
    pub seeds: u32,
    /// Simulated time.
    #[schemars(extend("x-range" = [MICROSECOND, LONGEST], "examples" = ["10s"]))]
    pub duration: Time,
    /// Start of the steady part; absent: there is none.
    pub steady_from: Option<Time>,
    /// Window of the burst meter; absent: the round-trip propagation delay of the first flow.
    #[schemars(extend("x-range" = [LEAST_WINDOW, LONGEST]))]
    pub window: Option<Time>,
    /// The link whose queue is measured; absent: the first.
    pub measure: Option<String>,
    /// The claims: conditions that must hold.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Links that flows share.
    pub link: IndexMap<String, LinkTable>,
    /// Defaults of all senders.
    #[serde(default)]
    pub tcp: SenderTable,
    /// Kinds of senders.
    #[serde(default)]
    pub sender: IndexMap<String, SenderTable>,
    /// Transfers whose streams are coordinated.
    #[serde(default)]
    pub group: IndexMap<String, GroupTable>,
    /// Groups of flows.
    pub flows: IndexMap<String, FlowsTable>,
    /// The variants to compare.
    #[serde(default)]
    pub variant: IndexMap<String, VariantTable>,
    /// The axes: keys to vary.
    #[serde(default)]
    pub axis: IndexMap<String, AxisTable>,
    /// The time series that `sim run` samples.
    pub trace: Option<TraceTable>,
}

fn one() -> u64 {
    1
}
fn once() -> u32 {
    1
}

/// A full-duplex link.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    /// Rate of each direction.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Rate,
    /// One-way propagation delay.
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub delay: Time,
    /// The queue in the direction of the data; absent: unlimited.
    #[serde(default)]
    pub queue: QueueTable,
    /// The queue in the direction of the ACKs; absent: unlimited.
    #[serde(default)]
    pub reverse_queue: QueueTable,
}

/// A queue.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueTable {
    /// Capacity in packets.
    pub packets: Option<u32>,
    /// Capacity in bytes.
    pub bytes: Option<Size>,
    /// Random early detection (RED).
    pub red: Option<RedConfig>,
}

/// Settings of senders. An absent key has the stack's value.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SenderTable {
    /// The algorithm; absent: the one of the table's name.
    pub algorithm: Option<Algorithm>,
    /// TCP implementation to model; absent: `rfc`, and `linux` for CUBIC and BIC.
    pub stack: Option<Stack>,
    /// A packet with its headers.
    #[schemars(extend("x-range" = [LEAST_PACKET, MOST_PACKET]))]
    pub packet: Option<Size>,
    /// An ACK.
    #[schemars(extend("x-range" = [LEAST_PACKET, MOST_PACKET]))]
    pub ack: Option<Size>,
    /// Receiver's window, segments.
    #[schemars(range(min = 1, max = MOST_SEGMENTS))]
    pub window: Option<u32>,
    /// Initial window, segments.
    #[schemars(range(min = 1, max = MOST_SEGMENTS))]
    pub initial_window: Option<u32>,
    /// Initial ssthresh, segments.
    #[schemars(range(min = 1, max = MOST_SEGMENTS))]
    pub initial_ssthresh: Option<u32>,
    /// Initial RTO, before the first RTT sample.
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub rto_initial: Option<Time>,
    /// Minimum RTO.
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub rto_min: Option<Time>,
    /// Maximum RTO.
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub rto_max: Option<Time>,
    /// Tick of the clock that measures round trips; `0s`: none.
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub rto_tick: Option<Time>,
    /// Data waits until the connection is set up.
    pub handshake: Option<bool>,
    /// Each ACK measures a round trip.
    pub timestamps: Option<bool>,
    /// The window grows only if it was used.
    pub validate: Option<bool>,
    /// The quantity that a loss halves.
    pub halve: Option<Halves>,
    /// Segments by which the window is inflated as recovery begins.
    #[schemars(range(max = 3))]
    pub inflation: Option<u32>,
    /// The window after recovery is at most the data in flight and a segment (RFC 6582, option 1), not ssthresh.
    pub exit_to_flight: Option<bool>,
    /// Limited transmit (RFC 3042).
    pub limited_transmit: Option<bool>,
    /// Segments per ACK; 1: an ACK for each segment.
    #[schemars(range(min = 1, max = MOST_SEGMENTS))]
    pub ack_every: Option<u32>,
    /// Maximum delay of an ACK.
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub ack_delay: Option<Time>,
    /// Vegas: minimum of queued segments.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub alpha: Option<f64>,
    /// Vegas: maximum of queued segments.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub beta: Option<f64>,
    /// Vegas: queued segments that end slow start.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub gamma: Option<f64>,
    /// Tick of the kernel's clock, at which timers expire; `0s`: at any time.
    #[schemars(extend("x-range" = [null, "1s"]))]
    pub timer_tick: Option<Time>,
    /// Computation of SRTT and mdev (ligon-1999, 3.0.3).
    pub rtt: Option<RttTable>,
    /// Bounds of the RTO, or a constant RTO (ligon-1999, 3.0.4).
    pub rto: Option<RtoTable>,
    /// Delay of an ACK (ligon-1999, 3.0.1).
    pub ato: Option<AtoTable>,
    /// A constant window, segments, through losses, timeouts and pauses (ligon-1999, 3.0.2).
    #[schemars(range(min = 1, max = MOST_SEGMENTS))]
    pub fixed_window: Option<u32>,
    /// Slow start after a timeout or a pause begins with the initial window too (ligon-1999, 3.0.2).
    pub initial_window_again: Option<bool>,
    /// Values for the keys that are absent here: the Beowulf Transmission Policy (ligon-1999, 4.3).
    pub preset: Option<Preset>,
    /// Paceline's laws: a preset's name, or a policy file in the directory of this file.
    pub policy: Option<String>,
}

/// A transfer, of one group of flows or of several on routes of their own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// The coordinator's algorithm, with its parameters.
    #[schemars(with = "String", extend("format" = "coordinator", "examples" = ["even"]))]
    pub coordinate: Choice,
}

/// A group of flows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowsTable {
    /// Number of flows; with `hosts`, the number from each host to each other host.
    #[serde(default = "once")]
    pub count: u32,
    /// A switch's hosts, all of which send to all others: each has a link to the switch
    /// and one from it.
    pub hosts: Option<u32>,
    /// The sender: a table of `[sender]`, or an algorithm's name.
    pub tcp: String,
    /// Rate of each host's own link, to the first link of `path`; absent: no serialization delay.
    pub edge_rate: Option<Rate>,
    /// One-way delay of each host's own link.
    #[serde(default)]
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub edge_delay: Time,
    /// Queue of each host's own link; with `hosts`, that of the switch's port too.
    #[serde(default)]
    pub edge_queue: QueueTable,
    /// The links of the route, in order.
    #[serde(default)]
    #[schemars(length(max = 200))]
    pub path: Vec<String>,
    /// The table of `[group]` whose coordinator bounds the flows' windows; absent: none.
    pub group: Option<String>,
    /// The application.
    pub source: SourceTable,
    /// Start time of the flows.
    #[serde(default)]
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub start: Time,
    /// Maximum random delay of each flow's start.
    #[serde(default)]
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub spread: Time,
    /// Flows of one host, which share its link and Paceline's state of the path.
    #[serde(default = "once")]
    #[schemars(range(min = 1))]
    pub per_host: u32,
}

/// An application: one of these.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SourceTable {
    /// Packets with exponentially distributed times between them, of this mean.
    Poisson(
        #[schemars(description = "Mean of the times between packets.")]
        #[schemars(extend("x-range" = [MICROSECOND, LONGEST]))]
        Time,
    ),
    /// A bulk transfer, endless or of a given size.
    Bulk(BulkTable),
    /// Packets at a rate, and pauses.
    OnOff(OnOffTable),
    /// All flows at once, repeatedly: a collective operation and the computation after it.
    Phases(PhasesTable),
    /// A file of lines `seconds,bytes` in the directory of this file.
    Trace(#[schemars(description = "The file's name.")] String),
}

/// See [`SourceTable::Bulk`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkTable {
    /// Payload and headers; absent: without end.
    pub size: Option<Size>,
}

/// See [`SourceTable::OnOff`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnOffTable {
    /// Rate during an on time.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Rate,
    /// Mean.
    #[schemars(extend("x-range" = [MICROSECOND, LONGEST]))]
    pub on: Time,
    /// Mean.
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub off: Time,
    /// Shape of Pareto-distributed lengths; absent: they are exponential.
    #[schemars(extend("exclusiveMinimum" = 1.0), range(max = 100))]
    pub pareto: Option<f64>,
    /// All lengths equal the mean.
    #[serde(default)]
    pub fixed: bool,
}

/// See [`SourceTable::Phases`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhasesTable {
    /// Bytes of each flow.
    pub size: Size,
    /// Time from the last arrival to the next phase.
    #[serde(default)]
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub compute: Time,
    /// Number of phases; absent: until the end.
    #[serde(default)]
    pub count: u32,
    /// Maximum random delay of each flow's start.
    #[serde(default)]
    #[schemars(extend("x-range" = [null, LONGEST]))]
    pub spread: Time,
}

/// A variant to compare.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VariantTable {
    /// Keys of this file and their values in this variant.
    #[serde(default)]
    #[schemars(with = "IndexMap<String, serde_json::Value>")]
    pub set: IndexMap<String, toml::Value>,
}

/// An axis: a key to vary.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AxisTable {
    /// Key of this file.
    pub set: String,
    /// Values of the key.
    #[schemars(with = "Vec<serde_json::Value>", length(min = 1))]
    pub values: Vec<toml::Value>,
    /// A range of values with more runs.
    pub more: Option<MoreTable>,
}

/// More runs where the scatter is large.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoreTable {
    /// The first value.
    pub from: f64,
    /// The last value.
    pub to: f64,
    /// Runs of each value.
    #[schemars(range(max = MOST_SEEDS))]
    pub seeds: u32,
}

/// What is sampled.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceTable {
    /// Sampling interval.
    #[schemars(extend("x-range" = [MICROSECOND, LONGEST]))]
    pub every: Time,
    /// Number of flows whose windows are sampled.
    #[serde(default)]
    pub flows: u32,
}
