// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of one case: an experiment reduced to one variant on one link, in plain numbers:
//! the guest's input.

mod cross;
mod gateway;
mod messages;
mod path;
mod transfer;

use std::collections::BTreeMap;
use std::path::PathBuf;

use paceline_coordinator::algorithm::Choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::skeleton::{Benchmark, Class};

pub use cross::Cross;
pub use gateway::Gateway;
pub use messages::{Messages, Netpipe, OutOfCore};
pub use path::{
    Change, Codel, HostQueue, Impairments, Loss, Policer, Reorder, Step, When, ETHERNET_MTU,
    MOST_HOSTS,
};
pub use transfer::Transfer;

/// One shard of an experiment: everything that one machine, virtual or live,
/// runs in one go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Variant name with its suffixes, such as `cubic+tso`.
    pub variant: String,
    /// Scenario, empty if the experiment has only one.
    pub scenario: String,
    /// Seed of all random draws.
    pub seed: u64,
    /// The network.
    pub topology: Topology,
    /// The settings of this variant's sockets.
    pub adaptation: Adaptation,
    /// Run one after the other, each with jobs and connections of its own.
    pub workloads: Vec<Workload>,
}

/// Segments that leave a host back to back without offload, 12 KB. The stack itself makes
/// packets of up to 64 KB for any device, so switching TSO off is not enough. One
/// segment each would cost the guest more instructions than it has.
pub const UNOFFLOADED_SEGMENTS: u32 = 8;

/// A dumbbell: sender hosts, a router, one receiver host; or two clusters; or one switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Sender hosts, 1 to 250; with two clusters the hosts of the near one; with one switch
    /// all hosts.
    pub senders: u32,
    /// Hosts of the far cluster, the receiver among them; 0: one receiver at the
    /// bottleneck's end, and a bottleneck in its direction only.
    pub far_hosts: u32,
    /// All hosts are at one switch: there is no link but theirs, and each port towards a
    /// host has the rate, the delay and the queue of the bottleneck.
    // Usual values are left out here and below, so that the text of other plans stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_switch: bool,
    /// A host for a gateway stands at each end of the link: the router, and one more, which
    /// forwards to the receiver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gateways: bool,
    /// All packets are lost, in both directions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// Bottleneck, bits per second, framing included.
    pub rate_bps: u64,
    /// Propagation delay one way, nanoseconds.
    pub one_way_delay_ns: u64,
    /// Bottleneck's drop-tail queue, bytes.
    pub buffer_bytes: u64,
    /// Link of each host to the router, bits per second, framing included.
    pub edge_rate_bps: u64,
    /// Drop-tail queue of the router's port to each host, which then has the edge's
    /// rate in that direction too; 0: no limit of either.
    pub switch_buffer_bytes: u64,
    /// Window that connections begin with and keep, as long as nothing is lost; 0: the
    /// kernel's. Segments.
    pub initial_window: u32,
    /// Largest socket buffer that the kernel's auto-tuning may reach, bytes.
    pub socket_buffer_bytes: u64,
    /// 4 or 6.
    pub ip: u8,
    /// Segmentation offload on, as on a real host; off: the stack itself makes
    /// packets of one segment.
    pub offload: bool,
    /// Implementation of the bottleneck; absent: the backend's usual one.
    pub bottleneck: Option<Means>,
    /// Largest IP packet on every link, bytes.
    #[serde(default = "ethernet_mtu", skip_serializing_if = "is_ethernet_mtu")]
    pub mtu: u32,
    /// Queueing discipline of the hosts' interfaces; absent: first in first out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_queue: Option<HostQueue>,
    /// The impairments of the link.
    #[serde(default, skip_serializing_if = "is_unimpaired")]
    pub impairments: Impairments,
    /// Other traffic while bursts run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross: Option<Cross>,
    /// Changes of the link, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_unimpaired(impairments: &Impairments) -> bool {
    *impairments == Impairments::default()
}

fn ethernet_mtu() -> u32 {
    ETHERNET_MTU
}

fn is_ethernet_mtu(mtu: &u32) -> bool {
    *mtu == ETHERNET_MTU
}

/// The implementation of the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// The kernel's tbf and netem: usual on the virtual backend.
    Kernel,
    /// Paceline's emulator: usual on the live backend.
    Emulator,
}

