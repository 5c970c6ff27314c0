// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline send --from A,B --to X,Y`: several hosts at both sides. Here they are processes of
//! this host, which see the same directories, as hosts with a shared file system do.

#[allow(dead_code, reason = "another test uses the rest")]
mod scratch;

use std::process::{Child, Stdio};

use scratch::{assert_same, text, Ended, Scratch};
use serde_json::Value;

const HOSTS: [&str; 4] = ["--from", "a,b", "--to", "x,y"];

/// `ssh` of which no host has a name of its own: all are this one.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    let text =
        "#!/bin/sh\nexport SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' PACELINE_TEST_HOST=$1\n\
                [ \"$1\" = \"$KILLED\" ] || unset PACELINE_MOVER_KILL\n\
                shift\nexec /bin/sh -c \"exec $*\"\n";
    scratch.script("shell", text);
    scratch
}

fn path(scratch: &Scratch, path: &str) -> String {
    scratch.path(path).display().to_string()
}

fn send(scratch: &Scratch, more: &[&str]) -> Ended {
    scratch.send(&[&HOSTS[..], &["--json"], more].concat())
}

fn events(stdout: &[u8]) -> Vec<Value> {
    let output = text(stdout);
    let parsed = output.lines().map(serde_json::from_str);
    parsed.collect::<Result<_, _>>().expect("JSON lines")
}

/// What each pair has carried.
fn carried(events: &[Value]) -> Vec<(String, u64)> {
    let carried = events.iter().filter(|event| event["event"] == "carried");
    let pair = |event: &Value| {
        let name = format!("{}-{}", event["from"], event["to"]).replace('"', "");
        (name, event["bytes"].as_u64().expect("a number"))
    };
    let mut all: Vec<_> = carried.map(pair).collect();
    all.sort();
    all
}

fn start(scratch: &Scratch) -> Child {
    let (from, to) = (path(scratch, "from/huge"), path(scratch, "to/"));
    let command = [
        &["send", "--rate", "48mbit", "--json"][..],
        &HOSTS,
        &[&from, &to],
    ]
    .concat();
    let mut command = scratch.command_with_remote(&command);
    command.stdout(Stdio::piped()).spawn().expect("it starts")
}

