// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long flows from outside: interfaces per variant and per group, and what is made of the
//! packets of one of them.

use std::path::Path;

use paceline_collect::{report, Origin, ShardRecords};
use paceline_experiment::plan::{Plan, Workload};
use paceline_experiment::record::{LinkReading, PacketRecord, Record, RoundTrip};
use paceline_experiment::Experiment;
use paceline_report::Report;

const GOOD: &str = r#"title = "A title"
description = "What for"

[link]
rate = "100mbit"
one_way_delay = "50ms"
buffer = "128KiB"

[[bulk]]
duration = "10s"
repeats = 20
quick_repeats = 3
sample_repeat = 2

[[bulk.flows]]
spread = "1s"

[[bulk.flows]]
name = "other"
edge_rate = "200mbit"
burst = "64KB"
gap = "500ms"

[variant.fast]
congestion = "cubic"

[variant.slow]
congestion = "cubic"
edge_rate = "20mbit"
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, Path::new("experiments/flows.toml")).map_err(|error| error.to_string())
}

fn plans(text: &str, quick: bool) -> Vec<Plan> {
    let experiment = parse(text).expect("valid");
    experiment.shards(quick, None, &[]).expect("all variants")
}

#[test]
fn interfaces_are_of_the_link_the_variant_or_the_group() {
    let both = plans(GOOD, false);
    let edges: Vec<u64> = both
        .iter()
        .map(|plan| plan.topology.edge_rate_bps)
        .collect();
    assert_eq!(edges, [1_000_000_000, 20_000_000]);
    for (quick, repeats) in [(false, 20), (true, 3)] {
        for plan in plans(GOOD, quick) {
            let Workload::Bulk(bulk) = &plan.workloads[0] else {
                panic!("{:?}", plan.workloads);
            };
            assert_eq!((bulk.repeats, bulk.sample_repeat), (repeats, Some(2)));
            let own: Vec<_> = bulk
                .groups
                .iter()
                .map(|group| group.edge_rate_bps)
                .collect();
            assert_eq!(own, [None, Some(200_000_000)]);
        }
    }
    // Plans without any of it stay as they were.
    let without = GOOD
        .replace("sample_repeat = 2\n", "")
        .replace("edge_rate = \"200mbit\"\n", "");
    let text = serde_json::to_string(&plans(&without, false)[0]).expect("a plan is JSON");
    assert!(!text.contains("sample_repeat"), "{text}");
    assert_eq!(text.matches("edge_rate_bps").count(), 1, "{text}");
}

#[test]
fn errors_name_file_line_and_key() {
    for (from, to, at, key, problem) in [
        (
            "quick_repeats = 3",
            "quick_repeats = 21",
            "12:17",
            "bulk.quick_repeats",
            "no more",
        ),
        (
            "quick_repeats = 3",
            "quick_repeats = 0",
            "12:17",
            "bulk.quick_repeats",
            "1 to 1000",
        ),
        (
            "sample_repeat = 2",
            "sample_repeat = 4",
            "13:17",
            "bulk.sample_repeat",
            "quick_repeats",
        ),
        (
            "spread = \"1s\"",
            "count = 2",
            "13:17",
            "bulk.sample_repeat",
            "must have one, and no bursts",
        ),
        (
            "\"50ms\"",
            "\"0s\"",
            "13:17",
            "bulk.sample_repeat",
            "a delay",
        ),
        (
            "\"20mbit\"",
            "20",
            "29:13",
            "variant.slow.edge_rate",
            "mbit",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let message = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        let place = format!("experiments/flows.toml:{at}: {key}: ");
        assert!(
            message.starts_with(&place) && message.contains(problem),
            "{message}"
        );
    }
}

/// What comes of a variant whose flow was seen like this, on a link read as `rate_bps`.
fn report_of(variant: &str, rate_bps: u64, round_trips: Vec<RoundTrip>) -> Report {
    let experiment = parse(GOOD).expect("valid");
    let plan = experiment
        .shards(false, None, &[variant.to_owned()])
        .expect("there")
        .remove(0);
    let records = vec![
        Record::Link(LinkReading {
            rate_bps,
            rtt_ns: 100_000_000,
            buffer_bytes: None,
            largest_packet_bytes: 1448,
        }),
        Record::Packets(PacketRecord {
            workload: 0,
            per_ms: vec![4, 0, 0, 2],
            rtt_ns: 100_000_000,
            round_trips,
        }),
    ];
    let origin = Origin {
        backend: "virtual",
        command: String::new(),
        partial: true,
    };
    let shard = ShardRecords {
        plan,
        repetitions: vec![records],
    };
    report(&experiment, &origin, &[shard]).expect("a report")
}

#[test]
fn rates_of_a_round_trip_are_those_of_the_paper() {
    let round = |wire_bytes, busy_ms: u64, slow_start| RoundTrip {
        wire_bytes,
        busy_ns: busy_ms * 1_000_000,
        slow_start,
    };
    let found = report_of(
        "fast",
        100_000_000,
        vec![
            round(0, 0, true),
            round(100_000, 10, true),
            round(200_000, 80, true),
            round(400_000, 50, false),
            // A threshold that is gone again is no slow start from the beginning.
            round(400_000, 50, true),
        ],
    );
    assert!(found.results.valid, "{:?}", found.results.warnings);
    let metrics = &found.results.variants["fast"];
    assert_eq!(metrics["packet_to_flow"].runs, [10.0, 1.25]);
    assert_eq!(found.results.bounds["packet_to_flow"], 1.0);
    assert_eq!(metrics["idle_share"].runs, [0.5]);
    assert_eq!(metrics["most_in_1ms"].runs, [4.0]);
    let line = |part: &str, line: &str| {
        let mut all = found.series.iter();
        let series = all.find(|series| series.experiment_part == part && series.line == line);
        series.expect(part).points.clone()
    };
    assert_eq!(line("packets", "")[..2], [(0.0, 4.0), (0.001, 0.0)]);
    // Mbit/s, round trip by round trip.
    let flow_level = line("rates", "flow-level");
    assert_eq!(flow_level[1..3], [(0.1, 8.0), (0.2, 16.0)]);
    let packet_level = line("rates", "packet-level");
    assert_eq!(packet_level[1..3], [(0.1, 80.0), (0.2, 20.0)]);
}

#[test]
fn a_slow_interface_is_what_is_read_back() {
    assert!(report_of("slow", 20_000_000, Vec::new()).results.valid);
    let wrong = report_of("slow", 100_000_000, Vec::new()).results;
    assert!(!wrong.valid);
    assert!(
        wrong.warnings[0].contains("instead of 20.0"),
        "{:?}",
        wrong.warnings
    );
    assert!(!report_of("fast", 20_000_000, Vec::new()).results.valid);
}
