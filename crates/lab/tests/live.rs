// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live backend on this machine's kernel. Needs root.
//!
//! The machine may be busy: what a run measured is only judged when the run
//! itself says that it is to be trusted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use paceline_lab::live::{self, LiveError};
use paceline_lab::plan::{Adaptation, Burst, Plan, Step, Topology, Workload};
use paceline_lab::record::Record;

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
        },
        adaptation: Adaptation {
            congestion: Some(congestion.to_owned()),
            policy: None,
            sysctl: BTreeMap::from([(
                "net.ipv4.tcp_slow_start_after_idle".to_owned(),
                "0".to_owned(),
            )]),
        },
        workloads: vec![Workload::Burst(Burst {
            label: "500KB".to_owned(),
            size_bytes: 500_000,
            gap_ns: 100_000_000,
            count: 4,
            from_burst: 3,
            connections: 1,
            fresh: false,
            sample_burst: Some(4),
            steps: vec![Step {
                at_burst: 4,
                rate_bps: 50_000_000,
            }],
        })],
    }
}

#[test]
fn plans_take_turns_and_the_link_is_the_one_asked_for() {
    if !root() {
        return;
    }
    let idle_restart = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";
    let before = std::fs::read_to_string(idle_restart).unwrap();
    let plans = [plan("cubic", "cubic", 4), plan("reno", "reno", 6)];
    let order = std::cell::RefCell::new(Vec::new());
    let progress = |index, round, done| {
        if done == 1 {
            order.borrow_mut().push((round, index));
        }
    };
    let results = live::run(&plans, 2, &progress, &AtomicBool::new(false)).unwrap();
    assert_eq!(order.into_inner(), [(0, 0), (0, 1), (1, 1), (1, 0)]);
    assert_eq!(std::fs::read_to_string(idle_restart).unwrap(), before);
    assert_eq!(results.len(), 2);
    for records in results.iter().flatten() {
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
        let buffer = link.buffer_bytes.unwrap();
        assert!((131_072 - 1_514..=131_072).contains(&buffer), "{buffer}");
        assert!(link.rtt_ns >= 10_000_000);
        let trusted = !records
            .iter()
            .any(|record| matches!(record, Record::Untrusted { .. }));
        if trusted {
            assert!(link.rate_bps.abs_diff(100_000_000) < 1_000_000, "{link:?}");
        }
    }
}

#[test]
fn stops_when_told_to() {
    if !root() {
        return;
    }
    let stop = AtomicBool::new(false);
    let progress = |_, _, _| stop.store(true, Ordering::Relaxed);
    let outcome = live::run(&[plan("cubic", "cubic", 4)], 100, &progress, &stop);
    assert!(matches!(outcome, Err(LiveError::Interrupted)));
}

#[test]
fn buffers_smaller_than_the_path_are_told() {
    if !root() {
        return;
    }
    let mut small = plan("cubic", "cubic", 4);
    small.workloads = vec![Workload::Burst(Burst {
        label: "500KB".to_owned(),
        size_bytes: 500_000,
        gap_ns: 10_000_000,
        count: 1,
        from_burst: 1,
        connections: 1,
        fresh: false,
        sample_burst: None,
        steps: Vec::new(),
    })];
    // The path holds 125,000 bytes.
    for (buffer, enough) in [(249_999, false), (250_000, true)] {
        small.topology.socket_buffer_bytes = buffer;
        let results = live::run(
            std::slice::from_ref(&small),
            1,
            &|_, _, _| (),
            &AtomicBool::new(false),
        );
        let told = results.unwrap()[0][0].iter().any(|record| {
            matches!(record, Record::Untrusted { text }
                if text.contains("raise link.socket_buffer to 250000B at least"))
        });
        assert_ne!(told, enough, "{buffer}");
    }
}
