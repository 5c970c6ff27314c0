// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of a case run, one a line, as JSON. All times are whole
//! nanoseconds: equal runs give equal bytes.

use std::io;

use serde::{Deserialize, Serialize};

/// Takes the records of a run, in order.
pub type Sink<'a> = &'a mut dyn FnMut(&Record) -> io::Result<()>;

/// One line from a case run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "record")]
pub enum Record {
    /// The machine is up and begins.
    Begin {
        /// Kernel release.
        kernel: String,
    },
    /// The link, read back before the workloads.
    Link(LinkReading),
    /// The link's impairments, read back before the workloads.
    Impairments(ImpairmentReading),
    /// So many of [`crate::plan::Plan::steps`] are done.
    Progress {
        /// Since the beginning.
        done: u64,
    },
    /// One burst.
    Burst(BurstRecord),
    /// One round of incast.
    Round(RoundRecord),
    /// One flow of a bulk workload.
    Flow(FlowRecord),
    /// One run of parallel streams.
    Streams(StreamsRecord),
    /// One run of messages between two hosts.
    Messages(MessagesRecord),
    /// One size of messages there and back.
    Netpipe(NetpipeRecord),
    /// The packets of one connection.
    Trace(TraceRecord),
    /// One run of a program of ranks.
    Run(RunRecord),
    /// One run of an MPI program.
    RealProgram(RealProgramRecord),
    /// One transfer of files.
    Transfer(TransferRecord),
    /// Other traffic beside the bursts of one workload.
    Cross(CrossRecord),
    /// Bandwidth over one burst.
    Samples(SampleRecord),
    /// The packets of one flow of a bulk workload.
    Packets(PacketRecord),
    /// Bytes read by the programs of a bulk workload over time.
    Arrivals(ArrivalRecord),
    /// Datagrams of a gateway over one run of a bulk workload.
    Gateway(GatewayRecord),
    /// Timers over one workload.
    Timers(TimerRecord),
    /// CPU over one workload.
    Cpu(CpuRecord),
    /// A remark that belongs in the results.
    Warning {
        /// For people.
        text: String,
    },
    /// Why the run is invalid.
    Untrusted {
        /// For people.
        text: String,
    },
    /// Output of a command in the guest.
    Printed {
        /// Where.
        stream: Stream,
        /// Whole lines, but for the last of all.
        text: String,
    },
    /// A command in the guest ended.
    Exited {
        /// Its exit status, or 128 plus the signal that ended it.
        status: i32,
    },
    /// The run stopped.
    Failed {
        /// Why.
        text: String,
    },
    /// The run is complete.
    End,
}

/// Where a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Packets over which a rate is worth measuring.
pub const LEAST_QUEUED: usize = 12;

/// The link as measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkReading {
    /// Bottleneck's rate, bits per second, framing included.
    pub rate_bps: u64,
    /// Round trip of a small packet, nanoseconds, nothing queued.
    pub rtt_ns: u64,
    /// Capacity of the bottleneck's queue, bytes; absent if the edge is not fast
    /// enough to fill it.
    pub buffer_bytes: Option<u64>,
    /// TCP payload bytes that leave the sender's stack in one packet at most.
    pub largest_packet_bytes: u64,
}

/// Impairments of packets on the link, as measured; absent where the plan has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ImpairmentReading {
    /// Share of probes towards the receiver that were lost.
    pub lost_share: Option<f64>,
    /// How much longer than the delay the slowest one took, nanoseconds.
    pub jitter_ns: Option<u64>,
    /// Share of arrived probes that others had overtaken.
    pub overtaken_share: Option<f64>,
    /// Probes that the shares are of.
    pub probes: u64,
    /// Rate that passes the policer, bits per second, framing included.
    pub policer_bps: Option<u64>,
    /// Rate of the way back, bits per second, framing included.
    pub return_rate_bps: Option<u64>,
    /// From one arrival of packets that wait for each other to the next, nanoseconds.
    pub ack_slot_ns: Option<u64>,
    /// Target and interval of CoDel, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codel_ns: Option<(u64, u64)>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One burst, all its connections together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BurstRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// From 1.
    pub burst: u32,
    /// First write to the arrival of the last reply, nanoseconds.
    pub completion_ns: u64,
    /// When it began, since the workload did, nanoseconds; where the link changes by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ns: Option<u64>,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that the receiver reported as arrived twice.
    pub spurious: u64,
    /// Segments that arrived with Congestion Experienced.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marked: u64,
    /// Congestion window of the first connection before and after, segments.
    pub cwnd: [u32; 2],
    /// Slow-start threshold likewise; 2147483647 is the kernel's "none".
    pub ssthresh: [u32; 2],
    /// CPU time that an empty loop beside the burst lost, and the burst's time, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_ns: Option<(u64, u64)>,
    /// Retransmission time-outs and tail-loss probes in it; from the simulator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<u64>,
}

