// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live backend on this machine's kernel. Needs root.
//!
//! The machine may be busy: what a run measured is only judged when the run
//! itself says that it is to be trusted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use paceline_experiment::plan::{
    Adaptation, Burst, Change, Chunk, Cross, Impairments, Plan, Step, Topology, When, Workload,
};
use paceline_experiment::record::Record;
use paceline_lab::backend::live::{self, LiveError};
use paceline_lab::run::{run, Backend, Enough, Options, RunError};
use paceline_report::Report;

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

fn plan(variant: &str, congestion: &str, ip: u8) -> Plan {
    Plan {
        variant: variant.to_owned(),
        scenario: String::new(),
        seed: 1,
        topology: Topology {
            far_hosts: 0,
            gateways: false,
            down: false,
            one_switch: false,
            senders: 1,
            rate_bps: 100_000_000,
            one_way_delay_ns: 5_000_000,
            buffer_bytes: 131_072,
            edge_rate_bps: 1_000_000_000,
            switch_buffer_bytes: 0,
            initial_window: 0,
            socket_buffer_bytes: 4_000_000,
            ip,
            offload: true,
            bottleneck: None,
            mtu: 1500,
            host_queue: None,
            cross: None,
            impairments: Impairments::default(),
            steps: vec![Step {
                when: When::Burst {
                    number: 4,
                    after_ns: 0,
                },
                change: Change {
                    rate_bps: Some(50_000_000),
                    ..Change::default()
                },
            }],
        },
        adaptation: Adaptation {
            coordinate: None,
            gateway: None,
            congestion: Some(congestion.to_owned()),
            policy: None,
            sysctl: BTreeMap::from([(
                "net.ipv4.tcp_slow_start_after_idle".to_owned(),
                "0".to_owned(),
            )]),
        },
        workloads: vec![Workload::Burst(Burst {
            label: "500KB".to_owned(),
            chunks: chunks(100_000_000),
            count: 4,
            from_burst: 3,
            positions: Vec::new(),
            connections: 1,
            fresh: false,
            renew: 0,
            header_bytes: 0,
            nagle: false,
            sample_burst: Some(4),
            empty_loop: false,
        })],
    }
}

fn chunks(gap_ns: u64) -> Vec<Chunk> {
    vec![Chunk {
        label: String::new(),
        size_bytes: 500_000,
        gap_ns,
    }]
}

fn once(plan: &Plan) -> Vec<Record> {
    live::run(plan, &|_| (), &AtomicBool::new(false)).unwrap()
}

#[test]
fn plans_take_turns_and_each_has_its_link() {
    if !root() {
        return;
    }
    let idle_restart = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";
    let before = std::fs::read_to_string(idle_restart).unwrap();
    let plans = [plan("cubic", "cubic", 4), plan("reno", "reno", 6)];
    let order: Vec<usize> = (0..2).flat_map(|round| live::turns(2, round)).collect();
    assert_eq!(order, [0, 1, 1, 0]);
    let mut filled = 0;
    for index in order {
        let records = once(&plans[index]);
        assert_eq!(std::fs::read_to_string(idle_restart).unwrap(), before);
        let bursts: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                Record::Burst(burst) => Some(burst),
                _ => None,
            })
            .collect();
        assert_eq!(bursts.len(), 4);
        // 500,000 bytes at the line's rate and the round trip: no burst is faster.
        for burst in &bursts {
            let rate_bps = if burst.burst == 4 {
                50_000_000
            } else {
                100_000_000
            };
            assert!(burst.completion_ns > 500_000 * 8_000_000_000 / rate_bps + 10_000_000);
        }
        assert!(records
            .iter()
            .any(|record| matches!(record, Record::Samples(_))));
        let link = records.iter().find_map(|record| match record {
            Record::Link(reading) => Some(*reading),
            _ => None,
        });
        let link = link.unwrap();
        // A busy host may send the train too slowly to fill the queue.
        if let Some(buffer) = link.buffer_bytes {
            assert!((131_072 - 1_514..=131_072).contains(&buffer), "{buffer}");
            filled += 1;
        }
        assert!(link.rtt_ns >= 10_000_000);
    }
    assert!(filled > 0, "no train filled the queue");
}

