// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hard links, devices, FIFOs and sockets.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{makedev, mknodat, FileType, Mode, CWD};

use super::hostile::{entry, ROOTS};
use super::*;
use paceline_transfer::store::short;
use paceline_transfer::wire::{Entry, EntryKind, Message, Special};

fn run(from: &Path, to: &Path, options: &Options) -> (Result<Summary>, Result<Summary>) {
    let (sent, received, _) = runtime().block_on(transfer(from, to, options, Damage::default()));
    (sent, received)
}

/// Devices and inodes of three names of a large file, and two of a small one.
fn inodes(top: &Path) -> Vec<(u64, u64)> {
    let names = ["d/large", "large", "z", "small", "e/small", "alone"];
    let states = names.map(|name| top.join(name).symlink_metadata().expect("there"));
    states.map(|state| (state.dev(), state.ino())).to_vec()
}

fn tree(directory: &Path) -> (PathBuf, PathBuf) {
    let (from, to) = (directory.join("from/"), directory.join("to/"));
    for name in ["d", "e"] {
        std::fs::create_dir_all(from.join(name)).expect("ours");
    }
    std::fs::write(from.join("d/large"), bytes(3 << 20, 1)).expect("ours");
    std::fs::write(from.join("small"), bytes(5000, 2)).expect("ours");
    std::fs::write(from.join("alone"), bytes(5000, 2)).expect("ours");
    for (of, name) in [("d/large", "large"), ("d/large", "z"), ("small", "e/small")] {
        std::fs::hard_link(from.join(of), from.join(name)).expect("ours");
    }
    (from, to)
}

#[test]
fn names_of_one_file_stay_names_of_one_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = tree(directory.path());
    let kept = Options {
        hard_links: true,
        ..Options::default()
    };
    let sent = run(&from, &to, &kept).1.expect("undamaged");
    assert_eq!(sent.written_bytes, (3 << 20) + 2 * 5000, "once each");
    let there = inodes(&to);
    assert_eq!([there[0], there[0]], [there[1], there[2]]);
    assert_eq!(there[3], there[4]);
    assert_ne!(there[3], there[5], "of the same content, and alone");
    let content = std::fs::read(to.join("z")).expect("there");
    assert_eq!(content, bytes(3 << 20, 1));
    let again = run(&from, &to, &kept).1.expect("undamaged");
    assert_eq!((again.placed, again.written_bytes), (0, 0));
    // Another content, in the place of all of its names.
    std::fs::write(from.join("small"), "new").expect("ours");
    std::fs::remove_file(to.join("z")).expect("ours");
    std::fs::write(to.join("z"), "other").expect("ours");
    run(&from, &to, &kept).1.expect("undamaged");
    let there = inodes(&to);
    assert_eq!((there[0], there[3]), (there[2], there[4]));
    for name in ["small", "e/small"] {
        assert_eq!(std::fs::read(to.join(name)).expect("there"), b"new");
    }
    assert_eq!(
        std::fs::read(to.join("alone")).expect("there"),
        bytes(5000, 2)
    );
    let names = std::fs::read_dir(&to).expect("there").count();
    assert_eq!(names, 6, "no temporary is left");
}

#[test]
fn without_the_option_each_name_gets_a_copy() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = tree(directory.path());
    let sent = run(&from, &to, &Options::default()).1.expect("undamaged");
    assert_eq!(sent.written_bytes, 3 * (3 << 20) + 3 * 5000);
    let mut there = inodes(&to);
    there.sort_unstable();
    there.dedup();
    assert_eq!(there.len(), 6);
}

/// What an earlier run linked under its temporary name, and did not rename.
#[test]
fn a_link_that_was_begun_is_made_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = tree(directory.path());
    std::fs::create_dir_all(&to).expect("ours");
    std::fs::write(to.join("other"), "other").expect("ours");
    let left = to.join(format!(".z.paceline-{}", short(&ID)));
    std::fs::hard_link(to.join("other"), left).expect("ours");
    let kept = Options {
        hard_links: true,
        ..Options::default()
    };
    run(&from, &to, &kept).1.expect("undamaged");
    let there = inodes(&to);
    assert_eq!(there[0], there[2]);
    assert_eq!(std::fs::read(to.join("other")).expect("there"), b"other");
    assert_eq!(std::fs::read_dir(&to).expect("there").count(), 7);
}