/// One round of incast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// From 1.
    pub round: u32,
    /// Common start to the last reply, nanoseconds.
    pub completion_ns: u64,
    /// Longest time in the round without a byte of any answer, nanoseconds.
    pub longest_pause_ns: u64,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that the receiver reported as arrived twice.
    pub spurious: u64,
}

/// One flow of a bulk workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// Index into the workload's groups.
    pub group: usize,
    /// Index within the group.
    pub flow: u32,
    /// Bytes that reached the receiving program in time.
    pub bytes: u64,
    /// From the flow's start to the workload's end, nanoseconds.
    pub active_ns: u64,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that arrived with Congestion Experienced.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marked: u64,
    /// Each burst's completion, nanoseconds; empty for endless transfers.
    pub bursts_ns: Vec<u64>,
}

/// Bytes that programs read, all receivers together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArrivalRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// Length of a bin, nanoseconds.
    pub bin_ns: u64,
    /// Bytes of each bin since the beginning.
    pub bytes: Vec<u64>,
}

/// Datagrams of the near gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// Datagrams.
    pub sent: u64,
    /// Those that it marked lost.
    pub lost: u64,
    /// Those that arrived although it had marked them lost.
    pub spurious: u64,
    /// Most that it sent to the link in any 10 ms, bytes with framing.
    pub most_in_10ms_bytes: u64,
}

/// One run of parallel streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamsRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// From 0.
    pub repeat: u32,
    /// When the last byte of each had arrived, nanoseconds since the common start.
    pub done_ns: Vec<u64>,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that the receiver reported as arrived twice.
    pub spurious: u64,
    /// Bytes that arrived of the flow beside them, until the last stream was over.
    pub beside_bytes: u64,
    /// And over which time, nanoseconds.
    pub beside_ns: u64,
    /// From one sample to the next, nanoseconds.
    pub step_ns: u64,
    /// How they went on, since the common start.
    pub samples: Vec<StreamSample>,
}

/// Interval of samples of all streams, nanoseconds: half of a long round trip.
pub const SAMPLE_NS: u64 = 100_000_000;

/// All streams at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSample {
    /// That have not arrived whole.
    pub active: u32,
    /// Arrived of all together.
    pub arrived_bytes: u64,
    /// Arrived of the slowest.
    pub slowest_bytes: u64,
    /// Arrived of the fastest.
    pub fastest_bytes: u64,
    /// Of those that are active, segments.
    pub least_inflight: u32,
    /// Likewise.
    pub most_inflight: u32,
    /// Of all that are active, segments.
    pub total_inflight: u64,
}

impl StreamSample {
    /// By each stream's delivered bytes, and its inflight unless it is complete.
    pub fn of(streams: &[(u64, Option<u32>)]) -> Self {
        let arrived = || streams.iter().map(|(arrived, _)| *arrived);
        let inflight = || streams.iter().filter_map(|(_, inflight)| *inflight);
        Self {
            active: inflight().count().try_into().unwrap_or(u32::MAX),
            arrived_bytes: arrived().sum(),
            slowest_bytes: arrived().min().unwrap_or(u64::MAX),
            fastest_bytes: arrived().max().unwrap_or(0),
            least_inflight: inflight().min().unwrap_or(0),
            most_inflight: inflight().max().unwrap_or(0),
            total_inflight: inflight().map(u64::from).sum(),
        }
    }
}

/// One run of messages between two hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessagesRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// From the first write until the sender had the answer to all, nanoseconds.
    pub time_ns: u64,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments without data that came back meanwhile.
    pub acks: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that the receiver reported as arrived twice.
    pub spurious: u64,
}

