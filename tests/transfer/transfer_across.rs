// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline send A:SRC B:DST`: between two other hosts.

#[allow(dead_code, reason = "another test uses the rest")]
mod scratch;

use std::process::{Child, Stdio};

use scratch::{assert_same, text, Ended, Scratch};

/// A path at another host.
fn at(scratch: &Scratch, path: &str) -> String {
    format!("localhost:{}", scratch.path(path).display())
}

/// Slow, and under way.
fn start(scratch: &Scratch) -> (Child, String) {
    let (from, to) = (at(scratch, "from/huge"), at(scratch, "to/"));
    let command = ["send", "--rate", "24mbit", "--json", &from, &to];
    let mut command = scratch.command_with_remote(&command);
    let child = command.stdout(Stdio::piped()).spawn();
    (child.expect("it starts"), scratch.wait_until_running())
}

#[test]
fn a_tree_goes_from_one_to_the_other() {
    let scratch = Scratch::new();
    scratch.tree();
    let (from, to) = (at(&scratch, "from/tree"), at(&scratch, "to/"));
    scratch.send(&[&from, &to]).ok();
    assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
    let again = scratch.send(&[&from, &to, "--json"]).ok();
    let stdout = text(&again.stdout);
    assert!(
        stdout.contains("\"placed\":0") && !stdout.contains("stream_lost"),
        "{stdout}"
    );
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn the_head_carries_no_data_and_passes_on_what_its_user_changes() {
    let scratch = Scratch::new();
    scratch.write("from/huge", 40_000_000);
    let (child, id) = start(&scratch);
    scratch
        .paceline(&["transfers", "set", &id, "--streams", "4"])
        .ok();
    scratch.wait_until("four streams", || scratch.streams_of(&id) == 4);
    scratch.wait_until("much was sent", || {
        let listed = scratch.paceline(&["transfers", &id, "--json"]).ok();
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        listed[0]["bytes_sent"].as_u64() > Some(10_000_000)
    });
    let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).expect("it runs");
    for what in ["rchar: ", "wchar: "] {
        let line = io.lines().find_map(|line| line.strip_prefix(what));
        let bytes: u64 = line.expect("proc(5)").parse().expect("a number");
        assert!(bytes < 5_000_000, "{io}");
    }
    scratch
        .paceline(&["transfers", "set", &id, "--rate", "none"])
        .ok();
    let ended = Ended(child.wait_with_output().expect("it ends")).ok();
    let stdout = text(&ended.stdout);
    let last: serde_json::Value =
        serde_json::from_str(stdout.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["placed"], 1, "{stdout}");
    // Also what was sent since the last report of the source.
    assert!(last["bytes_sent"].as_u64() >= Some(40_000_000), "{stdout}");
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
}

#[test]
fn after_a_kill_of_the_head_the_same_command_continues() {
    let scratch = Scratch::new();
    scratch.write("from/huge", 40_000_000);
    let (mut child, _) = start(&scratch);
    scratch::kill(child.id());
    child.wait().expect("it ends");
    let (from, to) = (at(&scratch, "from/huge"), at(&scratch, "to/"));
    let ended = scratch.send(&["--json", &from, &to]).ok();
    let last = text(&ended.stdout);
    let last = last.lines().last().expect("a line");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert!(last["resumed_bytes"].as_u64() > Some(0), "{last}");
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn failures_of_both_hosts_are_reported_here() {
    let scratch = Scratch::new();
    scratch.write("from/a", 300_000);
    let to = at(&scratch, "to/");
    let missing = scratch.send(&[&at(&scratch, "from/none"), &to]);
    missing.fails_with(2, "from/none");
    std::fs::create_dir(scratch.path("to/a")).expect("ours");
    scratch.write("to/a/x", 1);
    let ended = scratch.send(&[&at(&scratch, "from/a"), &to]);
    ended.fails_with(1, "a: ");
    let policy = scratch.send(&["--policy", "$(false)", &at(&scratch, "from/a"), &to]);
    policy.fails_with(2, "--policy");
    let token = scratch.send(&["--token-file", "@token", &at(&scratch, "from/a"), &to]);
    token.fails_with(2, "ssh has its own");
}
