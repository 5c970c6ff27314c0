// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first bites, which go before the sink has answered.

use std::time::Duration;

use super::*;
use crate::session::pool::Supply;
use paceline_conduit::stream::tags;
use paceline_transfer::chunk::LEAST_BITE;
use paceline_transfer::wire::{Kind, Message, Want, Wanted};

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
    let (told, _) = progress();
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
    let sending = source::run(&mut source.inbox, &source.outbox, supply, job, told);
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
fn what_is_not_wanted_changes_nothing() {
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
fn what_an_earlier_run_left_in_larger_bites_stays() {
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
