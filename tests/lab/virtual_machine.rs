// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boots the virtual backend, whole and interrupted, and compares bytes. It needs QEMU
//! and a kernel package; without QEMU it is skipped, except under CI. It is its own
//! harness, because the guest's first process is this very program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use paceline_experiment::Experiment;
use paceline_lab::backend::guest_main;
use paceline_lab::run::unfinished::forget;
use paceline_lab::run::{run, Backend, Enough, Options, RunError};
use paceline_machine::{guest, prepare, run as boot, Choice, Machine, VirtualError};
use paceline_report::Report;

const EXPERIMENT: &str = r#"
title = "Two runs"
description = "A few bursts and a round of incast."
holds = ["cubic/completion_s/100KB >= bound", "cubic/loop_share/beside > 0", "cubic/loop_share/beside < 0.9", "cubic/round_s/2KB/2 >= 0.9 * bound"]

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

[[burst]]
name = "beside"
size = "200KB"
gap = "50ms"
count = 2
empty_loop = true

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
        guest_main();
    }
    let listing = std::env::args().any(|argument| argument == "--list");
    if listing {
        println!("two_runs_give_the_same_bytes: test");
        println!("an_interrupted_run_goes_on: test");
        println!("a_silent_machine_is_given_up: test");
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
        println!("an_interrupted_run_goes_on: skipped: needs qemu-system-x86_64");
        println!("a_silent_machine_is_given_up: skipped: needs qemu-system-x86_64");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("twice.toml");
    fs::write(&path, EXPERIMENT).expect("written");
    let first = whole(&path, 1);
    same(&first, &whole(&path, 2));
    println!("two_runs_give_the_same_bytes: ok");
    an_interrupted_run_goes_on(&path, &first);
    println!("an_interrupted_run_goes_on: ok");
    a_silent_machine_is_given_up(&path);
    println!("a_silent_machine_is_given_up: ok");
}

/// Without patience the first look at the records is the last.
fn a_silent_machine_is_given_up(path: &Path) {
    let experiment = Experiment::load(path).expect("it is valid");
    let plans = experiment.shards(false, None, &[]).expect("it has shards");
    let machine = Machine {
        image: prepare(&Choice::default()).expect("an image"),
        shift: 0,
        patience: Duration::ZERO,
        log: None,
    };
    let outcome = boot(&machine, &plans[0], &[], &|_| (), &|| false);
    assert!(
        matches!(outcome, Err(VirtualError::Silent { seconds: 0, .. })),
        "{outcome:?}"
    );
}

fn options(path: &Path, jobs: usize) -> Options {
    Options {
        backend: Backend::Virtual,
        quick: false,
        seed: None,
        variants: Vec::new(),
        jobs,
        kernel: Choice::default(),
        log: None,
        enough: Enough::default(),
        progress: false,
        out: path.with_extension("out"),
    }
}

fn results(report: &Report) -> String {
    assert!(report.results.valid, "{:?}", report.results.warnings);
    assert!(report.results.all_hold(), "{:?}", report.results.holds);
    assert_eq!(report.series.len(), 2);
    report.results.to_json().expect("finite numbers")
}

/// The lines that differ are few, and say more than two whole files.
fn same(left: &str, right: &str) {
    let shown: Vec<String> = left
        .lines()
        .zip(right.lines())
        .enumerate()
        .filter(|(_, (left, right))| left != right)
        .map(|(index, (left, right))| format!("{}: {left} | {right}", index + 1))
        .take(20)
        .collect();
    assert!(left == right, "results.json differs:\n{}", shown.join("\n"));
}

/// `results.json` of a run with so many machines at once, and nothing taken from before.
fn whole(path: &Path, jobs: usize) -> String {
    let options = options(path, jobs);
    let report =
        run(path, &options, &AtomicBool::new(false)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kept(&options).len(), 2);
    forget(&options.out).expect("removed");
    assert_eq!(kept(&options), []);
    results(&report)
}

/// The machines that are done, and which files they are.
fn kept(options: &Options) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(options.out.join("unfinished")) else {
        return Vec::new();
    };
    let mut kept: Vec<_> = entries
        .map(|entry| entry.expect("listed"))
        .map(|entry| (entry.path(), entry.metadata().expect("a file").ino()))
        .collect();
    kept.sort();
    kept
}

/// Stopped when the first of two machines is done: only the second is run again.
fn an_interrupted_run_goes_on(path: &Path, whole: &str) {
    let options = options(path, 1);
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| run(path, &options, &stop));
        while !run.is_finished() && kept(&options).is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        run.join().expect("no panic")
    });
    let error = outcome.expect_err("it was stopped");
    assert!(
        matches!(error, RunError::Interrupted { done: 1, .. }),
        "{error}"
    );
    let before = kept(&options);
    assert_eq!(before.len(), 1);
    let report = run(path, &options, &AtomicBool::new(false)).expect("it goes on");
    same(&results(&report), whole);
    let after = kept(&options);
    assert_eq!(after.len(), 2);
    assert!(after.contains(&before[0]), "{before:?} was made again");
    // Of another experiment nothing fits.
    let mut other = options.clone();
    other.seed = Some(2);
    run(path, &other, &AtomicBool::new(false)).expect("it runs");
    assert_eq!(kept(&other).len(), 4);
}
