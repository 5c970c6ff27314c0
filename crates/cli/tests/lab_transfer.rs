// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[transfer]]` on this machine's kernel: `paceline send` between hosts of the lab, by one
//! host at each side and by two.

mod common;

use serde_json::Value;

/// Slow, so that a busy machine carries it.
const EXPERIMENT: &str = r#"
title = "Files"
description = "One host and two at each side."

[link]
rate = "20mbit"
one_way_delay = "5ms"
buffer = "64KiB"
clusters = [2, 2]

[[transfer]]
name = "one"
size = "1MB"
streams = 2

[[transfer]]
name = "two"
hosts = 2
files = 20
size = "1KB"
largest = "400KB"

[variant.cubic]
congestion = "cubic"

[variant.paceline]
policy = "lfn"
"#;

#[test]
fn files_move_between_the_hosts_of_a_lab() {
    let Some(_alone) = common::alone() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let (file, out) = (place.path().join("files.toml"), place.path().join("out"));
    std::fs::write(&file, EXPERIMENT).unwrap();
    let run = common::paceline()
        .args([
            "lab",
            "run",
            "--backend",
            "live",
            "--quick",
            "--json",
            "--out",
        ])
        .args([&out, &file])
        .output()
        .unwrap();
    // 3: a busy machine, on which figures say nothing.
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(matches!(run.status.code(), Some(0 | 3)), "{said}");
    let results: Value = serde_json::from_slice(&run.stdout).expect("results");
    for variant in ["cubic", "paceline"] {
        let metrics = &results["variants"][variant];
        let median = |name: &str| metrics[name]["median"].as_f64();
        for label in ["one", "two"] {
            let goodput = median(&format!("goodput_bps/{label}")).expect("a transfer's");
            // No more than the link carries.
            assert!(
                0.0 < goodput && goodput < 20e6,
                "{variant} {label}: {goodput}"
            );
            assert!(median(&format!("retransmitted_share/{label}")).is_some());
        }
        assert!(median("last_to_first/one").expect("of one host") >= 1.0);
        assert_eq!(median("last_to_first/two"), None);
    }
}