/// The rate that a run read back, if it is to be trusted.
fn valid_rate(records: &[Record]) -> Option<u64> {
    let untrusted = records.iter().find_map(|record| match record {
        Record::Untrusted { text } => Some(text),
        _ => None,
    });
    if let Some(text) = untrusted {
        println!("not to be trusted: {text}");
        return None;
    }
    records.iter().find_map(|record| match record {
        Record::Link(reading) => Some(reading.rate_bps),
        _ => None,
    })
}

/// A machine that is late now and then is not so in each of these runs, and a link of another
/// rate is one in all of them.
const ATTEMPTS: usize = 5;

#[test]
fn the_link_is_read_back_as_it_is_and_another_one_is_not() {
    if !root() {
        return;
    }
    let mut wanted = plan("cubic", "cubic", 4);
    wanted.topology.steps.clear();
    let Workload::Burst(burst) = &mut wanted.workloads[0] else {
        panic!("the plan is of bursts");
    };
    (burst.count, burst.from_burst, burst.sample_burst) = (1, 1, None);
    let mut other = wanted.clone();
    other.topology.rate_bps = 97_000_000;
    for (installed, right) in [(&wanted, true), (&other, false)] {
        let mut rates = Vec::new();
        for _ in 0..ATTEMPTS {
            let Some(rate_bps) = valid_rate(&once(installed)) else {
                continue;
            };
            rates.push(rate_bps);
            if wanted.topology.is_rate(rate_bps) {
                break;
            }
        }
        // Where no run is to be trusted, each says so, and nothing is decided.
        let is_it = rates
            .iter()
            .any(|rate_bps| wanted.topology.is_rate(*rate_bps));
        assert!(is_it == right || rates.is_empty(), "{right}: {rates:?}");
    }
}

/// Endless flows, and short ones that begin when chance has it, from a second host.
#[test]
fn other_traffic_crosses_the_link_while_bursts_run() {
    if !root() {
        return;
    }
    let congestion = "cubic".to_owned();
    let short = Cross::Short {
        congestion: congestion.clone(),
        size_bytes: 20_000,
        per_second: 50.0,
    };
    let endless = Cross::Endless {
        congestion,
        flows: 2,
    };
    for cross in [short, endless] {
        let mut plan = plan("cubic", "cubic", 4);
        plan.topology.steps.clear();
        plan.topology.senders = 2;
        plan.topology.cross = Some(cross.clone());
        let records = once(&plan);
        let found = records.iter().find_map(|record| match record {
            Record::Cross(record) => Some(record.clone()),
            _ => None,
        });
        let found = found.expect("a record of it");
        let rate_bps = found.bytes as f64 * 8e9 / found.elapsed_ns as f64;
        match cross {
            Cross::Short { .. } => {
                // Of some 100 that 2 s and the bursts see a tenth is chance.
                let mean = found.elapsed_ns as f64 * 50e-9;
                let count = found.flows_ns.len() as f64;
                assert!((0.5 * mean..1.5 * mean).contains(&count), "{found:?}");
                assert_eq!(found.bytes, found.flows_ns.len() as u64 * 20_000);
                // A handshake, two windows and the answer.
                let least = found.flows_ns.iter().min();
                assert!(least >= Some(&20_000_000), "{least:?}");
            }
            Cross::Endless { .. } => {
                assert!(found.flows_ns.is_empty());
                assert!((10e6..100e6).contains(&rate_bps), "{rate_bps}");
            }
        }
        // Bursts go on beside it.
        let bursts = records
            .iter()
            .filter(|record| matches!(record, Record::Burst(_)));
        assert_eq!(bursts.count(), 4);
    }
}

