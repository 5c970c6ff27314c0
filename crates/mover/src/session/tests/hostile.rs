// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that break the protocol.

use std::os::unix::fs::symlink;

use super::*;
use paceline_conduit::Error;
use paceline_transfer::wire::{Entry, EntryKind, Message, Stamp, Want, Wanted};

pub(super) fn entry(n: u64, path: &[u8], kind: EntryKind, size: u64) -> Entry {
    Entry {
        n,
        path: path.to_vec(),
        kind,
        mode: 0o777,
        stamp: Stamp {
            size,
            ..Stamp::default()
        },
        root: None,
        attributes: Vec::new(),
        owner: None,
    }
}

pub(super) fn file(n: u64, path: &[u8], size: u64) -> Entry {
    entry(n, path, EntryKind::File { dense: false }, size)
}

/// A sink that is told these messages; what it answers, and how it ends.
pub(super) fn sink_given(root: &Path, messages: Vec<Message>) -> (Vec<Message>, Result<Summary>) {
    sink_bounded(root, Bounds::default(), messages)
}

pub(super) fn sink_bounded(
    root: &Path,
    bounds: Bounds,
    messages: Vec<Message>,
) -> (Vec<Message>, Result<Summary>) {
    runtime().block_on(async {
        let (mut attacker, mut sink) = controls().await;
        let (made, streams) = mpsc::channel(16);
        let job = below(root, bounds);
        let honest = async {
            let progress = Progress::new(|_| {});
            let result =
                sink::run(&mut sink.inbox, &sink.outbox, streams.into(), job, progress).await;
            sink.end(&result).await;
            result
        };
        let attack = async {
            for message in messages {
                attacker.outbox.send(message);
            }
            let mut answers = Vec::new();
            while let Ok(message) = attacker.inbox.next().await {
                answers.push(message);
                if matches!(
                    answers.last(),
                    Some(Message::Wants(_) | Message::Finished(_))
                ) {
                    break;
                }
            }
            drop((attacker, made));
            answers
        };
        let (result, answers) = tokio::join!(honest, attack);
        (answers, result)
    })
}

fn refused(root: &Path, messages: Vec<Message>) -> Error {
    let (_, result) = sink_given(root, messages);
    result.expect_err("it must not be taken")
}

pub(super) const ROOTS: Message = Message::Roots { one_file: false };

#[test]
fn paths_that_lead_out_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    std::fs::create_dir(&root).expect("ours");
    let planted: [&[u8]; 6] = [
        b"..",
        b"../x",
        b"/etc/x",
        b"a/../../x",
        b".paceline/x",
        b"a//b",
    ];
    for path in planted {
        let entries = Message::Entries(vec![file(0, path, 0)]);
        let error = refused(&root, vec![ROOTS, entries]);
        assert!(matches!(error, Error::Wire(_) | Error::Frame(_)), "{error}");
    }
    let there: Vec<_> = std::fs::read_dir(directory.path()).expect("ours").collect();
    assert_eq!(there.len(), 1, "{there:?}");
}

#[test]
fn planted_links_are_not_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, outside) = (directory.path().join("root"), directory.path().join("out"));
    std::fs::create_dir_all(root.join("in")).expect("ours");
    std::fs::create_dir(&outside).expect("ours");
    std::fs::write(outside.join("kept"), "kept").expect("ours");
    // One by the transfer itself, one before it.
    symlink(&outside, root.join("in/before")).expect("ours");
    symlink(outside.join("kept"), root.join("in/target")).expect("ours");
    let link = EntryKind::Link(outside.as_os_str().as_encoded_bytes().to_vec());
    let entries = vec![
        entry(0, b"own", link.clone(), 0),
        entry(1, b"own/d", EntryKind::Directory, 0),
        file(2, b"own/f", 10),
        entry(3, b"own/l", link, 0),
        file(4, b"before/f", 300_000),
        entry(5, b"before/d", EntryKind::Directory, 0),
    ];
    let (answers, _) = sink_given(&root, vec![ROOTS, Message::Entries(entries)]);
    let wants = answers.iter().find_map(|answer| match answer {
        Message::Wants(wants) => Some(wants),
        _ => None,
    });
    let failed: Vec<u64> = wants
        .expect("an answer")
        .iter()
        .filter(|want| matches!(want.wanted, Wanted::Failed(_)))
        .map(|want| want.n)
        .collect();
    assert_eq!(failed, [1, 2, 3, 4, 5]);
    let names: Vec<_> = std::fs::read_dir(&outside)
        .expect("ours")
        .flatten()
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(std::fs::read(outside.join("kept")).expect("ours"), b"kept");
}

#[test]
fn a_destination_behind_a_link_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    std::fs::create_dir(&root).expect("ours");
    symlink(directory.path(), root.join("in")).expect("ours");
    let error = refused(&root, vec![ROOTS]);
    assert!(
        error.to_string().contains("root") || error.to_string().contains("directory"),
        "{error}"
    );
}

#[test]
fn messages_out_of_turn_end_the_session() {
    let directory = tempfile::tempdir().expect("a directory");
    for wrong in [
        vec![Message::Bye],
        vec![ROOTS, ROOTS],
        vec![ROOTS, Message::Credit { total: 1 }],
        vec![ROOTS, Message::Entries(vec![file(0, b"a", u64::MAX)])],
    ] {
        let error = refused(directory.path(), wrong);
        assert!(
            matches!(
                error,
                Error::Unexpected(_) | Error::Wire(_) | Error::Frame(_)
            ),
            "{error}"
        );
    }
}

/// A source that is asked for what it does not have.
#[test]
fn a_sink_that_asks_for_nonsense_is_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    std::fs::write(&path, bytes(1 << 20, 1)).expect("ours");
    let want = |n, wanted| Message::Wants(vec![Want { n, wanted }]);
    for wrong in [
        want(0, Wanted::Ranges(vec![(0, (1 << 20) + 1)])),
        want(0, Wanted::Ranges(vec![(1, 1 << 20)])),
        want(0, Wanted::Ranges(vec![(0, 1 << 20), (0, 1 << 20)])),
        want(7, Wanted::Ranges(vec![(0, 1)])),
        Message::Bye,
    ] {
        let result = runtime().block_on(async {
            let (mut source, mut attacker) = controls().await;
            let (_made, streams) = mpsc::channel(1);
            let job = source::Job {
                tops: Tops::open(std::slice::from_ref(&path))
                    .map_err(|(_, e)| e)
                    .expect("there"),
                filter: Filter::default(),
                options: Options::default(),
                secret: SECRET,
                tuning: None,
            };
            let attack = async {
                while !matches!(
                    attacker.inbox.next().await,
                    Ok(Message::Entries(_)) | Err(_)
                ) {}
                attacker.outbox.send(wrong);
                while attacker.inbox.next().await.is_ok() {}
            };
            let honest = async {
                let progress = Progress::new(|_| {});
                let result = source::run(
                    &mut source.inbox,
                    &source.outbox,
                    streams.into(),
                    job,
                    progress,
                )
                .await;
                source.end(&result).await;
                result
            };
            tokio::join!(honest, attack).0
        });
        let error = result.expect_err("nonsense");
        assert!(matches!(error, Error::Unexpected(_)), "{error}");
    }
}
