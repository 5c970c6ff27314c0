// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first bites, which go before the sink has answered.

use std::time::Duration;

use super::*;
use crate::session::pool::Supply;
use paceline_conduit::stream::tags;
use paceline_transfer::chunk::LEAST_BITE;
use paceline_transfer::wire::{Ack, EntryKind, Kind, Message, Want, Wanted};

const SIZE: usize = 6 << 20;
const STREAMS: u16 = 3;

fn options() -> Options {
    Options {
        streams: STREAMS,
        ..Options::default()
    }
}

/// Offsets of the bites that come by a stream before it ends, and of packs the files' numbers.
async fn offsets(stream: &mut Stream) -> Vec<u64> {
    let (mut own, _) = tags(&SECRET, stream.number);
    let mut found = Vec::new();
    loop {
        let frame = stream.reader.frame(&mut own).await.expect("a frame");
        match frame.header.kind {
            Kind::End => return found,
            Kind::Pack => {
                let files = frame.pack().expect("sound").expect("sound");
                found.extend(files.iter().map(|(item, _)| item.n));
            }
            _ => {
                assert_eq!(frame.header.length, LEAST_BITE);
                found.push(frame.header.offset);
            }
        }
    }
}

/// To a sink that wants nothing, as soon as all that goes unasked is on its way.
async fn unasked(from: &Path, options: Options, are_early: bool) -> Vec<u64> {
    let (mut source, sink) = controls().await;
    let (made, streams) = mpsc::channel(16);
    let mut ends = Vec::new();
    for number in 0..options.streams {
        let (sends, receives) = stream(number, Damage::default());
        assert!(made.try_send(sends).is_ok());
        ends.push(receives);
    }
    let (progress, _) = progress();
    let job = source::Job {
        tops: Tops::open(&[from.to_owned()])
            .map_err(|(_, error)| error)
            .expect("there"),
        filter: Filter::default(),
        options,
        secret: SECRET,
        tuning: None,
    };
    let supply = Supply {
        are_early,
        ..Supply::from(streams)
    };
    let sending = source::run(&mut source.inbox, &source.outbox, supply, job, progress);
    let receiving = async {
        let mut sink = sink;
        while !matches!(sink.inbox.next().await, Ok(Message::Walked { .. })) {}
        // What may not go would go now.
        tokio::time::sleep(Duration::from_millis(300)).await;
        sink.outbox.send(Message::Wants(vec![Want {
            n: 0,
            wanted: Wanted::Nothing,
        }]));
        sink.outbox.send(Message::Credit { total: 1 << 30 });
        sink.outbox.send(Message::Finished(Summary::default()));
        let mut all = Vec::new();
        for stream in &mut ends {
            all.extend(offsets(stream).await);
        }
        all.sort_unstable();
        all
    };
    let (sent, offsets) = tokio::join!(sending, receiving);
    sent.expect("it ends well");
    offsets
}

#[test]
fn one_small_bite_for_each_stream_goes_unasked() {
    let directory = tempfile::tempdir().expect("a directory");
    let from = directory.path().join("file");
    std::fs::write(&from, bytes(SIZE, 1)).expect("ours");
    let runtime = runtime();
    let went = runtime.block_on(unasked(&from, options(), true));
    assert_eq!(went, [0, LEAST_BITE, 2 * LEAST_BITE]);
    let none: [u64; 0] = [];
    assert_eq!(runtime.block_on(unasked(&from, options(), false)), none);
    let hashed = Options {
        update: paceline_transfer::wire::Update::Hash,
        ..options()
    };
    assert_eq!(runtime.block_on(unasked(&from, hashed, true)), none);
}

const FILES: usize = 60;
const SMALL: usize = 10_000;

/// A directory with small files.
fn small_files(directory: &Path) {
    for n in 0..FILES {
        std::fs::write(directory.join(n.to_string()), bytes(SMALL, n as u64)).expect("ours");
    }
}

