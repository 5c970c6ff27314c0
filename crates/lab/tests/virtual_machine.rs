// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boots the virtual backend twice and compares bytes. It needs QEMU and a kernel
//! package; without QEMU it is skipped, except under CI. It is its own harness,
//! because the guest's first process is this very program.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use paceline_lab::guest;
use paceline_lab::run::{run, Backend, Options};

const EXPERIMENT: &str = r#"
title = "Two runs"
description = "A few bursts and a round of incast."
holds = ["cubic/completion_s/100KB >= bound", "cubic/round_s/2KB/2 >= 0.9 * bound"]

[link]
rate = "100mbit"
one_way_delay = "5ms"
buffer = "64KiB"

[[burst]]
size = "100KB"
gap = "100ms"
count = 3
from_burst = 2
sample_burst = 2

[[incast]]
senders = [2]
answers = ["2KB"]
rounds = 2
period = "100ms"

[variant.cubic]
congestion = "cubic"

[variant.reno]
congestion = "reno"
"#;

fn main() {
    if guest::is_guest_init() {
        guest::init_main();
    }
    let listing = std::env::args().any(|argument| argument == "--list");
    if listing {
        println!("two_runs_give_the_same_bytes: test");
        return;
    }
    let qemu = std::process::Command::new("qemu-system-x86_64")
        .arg("--version")
        .output();
    if let Err(error) = qemu {
        assert!(
            std::env::var_os("CI").is_none(),
            "qemu-system-x86_64: {error}"
        );
        println!("two_runs_give_the_same_bytes: skipped: needs qemu-system-x86_64");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("twice.toml");
    std::fs::write(&path, EXPERIMENT).expect("written");
    let first = results(&path, 1);
    let second = results(&path, 2);
    assert_eq!(first, second);
    println!("two_runs_give_the_same_bytes: ok");
}

/// `results.json` of a run with so many machines at once.
fn results(path: &Path, jobs: usize) -> String {
    let options = Options {
        backend: Backend::Virtual,
        quick: false,
        seed: None,
        variants: Vec::new(),
        jobs,
        progress: false,
    };
    let report =
        run(path, &options, &AtomicBool::new(false)).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.results.valid, "{:?}", report.results.warnings);
    assert!(report.results.all_hold(), "{:?}", report.results.holds);
    assert_eq!(report.series.len(), 2);
    report.results.to_json().expect("finite numbers")
}