#[test]
fn devices_fifos_and_sockets_are_made_or_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("from/"), directory.path().join("to/"));
    std::fs::create_dir(&from).expect("ours");
    std::fs::write(from.join("file"), "file").expect("ours");
    let make = |name: &str, kind, device| {
        mknodat(
            CWD,
            from.join(name),
            kind,
            Mode::from_raw_mode(0o640),
            device,
        )
    };
    make("fifo", FileType::Fifo, 0).expect("ours");
    make("socket", FileType::Socket, 0).expect("ours");
    // As /dev/null, which does no harm, and as no device at all.
    let devices = make("null", FileType::CharacterDevice, makedev(1, 3))
        .and_then(|()| make("block", FileType::BlockDevice, makedev(240, 70_000)));
    let count = match devices {
        Ok(()) => 4,
        Err(error) => {
            println!("skipped: devices: {error}");
            let _ = std::fs::remove_file(from.join("null"));
            2
        }
    };
    // Told, and all else is done.
    let summary = run(&from, &to, &Options::default()).1.expect("undamaged");
    assert_eq!((summary.failed, summary.written_bytes), (count, 4));
    let kept = Options {
        specials: true,
        ..Options::default()
    };
    let made = run(&from, &to, &kept).1.expect("undamaged");
    assert_eq!((made.failed, made.placed), (0, count));
    let state = |name: &str| to.join(name).symlink_metadata().expect("there");
    assert!(state("fifo").file_type().is_fifo());
    assert!(state("socket").file_type().is_socket());
    if count == 4 {
        assert!(state("null").file_type().is_char_device());
        assert!(state("block").file_type().is_block_device());
        let numbers = ["null", "block"].map(|name| state(name).rdev());
        assert_eq!(numbers, [makedev(1, 3), makedev(240, 70_000)]);
    }
    let source = from.join("fifo").symlink_metadata().expect("ours");
    let state = state("fifo");
    let of = |state: &std::fs::Metadata| (state.mode(), state.mtime(), state.mtime_nsec());
    assert_eq!(of(&state), of(&source));
    let again = run(&from, &to, &kept).1.expect("undamaged");
    assert_eq!((again.placed, again.failed), (0, 0));
}

/// What a standing receiver of these entries says at the end.
fn finished(root: &Path, entries: Vec<Entry>) -> Summary {
    runtime().block_on(async {
        let (mut attacker, mut sink) = controls().await;
        let (_made, streams) = mpsc::channel(1);
        let target = Target::Below(root.to_owned(), b"/".to_vec(), Bounds::default());
        let options = Options {
            hard_links: true,
            ..Options::default()
        };
        let job = sink_job(target, &options);
        let honest = async {
            let progress = Progress::new(|_| {});
            sink::run(&mut sink.inbox, &sink.outbox, streams.into(), job, progress).await
        };
        let attack = async {
            let (entries, count) = (Message::Entries(entries.clone()), entries.len() as u64);
            attacker.outbox.send(ROOTS);
            attacker.outbox.send(entries);
            attacker.outbox.send(Message::Walked {
                entries: count,
                bytes: 0,
                errors: 0,
            });
            while !matches!(
                attacker.inbox.next().await.expect("it goes on"),
                Message::Finished(_)
            ) {}
            attacker.outbox.send(Message::Bye);
        };
        tokio::join!(honest, attack).0.expect("all is answered")
    })
}

/// A source names what it likes: only a regular file below the destination gets another name.
#[test]
fn a_link_to_what_is_no_file_here_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let to = directory.path().join("to");
    std::fs::create_dir(&to).expect("ours");
    std::fs::write(directory.path().join("secret"), "secret").expect("ours");
    std::os::unix::fs::symlink("../secret", to.join("link")).expect("ours");
    std::os::unix::fs::symlink("..", to.join("up")).expect("ours");
    let of = |n, of: &[u8]| {
        let name = format!("x{n}");
        entry(n, name.as_bytes(), EntryKind::HardLink(of.to_vec()), 0)
    };
    let entries = vec![
        of(0, b"link"),
        of(1, b"up/secret"),
        of(2, b"none"),
        entry(3, b"x3", EntryKind::Special(Special::Fifo), 0),
    ];
    let summary = finished(&to, entries);
    assert_eq!(summary.failed, 4);
    assert_eq!(std::fs::read_dir(&to).expect("ours").count(), 2);
}
