// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between two hosts on this machine's kernel: at one switch, and over the emulator's
//! link. Needs root and tbf. Times are not judged: the machine may be busy.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use paceline_experiment::record::{MessagesRecord, NetpipeRecord, Record, TracedPacket};
use paceline_experiment::Experiment;
use paceline_lab::backend::live;

const FILE: &str = r#"title = "A title"
description = "What for"

[link]
rate = "100mbit"
one_way_delay = "0s"
buffer = "64KiB"
clusters = [3]

[[messages]]
name = "full"
sizes = ["1448B"]
count = 50
trace = 20

[[messages]]
sizes = ["100B"]
count = 5
direction = "both"
writes = 2
nagle = true

[[messages]]
name = "read"
sizes = ["1B"]
count = 3
gap = "1ms"
read_every = "20ms"

[[netpipe]]
largest = "8B"
trials = 2
time = "1ms"

[variant.cubic]
congestion = "cubic"
"#;

fn root() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "needs root under CI"
    );
    eprintln!("skipped: needs root");
    false
}

fn records(text: &str) -> Vec<Record> {
    let experiment = Experiment::parse(text, Path::new("experiments/one.toml")).expect("valid");
    let plans = experiment.shards(false, None, &[]).expect("one variant");
    live::run(&plans[0], &|_| (), &AtomicBool::new(false)).expect("it runs")
}

fn messages(records: &[Record], index: usize) -> MessagesRecord {
    let run = records.iter().find_map(|record| match record {
        Record::Messages(run) if run.workload == index => Some(run.clone()),
        _ => None,
    });
    run.expect("a run of each")
}

/// What is the same on either network.
fn is_complete(records: &[Record]) {
    let full = messages(records, 0);
    // A write may be more than one segment where the last one has not left yet.
    assert!(
        (50..=55).contains(&(full.segments - full.retransmitted)),
        "{full:?}"
    );
    assert!((1..=60).contains(&full.acks), "{full:?}");
    let exchanges = messages(records, 1);
    // Nagle's algorithm holds the second write of each exchange back.
    assert!(exchanges.segments >= 10, "{exchanges:?}");
    let reading = messages(records, 2);
    assert!(
        reading.time_ns >= 20_000_000,
        "it reads once in 20 ms: {reading:?}"
    );
    let sizes: Vec<NetpipeRecord> = records
        .iter()
        .filter_map(|record| match record {
            Record::Netpipe(size) => Some(*size),
            _ => None,
        })
        .collect();
    let bytes: Vec<u64> = sizes.iter().map(|size| size.size_bytes).collect();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(sizes
        .iter()
        .all(|size| size.exchanges >= 7 && size.time_ns > 0));
    let traced: Vec<TracedPacket> = records
        .iter()
        .find_map(|record| match record {
            Record::Trace(trace) => Some(trace.packets.clone()),
            _ => None,
        })
        .expect("a trace");
    assert!((2..=20).contains(&traced.len()), "{traced:?}");
    let first = traced[0];
    assert_eq!((first.time_ns, first.back, first.seq), (0, false, 0));
    assert!(first.bytes >= 1448);
    assert!(traced
        .iter()
        .any(|packet| packet.back && packet.ack >= 1448));
    assert!(traced.is_sorted_by_key(|packet| packet.time_ns));
}

#[test]
fn messages_pass_one_switch() {
    if root() {
        is_complete(&records(FILE));
    }
}

#[test]
fn messages_pass_a_link_with_a_return_rate() {
    if root() {
        let link = FILE
            .replacen("clusters = [3]", "return_rate = \"50mbit\"", 1)
            .replacen("\"0s\"", "\"2ms\"", 1);
        let records = records(&link);
        is_complete(&records);
        let reading = records.iter().find_map(|record| match record {
            Record::Link(reading) => Some(*reading),
            _ => None,
        });
        let reading = reading.expect("the link is read back");
        assert!(reading.rtt_ns >= 4_000_000, "there and back: {reading:?}");
    }
}