/// How the sockets of a variant differ from the kernel's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Adaptation {
    /// TCP_CONGESTION of the senders' sockets; absent: the kernel's default.
    pub congestion: Option<String>,
    /// Paceline's policy for the senders' jobs.
    pub policy: Option<PolicySource>,
    /// The coordinator of the streams of a [`Streams`] workload: an algorithm with its
    /// parameters; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinate: Option<Choice>,
    /// The gateway on both of its hosts; absent: they forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// Written on every host before the workloads.
    pub sysctl: BTreeMap<String, String>,
}

/// Where a policy's text comes from. Both forms were checked on the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicySource {
    /// Built in.
    Preset(String),
    /// TOML.
    Text {
        /// For messages.
        file: String,
        /// Its content.
        text: String,
    },
}

/// The workload of the hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Workload {
    /// Chunks after idle.
    Burst(Burst),
    /// Many senders answer one receiver at once.
    Incast(Incast),
    /// Groups of long flows, bursty ones among them.
    Bulk(Bulk),
    /// Parallel transfers that begin together.
    Streams(Streams),
    /// Messages from one host to another, one way or in turn.
    Messages(Messages),
    /// Messages both ways in turn with growing sizes.
    Netpipe(Netpipe),
    /// A program of message-passing ranks, one on each host of the clusters.
    Ranks(Ranks),
    /// A real program: MPI ranks on the hosts of two clusters, or a server and a client.
    RealProgram(RealProgram),
    /// Files from the near hosts to the far ones, by `paceline send`.
    Transfer(Transfer),
}

/// A real program: that of an MPI library, as in matsuda-2005, 4.5, or a server's client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealProgram {
    /// Tail of the metrics' names.
    pub label: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its launcher, or the server that must run before it.
    pub starter: Starter,
    /// The initial contents of its working directory; absent: none.
    pub directory: Option<PathBuf>,
    /// Hash of its files, so that other files are another plan.
    pub inputs: u64,
    /// It is ended after this.
    pub timeout_ns: u64,
    /// Where `values` are read from; absent: its standard output.
    pub result_file: Option<String>,
    /// The speeds to read, of which more is better: a metric's last part, and a pattern of
    /// [`crate::file::program::pattern`].
    pub values: Vec<(String, String)>,
    /// The same of times, seconds, of which less is better.
    pub times: Vec<(String, String)>,
}

/// The launcher of a real program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "starter")]
pub enum Starter {
    /// The launcher of an MPI library.
    Launcher {
        /// One on each host, the first half of them in the near cluster.
        ranks: u32,
        /// The launcher's library.
        library: Library,
    },
    /// It is the client of a server: on the first far host, and that on the first near one,
    /// in the job of the variant's policy.
    Client {
        /// The server and its arguments.
        server: Vec<String>,
        /// The TCP port that it listens on when it is ready.
        port: u16,
    },
}

/// A family of MPI libraries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// Open MPI with ORTE, up to 4.1.
    #[default]
    OpenMpi,
    /// MPICH and libraries derived from it, with the launcher Hydra.
    Mpich,
}

/// A program of ranks: processes of their own, connected pair by pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranks {
    /// Tail of the metrics' names.
    pub label: String,
    /// Their program.
    pub program: Program,
}

/// A program of ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "program")]
pub enum Program {
    /// All-to-all and one-to-one in turn: matsuda-2005, 4.2.
    Switch(Switch),
    /// All-to-all, again and again: matsuda-2005, 4.4.
    AllToAll(AllToAll),
    /// A benchmark's messages, with sleep for its computing: matsuda-2005, 4.5.
    Skeleton(Skeleton),
    /// A matrix in files of all hosts: ligon-1999, 4.3.3.
    OutOfCore(OutOfCore),
}

/// Every rank sends a block to every other one, all at once, and waits for theirs; round
/// after round without a barrier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllToAll {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// How often.
    pub rounds: u32,
    /// The first round, from 1, that medians are taken over.
    pub from_round: u32,
}

/// A benchmark of [`crate::skeleton`], a part of its iterations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skeleton {
    /// Which one.
    pub benchmark: Benchmark,
    /// Its size.
    pub class: Class,
    /// Iterations that are run, of those that the benchmark has.
    pub iterations: u32,
    /// The first iteration, from 1, that the rest is reckoned from.
    pub from_iteration: u32,
    /// How often the whole is run.
    pub repeats: u32,
    /// Maximum random delay of each rank's start.
    pub spread_ns: u64,
}

