// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The RTO that the kernel really has for a connection: its jitter, whoever connected,
//! and none of it for connections that are left alone.

use std::collections::BTreeSet;

use crate::common::capture::Capture;
use crate::common::{
    alone, is_root, jobs, status, transfer_on_all, Net, Peer, PolicyFile, SERVER4,
};
use serde_json::Value;

/// Without Paceline: TCP_RTO_MIN, include/net/tcp.h.
const USUAL_US: u64 = 200_000;

fn microseconds(connection: &Value, key: &str) -> u64 {
    connection[key].as_u64().expect("a number")
}

/// Those of the one job of a peer.
fn connections(job: &Peer) -> Vec<Value> {
    let shown = jobs(&status(), &format!("paceline.{}.", job.process.id()));
    let [job] = &shown[..] else {
        panic!("one job: {shown:?}");
    };
    job["connections"].as_array().unwrap().clone()
}

/// A job and a peer without one; the server is the host that [`SERVER4`] belongs to.
fn peers(net: &Net, accepts: bool, policy: &str) -> (Peer, Peer) {
    (
        net.job(usize::from(accepts), policy),
        net.peer(usize::from(!accepts)),
    )
}

/// Who connects and who accepts.
fn ends<'p>(accepts: bool, job: &'p mut Peer, other: &'p mut Peer) -> (&'p mut Peer, &'p mut Peer) {
    if accepts {
        (other, job)
    } else {
        (job, other)
    }
}

/// `receive` after each `send`: a round trip that measures the RTT.
fn exchange(from: &mut Peer, to: &mut Peer) {
    transfer_on_all(from, to, 20_000);
}

#[test]
fn each_connection_has_a_jitter_of_its_own() {
    if !is_root() {
        return;
    }
    const CONNECTIONS: usize = 16;
    // An accepted one comes from the most to its own, by a quarter of the rest in each; and
    // one that a busy machine has held up comes back to it.
    const LEAST_ROUND_TRIPS: usize = 30;
    const MOST_ROUND_TRIPS: usize = 600;
    let Some(_alone) = alone() else {
        return;
    };
    let policy = PolicyFile::new("jitter", "[rto]\nleast = \"tick\"\njitter = \"100ms\"\n");
    for accepts in [false, true] {
        let net = Net::new();
        let (mut job, mut other) = peers(&net, accepts, policy.path());
        let (client, server) = ends(accepts, &mut job, &mut other);
        let port = server.ask(&format!("listen {SERVER4}"));
        client.ask(&format!("connect-many {SERVER4} {port} {CONNECTIONS}"));
        server.ask(&format!("accept-many {CONNECTIONS}"));
        let mut connections = Vec::new();
        for number in 1..=MOST_ROUND_TRIPS {
            exchange(&mut job, &mut other);
            if number % LEAST_ROUND_TRIPS != 0 {
                continue;
            }
            connections = self::connections(&job);
            let short = |connection: &Value| microseconds(connection, "rto_us") < USUAL_US;
            if connections.iter().all(short) {
                break;
            }
        }
        assert_eq!(connections.len(), CONNECTIONS);
        let mut different = BTreeSet::new();
        for connection in &connections {
            let rto = microseconds(connection, "rto_us");
            assert!(rto < USUAL_US, "accepts {accepts}: {connection}");
            assert!(
                rto >= microseconds(connection, "rto_least_us"),
                "accepts {accepts}: {connection}"
            );
            different.insert(rto);
        }
        // Of 25 values at a tick of 4 ms, 10 at one of 10 ms.
        assert!(
            different.len() >= 8,
            "accepts {accepts}: they time out together: {different:?}"
        );
        job.end();
        other.end();
    }
}

#[test]
fn multipath_tcp_is_left_alone() {
    let Some(_alone) = alone() else {
        return;
    };
    for accepts in [false, true] {
        let net = Net::new();
        let (mut job, mut other) = peers(&net, accepts, "lfn");
        let (client, server) = ends(accepts, &mut job, &mut other);
        let port = server.ask(&format!("listen-multipath {SERVER4}"));
        if port == "none" {
            println!("skipped: this kernel has no Multipath TCP");
            assert!(std::env::var_os("CI").is_none(), "CI skips nothing");
            return;
        }
        client.ask(&format!("connect-multipath {SERVER4} {port}"));
        server.ask("accept");
        for _ in 0..3 {
            exchange(&mut job, &mut other);
        }
        let connections = connections(&job);
        let [connection] = &connections[..] else {
            panic!("one subflow: {connections:?}");
        };
        assert_eq!(connection["reason"], "mptcp");
        assert_ne!(connection["congestion"], "paceline_cubic");
        assert!(
            microseconds(connection, "rto_us") >= USUAL_US,
            "{connection}"
        );
        job.end();
        other.end();
    }
}

