// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that change while they are sent.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const SIZE: usize = 6 << 20;
/// Of each kind of change.
const SEEDS: u64 = 20;

type Change = fn(&Path, u64);

const CHANGES: [(&str, Change); 5] = [
    ("append", |path, seed| {
        let file = OpenOptions::new().write(true).open(path).expect("ours");
        let end = file.metadata().expect("ours").len();
        file.write_all_at(&bytes(70_000, seed), end).expect("ours");
    }),
    ("truncate", |path, seed| {
        let file = OpenOptions::new().write(true).open(path).expect("ours");
        file.set_len((SIZE as u64 / 3) + seed * 1000).expect("ours");
    }),
    ("rewrite", |path, seed| {
        let file = OpenOptions::new().write(true).open(path).expect("ours");
        let at = (seed * 7_654_321) % (SIZE as u64 / 4);
        file.write_all_at(&bytes(100_000, seed), at).expect("ours");
    }),
    ("rename", |path, seed| {
        let new = path.with_extension("new");
        std::fs::write(&new, bytes(SIZE / 2, seed)).expect("ours");
        std::fs::rename(new, path).expect("ours");
    }),
    ("touch", |path, _| {
        let file = OpenOptions::new().write(true).open(path).expect("ours");
        file.set_modified(std::time::SystemTime::now())
            .expect("ours");
    }),
];

/// Once or again and again: what is placed is what the file was at one moment, or the old one.
#[test]
fn a_placed_file_is_a_consistent_snapshot() {
    let runtime = runtime();
    for (name, change) in CHANGES {
        let mut noticed = 0;
        for seed in 0..SEEDS {
            let directory = tempfile::tempdir().expect("a directory");
            let from = directory.path().join("file");
            std::fs::write(&from, bytes(SIZE, 99)).expect("ours");
            let to = directory.path().join("to");
            let over = AtomicBool::new(false);
            let (sent, received) = std::thread::scope(|scope| {
                let ends = Over(&over);
                let changer = scope.spawn(|| {
                    let bites = || to_size(to.parent().expect("it has"));
                    while bites() == 0 && !over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    change(&from, seed);
                });
                let options = Options {
                    streams: 3,
                    ..Options::default()
                };
                let moved = transfer(&from, &to, &options, Damage::default());
                let (sent, received, events) = runtime.block_on(moved);
                drop(ends);
                changer.join().expect("no panic");
                let events = events.lock().expect("no panic");
                let is_changed = |event: &Event| matches!(event, Event::Changed { .. });
                noticed += u64::from(events.iter().any(is_changed));
                (sent, received)
            });
            let summary = received.expect("it ends well");
            sent.expect("it ends well");
            assert_eq!(summary.wrong, 0, "{name} {seed}");
            if summary.changed == 0 {
                let (there, here) = (std::fs::read(&to), std::fs::read(&from));
                let (there, here) = (there.expect("placed"), here.expect("ours"));
                // The change may have come after the last look; or a part of what is appended,
                // which the kernel writes page by page.
                let is_before = there.len() >= SIZE && here.starts_with(&there);
                assert!(
                    is_before || there == here || there == bytes(SIZE, 99),
                    "{name} {seed}"
                );
            } else {
                assert!(!to.exists(), "{name} {seed}: given up, and placed");
            }
        }
        // Others came after the last look.
        assert!(noticed > SEEDS / 10, "{name}: only {noticed} were noticed");
    }
}

/// Bytes of temporary files.
fn to_size(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).expect("ours").flatten();
    let temporary = |name: &std::ffi::OsStr| name.to_string_lossy().contains(".paceline-");
    entries
        .filter(|entry| temporary(&entry.file_name()))
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.blocks())
        .sum()
}

/// On a busy machine the writer may rest for as long as an attempt takes: then the file is placed, and
/// another transfer is tried.
#[test]
fn a_file_that_never_rests_is_given_up_and_the_old_one_stays() {
    let runtime = runtime();
    let directory = tempfile::tempdir().expect("a directory");
    let from = directory.path().join("file");
    std::fs::write(&from, bytes(SIZE, 99)).expect("ours");
    let to = directory.path().join("to");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Over(&over);
        scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(&from).expect("ours");
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                n += 1;
                file.write_all_at(&bytes(10, n), n % 1000 * 4096)
                    .expect("ours");
            }
        });
        let is_given_up = || {
            std::fs::write(&to, "old").expect("ours");
            let options = Options::default();
            let moved = transfer(&from, &to, &options, Damage::default());
            let changed = runtime.block_on(moved).1.expect("it ends").changed;
            assert_eq!(to_size(directory.path()), 0);
            let is_old = std::fs::read(&to).expect("it stays") == b"old";
            assert_eq!(is_old, changed == 1);
            is_old
        };
        assert!((0..SEEDS).any(|_| is_given_up()), "never");
    });
}
