// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one side alone gets, and what a peer's delayed ACKs do to a short timeout
//! (docs/policies.md, "When only one side runs Paceline"): read from the packets
//! that reach the receiver.

use std::collections::HashSet;
use std::time::Duration;

use crate::common::capture::Capture;
use crate::common::noise::measured;
use crate::common::{alone, Net, Peer, PolicyFile, SERVER4};

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
    let patient = PolicyFile::new("patient", "base = \"cubic\"\n[rto]\nleast = \"48ms\"\n");
    let sender = PolicyFile::new("sender", "base = \"cubic\"\n[rto]\nleast = \"16ms\"\n");
    let receiver = PolicyFile::new("receiver", "[ack]\ndelay = \"tick\"\n");
    // The sender's policy, the receiver's, and how many messages come twice. The RTT that
    // delayed ACKs measure lengthens the timeout: a few do, and then none.
    let cases = [
        ("plain", None, None, 0..=0),
        ("lfn", Some("lfn"), None, 1..=MESSAGES / 4),
        ("least 48 ms", Some(patient.path()), None, 0..=1),
        ("both", Some(sender.path()), Some(receiver.path()), 0..=1),
    ];
    for (name, sender, receiver, wanted) in cases {
        let start = |host: usize, policy: Option<&str>| match policy {
            Some(policy) => net.job(host, policy),
            None => net.peer(host),
        };
        measured(name, || {
            let twice = repeated(&net, start(0, sender), start(1, receiver));
            println!("{name}: {twice} came twice");
            match wanted.contains(&twice) {
                true => Ok(()),
                false => Err(format!("{twice} came twice, not {wanted:?}")),
            }
        });
    }
}