/// Each cycle: an all-to-all between the clusters, in a phase of its own, then one
/// transfer from the first near host to the first far one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// Cycles.
    pub cycles: u32,
    /// The first cycle, from 1, that medians are taken over.
    pub from_cycle: u32,
    /// Bytes from each rank to each one of the other cluster, and as many back.
    pub block_bytes: u64,
    /// How often that is exchanged in one all-to-all phase.
    pub rounds: u32,
    /// Bytes of the transfer.
    pub transfer_bytes: u64,
    /// From the end of the transfer to the next cycle.
    pub pause_ns: u64,
}

/// A request, a one-byte reply, then silence; again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Tail of the metrics' names, such as `1MB`.
    pub label: String,
    /// The bursts, in order and then from the first on again.
    pub chunks: Vec<Chunk>,
    /// Bursts.
    pub count: u32,
    /// The first burst, from 1, that medians are taken over.
    pub from_burst: u32,
    /// Bursts, from 1, that have metrics of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<u32>,
    /// Connections that start together; each carries its share.
    pub connections: u32,
    /// Each burst on a connection, and in a job, of its own.
    pub fresh: bool,
    /// After so many bursts the connections are closed and new ones opened, in the same job;
    /// 0: they stay.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renew: u32,
    /// Each connection writes so many bytes first, and then the rest; 0: all at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub header_bytes: u32,
    /// The senders' sockets are without TCP_NODELAY.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nagle: bool,
    /// Number of the burst whose bandwidth is sampled, from 1.
    pub sample_burst: Option<u32>,
    /// An empty loop runs beside the bursts, and its loss of CPU time is measured.
    // Left out where it is false, so that the text of other plans stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty_loop: bool,
}

/// One burst of a [`Burst`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Tail of the metrics' names where bursts differ in size; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Bytes, all connections together.
    pub size_bytes: u64,
    /// From its reply to the next write.
    pub gap_ns: u64,
}

impl Burst {
    /// Burst `number`, from 1.
    pub fn chunk(&self, number: u32) -> &Chunk {
        let index = (number as usize).saturating_sub(1) % self.chunks.len();
        &self.chunks[index]
    }
}

/// N senders answer one request each, all sent at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incast {
    /// Tail of the metrics' names, such as `32KB/16/64KiB`.
    pub label: String,
    /// Senders that take part: the first N hosts of the topology.
    pub senders: u32,
    /// Bytes of each answer.
    pub answer_bytes: u64,
    /// Rounds.
    pub rounds: u32,
    /// The first round, from 1, that medians are taken over.
    pub from_round: u32,
    /// From the start of one round to the start of the next, if the first is
    /// over by then.
    pub period_ns: u64,
}

/// Parallel streams: as many bytes on each of several hosts' connections, all at once:
/// kamezawa-2004, 2.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streams {
    /// Tail of the metrics' names; empty for none.
    pub label: String,
    /// Sender hosts: the first ones of the topology.
    pub hosts: u32,
    /// Connections of each host.
    pub per_host: u32,
    /// Bytes of each connection.
    pub size_bytes: u64,
    /// How often the whole is run.
    pub repeats: u32,
    /// Hosts with a longer route, from the first on.
    pub distant_hosts: u32,
    /// Added to their round trip, nanoseconds.
    pub distant_rtt_ns: u64,
    /// A host whose programs stand still for a while.
    pub pause: Option<Pause>,
    /// When the coordinator dies, since the common start, nanoseconds; absent: never.
    pub coordinator_dies_ns: Option<u64>,
    /// Congestion control of an endless flow beside them, from the host after theirs.
    pub beside: Option<String>,
    /// Routes to the receiver, each that of the next hosts; none: all take the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// A route beside the link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Hosts that take it.
    pub hosts: u32,
    /// Bits per second, framing included.
    pub rate_bps: u64,
    /// Bytes of its drop-tail queue.
    pub buffer_bytes: u64,
    /// Its propagation there and back, nanoseconds.
    pub rtt_ns: u64,
}

/// When the programs of a host stand still.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    /// Which, from 1.
    pub host: u32,
    /// Since the common start, nanoseconds.
    pub at_ns: u64,
    /// For how long, nanoseconds.
    pub for_ns: u64,
}

