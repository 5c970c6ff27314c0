// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is made of bursts, and of what crosses the link beside them, from outside.

use std::path::Path;

use paceline_collect::{report, Origin, ShardRecords};
use paceline_experiment::record::{BurstRecord, CrossRecord, LinkReading, Record};
use paceline_experiment::Experiment;
use paceline_report::results::larger_is_better;

const FILE: &str = r#"title = "A title"
description = "What for"
holds = ["cubic/cross_s/1MB <= 0.080", "cubic/cross_bps/1MB@mean >= 1e6"]

[link]
rate = "100mbit"
one_way_delay = "5ms"
buffer = "64KiB"
cross = { load = "2%", size = "25KB" }

[[burst]]
size = "1MB"
gap = "1s"
count = 1

[variant.cubic]
congestion = "cubic"
"#;

#[test]
fn other_traffic_has_its_rate_and_its_times_and_no_bound() {
    let experiment = Experiment::parse(FILE, Path::new("experiments/one.toml")).expect("valid");
    let plan = experiment.shards(false, None, &[]).expect("one").remove(0);
    let burst = BurstRecord {
        workload: 0,
        burst: 1,
        completion_ns: 100_000_000,
        began_ns: None,
        segments: 700,
        retransmitted: 7,
        spurious: 0,
        marked: 0,
        cwnd: [10, 20],
        ssthresh: [20, 20],
        loop_ns: None,
        timers: None,
    };
    let records = vec![
        Record::Begin {
            kernel: "6.1".to_owned(),
        },
        Record::Link(LinkReading {
            rate_bps: 100_000_000,
            rtt_ns: 10_000_000,
            buffer_bytes: None,
            largest_packet_bytes: 1448,
        }),
        Record::Burst(burst),
        Record::Cross(CrossRecord {
            workload: 0,
            bytes: 75_000,
            elapsed_ns: 500_000_000,
            flows_ns: vec![30_000_000, 50_000_000, 70_000_000],
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
    let results = report(&experiment, &origin, &[shard])
        .expect("a report")
        .results;
    let cubic = &results.variants["cubic"];
    assert_eq!(cubic["cross_bps/1MB"].median, 1_200_000.0);
    assert_eq!(cubic["cross_s/1MB"].median, 0.05);
    assert_eq!(cubic["cross_s/1MB"].runs.len(), 3);
    assert!(larger_is_better("cross_bps/1MB") && !larger_is_better("cross_s/1MB"));
    assert!(!results.bounds.keys().any(|name| name.starts_with("cross")));
    assert!(results.holds.iter().all(|claim| claim.pass));
}
