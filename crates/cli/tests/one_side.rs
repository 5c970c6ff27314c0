// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one side alone gets, and what a peer's delayed ACKs do to a short timeout
//! (docs/policies.md, "When only one side runs Paceline"): read from the packets
//! that reach the receiver.

mod common;

use std::collections::HashSet;
use std::time::Duration;

use common::capture::Capture;
use common::{alone, Net, Peer, PolicyFile, SERVER4};

/// More than a delayed ACK's 40 ms, and less than what makes Linux ACK at once.
const PAUSE: Duration = Duration::from_millis(60);
/// Linux acknowledges the first segments of a connection at once.
const QUICK: usize = 20;
const MESSAGES: usize = 40;

/// Messages of one segment to a receiver that is busy: how many came twice.
fn repeated(net: &Net, mut client: Peer, mut server: Peer) -> usize {
    let mut capture = Capture::start(net, 1);
    let port = server.ask(&format!("listen {SERVER4}"));
    client.ask(&format!("connect {SERVER4} {port}"));
    server.ask("accept");
    for _ in 0..QUICK + MESSAGES {
        client.ask("send 1000");
        // Whoever reads at once acknowledges at once.
        std::thread::sleep(PAUSE);
        server.ask("receive 1000");
    }
    client.end();
    server.end();
    let segments = capture.data_to(port.parse().unwrap());
    let distinct: HashSet<u32> = segments.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(distinct.len(), QUICK + MESSAGES, "one segment each");
    segments.len() - distinct.len()
}

#[test]
fn delayed_acks_and_the_short_timeout() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let plain = repeated(&net, net.peer(0), net.peer(1));
    let short = repeated(&net, net.job(0, "lfn"), net.peer(1));
    let patient = PolicyFile::new("patient", "base = \"cubic\"\n[rto]\nleast = \"48ms\"\n");
    let patient = repeated(&net, net.job(0, patient.path()), net.peer(1));
    let sender = PolicyFile::new("sender", "base = \"cubic\"\n[rto]\nleast = \"16ms\"\n");
    let receiver = PolicyFile::new("receiver", "[ack]\ndelay = \"tick\"\n");
    let both = repeated(&net, net.job(0, sender.path()), net.job(1, receiver.path()));
    println!("came twice: plain {plain}, lfn {short}, least 48 ms {patient}, both {both}");
    assert_eq!(plain, 0);
    // The RTT that such ACKs measure lengthens the timeout: a few, and then none.
    assert!((1..=MESSAGES / 4).contains(&short), "{short}");
    // One may come of a busy machine.
    assert!(patient <= 1 && both <= 1, "{patient} {both}");
}
