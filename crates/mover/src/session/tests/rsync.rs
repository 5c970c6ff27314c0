// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What went wrong in rsync from 2024 to 2026 and concerns paths, indices and lengths: each of
//! these is tried here. What has no counterpart is not: checksums of a length that the peer
//! chooses (CVE-2024-12084, 12085; hashes have 32 bytes here), compressed tokens
//! (CVE-2026-43618), extended attributes (CVE-2026-41035), access by host name
//! (CVE-2026-43617), a proxy's answer (CVE-2026-45232).

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::hostile::{entry, file, sink_given, ROOTS};
use super::*;
use paceline_transfer::wire::{EntryKind, Header, Kind, Message, Stamp, Update, Wanted, HEADER};

struct Place {
    _directory: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
}

fn place() -> Place {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, outside) = (directory.path().join("root"), directory.path().join("out"));
    std::fs::create_dir_all(root.join("in")).expect("ours");
    std::fs::create_dir(&outside).expect("ours");
    std::fs::write(outside.join("kept"), "kept").expect("ours");
    Place {
        _directory: directory,
        root,
        outside,
    }
}

fn link_to(path: &Path) -> EntryKind {
    EntryKind::Link(path.as_os_str().as_encoded_bytes().to_vec())
}

fn is_untouched(outside: &Path) -> bool {
    let names = std::fs::read_dir(outside).expect("ours").count();
    names == 1 && std::fs::read(outside.join("kept")).is_ok_and(|kept| kept == b"kept")
}

fn failed(answers: &[Message]) -> Vec<u64> {
    let wants = answers.iter().filter_map(|answer| match answer {
        Message::Wants(wants) => Some(wants),
        _ => None,
    });
    let failed = |want: &&paceline_transfer::wire::Want| matches!(want.wanted, Wanted::Failed(_));
    wants.flatten().filter(failed).map(|want| want.n).collect()
}

/// CVE-2024-12087: a name comes twice, once as a directory and once as a link.
#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    for link_first in [false, true] {
        let Place { root, outside, .. } = &place();
        let mut entries = vec![
            entry(0, b"d", EntryKind::Directory, 0),
            file(1, b"d/before", 0),
            entry(2, b"d", link_to(outside), 0),
            file(3, b"d/after", 10),
            entry(4, b"d/sub", EntryKind::Directory, 0),
        ];
        if link_first {
            entries.swap(0, 2);
        }
        let (answers, _) = sink_given(root, vec![ROOTS, Message::Entries(entries)]);
        assert!(is_untouched(outside), "{answers:?}");
        assert!(root.join("in/d").is_dir() && !root.join("in/d").is_symlink());
        // The link cannot take a directory's name; or the directory replaced the link.
        assert_eq!(
            failed(&answers),
            [if link_first { 1 } else { 2 }],
            "{answers:?}"
        );
    }
}

/// CVE-2024-12088: a link that leads out through another one. Links are kept as they are, and
/// nothing is ever written through any.
#[test]
fn links_through_links_lead_nowhere() {
    let Place { root, outside, .. } = &place();
    let up = EntryKind::Link(b"..".to_vec());
    let entries = vec![
        entry(0, b"up", up, 0),
        entry(1, b"out", EntryKind::Link(b"up/../../out".to_vec()), 0),
        file(2, b"out/new", 10),
        file(3, b"up/new", 10),
        entry(4, b"out/d", EntryKind::Directory, 0),
        entry(5, b"up/link", link_to(outside), 0),
    ];
    let (answers, _) = sink_given(root, vec![ROOTS, Message::Entries(entries)]);
    assert_eq!(failed(&answers), [2, 3, 4, 5], "{answers:?}");
    assert!(is_untouched(outside));
    assert_eq!(std::fs::read_dir(root).expect("ours").count(), 1);
}

/// CVE-2025-10158, CVE-2026-43620: numbers of entries that are none, and a list that does not
/// begin with its directory.
#[test]
fn numbers_of_no_entry_change_nothing() {
    let Place { root, outside, .. } = &place();
    let mut messages = vec![ROOTS];
    for n in [0, 7, u64::MAX, 1 << 63] {
        messages.push(Message::Complete {
            n,
            attempt: 0,
            stamp: Stamp::default(),
            mode: 0o777,
            root: None,
        });
        messages.push(Message::Abandon {
            n,
            changed: true,
            text: String::new(),
        });
    }
    messages.push(Message::Entries(vec![
        file(u64::MAX, b"no/such/directory/f", 0),
        file(u64::MAX - 1, b"f", 10),
    ]));
    let (answers, _) = sink_given(root, messages);
    assert_eq!(failed(&answers), [u64::MAX], "{answers:?}");
    assert!(is_untouched(outside));
}