#[test]
fn loopback_keeps_the_kernels_timeout() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    for address in ["127.0.0.1", "::1"] {
        let mut job = net.job(0, "lfn");
        let port = job.ask(&format!("listen {address}"));
        job.ask(&format!("connect {address} {port}"));
        job.ask("accept");
        job.ask("send-on-all 1000");
        job.ask("receive-on-all 1000");
        let connections = connections(&job);
        assert_eq!(connections.len(), 2, "{connections:?}");
        for connection in connections {
            assert_eq!(connection["reason"], "loopback");
            assert!(
                microseconds(&connection, "rto_us") >= USUAL_US,
                "{connection}"
            );
        }
        job.end();
    }
}

#[test]
fn timeouts_of_a_thin_stream_double_unless_the_policy_sets_linear() {
    if !is_root() {
        return;
    }
    // The first one may be a tail-loss probe's.
    const TRANSMISSIONS: usize = 6;
    let Some(_alone) = alone() else {
        return;
    };
    for backoff in ["exponential", "linear"] {
        let text = format!("base = \"cubic\"\n[rto]\nleast = \"100ms\"\nbackoff = \"{backoff}\"\n");
        let policy = PolicyFile::new("backoff", &text);
        let net = Net::new();
        let mut client = net.job(0, policy.path());
        let mut server = net.peer(1);
        let port = server.ask(&format!("listen {SERVER4}"));
        client.ask(&format!("connect {SERVER4} {port}"));
        server.ask("accept");
        exchange(&mut client, &mut server);
        let mut capture = Capture::start(&net, 1);
        net.silence();
        client.ask("send 1000");
        let mut sent = Vec::new();
        while sent.len() < TRANSMISSIONS {
            let segments = capture.segments_to(port.parse().unwrap());
            sent.extend(segments.iter().map(|segment| segment.sent_ms));
        }
        let gap = |number: usize| sent[number] - sent[number - 1];
        let (early, late) = (gap(2), gap(5));
        match backoff {
            // One or eight times as long, less what timers are late.
            "linear" => assert!(late < 3 * early, "{sent:?}"),
            _ => assert!(late >= 3 * early, "{sent:?}"),
        }
        client.end();
        server.end();
    }
}

/// Bytes of a connection's first message that are in flight before anything comes twice,
/// where nothing is acknowledged.
fn first_flight(policy: &str) -> u32 {
    let net = Net::new();
    let (mut client, mut server) = (net.job(0, policy), net.peer(1));
    let mut capture = Capture::start(&net, 1);
    let port = server.ask(&format!("listen {SERVER4}"));
    client.ask(&format!("connect {SERVER4} {port}"));
    server.ask("accept");
    net.silence();
    client.ask(&format!("send {FIRST_MESSAGE}"));
    let mut flight = 0..0;
    'twice: loop {
        for (sequence, length) in capture.data_to(port.parse().unwrap()) {
            if flight.is_empty() {
                flight = sequence..sequence;
            } else if sequence != flight.end {
                break 'twice;
            }
            flight.end = sequence.wrapping_add(length as u32);
        }
    }
    client.end();
    server.end();
    flight.end.wrapping_sub(flight.start)
}

/// Less than an initial window of ten segments, and more than one of three.
const FIRST_MESSAGE: u32 = 10_000;

/// Or where many begin at once one whose timeouts double would be the last.
#[test]
fn a_first_message_begins_as_a_thin_stream_under_lfn() {
    let Some(_alone) = alone() else {
        return;
    };
    assert_eq!(first_flight("pace"), FIRST_MESSAGE);
    // A tail-loss probe is one segment more. On a busy machine even the handshake may take
    // longer than a local network's.
    let thin = |flight| (1448..=4 * 1448).contains(&flight);
    assert!((0..10).any(|_| thin(first_flight("lfn"))));
}