/// The same command, which ends it, with what was there before.
fn continues(scratch: &Scratch) {
    let ended = send(
        scratch,
        &[&path(scratch, "from/huge"), &path(scratch, "to/")],
    )
    .ok();
    let all = events(&ended.stdout);
    let last = all.last().expect("a line");
    let resumed = last["resumed_bytes"].as_u64().expect("a number");
    assert!(resumed > 0, "{last}");
    let sent: u64 = carried(&all).iter().map(|(_, bytes)| bytes).sum();
    assert!(sent + resumed <= 40_000_000 + (8 << 20), "{last} {sent}");
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_tree_goes_by_all_of_them() {
    let scratch = scratch();
    scratch.tree();
    scratch.write("from/tree/deep/huge", 40_000_001);
    let sparse = std::fs::File::create(scratch.path("from/tree/holes")).expect("ours");
    sparse.set_len(30_000_000).expect("room");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", 23_456_789).expect("room");
    let (from, to) = (path(&scratch, "from/tree"), path(&scratch, "to/"));
    let ended = send(&scratch, &["--rate", "100mbit", &from, &to]).ok();
    assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
    let all = carried(&events(&ended.stdout));
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a-x", "b-y"]);
    assert!(all.iter().all(|(_, bytes)| *bytes > 8_000_000), "{all:?}");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
    // Nothing is sent for the second time.
    let again = send(&scratch, &["--delete", &from, &to]).ok();
    let all = events(&again.stdout);
    let last = all.last().expect("a line");
    assert_eq!(
        (&last["placed"], &last["bytes_sent"]),
        (&0.into(), &0.into()),
        "{last}"
    );
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn both_pairs_carry_parts_of_one_file() {
    let scratch = scratch();
    scratch.write("from/huge", 40_000_000);
    let ended = Ended(start(&scratch).wait_with_output().expect("it ends")).ok();
    let all = events(&ended.stdout);
    let pairs = carried(&all);
    assert_eq!(pairs.len(), 2, "{pairs:?}");
    assert!(
        pairs.iter().all(|(_, bytes)| *bytes > 8_000_000),
        "{pairs:?}"
    );
    let sum: u64 = pairs.iter().map(|(_, bytes)| bytes).sum();
    let last = all.last().expect("a line");
    // The last session had nothing to send.
    assert_eq!(
        (sum, &last["bytes_sent"]),
        (40_000_000, &40_000_000.into()),
        "{last}"
    );
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn hosts_of_different_numbers_all_take_part() {
    let scratch = scratch();
    scratch.write("from/huge", 40_000_000);
    let (from, to) = (path(&scratch, "from/huge"), path(&scratch, "to/new-name"));
    let hosts = [
        "--from", "a,b,c", "--to", "x", "--json", "--rate", "100mbit",
    ];
    let ended = scratch.send(&[&hosts[..], &[&from, &to]].concat()).ok();
    let pairs = carried(&events(&ended.stdout));
    assert_eq!(pairs.len(), 3, "{pairs:?}");
    assert!(
        pairs.iter().all(|(_, bytes)| *bytes > 2_000_000),
        "{pairs:?}"
    );
    assert_same(&scratch.path("from/huge"), &scratch.path("to/new-name"));
}

#[test]
fn after_a_kill_of_the_head_the_same_command_continues() {
    let scratch = scratch();
    scratch.write("from/huge", 40_000_000);
    let mut child = start(&scratch);
    scratch.wait_until_running();
    scratch::kill(child.id());
    child.wait().expect("it ends");
    continues(&scratch);
}

#[test]
fn data_that_the_disk_lost_is_sent_again() {
    use std::os::unix::fs::FileExt;
    let scratch = scratch();
    scratch.write("from/huge", 40_000_000);
    let mut child = start(&scratch);
    scratch.wait_until_running();
    scratch::kill(child.id());
    child.wait().expect("it ends");
    let names = scratch.names("to");
    let name = names
        .iter()
        .find(|name| name.starts_with(".huge"))
        .expect("begun");
    let path_of_it = scratch.path("to").join(name);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path_of_it)
        .expect("ours");
    // In each piece, whatever its size.
    for at in (0..40_000_000).step_by(64 << 10) {
        file.write_all_at(b"damage", at).expect("room");
    }
    let (from, to) = (path(&scratch, "from/huge"), path(&scratch, "to/"));
    send(&scratch, &[&from, &to]).ok();
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_host_is_named_and_the_same_command_continues() {
    for (host, point) in [("b", "source-sends:12"), ("y", "sink-noted:12")] {
        let scratch = scratch();
        scratch.write("from/huge", 40_000_000);
        let (from, to) = (path(&scratch, "from/huge"), path(&scratch, "to/"));
        let command = [&["send", "--rate", "48mbit"][..], &HOSTS, &[&from, &to]].concat();
        let mut command = scratch.command_with_remote(&command);
        command
            .env("KILLED", host)
            .env("PACELINE_MOVER_KILL", point);
        let ended = Ended(command.output().expect("it starts"));
        ended.fails_with(4, &format!("{host}: "));
        continues(&scratch);
    }
}

#[test]
fn invalid_arguments_name_the_right_form() {
    let scratch = scratch();
    for (wrong, message) in [
        (
            &["--from", "a,b", "--to", "x", "from"][..],
            "SRC... and DST",
        ),
        (&["--from", "a,a", "--to", "x", "from", "to"], "twice"),
        (
            &["--from", "a", "--to", "x:/y", "from", "to"],
            "[USER@]HOST",
        ),
        (
            &["--from", "a", "--to", "x", "h:from", "to"],
            "without a host",
        ),
        (
            &["--from", "a", "--to", "x", "--fresh", "from", "to"],
            "--fresh",
        ),
        (&["--from", "a", "from", "to"], "--to"),
    ] {
        scratch.send(wrong).fails_with(2, message);
    }
    let missing = path(&scratch, "from/none");
    send(&scratch, &[&missing, &path(&scratch, "to/")]).fails_with(2, "from/none");
}
