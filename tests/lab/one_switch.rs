// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of ranks on hosts at one switch, on this machine's kernel. Needs root and tbf. It is
//! its own harness, because each rank is a process of this very program. Times are not judged:
//! the machine may be busy.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use paceline_experiment::record::{CpuRecord, Record, RunRecord};
use paceline_experiment::Experiment;
use paceline_lab::backend::live;
use paceline_lab::workload::ranks;

const FILE: &str = r#"title = "A title"
description = "What for"

[link]
rate = "100mbit"
one_way_delay = "0s"
buffer = "64KiB"
socket_buffer = "512KiB"
clusters = [4]

[[alltoall]]
blocks = ["20KB"]
rounds = 4
from_round = 2

[[outofcore]]
name = "jacobi"
side = 64
stripe = "1KiB"
compute = "2ms"
iterations = 5
from_iteration = 3

[variant.cubic]
congestion = "cubic"
"#;

const TEST: &str = "ranks_run_at_one_switch";

fn main() {
    if ranks::is_rank() {
        ranks::rank_main();
    }
    if std::env::args().any(|argument| argument == "--list") {
        println!("{TEST}: test");
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "needs root under CI"
        );
        println!("{TEST}: skipped: needs root");
        return;
    }
    let experiment = Experiment::parse(FILE, Path::new("experiments/one.toml")).expect("valid");
    let plans = experiment.shards(false, None, &[]).expect("one variant");
    let records = live::run(&plans[0], &|_| (), &AtomicBool::new(false)).expect("it runs");
    all_to_all(&records);
    out_of_core(&records);
    println!("{TEST}: ok");
}

fn run(records: &[Record], workload: usize) -> (RunRecord, CpuRecord) {
    let run = records.iter().find_map(|record| match record {
        Record::Run(run) if run.workload == workload => Some(run.clone()),
        _ => None,
    });
    let cpu = records.iter().find_map(|record| match record {
        Record::Cpu(cpu) if cpu.workload == workload => Some(*cpu),
        _ => None,
    });
    (run.expect("a run"), cpu.expect("its CPU"))
}

/// Each of four ranks sends a block to three others, four times; what arrives at the first
/// host in the rounds that count is seen.
fn all_to_all(records: &[Record]) {
    let (run, cpu) = run(records, 0);
    assert_eq!(run.done_ns.len(), 4);
    assert!(
        run.done_ns.is_sorted() && run.from_ns < run.done_ns[3],
        "{run:?}"
    );
    assert_eq!(cpu.payload_bytes, 4 * 4 * 3 * 20_000);
    let seen: u64 = records
        .iter()
        .filter_map(|record| match record {
            Record::Samples(samples) if samples.workload == 0 => Some(&samples.bytes_per_ms),
            _ => None,
        })
        .flatten()
        .sum();
    // Of three rounds, some of the second may have come before it counts.
    assert!((2 * 3 * 20_000..5 * 3 * 20_000).contains(&seen), "{seen}");
}

/// In each iteration each rank reads and writes 2 KiB at each of three others, and has a row of
/// 512 bytes from each neighbour.
fn out_of_core(records: &[Record]) {
    let (run, cpu) = run(records, 1);
    assert_eq!(run.done_ns.len(), 5);
    // Each iteration computes for 2 ms.
    assert!(
        run.done_ns.is_sorted() && run.done_ns[4] >= 10_000_000,
        "{run:?}"
    );
    let slabs = 4 * 3 * (2_048 + 2_048 + 16);
    let rows = 6 * 512;
    assert_eq!(cpu.payload_bytes, 5 * (slabs + rows));
    assert!(run.segments >= 5 * 4 * 3 * 4, "{run:?}");
}
