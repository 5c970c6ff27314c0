// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entry point for the fuzzer.

use super::frame::{decode, push, MOST_DATAGRAM};
use super::rate::Rate;
use super::settings::{Event, Settings, Side};
use super::state::Session;
use super::time::MS;

/// A datagram that a peer may send: one that decodes must survive encoding, and a session with
/// streams must survive it.
///
/// # Panics
/// If Paceline would.
pub fn fuzz_datagram(bytes: &[u8]) {
    if let Ok((head, records)) = decode(bytes) {
        let mut again = Vec::new();
        push(&mut again, &head);
        for record in &records {
            push(&mut again, record);
        }
        // Encoding adds the length that data to the end omit.
        if again.len() <= MOST_DATAGRAM {
            assert_eq!(decode(&again).expect("its own bytes"), (head, records));
        }
    }
    let rate = Rate::Learned {
        most: 1_000_000_000,
    };
    let mut session = Session::new(0, Settings::new(Side::Server, rate));
    let own = session.open(b"target", 1).expect("the first one");
    session.write(own, &[7; 5_000]);
    let mut out = Vec::new();
    let mut now = 0;
    // Twice: the second one is a duplicate.
    for _ in 0..2 {
        while session.transmit(now, &mut out) {}
        now += 50 * MS;
        if session.receive(now, bytes).is_err() {
            return;
        }
        while let Some(event) = session.event() {
            if let Event::Readable(stream) = event {
                let mut read = Vec::new();
                while session
                    .read(stream, 1_000, &mut read)
                    .is_some_and(|count| count > 0)
                {}
                session.consume(now, stream, read.len() as u64);
            }
        }
    }
    session.finish(own);
    for _ in 0..20 {
        now += 20 * MS;
        while session.transmit(now, &mut out) {}
    }
}