/// CVE-2026-43618: lengths and offsets whose sums are too large for their type.
#[test]
fn lengths_that_overflow_are_no_frame() {
    let good = Header {
        kind: Kind::Chunk,
        attempt: 0,
        payload: 65_536,
        file: 0,
        offset: 65_536,
        size: 1 << 20,
        length: 65_536,
    };
    assert!(Header::decode(&good.encode()).is_ok());
    let top = u64::MAX - 65_535;
    for (offset, size, length) in [
        (top, u64::MAX, 65_536),
        (top, 1 << 20, 65_536),
        (0, u64::MAX, u64::MAX),
        (65_536, 1 << 20, u64::MAX - 65_535),
        (1 << 20, 1 << 20, 65_536),
    ] {
        let header = Header {
            offset,
            size,
            length,
            ..good
        };
        assert!(Header::decode(&header.encode()).is_err(), "{header:?}");
    }
    let long = Header {
        payload: u32::MAX,
        kind: Kind::Pack,
        offset: 0,
        size: 0,
        length: 0,
        ..good
    };
    assert!(Header::decode(&long.encode()).is_err());
    assert_eq!(HEADER, long.encode().len());
}

/// CVE-2026-29518, 43619, 53796: directories of the destination change places with links to
/// elsewhere, again and again, while a transfer runs.
#[test]
fn a_racing_renamer_at_the_destination_leads_nowhere() {
    let Place { root, outside, .. } = &place();
    let from = root.with_file_name("from/");
    for directory in ["d", "e"] {
        std::fs::create_dir_all(from.join(directory)).expect("ours");
        for n in 0..40 {
            let path = from.join(directory).join(n.to_string());
            std::fs::write(path, bytes(1000 + n, n as u64)).expect("ours");
        }
        let large = from.join(directory).join("large");
        std::fs::write(large, bytes(2 << 20, 9)).expect("ours");
    }
    let to = root.join("in");
    let (runtime, mut swaps) = (runtime(), 0);
    for round in 0..ROUNDS {
        let over = AtomicBool::new(false);
        swaps += std::thread::scope(|scope| {
            let ends = Over(&over);
            let renamer = scope.spawn(|| swap_with_links(&to, outside, &over));
            let options = Options {
                update: Update::Always,
                delete: (round % 2 == 1).then_some(u64::MAX),
                fresh: true,
                ..Options::default()
            };
            // It may fail, or fail in part: nothing is written elsewhere.
            let _ = runtime.block_on(transfer(&from, &to, &options, Damage::default()));
            drop(ends);
            renamer.join().expect("no panic")
        });
        assert!(is_untouched(outside), "round {round}");
    }
    // How many depends on how busy the machine is.
    assert!(swaps > 0, "none in {ROUNDS} transfers");
}

/// Transfers beside which names are swapped.
const ROUNDS: u64 = 12;

fn swap_with_links(to: &Path, outside: &Path, over: &AtomicBool) -> u64 {
    let mut swaps = 0;
    let (own, aside) = (to.join("d"), to.join("aside"));
    while !over.load(Ordering::Relaxed) {
        if std::fs::rename(&own, &aside).is_ok() {
            let _ = symlink(outside, &own);
            std::thread::yield_now();
            let _ = std::fs::remove_file(&own);
            let _ = std::fs::rename(&aside, &own);
            swaps += 1;
        }
        // Files, too: what is placed replaces the link, and not what it leads to.
        let _ = symlink(outside.join("kept"), to.join("e/7"));
        std::thread::yield_now();
    }
    let _ = std::fs::rename(&aside, &own);
    swaps
}

/// CVE-2024-12747, 2026-53797: files and directories of the source change places with links to
/// what its user may read and the destination must not have.
#[test]
fn a_racing_renamer_at_the_source_sends_nothing_else() {
    let Place { root, outside, .. } = &place();
    let from = root.with_file_name("from/");
    std::fs::create_dir_all(from.join("d")).expect("ours");
    for n in 0..40 {
        std::fs::write(from.join(format!("d/{n}")), bytes(1000, n)).expect("ours");
        std::fs::write(outside.join(n.to_string()), "a secret").expect("ours");
    }
    let runtime = runtime();
    let mut swaps = 0;
    for round in 0..ROUNDS {
        let to = root.join(round.to_string());
        let over = AtomicBool::new(false);
        swaps += std::thread::scope(|scope| {
            let ends = Over(&over);
            let renamer = scope.spawn(|| swap_with_links(&from, outside, &over));
            let options = Options::default();
            let _ = runtime.block_on(transfer(&from, &to, &options, Damage::default()));
            drop(ends);
            renamer.join().expect("no panic")
        });
        let read = |path: PathBuf| std::fs::read(path).unwrap_or_default();
        let places = ["d", "aside"].map(|name| to.join(name));
        for place in places.iter().filter(|place| !place.is_symlink()) {
            for n in 0..40 {
                let path = place.join(n.to_string());
                let is_secret = !path.is_symlink() && read(path) == b"a secret";
                assert!(!is_secret, "round {round}");
            }
        }
    }
    // How many depends on how busy the machine is.
    assert!(swaps > 0, "none in {ROUNDS} transfers");
}
