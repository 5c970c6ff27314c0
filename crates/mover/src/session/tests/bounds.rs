// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a peer may make a standing receiver write, remember, and wait for.

use std::time::Duration;

use super::hostile::{entry, file, sink_bounded, ROOTS};
use super::*;
use paceline_conduit::Error;
use paceline_transfer::wire::{EntryKind, Message, Reason};

fn ends_with(bounds: Bounds, messages: Vec<Message>, reason: Reason, message: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, result) = sink_bounded(directory.path(), bounds, messages);
    let error = result.expect_err("beyond a bound");
    assert_eq!(error.reason(), reason, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn more_bytes_or_entries_than_the_receiver_takes_end_the_transfer() {
    let bounds = |bytes, entries| Bounds {
        bytes,
        entries,
        ..Bounds::default()
    };
    let two = || {
        let entries = vec![file(0, b"a", 600_000), file(1, b"b", 400_001)];
        vec![ROOTS, Message::Entries(entries)]
    };
    ends_with(bounds(1_000_000, 2), two(), Reason::Full, "--quota");
    ends_with(bounds(u64::MAX, 1), two(), Reason::Refused, "--max-entries");
    // Sizes whose sum is beyond their type.
    let huge = (0..3).map(|n| file(n, b"a", i64::MAX as u64)).collect();
    let huge = vec![ROOTS, Message::Entries(huge)];
    ends_with(bounds(u64::MAX - 1, 9), huge, Reason::Full, "--quota");
    let directory = tempfile::tempdir().expect("a directory");
    let (answers, _) = sink_bounded(directory.path(), bounds(1_000_001, 2), two());
    let is_asked = |answer: &Message| matches!(answer, Message::Wants(wants) if wants.len() == 2);
    assert!(answers.iter().any(is_asked), "{answers:?}");
}

/// What was announced is small, and what comes is not.
#[test]
fn a_file_that_grows_beyond_the_quota_ends_the_transfer() {
    // It may grow after the last look.
    assert!((0..20).any(|_| is_refused_when_it_grows()));
}

fn is_refused_when_it_grows() -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, root) = (directory.path().join("file"), directory.path().join("root"));
    std::fs::write(&from, bytes(3 << 20, 1)).expect("ours");
    std::fs::create_dir(&root).expect("ours");
    let (sent, received) = runtime().block_on(async {
        let (mut source, mut sink) = controls().await;
        let (one, other) = (mpsc::channel(1), mpsc::channel(1));
        let (sends, receives) = stream(0, Damage::default());
        assert!(one.0.try_send(sends).is_ok() && other.0.try_send(receives).is_ok());
        let job = source::Job {
            tops: Tops::open(std::slice::from_ref(&from))
                .map_err(|(_, e)| e)
                .expect("there"),
            filter: Filter::default(),
            options: Options::default(),
            secret: SECRET,
            tuning: None,
        };
        let bounds = Bounds {
            bytes: 4 << 20,
            ..Bounds::default()
        };
        let target = Target::Below(root.clone(), b"/x".to_vec(), bounds);
        let target = sink_job(target, &Options::default());
        let grows = async {
            while !std::fs::read_dir(&root)
                .expect("ours")
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().contains(".paceline-"))
            {
                tokio::task::yield_now().await;
            }
            let file = std::fs::OpenOptions::new().write(true).open(&from);
            file.expect("ours").set_len(9 << 20).expect("ours");
        };
        let sending = async {
            let progress = Progress::new(|_| {});
            source::run(
                &mut source.inbox,
                &source.outbox,
                one.1.into(),
                job,
                progress,
            )
            .await
        };
        let receiving = async {
            let progress = Progress::new(|_| {});
            let result = sink::run(
                &mut sink.inbox,
                &sink.outbox,
                other.1.into(),
                target,
                progress,
            )
            .await;
            sink.end(&result).await;
            result
        };
        drop((one.0, other.0));
        let (sent, received, ()) = tokio::join!(sending, receiving, grows);
        (sent, received)
    });
    let Err(error) = received else {
        return false;
    };
    assert!(error.to_string().contains("--quota"), "{error}");
    sent.expect_err("told");
    assert!(!root.join("x").exists());
    true
}

