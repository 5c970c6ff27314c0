// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kill -9` of the lab, and of its QEMU, at any moment: nothing is left after the
//! next run, and the host's settings are as they were.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::host::{interfaces, settings};
use common::paceline;

/// Kills at this many moments; PACELINE_KILLS asks for more.
const KILLS: u32 = 4;

/// A live run of the experiment below takes some seconds: the moments are spread over
/// start, and most of the run itself.
const LIVE: Duration = Duration::from_secs(4);

const EXPERIMENT: &str = r#"
title = "To be killed"
description = "Bursts after idle."
holds = ["cubic/completion_s/1MB >= bound"]

[link]
rate = "100mbit"
one_way_delay = "5ms"
buffer = "64KiB"

[[burst]]
size = "1MB"
gap = "200ms"
count = 20
from_burst = 3

[variant.cubic]
congestion = "cubic"

[variant.paceline]
policy = "lfn"
"#;

/// A place of its own: what is left of a run would be found here.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lab-kill-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("tmp")).unwrap();
        fs::write(path.join("experiment.toml"), EXPERIMENT).unwrap();
        Place(path)
    }

    fn start(&self, backend: &str, quick: bool) -> Child {
        let mut command = paceline();
        command
            .args(["lab", "run", "--backend", backend, "--variant", "paceline"])
            .args(["--out".as_ref(), self.0.join("out").as_os_str()])
            .arg(self.0.join("experiment.toml"))
            .env("TMPDIR", self.0.join("tmp"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.0.join("errors")).unwrap());
        if quick {
            command.arg("--quick");
        }
        command.spawn().unwrap()
    }

    /// A virtual run that nothing disturbs: how long it takes here, and its results.
    fn whole(&self) -> (Duration, Option<Vec<u8>>) {
        let begin = Instant::now();
        let mut lab = self.start("virtual", false);
        assert!(lab.wait().unwrap().success(), "{}", self.errors());
        let results = self.results();
        assert!(results.is_some());
        (begin.elapsed(), results)
    }

    fn results(&self) -> Option<Vec<u8>> {
        fs::read(self.0.join("out/results.json")).ok()
    }

    fn forget(&self) {
        drop(fs::remove_dir_all(self.0.join("out")));
    }

    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.0.join("errors")).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn kills() -> u32 {
    std::env::var("PACELINE_KILLS").map_or(KILLS, |count| count.parse().unwrap())
}

/// Golden-ratio steps: the moments fall evenly, without a random state.
fn moment(number: u32, spread: Duration) -> Duration {
    spread.mul_f64((f64::from(number) * 0.618_034).fract())
}

/// The QEMUs that the lab `pid` has started.
fn machines(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // pid (name) state parent ...
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else {
            continue;
        };
        let parent = stat[close + 1..].split_whitespace().nth(1);
        if parent == Some(pid.to_string().as_str()) && stat[open + 1..].starts_with("qemu") {
            found.push(stat[..open].trim().parse().unwrap());
        }
    }
    found
}

fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && stat.contains("qemu"))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn has_qemu() -> bool {
    let found = std::process::Command::new("qemu-system-x86_64")
        .arg("--version")
        .output()
        .is_ok();
    if !found {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI the virtual lab must run"
        );
        println!("skipped: needs qemu-system-x86_64");
    }
    found
}

#[test]
fn a_killed_lab_takes_its_machines_with_it() {
    if !has_qemu() {
        return;
    }
    let place = Place::new("lab");
    let before = settings();
    let (spread, whole) = place.whole();
    for number in 0..kills() {
        place.forget();
        let mut lab = place.start("virtual", false);
        std::thread::sleep(moment(number, spread));
        let machines = machines(lab.id());
        lab.kill().unwrap();
        lab.wait().unwrap();
        for pid in machines {
            wait_until("QEMU goes with the lab", || !alive(pid));
        }
        // All or nothing, where it was over before.
        assert!(place.results().is_none_or(|results| Some(results) == whole));
    }
    // The next run cleans, and is a whole run.
    let mut lab = place.start("virtual", true);
    assert!(lab.wait().unwrap().success(), "{}", place.errors());
    assert_eq!(place.left(), Vec::<PathBuf>::new());
    assert!(place.results().is_some());
    assert_eq!(settings(), before);
}

#[test]
fn a_killed_machine_is_an_error_of_the_run() {
    if !has_qemu() {
        return;
    }
    let place = Place::new("qemu");
    let (spread, whole) = place.whole();
    let mut killed = 0;
    for number in 0..kills() {
        place.forget();
        let mut lab = place.start("virtual", false);
        // From its first moment on.
        wait_until("QEMU starts", || !machines(lab.id()).is_empty());
        std::thread::sleep(moment(number, spread));
        for pid in machines(lab.id()) {
            // SAFETY: a plain call.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        let status = lab.wait().unwrap();
        if status.success() {
            // The machine had told all before it was killed.
            assert!(place.results() == whole, "{}", place.errors());
        } else {
            killed += 1;
            assert_eq!(status.code(), Some(1), "{}", place.errors());
            assert!(place.errors().contains("signal: 9"), "{}", place.errors());
            assert!(place.results().is_none());
        }
        assert_eq!(place.left(), Vec::<PathBuf>::new());
    }
    assert!(killed > 0, "all runs were over before");
}

#[test]
fn a_killed_live_lab_leaves_nothing() {
    let Some(_alone) = common::alone() else {
        return;
    };
    let place = Place::new("live");
    let (before, links_before) = (settings(), interfaces());
    for number in 0..kills() {
        let mut lab = place.start("live", false);
        std::thread::sleep(moment(number, LIVE));
        lab.kill().unwrap();
        lab.wait().unwrap();
    }
    // The next command cleans: no job, no leftover, nothing of the network.
    let status = common::status();
    assert!(status["jobs"].as_array().unwrap().is_empty(), "{status}");
    wait_until("the network goes", || interfaces() == links_before);
    assert_eq!(place.left(), Vec::<PathBuf>::new());
    assert_eq!(settings(), before);
}
