// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bites that come when all is there.

use super::hostile::{file, ROOTS};
use super::*;
use paceline_conduit::stream::tags;
use paceline_transfer::wire::{Ack, Frame, Header, Kind, Message, PackItem, Stamp, HEADER};

/// A pack with an empty file.
fn pack() -> (Vec<u8>, Header, [u8; 32]) {
    let item = PackItem {
        n: 0,
        stamp: Stamp::default(),
        mode: 0o644,
        root: *blake3::hash(b"").as_bytes(),
    };
    let mut body = vec![0; HEADER];
    body.extend(postcard::to_stdvec(&vec![item]).expect("memory takes it"));
    let header = Header::without_file(Kind::Pack, (body.len() - HEADER) as u32);
    let cv = *blake3::hash(&body[HEADER..]).as_bytes();
    (body, header, cv)
}

/// What was sent twice may come when the sink has finished, and the source has not heard of it: its
/// stream must not look like a lost connection.
#[test]
fn a_bite_after_the_last_one_ends_no_stream() {
    let directory = tempfile::tempdir().expect("a directory");
    let (summary, acks) = runtime().block_on(async {
        let (mut source, mut sink) = controls().await;
        let (made, streams) = mpsc::channel(1);
        let (mut sends, receives) = stream(0, Damage::default());
        made.try_send(receives).map_err(|_| "full").expect("room");
        let job = below(directory.path(), Bounds::default());
        let progress = Progress::new(|_| {});
        let receiving = sink::run(&mut sink.inbox, &sink.outbox, streams.into(), job, progress);
        let sending = async {
            source.outbox.send(ROOTS);
            let entries = vec![file(0, b"a", 0)];
            source.outbox.send(Message::Entries(entries));
            source.outbox.send(Message::Walked {
                entries: 1,
                bytes: 0,
                errors: 0,
            });
            let (mut frames, mut own) = tags(&SECRET, 0);
            let mut acks = Vec::new();
            for _ in 0..2 {
                let (mut body, header, cv) = pack();
                Frame::seal(&mut body, &header, &cv, &mut frames);
                sends.writer.send(&body).await.expect("a pipe");
                acks.push(sends.reader.ack(&mut own).await);
                // The second one comes when the sink waits for the source's last word.
                while acks.len() == 1 {
                    let message = source.inbox.next().await.expect("it goes on");
                    if matches!(message, Message::Finished(_)) {
                        break;
                    }
                }
            }
            source.outbox.send(Message::Bye);
            acks
        };
        tokio::join!(receiving, sending)
    });
    summary.expect("it ends well");
    let are_there = acks.iter().all(|ack| matches!(ack, Ok(Ack::Have(_))));
    assert!(are_there, "{acks:?}");
    assert!(directory.path().join("in/a").exists());
}