#[test]
fn small_files_go_unasked_as_far_as_bites_would() {
    let directory = tempfile::tempdir().expect("a directory");
    small_files(directory.path());
    let runtime = runtime();
    let went = runtime.block_on(unasked(directory.path(), options(), true));
    // No stream takes more than half a bite and a pack, and none stops before it has half a bite.
    let most = usize::from(STREAMS) * LEAST_BITE as usize / SMALL;
    let least = usize::from(STREAMS) * (LEAST_BITE as usize / 2).div_ceil(SMALL);
    assert!((least..=most).contains(&went.len()), "{went:?}");
    let none: [u64; 0] = [];
    let went = runtime.block_on(unasked(directory.path(), options(), false));
    assert_eq!(went, none);
}

/// Files of a pack that goes unasked, and fills what may: the last one cannot be read.
const PACKED: usize = 12;

/// Which of a file's two answers comes first: what is wanted, or the word that its pack is there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum First {
    Want,
    Ack,
}

/// A pack goes unasked without one of its files, which is gone when it is read. When the sink
/// wants that file, it is told so.
async fn after_a_pack_without_one(from: &Path, first: First) {
    let (mut source, mut sink) = controls().await;
    let (made, streams) = mpsc::channel(1);
    let (sends, mut receives) = stream(0, Damage::default());
    let (progress, events) = progress();
    let seen = Arc::clone(&progress);
    let job = source::Job {
        tops: Tops::open(&[from.to_owned()])
            .map_err(|(_, error)| error)
            .expect("there"),
        filter: Filter::default(),
        options: Options {
            streams: 1,
            ..Options::default()
        },
        secret: SECRET,
        tuning: None,
    };
    let supply = Supply {
        are_early: true,
        ..Supply::from(streams)
    };
    let sending = source::run(&mut source.inbox, &source.outbox, supply, job, progress);
    let receiving = async {
        let (mut files, mut gone) = (Vec::new(), None);
        loop {
            match sink.inbox.next().await.expect("a message") {
                Message::Entries(entries) => {
                    for entry in entries {
                        let is_file = matches!(entry.kind, EntryKind::File { .. });
                        if is_file && entry.path.ends_with(b"gone") {
                            gone = Some(entry.n);
                        }
                        files.push((entry.n, is_file.then_some(entry.stamp.size)));
                    }
                }
                Message::Walked { .. } => break,
                _ => {}
            }
        }
        let gone = gone.expect("it was there");
        std::fs::remove_file(from.join("gone")).expect("ours");
        made.try_send(sends).map_err(|_| "full").expect("room");
        let (mut frames, mut acks) = tags(&SECRET, 0);
        let frame = receives.reader.frame(&mut frames).await.expect("a frame");
        let pack = frame.pack().expect("sound").expect("sound");
        assert_eq!(pack.len(), PACKED - 1, "one is gone");
        let there = acks.seal_ack(Ack::Have(frame.number));
        let all = files.iter().map(|(n, size)| Want {
            n: *n,
            wanted: size.map_or(Wanted::Nothing, |size| Wanted::Ranges(vec![(0, size)])),
        });
        let wants = Message::Wants(all.collect());
        let are_wanted = || {
            let events = events.lock().expect("no panic");
            let copied = |event: &&Event| matches!(event, Event::Copied { .. });
            events.iter().filter(copied).count() == PACKED
        };
        let is_there = || seen.bytes_sent.load(Ordering::Relaxed) > 0;
        if first == First::Want {
            sink.outbox.send(wants.clone());
            until(are_wanted).await;
        }
        receives.writer.send(&there).await.expect("a pipe");
        until(is_there).await;
        if first == First::Ack {
            sink.outbox.send(wants);
        }
        // Until here it has sent all that it may.
        sink.outbox.send(Message::Credit { total: 1 << 30 });
        let message = loop {
            match sink.inbox.next().await.expect("a message") {
                Message::Walked { .. } => {}
                message => break message,
            }
        };
        assert!(
            matches!(message, Message::Abandon { n, .. } if n == gone),
            "{message:?}"
        );
        sink.outbox.send(Message::Finished(Summary::default()));
    };
    let (sent, ()) = tokio::join!(sending, receiving);
    sent.expect("it ends well");
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_file_that_its_pack_left_out_is_not_forgotten() {
    for first in [First::Want, First::Ack] {
        let directory = tempfile::tempdir().expect("a directory");
        // With its list the pack is more than may go unasked, so that nothing follows it.
        let each = (LEAST_BITE as usize - 256) / (PACKED - 1);
        for n in 1..PACKED {
            let path = directory.path().join(n.to_string());
            std::fs::write(path, bytes(each, n as u64)).expect("ours");
        }
        std::fs::write(directory.path().join("gone"), "gone").expect("ours");
        let moved = after_a_pack_without_one(directory.path(), first);
        let ended = runtime().block_on(async { tokio::time::timeout(HANGS, moved).await });
        ended.unwrap_or_else(|_| panic!("{first:?}: the source has forgotten it"));
    }
}

/// A transfer that takes so long does not end.
const HANGS: Duration = Duration::from_secs(60);

#[test]
fn small_files_that_are_there_are_not_written_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    std::fs::create_dir(&from).expect("ours");
    std::fs::create_dir(&to).expect("ours");
    small_files(&from);
    let runtime = runtime();
    let options = options();
    let run = || {
        let moved = transfer(&from, &to, &options, Damage::default());
        let (sent, received, _) = runtime.block_on(moved);
        sent.expect("it ends well");
        received.expect("it ends well")
    };
    let first = run();
    assert_eq!(
        (first.written_bytes, first.failed),
        ((FILES * SMALL) as u64, 0)
    );
    let again = run();
    assert_eq!((again.written_bytes, again.failed), (0, 0));
    for n in 0..FILES {
        let there = std::fs::read(to.join("from").join(n.to_string())).expect("placed");
        assert_eq!(there, bytes(SMALL, n as u64));
    }
}

