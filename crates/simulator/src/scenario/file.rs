// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a scenario file; `docs/simulator.md` describes them.

use indexmap::IndexMap;
use paceline_coordinator::algorithm::Choice;
use paceline_input::units::{Rate, Size, Time};
use serde::Deserialize;

use crate::red::RedConfig;
use crate::sender::config::{Algorithm, Halves, Stack};

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// One line.
    pub title: String,
    /// What is asked, and how the bounds are derived.
    #[serde(default)]
    pub description: String,
    /// Seed of the first run.
    #[serde(default = "one")]
    pub seed: u64,
    /// Runs of each point, with a seed each.
    #[serde(default = "once")]
    pub seeds: u32,
    /// Simulated time.
    pub duration: Time,
    /// When the steady part begins; absent: there is none.
    pub steady_from: Option<Time>,
    /// Window of the burst meter; absent: the round-trip propagation delay of the first flow.
    pub window: Option<Time>,
    /// The link whose queue is looked at; absent: the first.
    pub measure: Option<String>,
    /// What must hold.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Links that flows share.
    pub link: IndexMap<String, LinkTable>,
    /// What all senders have in common.
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
    /// What is compared.
    #[serde(default)]
    pub variant: IndexMap<String, VariantTable>,
    /// What is varied.
    #[serde(default)]
    pub axis: IndexMap<String, AxisTable>,
    /// What is sampled over time by `sim run`.
    pub trace: Option<TraceTable>,
}

fn one() -> u64 {
    1
}
fn once() -> u32 {
    1
}

/// A full-duplex link.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    /// Each direction.
    pub rate: Rate,
    /// Propagation, one way.
    pub delay: Time,
    /// The queue in the direction of the data; absent: it takes everything.
    #[serde(default)]
    pub queue: QueueTable,
    /// In the direction of the ACKs; absent: it takes everything.
    #[serde(default)]
    pub reverse_queue: QueueTable,
}

/// A queue.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueTable {
    /// Packets that may wait.
    pub packets: Option<u32>,
    /// Bytes that may wait.
    pub bytes: Option<Size>,
    /// Early drops.
    pub red: Option<RedConfig>,
}

/// Settings of senders. What is absent is as the stack has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenderTable {
    /// The algorithm; absent: the one of the table's name.
    pub algorithm: Option<Algorithm>,
    /// The habits; absent: `rfc`, and `linux` for CUBIC and BIC.
    pub stack: Option<Stack>,
    /// A packet with its headers.
    pub packet: Option<Size>,
    /// An ACK.
    pub ack: Option<Size>,
    /// Receiver's window, segments.
    pub window: Option<u32>,
    /// Segments.
    pub initial_window: Option<u32>,
    /// Segments.
    pub initial_ssthresh: Option<u32>,
    /// Before anything is measured.
    pub rto_initial: Option<Time>,
    /// Floor of the timeout.
    pub rto_min: Option<Time>,
    /// Its bound.
    pub rto_max: Option<Time>,
    /// Tick of the clock that measures round trips; `0s`: none.
    pub rto_tick: Option<Time>,
    /// Data waits until the connection is set up.
    pub handshake: Option<bool>,
    /// Each ACK measures a round trip.
    pub timestamps: Option<bool>,
    /// The window grows only if it was used.
    pub validate: Option<bool>,
    /// What a loss halves.
    pub halve: Option<Halves>,
    /// Segments by which the window is inflated as recovery begins.
    pub inflation: Option<u32>,
    /// Recovery ends with what is in flight, not with ssthresh.
    pub exit_to_flight: Option<bool>,
    /// RFC 3042.
    pub limited_transmit: Option<bool>,
    /// An ACK for every so many segments; 1: for each.
    pub ack_every: Option<u32>,
    /// The longest that an ACK waits.
    pub ack_delay: Option<Time>,
    /// Vegas: segments queued at least.
    pub alpha: Option<f64>,
    /// Vegas: at most.
    pub beta: Option<f64>,
    /// Vegas: at the end of slow start.
    pub gamma: Option<f64>,
    /// Paceline's laws: a preset's name, or a policy file beside this one.
    pub policy: Option<String>,
}

/// A transfer, of one group of flows or of several on routes of their own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// The coordinator's algorithm, with its parameters.
    pub coordinate: Choice,
}

/// A group of flows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsTable {
    /// How many; with `hosts`, from each host to each other one.
    #[serde(default = "once")]
    pub count: u32,
    /// A switch's hosts, all of which send to all others: each has a link to the switch
    /// and one from it.
    pub hosts: Option<u32>,
    /// The sender: a table of `[sender]`, or an algorithm's name.
    pub tcp: String,
    /// Each host's own link, to the first of `path`; absent: it takes no time.
    pub edge_rate: Option<Rate>,
    /// Its delay, one way.
    #[serde(default)]
    pub edge_delay: Time,
    /// Its queue; with `hosts`, that of the switch's port too.
    #[serde(default)]
    pub edge_queue: QueueTable,
    /// The links that it goes over.
    #[serde(default)]
    pub path: Vec<String>,
    /// The table of `[group]` whose coordinator bounds their windows; absent: nobody does.
    pub group: Option<String>,
    /// The application.
    pub source: SourceTable,
    /// When the flows start.
    #[serde(default)]
    pub start: Time,
    /// Each up to this much later, at random.
    #[serde(default)]
    pub spread: Time,
    /// Flows of one host, which share its link and what Paceline knows of the path.
    #[serde(default = "once")]
    pub per_host: u32,
}

/// An application: one of these.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SourceTable {
    /// Packets with exponentially distributed times between them, of this mean.
    Poisson(Time),
    /// As much as goes, or so much.
    Bulk(BulkTable),
    /// Packets at a rate, and pauses.
    OnOff(OnOffTable),
    /// All at once, again and again: a collective operation and the reckoning after it.
    Phases(PhasesTable),
    /// A file of lines `seconds,bytes` beside this one.
    Trace(String),
}

/// See [`SourceTable::Bulk`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkTable {
    /// Payload and headers; absent: without end.
    pub size: Option<Size>,
}

/// See [`SourceTable::OnOff`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnOffTable {
    /// While it is on.
    pub rate: Rate,
    /// Mean.
    pub on: Time,
    /// Mean.
    pub off: Time,
    /// Shape of Pareto-distributed lengths; absent: they are exponential.
    pub pareto: Option<f64>,
    /// Always the mean.
    #[serde(default)]
    pub fixed: bool,
}

/// See [`SourceTable::Phases`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasesTable {
    /// Of each flow.
    pub size: Size,
    /// From the last arrival to the next phase.
    #[serde(default)]
    pub compute: Time,
    /// How often; absent: until the end.
    #[serde(default)]
    pub count: u32,
    /// Each flow up to this much later, at random.
    #[serde(default)]
    pub spread: Time,
}

/// Something that is compared with others.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantTable {
    /// Keys of this file and what they are in this variant.
    #[serde(default)]
    pub set: IndexMap<String, toml::Value>,
}

/// Something that is varied.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisTable {
    /// Key of this file.
    pub set: String,
    /// Its values.
    pub values: Vec<toml::Value>,
    /// Between two of them there are more runs.
    pub more: Option<MoreTable>,
}

/// More runs where the scatter is large.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoreTable {
    /// The first value.
    pub from: f64,
    /// The last.
    pub to: f64,
    /// Runs of each.
    pub seeds: u32,
}

/// What is sampled.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceTable {
    /// From sample to sample.
    pub every: Time,
    /// The first so many flows' windows.
    #[serde(default)]
    pub flows: u32,
}