/// Groups of flows side by side for a fixed time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bulk {
    /// Tail of the metrics' names; empty for none.
    pub label: String,
    /// Time over which goodput is taken, from the start of the first flow.
    pub duration_ns: u64,
    /// How often the whole is run, each time with other random starts.
    pub repeats: u32,
    /// Number of the repetition, from 1, that records the packets of the first group's flow.
    // Left out where it is absent, so that the text of other plans stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_repeat: Option<u32>,
    /// Group k sends from host k.
    pub groups: Vec<FlowGroup>,
}

/// Flows of one kind from one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowGroup {
    /// Tail of the metrics' names; empty for none.
    pub name: String,
    /// Flows, each one connection.
    pub flows: u32,
    /// When the group starts, after the beginning.
    pub start_ns: u64,
    /// Maximum random delay of each flow's start.
    pub spread_ns: u64,
    /// Congestion control of this group in all variants; absent: the
    /// variant's adaptation.
    pub congestion: Option<String>,
    /// Link of the group's host in all variants, bits per second; absent: the topology's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_rate_bps: Option<u64>,
    /// Bursts instead of one endless transfer.
    pub bursts: Option<BurstShape>,
}

/// Bursts within a bulk workload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BurstShape {
    /// Bytes of each burst.
    pub size_bytes: u64,
    /// Time from a reply to the next write.
    pub gap_ns: u64,
}

impl Topology {
    /// Segments of the largest packet that reaches the bottleneck without offload: on a
    /// dumbbell they are cut before it, between clusters by the bottleneck itself, so
    /// that packets which stay in a cluster are cheap.
    pub fn packet_segments(&self) -> u32 {
        match self.is_cluster() {
            false => 1,
            true => self.unoffloaded_segments(),
        }
    }

    /// Whether the hosts are those of clusters, on which programs of ranks run: of two, or
    /// of one at one switch.
    pub fn is_cluster(&self) -> bool {
        self.far_hosts > 0 || self.one_switch
    }

    /// Segments that leave a host back to back without offload: [`UNOFFLOADED_SEGMENTS`] of
    /// an Ethernet, or as few as hold that many bytes.
    pub fn unoffloaded_segments(&self) -> u32 {
        (UNOFFLOADED_SEGMENTS * ETHERNET_MTU).div_ceil(self.mtu)
    }
}

impl Plan {
    /// Name of the shard for people and files, such as `cubic+tso@32KiB`.
    pub fn shard_name(&self) -> String {
        if self.scenario.is_empty() {
            self.variant.clone()
        } else {
            format!("{}@{}", self.variant, self.scenario)
        }
    }

    /// Steps of progress that a run of this plan reports.
    pub fn steps(&self) -> u64 {
        self.workloads.iter().map(Workload::steps).sum()
    }
}

impl Workload {
    /// Steps of progress: bursts, rounds, seconds, sizes, cycles, iterations or programs.
    pub fn steps(&self) -> u64 {
        match self {
            Workload::Burst(burst) => u64::from(burst.count),
            Workload::Incast(incast) => u64::from(incast.rounds),
            Workload::Bulk(bulk) => {
                u64::from(bulk.repeats) * bulk.duration_ns.div_ceil(1_000_000_000)
            }
            Workload::Streams(streams) => u64::from(streams.repeats),
            Workload::Messages(messages) => u64::from(messages.repeats),
            Workload::Netpipe(netpipe) => netpipe.sizes.len() as u64,
            Workload::Ranks(ranks) => match &ranks.program {
                Program::Switch(switch) => u64::from(switch.cycles),
                Program::AllToAll(all) => u64::from(all.rounds),
                Program::Skeleton(skeleton) => {
                    u64::from(skeleton.repeats) * u64::from(skeleton.iterations)
                }
                Program::OutOfCore(program) => u64::from(program.iterations),
            },
            Workload::RealProgram(_) => 1,
            Workload::Transfer(transfer) => u64::from(transfer.repeats),
        }
    }

    /// Tail of the metrics' names.
    pub fn label(&self) -> &str {
        match self {
            Workload::Burst(burst) => &burst.label,
            Workload::Incast(incast) => &incast.label,
            Workload::Bulk(bulk) => &bulk.label,
            Workload::Streams(streams) => &streams.label,
            Workload::Messages(messages) => &messages.label,
            Workload::Netpipe(netpipe) => &netpipe.label,
            Workload::Ranks(ranks) => &ranks.label,
            Workload::RealProgram(program) => &program.label,
            Workload::Transfer(transfer) => &transfer.label,
        }
    }
}