#[test]
fn early_data_of_an_unchanged_file_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("file"), directory.path().join("to"));
    std::fs::write(&from, bytes(SIZE, 2)).expect("ours");
    let runtime = runtime();
    let options = options();
    let run = || {
        let moved = transfer(&from, &to, &options, Damage::default());
        let (sent, received, _) = runtime.block_on(moved);
        sent.expect("it ends well");
        received.expect("it ends well")
    };
    assert_eq!(run().written_bytes, SIZE as u64);
    let again = run();
    assert_eq!((again.written_bytes, again.unchanged), (0, 1));
    assert_eq!(std::fs::read(&to).expect("placed"), bytes(SIZE, 2));
}

#[test]
fn larger_bites_of_an_earlier_run_are_kept() {
    let runtime = runtime();
    let mut resumed = 0;
    for cut in [1 << 20, 3 << 20, 5 << 20] {
        let directory = tempfile::tempdir().expect("a directory");
        let (from, to) = (directory.path().join("file"), directory.path().join("to"));
        std::fs::write(&from, bytes(SIZE, 3)).expect("ours");
        let broken = Damage {
            cut: Some(cut),
            ..Damage::default()
        };
        let one = Options {
            streams: 1,
            ..Options::default()
        };
        let (_, received, _) = runtime.block_on(transfer(&from, &to, &one, broken));
        assert!(received.is_err(), "{cut}: it was cut");
        let three = options();
        let moved = transfer(&from, &to, &three, Damage::default());
        let (sent, received, _) = runtime.block_on(moved);
        sent.expect("it ends well");
        let summary = received.expect("it ends well");
        assert_eq!(summary.wrong + summary.failed, 0, "{cut}");
        resumed += summary.resumed_bytes;
        assert_eq!(std::fs::read(&to).expect("placed"), bytes(SIZE, 3));
    }
    // What a busy sink had not taken when it was cut, it does not have.
    assert!(resumed > 0, "nothing was left of three runs");
}
