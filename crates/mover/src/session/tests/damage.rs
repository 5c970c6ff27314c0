// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bits that change on the way, or where they lie.

use super::*;
use paceline_transfer::store::{short, temporary_name};

/// Some large, some small, one with a hole.
fn tree(directory: &Path) -> std::path::PathBuf {
    let tree = directory.join("tree");
    std::fs::create_dir_all(tree.join("small")).expect("ours");
    std::fs::write(tree.join("large"), bytes(9_000_001, 1)).expect("ours");
    std::fs::write(tree.join("other"), bytes(3 << 20, 2)).expect("ours");
    for n in 0..200 {
        std::fs::write(tree.join(format!("small/{n}")), bytes(n * 37, n as u64)).expect("ours");
    }
    let sparse = File::create(tree.join("sparse")).expect("ours");
    sparse.set_len(20 << 20).expect("ours");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", 7_777_777).expect("ours");
    tree
}

pub(super) fn assert_same(one: &Path, other: &Path) {
    let compared = std::process::Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([one, other])
        .output()
        .expect("diffutils");
    assert!(compared.status.success(), "{compared:?}");
}

#[test]
fn a_flipped_bit_is_found_and_sent_again() {
    let runtime = runtime();
    let mut again = 0;
    for seed in 0..3 {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = tree(directory.path());
        let to = directory.path().join("to");
        let options = Options {
            streams: 4,
            ..Options::default()
        };
        // A header that is hit ends its connection; if all are ended, the same command
        // continues.
        let is_there = (0..20).any(|run| {
            let damage = Damage {
                every: 1 << 20,
                seed: seed * 1000 + run,
                ..Damage::default()
            };
            let (sent, received, events) = runtime.block_on(transfer(&tree, &to, &options, damage));
            let events = events.lock().expect("no panic");
            let is_again = |event: &&Event| matches!(event, Event::SentAgain { .. });
            again += events.iter().filter(is_again).count();
            assert_eq!(sent.is_ok(), received.is_ok(), "{sent:?} {received:?}");
            received.is_ok()
        });
        assert!(is_there, "seed {seed}: never complete");
        assert_same(&tree, &to.join("tree"));
        assert!(!to.join(".paceline").exists());
    }
    assert!(again > 5, "only {again} bits were found");
}

/// What a run left is changed on the disk: the next run finds it and sends it again.
#[test]
fn a_damaged_temporary_file_is_never_placed() {
    let runtime = runtime();
    let directory = tempfile::tempdir().expect("a directory");
    let from = directory.path().join("file");
    std::fs::write(&from, bytes(30 << 20, 3)).expect("ours");
    let to = directory.path().join("to/");
    std::fs::create_dir(&to).expect("ours");
    let options = Options::default();
    let damage = Damage {
        cut: Some(8 << 20),
        ..Damage::default()
    };
    let (_, received, _) = runtime.block_on(transfer(&from, &to, &options, damage));
    received.expect_err("both connections broke");
    let temporary = to.join(temporary_name("file".as_ref(), &short(&ID)));
    let mut left = std::fs::read(&temporary).expect("it is left");
    assert!(
        left[..1 << 20] == bytes(1 << 20, 3),
        "its beginning is there"
    );
    left[1000] ^= 4;
    std::fs::write(&temporary, left).expect("ours");
    let (sent, received, _) = runtime.block_on(transfer(&from, &to, &options, Damage::default()));
    sent.expect("undamaged");
    let summary = received.expect("undamaged");
    assert!(
        (1..16 << 20).contains(&summary.resumed_bytes),
        "{summary:?}"
    );
    assert_same(&from, &to.join("file"));
    assert!(!temporary.exists());
}
