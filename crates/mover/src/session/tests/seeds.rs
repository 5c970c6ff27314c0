// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thousand flipped bits, one for each seed: on the wire, in the temporary file, in the
//! journal. Each is found, and what is placed is the source.

use std::path::PathBuf;

use super::*;
use paceline_transfer::store::{short, temporary_name, Journal, Root};
use tokio::task::JoinSet;

/// Seeds of each kind: together a thousand.
const ON_THE_WIRE: u64 = 350;
const IN_ACKNOWLEDGEMENTS: u64 = 50;
const ON_THE_DISK: u64 = 300;
const IN_THE_JOURNAL: u64 = 300;
/// Transfers at once: most of the time each waits for its disk.
const AT_ONCE: usize = 16;

fn drawn(seed: u64, below: u64) -> u64 {
    let hash = blake3::hash(&seed.to_le_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight")) % below
}

fn options(streams: u16) -> Options {
    Options {
        streams,
        chunk: Some(64 << 10),
        ..Options::default()
    }
}

/// Runs a check of each seed, some at once.
fn for_each_seed<F>(seeds: u64, check: impl Fn(u64) -> F)
where
    F: std::future::Future<Output = ()> + Send + 'static,
{
    runtime().block_on(async {
        let mut running = JoinSet::new();
        let ended = |ended: std::result::Result<(), tokio::task::JoinError>| ended.expect("found");
        for seed in 0..seeds {
            if running.len() == AT_ONCE {
                running.join_next().await.into_iter().for_each(ended);
            }
            running.spawn(check(seed));
        }
        while let Some(one) = running.join_next().await {
            ended(one);
        }
    });
}

fn is_reported(events: &Events) -> bool {
    let events = events.lock().expect("no panic");
    let reports =
        |event: &Event| matches!(event, Event::SentAgain { .. } | Event::StreamLost { .. });
    events.iter().any(reports)
}

fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("ours").flatten() {
        let (path, name) = (entry.path(), PathBuf::from(entry.file_name()));
        match path.is_dir() {
            true => found.push((name, Vec::new())),
            false => found.push((name, std::fs::read(path).expect("ours"))),
        }
    }
    found.sort();
    found
}

/// Small files and a large one.
fn source(directory: &Path) -> PathBuf {
    let tree = directory.join("tree/");
    std::fs::create_dir(&tree).expect("ours");
    std::fs::write(tree.join("large"), bytes(700_001, 1)).expect("ours");
    for n in 0..12 {
        std::fs::write(tree.join(n.to_string()), bytes(n * 997, n as u64)).expect("ours");
    }
    tree
}

fn a_bit_on_the_wire_is_found(seeds: u64, streams: u16, of_acks: bool, bytes: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let tree = source(directory.path());
    let all_found = Arc::new(AtomicU64::default());
    for_each_seed(seeds, |seed| {
        let (tree, to) = (tree.clone(), directory.path().join(format!("to{seed}")));
        let found = Arc::clone(&all_found);
        let hit = Arc::new(Hit {
            at: drawn(seed, bytes),
            bit: drawn(seed + 1_000_000, 8) as u8,
            read: AtomicU64::default(),
        });
        let damage = Damage {
            hit: Some(Arc::clone(&hit)),
            of_acks,
            ..Damage::default()
        };
        async move {
            let own = options(streams);
            let (sent, received, events) = transfer(&tree, &to, &own, damage).await;
            assert!(
                hit.read.load(Ordering::Relaxed) > hit.at,
                "{seed}: nothing was hit"
            );
            let is_found = is_reported(&events) || (sent.is_err() && received.is_err());
            // An acknowledgement of the other connection may come after the end.
            let is_late = of_acks && sent.is_ok() && received.is_ok();
            assert!(is_found || is_late, "{seed}: byte {} is not found", hit.at);
            found.fetch_add(u64::from(is_found), Ordering::Relaxed);
            if received.is_err() {
                let (sent, received, _) = transfer(&tree, &to, &own, Damage::default()).await;
                sent.and(received).expect("the same command continues");
            }
            assert_eq!(contents(&tree), contents(&to), "{seed}");
            std::fs::remove_dir_all(to).expect("ours");
        }
    });
    let found = all_found.load(Ordering::Relaxed);
    assert!(2 * found > seeds, "only {found} of {seeds} were found");
}

#[test]
fn a_bit_on_the_wire_is_found_for_each_seed() {
    // One connection: of two the other one may have brought the same bite again.
    a_bit_on_the_wire_is_found(ON_THE_WIRE, 1, false, 700_000);
}