#[test]
fn a_run_stops_when_the_flag_is_set() {
    if !root() {
        return;
    }
    let stop = AtomicBool::new(false);
    let progress = |_| stop.store(true, Ordering::Relaxed);
    let outcome = live::run(&plan("cubic", "cubic", 4), &progress, &stop);
    assert!(matches!(outcome, Err(LiveError::Interrupted)));
}

#[test]
fn buffers_smaller_than_the_path_are_reported() {
    if !root() {
        return;
    }
    let mut small = plan("cubic", "cubic", 4);
    small.workloads = vec![Workload::Burst(Burst {
        label: "500KB".to_owned(),
        chunks: chunks(10_000_000),
        count: 1,
        from_burst: 1,
        positions: Vec::new(),
        connections: 1,
        fresh: false,
        renew: 0,
        header_bytes: 0,
        nagle: false,
        sample_burst: None,
        empty_loop: false,
    })];
    small.topology.steps.clear();
    // The path holds 125,000 bytes.
    for (buffer, enough) in [(249_999, false), (250_000, true)] {
        small.topology.socket_buffer_bytes = buffer;
        let is_reported = once(&small).iter().any(|record| {
            matches!(record, Record::Untrusted { text }
                if text.contains("raise link.socket_buffer to 250000B at least"))
        });
        assert_ne!(is_reported, enough, "{buffer}");
    }
}

const EXPERIMENT: &str = r#"
title = "Rounds"
description = "A few bursts."

[link]
rate = "50mbit"
one_way_delay = "5ms"
buffer = "64KiB"

[[burst]]
size = "100KB"
gap = "20ms"
count = 4
from_burst = 2

[variant.reno]
congestion = "reno"

[variant.cubic]
congestion = "cubic"
"#;

#[test]
fn an_experiment_is_repeated_and_goes_on_where_it_was() {
    if !root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rounds.toml");
    std::fs::write(&path, EXPERIMENT).unwrap();
    let options = |percent: f64, seconds| Options {
        backend: Backend::Live,
        quick: false,
        seed: None,
        variants: Vec::new(),
        jobs: 1,
        kernel: paceline_machine::Choice::default(),
        log: None,
        enough: Enough {
            precision: percent / 100.0,
            budget: Duration::from_secs(seconds),
        },
        progress: false,
        out: directory.path().join("out"),
    };
    let kept =
        || std::fs::read_dir(directory.path().join("out/unfinished")).map_or(0, Iterator::count);
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| run(&path, &options(100.0, 0), &stop));
        while !run.is_finished() && kept() < 1 {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        run.join().unwrap()
    });
    let error = outcome.expect_err("it was stopped");
    // One, or some more where this thread was late.
    assert!(
        matches!(error, RunError::Interrupted { done: 1.., .. }),
        "{error}"
    );
    let runs = |report: &Report, rounds: usize| {
        // Of each variant, three bursts a round count.
        for metrics in report.results.variants.values() {
            assert_eq!(metrics["completion_s/100KB"].runs.len(), 3 * rounds);
        }
        assert_eq!(kept(), 2 * rounds);
        let note = report.results.notes.iter().chain(&report.results.warnings);
        let note: Vec<_> = note.filter(|note| note.contains("rounds: ")).collect();
        assert_eq!(note.len(), 1, "{note:?}");
        note[0].clone()
    };
    let go_on = |percent, seconds| run(&path, &options(percent, seconds), &AtomicBool::new(false));
    // A budget of nothing still has three rounds, and no ratio is known to nothing.
    let report = go_on(0.0, 0).unwrap();
    let note = runs(&report, 3);
    assert!(
        note.contains("3 rounds: the ratio of reno to cubic in completion_s/100KB"),
        "{note}"
    );
    // These are enough for who asks for less, and nothing is run again.
    let report = go_on(100.0, 600).unwrap();
    let note = runs(&report, 3);
    assert!(
        note.contains("3 rounds: each ratio to cubic is known to within"),
        "{note}"
    );
}
