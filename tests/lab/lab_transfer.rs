// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[transfer]]` on this machine's kernel: `paceline send` between hosts of the lab, by one
//! host at each side and by two.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// A run of the experiment, whose results are printed.
fn lab(place: &Path) -> Command {
    let mut command = common::paceline();
    command
        .args(["lab", "run", "--backend", "live", "--quick", "--json"])
        .arg("--out")
        .args([place.join("out"), place.join("files.toml")]);
    command
}

/// Where the files of process `lab` are.
fn files_of(lab: u32) -> Option<PathBuf> {
    let name = format!("paceline-transfer-{lab}-");
    let entries = fs::read_dir("/dev/shm").expect("memory").flatten();
    let mut ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name));
    ours.next().map(|entry| entry.path())
}

/// How many receivers write to this place. (Making a token is told of it, too, and is soon over.)
fn receivers(place: &Path) -> usize {
    let place = place.to_str().expect("UTF-8");
    let receives = |entry: &fs::DirEntry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|words| {
            let words = String::from_utf8_lossy(&words);
            words.contains("\0receive\0") && words.contains(place)
        })
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(receives).count()
}

fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The files that a lab leaves which is killed while a receiver runs: no process has them open.
fn killed(place: &Path) -> PathBuf {
    let mut run = lab(place);
    let mut run = run
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let files = until("files are made", || files_of(run.id()));
    until("a receiver runs", || (receivers(&files) > 0).then_some(()));
    run.kill().unwrap();
    run.wait().unwrap();
    until("it ends", || (receivers(&files) == 0).then_some(()));
    assert!(files.is_dir());
    files
}

#[test]
fn files_move_between_the_hosts_of_a_lab() {
    let Some(_alone) = common::alone() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("files.toml"), EXPERIMENT).unwrap();
    let files = killed(place.path());
    let run = lab(place.path()).output().unwrap();
    assert!(!files.exists(), "the next run removes {}", files.display());
    // 3: a busy machine, on which figures say nothing.
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(matches!(run.status.code(), Some(0 | 3)), "{stderr}");
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