#[test]
fn a_bit_of_an_acknowledgement_is_found_for_each_seed() {
    // Eleven bites and a pack, 25 bytes each: the last ones may come after the end.
    a_bit_on_the_wire_is_found(IN_ACKNOWLEDGEMENTS, 2, true, 6 * 25);
}

/// A file, and a destination that was left when its connection broke.
struct Left {
    _directory: tempfile::TempDir,
    file: PathBuf,
    to: PathBuf,
    temporary: PathBuf,
    journal: PathBuf,
    /// Bytes of the file that a run finds there.
    resumed: u64,
}

fn left() -> Left {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, bytes(1 << 20, 3)).expect("ours");
    let to = directory.path().join("left/");
    std::fs::create_dir(&to).expect("ours");
    let cut = Damage {
        cut: Some(600_000),
        ..Damage::default()
    };
    let runtime = runtime();
    let (_, received, _) = runtime.block_on(transfer(&file, &to, &options(1), cut));
    received.expect_err("the connection broke");
    let id = short(&ID);
    let undamaged = copy(&to, directory.path().join("undamaged/"));
    let whole = Damage::default();
    let (_, received, _) = runtime.block_on(transfer(&file, &undamaged, &options(1), whole));
    let resumed = received.expect("undamaged").resumed_bytes;
    assert!(resumed >= 300_000, "{resumed}");
    Left {
        file,
        temporary: PathBuf::from(temporary_name("file".as_ref(), &id)),
        journal: Path::new(".paceline").join(id).join("journal"),
        to,
        resumed,
        _directory: directory,
    }
}

fn copy(from: &Path, to: PathBuf) -> PathBuf {
    std::fs::create_dir_all(&to).expect("ours");
    for entry in std::fs::read_dir(from).expect("ours").flatten() {
        match entry.path().is_dir() {
            true => drop(copy(&entry.path(), to.join(entry.file_name()))),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name()))),
        }
    }
    to
}

/// Flips a drawn bit among the first bytes of a file, and says where.
fn flip(path: &Path, seed: u64, among: u64) -> usize {
    let mut content = std::fs::read(path).expect("left");
    let at = drawn(seed, among) as usize;
    content[at] ^= 1 << drawn(seed + 2_000_000, 8);
    std::fs::write(path, content).expect("ours");
    at
}

async fn ends_well(file: &Path, to: &Path, seed: u64) -> Summary {
    let damage = Damage::default();
    let (sent, received, _) = transfer(file, to, &options(2), damage).await;
    sent.expect("undamaged");
    let there = [(PathBuf::from("file"), std::fs::read(file).expect("ours"))];
    assert_eq!(contents(to), there, "{seed}");
    std::fs::remove_dir_all(to).expect("ours");
    received.expect("undamaged")
}

#[test]
fn a_bit_of_a_temporary_file_is_found_for_each_seed() {
    let left = left();
    for_each_seed(ON_THE_DISK, |seed| {
        let to = copy(&left.to, left.to.with_file_name(format!("{seed}/")));
        flip(&to.join(&left.temporary), seed, left.resumed);
        let (file, resumed) = (left.file.clone(), left.resumed);
        async move {
            let summary = ends_well(&file, &to, seed).await;
            assert!(summary.resumed_bytes < resumed, "{seed}: it is not found");
        }
    });
}

#[test]
fn a_bit_of_the_journal_is_found_for_each_seed() {
    let left = left();
    let undamaged = std::fs::read(left.to.join(&left.journal)).expect("left");
    for_each_seed(IN_THE_JOURNAL, |seed| {
        let to = copy(&left.to, left.to.with_file_name(format!("{seed}/")));
        let journal = to.join(&left.journal);
        let at = flip(&journal, seed, undamaged.len() as u64);
        // Nothing from the changed record on is believed; this run's first record follows.
        let root = Root::open(&to, false).expect("ours");
        drop(Journal::open(&root, &ID, false).expect("any bytes"));
        let read = std::fs::read(&journal).expect("ours");
        let own = u32::from_le_bytes(undamaged[..4].try_into().expect("four")) as usize + 4 + 16;
        let kept = read.len() - own;
        assert!(kept <= at && undamaged[..kept] == read[..kept], "{seed}");
        assert_eq!(read[kept..], undamaged[..own], "{seed}");
        let (file, resumed) = (left.file.clone(), left.resumed);
        async move {
            let summary = ends_well(&file, &to, seed).await;
            assert!(summary.resumed_bytes <= resumed, "{seed}");
        }
    });
}
