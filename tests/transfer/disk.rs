// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that are full, or fail.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;

use super::is_root;
use super::scratch::{assert_same, text, Scratch};

/// Numbers of errors: asm-generic/errno-base.h and errno.h.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

#[test]
fn a_full_disk_ends_with_6_and_names_the_missing_bytes() {
    if !is_root() {
        println!("skipped: a file system of a fixed size needs root");
        return;
    }
    let scratch = Scratch::new();
    scratch.write("from/huge", 30_000_000);
    let small = scratch.small_disk("size=8m");
    let full = scratch.send(&["from/huge", "localhost:@to/small/"]);
    full.fails_with(6, "bytes are missing");
    // Sparse, so that nobody knows before: it fills in the middle.
    let sparse = std::fs::OpenOptions::new()
        .write(true)
        .open(scratch.path("from/huge"));
    sparse.expect("ours").set_len(40_000_000).expect("room");
    let full = scratch.send(&["from/huge", "localhost:@to/small/"]);
    full.fails_with(6, "full");
    small.grow("size=64m");
    scratch.send(&["from/huge", "localhost:@to/small/"]).ok();
    assert_same(&scratch.path("from/huge"), &scratch.path("to/small/huge"));
}

/// In the middle of a file, of its record, of a sync: the transfer says so, the file that had
/// the name has it still, and the same command continues.
#[test]
fn a_disk_that_fails_ends_with_6_and_the_old_file_stays() {
    for (place, errno, message, is_resumed) in [
        ("sink-writes:30", EIO, "disk fails", true),
        ("sink-writes:30", ENOSPC, "is full", true),
        ("sink-writes:30", EDQUOT, "is full", true),
        ("sink-notes:20", EDQUOT, "is full", true),
        ("sink-creates:1", ENOSPC, "is full", false),
        // The kernel may have dropped what it could not write.
        ("sink-syncs:1", EIO, "disk fails", false),
    ] {
        let scratch = Scratch::new();
        scratch.write("from/huge", 3_000_000);
        scratch.write("from/small", 1000);
        for name in ["to/huge", "to/small"] {
            std::fs::write(scratch.path(name), "old").expect("ours");
        }
        let command = ["from/", "localhost:@to", "--chunk", "64KiB", "--json"];
        let failed = scratch.failing_at(&format!("{place}:{errno}"), &command);
        failed.fails_with(6, message);
        let huge = std::fs::read(scratch.path("to/huge")).expect("it stays");
        assert_eq!(huge, b"old", "{place} {errno}");
        let ended = scratch.send(&command).ok();
        let last = text(&ended.stdout)
            .lines()
            .last()
            .expect("finish")
            .to_owned();
        let last: serde_json::Value = serde_json::from_str(&last).expect("JSON");
        let resumed = last["resumed_bytes"].as_u64().expect("a number");
        assert_eq!(resumed > 0, is_resumed, "{place} {errno}: {last}");
        assert_same(&scratch.path("from"), &scratch.path("to"));
        assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{place} {errno}");
    }
}

/// Entries are asked for in batches as the walk finds them, and room is looked at before each: what
/// came before may be there, whole.
#[test]
fn too_few_inodes_end_with_6_and_nothing_half_done() {
    if !is_root() {
        println!("skipped: a file system with few inodes needs root");
        return;
    }
    let scratch = Scratch::new();
    for n in 0..100 {
        scratch.write(&format!("from/{n}"), 10);
    }
    let small = scratch.small_disk("size=8m,nr_inodes=40");
    let full = scratch.send(&["from/", "localhost:@to/small/"]);
    full.fails_with(6, "");
    let stdout = text(&full.0.stderr);
    assert!(
        stdout.contains("inodes are missing") || stdout.contains("is full"),
        "{stdout}"
    );
    for name in scratch.names("to/small") {
        let there = scratch.path("to/small").join(&name);
        assert!(
            name == ".paceline" || there.metadata().expect("ours").len() == 10,
            "{name}"
        );
    }
    small.grow("nr_inodes=1000");
    scratch.send(&["from/", "localhost:@to/small/"]).ok();
    assert_eq!(scratch.names("to/small").len(), 100);
}

/// Known before, and noticed in the middle.
#[test]
fn with_wait_space_a_full_disk_is_waited_for() {
    if !is_root() {
        println!("skipped: a file system of a fixed size needs root");
        return;
    }
    for is_sparse in [false, true] {
        let scratch = Scratch::new();
        scratch.write("from/huge", 20_000_000);
        if is_sparse {
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(scratch.path("from/huge"));
            let file = file.expect("ours");
            file.set_len(30_000_000).expect("room");
            file.write_all_at(b"end", 29_000_000).expect("room");
        }
        let small = scratch.small_disk("size=8m");
        let command = [
            "from/huge",
            "localhost:@to/small/",
            "--wait-space",
            "--json",
        ];
        let mut child = scratch.start_to_be_read(&command);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let is_full = |line: &String| line.contains("\"event\":\"full\"");
        let full = lines.by_ref().map_while(Result::ok).find(is_full);
        full.expect("it waits");
        assert!(!scratch.path("to/small/huge").exists());
        small.grow("size=64m");
        lines.for_each(drop);
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        assert_same(&scratch.path("from/huge"), &scratch.path("to/small/huge"));
    }
}

#[test]
fn a_standing_receiver_takes_no_more_than_its_limit() {
    let scratch = Scratch::new();
    scratch.write("from/huge", 2_000_000);
    scratch.write("from/small", 10);
    for n in 0..3 {
        scratch.write(&format!("many/{n}"), 10);
    }
    let bounds = ["--quota", "1MB", "--max-entries", "2"];
    let receiver = scratch.receiver(&[&["--token-file", "@token"], &bounds[..]].concat());
    let send = |options: &[&str], from: &str, to: &str| {
        let to = receiver.url(to);
        let own = ["--token-file", "@token", from, &to];
        scratch.send(&[options, &own].concat())
    };
    send(&[], "from/huge", "/x/").fails_with(6, "--quota");
    send(&[], "many/", "/y/").fails_with(7, "--max-entries");
    send(&[], "from/small", "/x/").ok();
    assert!(!scratch.path("to/x/huge").exists());
    // It leaves nothing of a look into a directory that is not there, wherever it may write.
    send(&["-n"], "from/small", "/no/such/").ok();
    let mut there = scratch.names("to");
    there.sort();
    assert_eq!(there, ["x", "y"]);
}
