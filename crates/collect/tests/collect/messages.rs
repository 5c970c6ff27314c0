// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is made of messages, of NetPIPE's sizes and of a matrix in files, from outside.

use std::path::Path;

use paceline_collect::{report, Origin, ShardRecords};
use paceline_experiment::record::{
    LinkReading, MessagesRecord, NetpipeRecord, Record, RunRecord, TraceRecord, TracedPacket,
};
use paceline_experiment::Experiment;
use paceline_report::results::larger_is_better;
use paceline_report::Report;

const FILE: &str = r#"title = "A title"
description = "What for"
holds = ["cubic/ack_delay_s/one/100B <= 0.020"]

[link]
rate = "100mbit"
one_way_delay = "50us"
buffer = "64KiB"
clusters = [16]

[[messages]]
name = "one"
sizes = ["100B"]
count = 1000
repeats = 2
trace = 100

[[messages]]
name = "both"
sizes = ["1448B"]
count = 10
direction = "both"
writes = 2

[[messages]]
name = "paused"
sizes = ["14480B", "144800B"]
count = 10
gap = "5ms"

[[netpipe]]
largest = "3B"
time = "50ms"

[[outofcore]]
side = 2048
stripe = "64KiB"
compute = "26ms"
iterations = 4
from_iteration = 2

[variant.cubic]
congestion = "cubic"
"#;

const MS: u64 = 1_000_000;

fn report_of_all() -> Report {
    let experiment = Experiment::parse(FILE, Path::new("experiments/one.toml")).expect("valid");
    let plan = experiment.shards(false, None, &[]).expect("one").remove(0);
    let messages = |workload, time_ns, segments, acks| {
        Record::Messages(MessagesRecord {
            workload,
            time_ns,
            segments,
            acks,
            retransmitted: 0,
            spurious: 0,
        })
    };
    let pipe = |size_bytes, exchanges, time_ns| {
        Record::Netpipe(NetpipeRecord {
            workload: 4,
            size_bytes,
            exchanges,
            time_ns,
        })
    };
    let records = vec![
        Record::Begin {
            kernel: "6.1".to_owned(),
        },
        Record::Link(LinkReading {
            rate_bps: 100_000_000,
            rtt_ns: 100_000,
            buffer_bytes: None,
            largest_packet_bytes: 1448,
        }),
        messages(0, 2_000 * MS, 500, 250),
        messages(0, 1_000 * MS, 500, 100),
        Record::Trace(TraceRecord {
            workload: 0,
            packets: late_acks(),
        }),
        messages(1, 20 * MS, 20, 0),
        messages(2, 55 * MS, 100, 50),
        messages(3, 130 * MS, 1_000, 500),
        pipe(1, 100, 20 * MS),
        pipe(2, 10, 2 * MS),
        pipe(3, 10, 2 * MS),
        Record::Run(RunRecord {
            workload: 5,
            done_ns: vec![500 * MS, 900 * MS, 1_300 * MS, 1_700 * MS],
            from_ns: 480 * MS,
            segments: 1_000,
            retransmitted: 10,
            spurious: 0,
        }),
    ];
    let origin = Origin {
        backend: "virtual",
        command: "paceline lab run one.toml".to_owned(),
        partial: false,
    };
    let shard = ShardRecords {
        plan,
        repetitions: vec![records],
    };
    report(&experiment, &origin, &[shard]).expect("a report")
}

/// Twenty segments, of which the first sixteen are acknowledged at once and the others after
/// 10.1 ms, with the round trip of propagation.
fn late_acks() -> Vec<TracedPacket> {
    let of = |number: u32| {
        let time_ns = u64::from(number) * 60 * MS;
        let late_ns = match number {
            0..16 => 100_000,
            _ => 10_100_000,
        };
        let data = TracedPacket {
            time_ns,
            back: false,
            seq: number * 100,
            bytes: 100,
            ack: 0,
        };
        let ack = TracedPacket {
            time_ns: time_ns + late_ns,
            back: true,
            seq: 0,
            bytes: 0,
            ack: (number + 1) * 100,
        };
        [data, ack]
    };
    (0..20).flat_map(of).collect()
}

