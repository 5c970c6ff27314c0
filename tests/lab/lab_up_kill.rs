// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kill -9` of `lab up`, of a lab's keeper, of what runs inside and of `lab down`, at any
//! moment: after the next `lab down` nothing is left.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::host::{interfaces, settings};
use common::lab::{self, assert_nothing_is_left, Lab, TopologyFile, TWO_CLUSTERS};
use common::{alone, is_root, paceline};

/// Kills at this many moments; PACELINE_KILLS asks for more.
const KILLS: u32 = 12;

fn kills() -> u32 {
    std::env::var("PACELINE_KILLS").map_or(KILLS, |count| count.parse().unwrap())
}

/// What must be as before, of all that a lab could touch outside.
#[derive(Debug, PartialEq)]
struct Host {
    settings: std::collections::BTreeMap<std::path::PathBuf, String>,
    interfaces: Vec<std::ffi::OsString>,
    name: String,
    mounts: String,
}

impl Host {
    fn now() -> Self {
        Host {
            settings: settings(),
            interfaces: interfaces(),
            name: fs::read_to_string("/proc/sys/kernel/hostname").unwrap(),
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap(),
        }
    }
}

/// Where something of a lab could be, by its name.
fn files_of(lab: &str) -> Vec<std::ffi::OsString> {
    [
        "/run",
        "/run/netns",
        "/run/paceline",
        "/run/lock",
        "/dev/shm",
    ]
    .iter()
    .filter_map(|directory| fs::read_dir(directory).ok())
    .flatten()
    .map(|entry| entry.unwrap().file_name())
    .filter(|name| name.to_string_lossy().contains(lab))
    .collect()
}

/// A moment within `spread`. Golden-ratio steps: they fall evenly, without a random state.
fn wait_some(number: u32, spread: Duration) {
    std::thread::sleep(spread.mul_f64((f64::from(number) * 0.618_034).fract()));
}

fn start(file: &TopologyFile, name: &str) -> Child {
    let mut command = paceline();
    command.args(["lab", "up", file.path(), "--name", name]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(process: u32) {
    // SAFETY: a plain call.
    unsafe { libc::kill(process as i32, libc::SIGKILL) };
}

fn has_ended(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn nothing_is_left_whatever_is_killed() {
    if !is_root() {
        return;
    }
    // Each command ends what a killed keeper left, also that of another test.
    let Some(_alone) = alone() else {
        return;
    };
    let name = lab::name("kill");
    let file = TopologyFile::new(&name, TWO_CLUSTERS);
    let before = Host::now();
    let begin = Instant::now();
    assert!(start(&file, &name).wait().unwrap().success());
    let spread = begin.elapsed().mul_f64(1.3);
    let lab = Lab { name: name.clone() };
    lab.down();
    for number in 0..kills() {
        let kind = number % 5;
        let shown = format!("kill {number} of kind {kind}");
        let mut up = start(&file, &name);
        let mut namespaces = Vec::new();
        let mut inside = Vec::new();
        match kind {
            // The command, while the lab is being made or just after.
            0 => {
                wait_some(number, spread);
                up.kill().unwrap();
            }
            // Its keeper, as early or late.
            1 => {
                wait_some(number, spread);
                lab::keeper(&name).into_iter().for_each(kill);
            }
            // The keeper of a lab that stands, while commands run and enter it.
            2 | 3 => {
                assert!(up.wait().unwrap().success(), "{shown}");
                namespaces = lab::namespaces(&lab.state());
                inside = ["near0", "far1", "near"]
                    .map(|node| lab.sleeper(node))
                    .into();
                wait_some(number, Duration::from_millis(50));
                let keeper = lab::keeper(&name).expect("a keeper");
                match kind {
                    2 => kill(keeper),
                    // One of those inside.
                    _ => inside[0].kill().unwrap(),
                }
            }
            // `lab down` itself.
            _ => {
                assert!(up.wait().unwrap().success(), "{shown}");
                namespaces = lab::namespaces(&lab.state());
                inside = vec![lab.sleeper("far0")];
                let mut down = paceline();
                down.args(["lab", "down", &name]).stdout(Stdio::null());
                let mut down = down.spawn().unwrap();
                wait_some(number, Duration::from_millis(60));
                down.kill().unwrap();
                down.wait().unwrap();
            }
        }
        up.wait().unwrap();
        // Also twice.
        lab.down();
        lab.down();
        for child in &inside {
            assert!(has_ended(child.id()), "{shown}");
        }
        for child in &mut inside {
            child.wait().unwrap();
        }
        assert_nothing_is_left(&name, &namespaces, &shown);
    }
    assert_eq!(Host::now(), before);
    assert!(files_of(&name).is_empty());
}

/// Whoever is inside when the keeper is killed is ended by the next command, whichever.
#[test]
fn the_next_command_ends_what_a_killed_keeper_left() {
    let Some(_alone) = alone() else {
        return;
    };
    let lab = Lab::up("left", TWO_CLUSTERS);
    let namespaces = lab::namespaces(&lab.state());
    let mut inside = lab.sleeper("near1");
    // The shell, and what it has started.
    let marked = || {
        let remains = lab::remains(&lab.name, &[]);
        let inside = remains.iter().filter(|what| what.contains("inside"));
        inside.count() == 2
    };
    while !marked() {
        assert!(inside.try_wait().unwrap().is_none());
    }
    let keeper = lab::keeper(&lab.name).expect("a keeper");
    kill(keeper);
    while !has_ended(keeper) {
        std::thread::yield_now();
    }
    assert!(marked());
    let listed = common::output(&["lab", "list"]);
    assert!(listed.status.success(), "{listed:?}");
    assert!(!inside.wait().unwrap().success());
    assert_nothing_is_left(&lab.name, &namespaces, "after list");
}