#[test]
fn a_directory_too_many_fails_and_is_not_remembered() {
    let directory = tempfile::tempdir().expect("a directory");
    let bounds = Bounds {
        directory_bytes: 1100,
        ..Bounds::default()
    };
    let name = |n: u64| vec![b'd'; 50 + n as usize];
    let entries = (0..10)
        .map(|n| entry(n, &name(n), EntryKind::Directory, 0))
        .collect();
    let (answers, _) = sink_bounded(
        directory.path(),
        bounds,
        vec![ROOTS, Message::Entries(entries)],
    );
    let made = std::fs::read_dir(directory.path().join("in"))
        .expect("ours")
        .count();
    assert_eq!(
        made,
        1 + 6,
        "the journal's, and six of about 170 bytes: {answers:?}"
    );
}

#[test]
fn a_source_that_only_lives_is_not_waited_for() {
    let bounds = Bounds {
        silence: Duration::from_millis(300),
        ..Bounds::default()
    };
    let entries = Message::Entries(vec![file(0, b"a", 10)]);
    let directory = tempfile::tempdir().expect("a directory");
    let result = runtime().block_on(async {
        let (mut attacker, mut sink) = controls().await;
        let (_made, streams) = mpsc::channel(1);
        let job = below(directory.path(), bounds);
        attacker.outbox.send(ROOTS);
        attacker.outbox.send(entries);
        let lives = async {
            loop {
                attacker.outbox.send(Message::Ping);
                let next = tokio::time::timeout(Duration::from_millis(20), attacker.inbox.next());
                if matches!(next.await, Ok(Err(_))) {
                    std::future::pending::<()>().await;
                }
            }
        };
        let progress = Progress::new(|_| {});
        let sinks = sink::run(&mut sink.inbox, &sink.outbox, streams.into(), job, progress);
        tokio::select! {
            result = sinks => result,
            never = lives => never,
        }
    });
    let error = result.expect_err("nothing came");
    assert!(error.to_string().contains("sent nothing"), "{error}");
}

/// A source that reads no answers: the sink keeps few of them, and reads no more itself.
#[test]
fn answers_that_nobody_reads_do_not_fill_the_memory() {
    const BATCHES: u64 = 150;
    const EACH: u64 = 1000;
    let directory = tempfile::tempdir().expect("a directory");
    let (planned, result) = runtime().block_on(async {
        let (attacker, mut sink) = controls().await;
        let (_made, streams) = mpsc::channel(1);
        let job = below(directory.path(), Bounds::default());
        attacker.outbox.send(ROOTS);
        for batch in 0..BATCHES {
            // There is no such directory: each answer says so.
            let own = |n| file(batch * EACH + n, format!("no/{n}").as_bytes(), 0);
            attacker
                .outbox
                .send(Message::Entries((0..EACH).map(own).collect()));
        }
        let progress = Progress::new(|_| {});
        let counted = Arc::clone(&progress);
        // A task of its own: it blocks its thread while it waits.
        let sinks = tokio::spawn(async move {
            sink::run(&mut sink.inbox, &sink.outbox, streams.into(), job, progress).await
        });
        let looks = async {
            let count = || counted.entries.load(Ordering::Relaxed);
            let mut last = (0, 0);
            // Until it rests.
            while last.0 == 0 || last.1 < 10 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let now = count();
                last = (now, if now == last.0 { last.1 + 1 } else { 0 });
            }
            drop(attacker);
            last.0
        };
        let (result, planned) = tokio::join!(sinks, looks);
        (planned, result.expect("no panic"))
    });
    assert!(planned > EACH, "{planned}");
    assert!(
        planned < BATCHES * EACH * 2 / 3,
        "{planned} of {}",
        BATCHES * EACH
    );
    assert!(matches!(result, Err(Error::Frame(_))), "{result:?}");
}