#[test]
fn messages_have_their_rates_and_acks() {
    let results = report_of_all().results;
    let of = |metric: &str| results.variants["cubic"][metric].runs.clone();
    assert_eq!(of("time_s/one/100B"), [2.0, 1.0]);
    assert_eq!(of("messages_per_s/one/100B"), [500.0, 1000.0]);
    assert_eq!(of("goodput_bps/one/100B"), [400e3, 800e3]);
    assert_eq!(of("acks_per_segment/one/100B"), [0.5, 0.2]);
    // Two messages of 1448 bytes and an answer, ten times in 20 ms.
    assert_eq!(of("messages_per_s/both/1448B"), [1000.0]);
    let goodput = of("goodput_bps/both/1448B")[0];
    assert!(
        (goodput - 10.0 * 3.0 * 1448.0 * 8.0 / 0.02).abs() < 1.0,
        "{goodput}"
    );
    // Three full packets of 1538 bytes at 100 Mbit/s and a round trip, each time.
    let bound = results.bounds["time_s/both/1448B"];
    assert!(
        (bound - 10.0 * (3.0 * 123.04e-6 + 100e-6)).abs() < 1e-9,
        "{bound}"
    );
    assert!(larger_is_better("messages_per_s/one/100B"));
    assert!(!larger_is_better("acks_per_segment/one/100B"));
}

/// A message is under way while its sender pauses: a bound that adds both is none.
#[test]
fn pauses_of_a_sender_cost_only_where_they_are_longer_than_its_messages() {
    let results = report_of_all().results;
    let bound = |size| results.bounds[&format!("time_s/paused/{size}")];
    assert!((bound("14480B") - 0.050).abs() < 1e-9, "ten pauses");
    let segments = 10.0 * 100.0 * 123.04e-6;
    assert!((bound("144800B") - segments - 100e-6).abs() < 1e-9);
}

#[test]
fn delayed_acks_are_those_after_the_first_ones() {
    let results = report_of_all().results;
    let delays = &results.variants["cubic"]["ack_delay_s/one/100B"];
    assert_eq!(delays.runs.len(), 4);
    assert!((delays.median - 0.010).abs() < 1e-9, "{}", delays.median);
    assert!(results.holds.iter().all(|hold| hold.pass));
}

#[test]
fn the_trace_is_a_ladder() {
    let report = report_of_all();
    let of_line = |line: &str| {
        let mut series = report.series.iter();
        let found = series.find(|one| one.experiment_part == "ladder/one/100B" && one.line == line);
        found.expect("a line").points.clone()
    };
    assert_eq!(of_line("data")[..2], [(0.0, 100.0), (60.0, 200.0)]);
    let acks = of_line("ACK");
    assert_eq!((acks.len(), acks[1].1), (20, 200.0));
    assert!((acks[1].0 - 60.1).abs() < 1e-9);
}

#[test]
fn a_bandwidth_is_of_half_an_exchange() {
    let report = report_of_all();
    let metrics = &report.results.variants["cubic"];
    // A byte in 0.1 ms.
    assert!((metrics["bandwidth_bps/1B"].median - 80_000.0).abs() < 1e-6);
    assert!((metrics["bandwidth_bps/2B"].median - 160_000.0).abs() < 1e-6);
    assert!(!metrics.contains_key("bandwidth_bps/3B"), "no power of two");
    let series = report
        .series
        .iter()
        .find(|series| series.experiment_part == "netpipe")
        .expect("a figure");
    let sizes: Vec<f64> = series
        .points
        .iter()
        .map(|(x, _)| x.exp2().round())
        .collect();
    assert_eq!(sizes, [1.0, 2.0, 3.0]);
}

#[test]
fn iterations_count_from_the_one_that_is_asked_for() {
    let results = report_of_all().results;
    let time = &results.variants["cubic"]["time_s"];
    assert!((time.median - 1.22).abs() < 1e-9, "{}", time.median);
    // Three iterations: 26 ms, and twice 15 shares of 128 KiB in 91 segments at 100 Mbit/s.
    let share_s = (131_072.0 + 91.0 * 90.0) * 8.0 / 100e6;
    let bound = 3.0 * (0.026 + 2.0 * 15.0 * share_s);
    assert!((results.bounds["time_s"] - bound).abs() < 1e-9);
    let again = results.variants["cubic"]["retransmitted_share"].median;
    assert!((again - 0.01).abs() < 1e-12, "{again}");
}