/// One size of messages there and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetpipeRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// Bytes of a message.
    pub size_bytes: u64,
    /// Exchanges of the fastest trial.
    pub exchanges: u32,
    /// How long they took together, nanoseconds.
    pub time_ns: u64,
}

/// The first packets of a connection, as they passed the router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// In the order of their times.
    pub packets: Vec<TracedPacket>,
}

/// One packet of a trace. Sequence numbers are relative to the first traced ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// Since the first one, nanoseconds.
    pub time_ns: u64,
    /// It comes from the receiver.
    pub back: bool,
    /// Number of its first byte.
    pub seq: u32,
    /// Bytes of payload.
    pub bytes: u32,
    /// Number of the byte that its sender waits for.
    pub ack: u32,
}

/// One run of a program of ranks, all ranks together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// When the last rank completed the part before the loop, each iteration, and the part
    /// after the loop, nanoseconds since the common start.
    pub done_ns: Vec<u64>,
    /// When the first rank began the counted part, nanoseconds since the common start.
    pub from_ns: u64,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that the receiver reported as arrived twice.
    pub spurious: u64,
}

/// One run of a real program, all hosts together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealProgramRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// From its start to its end, nanoseconds; of MPI, the launcher's.
    pub elapsed_ns: u64,
    /// Results in its output: the plan's values, and its times.
    pub values: Vec<f64>,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Paceline's part in it, where the variant has a policy.
    pub governed: Option<Governed>,
}

/// One transfer of files, all hosts together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// From 0.
    pub repeat: u32,
    /// From the command's start to its end, nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes of all files.
    pub payload_bytes: u64,
    /// When the last piece of each stream was acknowledged, nanoseconds; none where several
    /// hosts send.
    pub streams_ns: Vec<u64>,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Bytes that arrived of the flow beside it, from the command's start to its end; and over
    /// which time, nanoseconds.
    pub beside_bytes: u64,
    /// See [`TransferRecord::beside_bytes`].
    pub beside_ns: u64,
}

/// Other traffic while the bursts of one workload ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CrossRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// Payload that arrived.
    pub bytes: u64,
    /// Over this time, nanoseconds.
    pub elapsed_ns: u64,
    /// Of short flows: how long each took from its SYN to its last ACK, nanoseconds.
    pub flows_ns: Vec<u64>,
}

/// Paceline's status of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Governed {
    /// Connections that had the policy.
    pub connections: u64,
    /// Times that its ranks had entered a phase at the last check.
    pub phases: u64,
}

/// Bytes that reached the bottleneck's input, per millisecond.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// From 1.
    pub burst: u32,
    /// Bytes on the wire, framing included, in each millisecond since the first
    /// write.
    pub bytes_per_ms: Vec<u64>,
}

/// How the packets of one long flow reached the bottleneck's input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// Packets in each millisecond since the flow's start.
    pub per_ms: Vec<u64>,
    /// Propagation there and back, nanoseconds.
    pub rtt_ns: u64,
    /// Each round trip since the flow's start.
    pub round_trips: Vec<RoundTrip>,
}

/// One round trip of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Bytes on the wire, framing included.
    pub wire_bytes: u64,
    /// The round trip without its longest silence, nanoseconds: busy Δt of kamezawa-2004, 2.3.
    pub busy_ns: u64,
    /// Whether the sender was in slow start all the time: its threshold was still the
    /// kernel's "none" at the end.
    pub slow_start: bool,
}

/// Retransmission timers of the sender hosts over one workload, as the kernel
/// counts them (`/proc/net/netstat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TimerRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// Retransmission time-outs: TCPTimeouts.
    pub timeouts: u64,
    /// Of these, for nothing: TCPSpuriousRTOs.
    pub spurious_timeouts: u64,
    /// Tail-loss probes: TCPLossProbes.
    pub loss_probes: u64,
}

/// CPU over one workload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// Index into the plan's workloads.
    pub workload: usize,
    /// CPU time not idle, nanoseconds, all CPUs together.
    pub busy_ns: u64,
    /// Largest error of `busy_ns` upwards, nanoseconds: the kernel counts idle time in steps
    /// of 10 ms.
    pub unsure_ns: u64,
    /// Time with data to send, nanoseconds.
    pub active_ns: u64,
    /// CPUs.
    pub cpus: u32,
    /// TCP payload that reached the receiving programs, bytes.
    pub payload_bytes: u64,
}
