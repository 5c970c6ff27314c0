// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controls of ligon-1999 on a connection, as its packets show them.
//!
//! On this machine's kernel, and again in guests of the virtual lab, where there is also a
//! path with delay and loss.

#[path = "../common/mod.rs"]
mod common;

use std::process::Command;

use common::capture::Capture;
use common::guest::{tests_in_guest, UNRELEASED};
use common::messages::lengths;
use common::noise::exact_clock;
use common::packets::{
    covered, in_flight, most_frequent, segments_per_ack, sent_again, share_of, Packet, Packets,
    CWR, ECE, SYN,
};
use common::service::Service;
use common::{
    alone, at_once, connect, jobs, output, status, transfer, Net, Peer, PolicyFile, SERVER4,
    SERVER6,
};
use serde_json::Value;

/// Payload of a full segment with timestamps, at an MTU of 1500.
const SEGMENT4: u32 = 1448;
const SEGMENT6: u32 = 1428;
const FAMILIES: [(&str, u32); 2] = [(SERVER4, SEGMENT4), (SERVER6, SEGMENT6)];
/// 100 Mbit/s: segments are further apart than it takes to acknowledge one.
const PACED: &str = "pace 12500000";

/// The one connection of a peer's job.
fn connection(job: &Peer) -> Value {
    let shown = jobs(&status(), &format!("paceline.{}.", job.process.id()));
    let connections = shown[0]["connections"].as_array().expect("a list");
    assert_eq!(connections.len(), 1, "{connections:?}");
    connections[0].clone()
}

/// Packets leave one by one: no segmentation offload.
fn without_offload(net: &Net) {
    for host in [0, 1] {
        net.ip(host, "link set v gso_max_segs 1");
    }
}

/// A connection to `address`, and its port there; data comes to host 1.
fn connected(net: &Net, address: &str, client: &mut Peer, server: &mut Peer) -> (u16, Packets) {
    let packets = Packets::start(net, 0);
    let port = server.ask(&format!("listen {address}"));
    client.ask(&format!("connect {address} {port}"));
    server.ask("accept");
    (port.parse().unwrap(), packets)
}

#[test]
fn each_segment_is_acknowledged_at_once() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = PolicyFile::new("quick", "base = \"cubic\"\nack.every = 1\n");
    for (address, segment) in FAMILIES {
        let net = Net::new();
        without_offload(&net);
        let (mut client, mut server) = (net.peer(0), net.job(1, policy.path()));
        let (port, mut packets) = connected(&net, address, &mut client, &mut server);
        client.ask(PACED);
        let single = |each: &[u32]| share_of(each, 1) > 0.95;
        let sent = soon(
            &mut client,
            &mut server,
            &mut packets,
            port,
            segment,
            single,
        );
        assert_no_ecn(&sent);
        // And one that sends itself, so that data comes with ACKs.
        for _ in 0..20 {
            transfer(&mut server, &mut client, 10_000);
            transfer(&mut client, &mut server, 10_000);
        }
        assert_no_ecn(&packets.read());
        let shown = connection(&server);
        assert_eq!(shown["congestion"], "paceline_cubic");
        assert!(shown["quick_acks"].as_u64() > Some(500), "{shown}");
        client.end();
        server.end();
    }
}

/// Data until its ACKs cover what is `wanted`; the packets of the last transfer. On a busy
/// machine segments wait for each other.
fn soon(
    client: &mut Peer,
    server: &mut Peer,
    packets: &mut Packets,
    port: u16,
    segment: u32,
    wanted: impl Fn(&[u32]) -> bool,
) -> Vec<Packet> {
    const ATTEMPTS: usize = 10;
    let mut each = Vec::new();
    for _ in 0..ATTEMPTS {
        transfer(client, server, 1_500_000);
        let sent = packets.read();
        each = segments_per_ack(&sent, port, segment);
        if wanted(&each) {
            return sent;
        }
    }
    panic!("port {port}: {each:?}");
}

/// The flags that quick ACKs are made with never leave the host.
fn assert_no_ecn(packets: &[Packet]) {
    let marked = packets.iter().filter(|packet| packet.flags & SYN == 0);
    let marked: Vec<_> = marked
        .filter(|packet| packet.ecn != 0 || packet.flags & (ECE | CWR) != 0)
        .collect();
    assert!(marked.is_empty(), "{marked:?}");
}

#[test]
fn acks_cover_as_many_segments_as_the_policy_sets() {
    let Some(_alone) = alone() else {
        return;
    };
    for every in [2, 4, 10, 16] {
        let policy = PolicyFile::new("held", &format!("ack.every = {every}\n"));
        for (address, segment) in FAMILIES {
            let net = Net::new();
            without_offload(&net);
            let (mut client, mut server) = (net.peer(0), net.job(1, policy.path()));
            let (port, mut packets) = connected(&net, address, &mut client, &mut server);
            client.ask(PACED);
            let usual = |each: &[u32]| most_frequent(each) == Some(every);
            let sent = soon(&mut client, &mut server, &mut packets, port, segment, usual);
            let again = sent_again(&sent, port);
            assert!(again <= few(sent.len() / 10), "{again} of {}", sent.len());
            let shown = connection(&server);
            let held = shown["held_acks"].as_u64().expect("a count");
            assert_eq!(held > 100, every > 2, "{shown}");
            client.end();
            server.end();
        }
    }
}

/// So many of `all` may come of a busy machine that is late itself.
fn few(all: usize) -> usize {
    if exact_clock() {
        0
    } else {
        all / 5
    }
}

/// Both cgroups' programs see each packet.
#[test]
fn a_job_in_a_job_holds_acks_once() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = PolicyFile::new("held", "ack.every = 4\n");
    let run = ["run", "--policy", policy.path(), "--"];
    let inner = [&[env!("CARGO_BIN_EXE_paceline")], &run[..]].concat();
    let net = Net::new();
    without_offload(&net);
    let mut client = net.peer(0);
    let mut server = Peer::start(&net, 1, Some(&[&run[..], &inner].concat()));
    let (port, mut packets) = connected(&net, SERVER4, &mut client, &mut server);
    client.ask(PACED);
    let usual = |each: &[u32]| most_frequent(each) == Some(4);
    soon(
        &mut client,
        &mut server,
        &mut packets,
        port,
        SEGMENT4,
        usual,
    );
    client.end();
    server.end();
}

#[test]
fn the_end_of_a_message_is_acknowledged_though_acks_are_held() {
    let Some(_alone) = alone() else {
        return;
    };
    const MESSAGES: usize = 1000;
    const MOST: usize = 20_000;
    const SEED: u64 = 31;
    let policy = PolicyFile::new("held", "ack.every = 4\n");
    for offload in [false, true] {
        let net = Net::new();
        if !offload {
            without_offload(&net);
        }
        let (mut client, mut server) = (net.peer(0), net.job(1, policy.path()));
        let (port, mut packets) = connected(&net, SERVER4, &mut client, &mut server);
        let total: usize = lengths(SEED, MESSAGES, MOST).sum();
        let send = format!("messages {SEED} {MESSAGES} {MOST}");
        at_once(
            &mut client,
            &mut server,
            [&send, &format!("receive {total}")],
        );
        let again = sent_again(&packets.read(), port);
        // Without the rule for PSH it is one in two.
        assert!(again <= few(MESSAGES), "offload {offload}: {again}");
        client.end();
        server.end();
    }
}

#[test]
fn small_messages_do_not_wait() {
    let Some(_alone) = alone() else {
        return;
    };
    const COUNT: usize = 50;
    let nodelay = PolicyFile::new("nodelay", "socket.nodelay = true\n");
    let quick = PolicyFile::new("quick", "base = \"cubic\"\nack.every = 1\n");
    // The policy of the one that writes, and that of the one that answers.
    for (writer, answerer) in [(Some(&nodelay), None), (None, Some(&quick)), (None, None)] {
        let net = Net::new();
        let start = |host: usize, policy: Option<&PolicyFile>| match policy {
            Some(policy) => net.job(host, policy.path()),
            None => net.peer(host),
        };
        let (mut client, mut server) = (start(0, writer), start(1, answerer));
        let (port, mut packets) = connected(&net, SERVER4, &mut client, &mut server);
        assert_eq!(client.ask("nodelay"), writer.is_some().to_string());
        let commands = [
            format!("write-write-read 100 {COUNT}"),
            format!("answer-pairs 100 {COUNT}"),
        ];
        at_once(&mut client, &mut server, [&commands[0], &commands[1]]);
        let packets = packets.read();
        let pure = covered(&packets, port).len();
        let waited = waited_for_an_ack(&packets, port);
        match (writer, answerer) {
            (Some(_), _) => assert!(waited <= few(COUNT).max(2), "{waited}"),
            (_, Some(_)) => assert!(pure >= COUNT, "{pure}"),
            // Stock: the second of each pair waits for the ACK of the first one.
            _ => assert!(waited >= COUNT / 2, "{waited}"),
        }
        assert_no_ecn(&packets);
        client.end();
        server.end();
    }
}

/// Small segments that left only once what went before was acknowledged by itself.
fn waited_for_an_ack(packets: &[Packet], port: u16) -> usize {
    packets
        .windows(2)
        .filter(|pair| pair[0].source == port && pair[0].length == 0 && pair[0].flags & SYN == 0)
        .filter(|pair| pair[1].target == port && pair[1].length > 0)
        .count()
}

#[test]
fn a_running_connection_gets_them_and_gives_them_back() {
    let Some(_alone) = alone() else {
        return;
    };
    let quick = "base = \"cubic\"\nack.every = 1\nsocket.nodelay = true\n";
    let net = Net::new();
    without_offload(&net);
    let service = Service::new();
    let (mut client, mut server) = (net.peer(0), net.peer(1));
    service.add(&server.ask("pid"));
    let (port, mut packets) = connected(&net, SERVER4, &mut client, &mut server);
    client.ask(PACED);
    let mut covers = |client: &mut Peer, server: &mut Peer, every| {
        let usual = |each: &[u32]| most_frequent(each) == Some(every);
        soon(client, server, &mut packets, port, SEGMENT4, usual);
    };
    for (text, every) in [(quick, 1), ("ack.every = 10\n", 10)] {
        let policy = PolicyFile::new("live", text);
        let attach = [
            "attach",
            "--cgroup",
            service.path(),
            "--policy",
            policy.path(),
        ];
        let attached = output(&attach);
        assert!(attached.status.success(), "{attached:?}");
        covers(&mut client, &mut server, every);
        assert_eq!(server.ask("nodelay"), (every == 1).to_string());
        let detached = output(&["detach", "--cgroup", service.path()]);
        assert!(detached.status.success(), "{detached:?}");
        covers(&mut client, &mut server, 2);
        assert_eq!(server.ask("nodelay"), "false");
    }
    client.end();
    server.end();
}

#[test]
fn the_rto_is_bounded_above_or_the_policy_is_refused() {
    let Some(_alone) = alone() else {
        return;
    };
    const TRANSMISSIONS: usize = 7;
    let policy = PolicyFile::new("most", "rto.most = \"1s\"\n");
    let tried = output(&[
        "run",
        "--policy",
        policy.path(),
        "--",
        "/proc/self/exe",
        "--version",
    ]);
    let error = String::from_utf8_lossy(&tried.stderr);
    if error.contains("rto.most") {
        assert!(error.contains("boot Linux 6.15 or later"), "{error}");
        assert!(release() < (6, 15), "{error}");
        return;
    }
    assert!(release() >= (6, 15), "{error}");
    let net = Net::new();
    let (mut client, mut server) = (net.job(0, policy.path()), net.peer(1));
    let (port, _packets) = connected(&net, SERVER4, &mut client, &mut server);
    transfer(&mut client, &mut server, 10_000);
    let mut capture = Capture::start(&net, 1);
    net.silence();
    client.ask("send 1000");
    let mut sent = Vec::new();
    while sent.len() < TRANSMISSIONS {
        sent.extend(
            capture
                .segments_to(port)
                .iter()
                .map(|segment| segment.sent_ms),
        );
    }
    // 200, 400, 800, and then 1,600 and 3,200 ms without the bound.
    let gap = |number: usize| sent[number] - sent[number - 1];
    assert!(2 * gap(6) < 3 * gap(5), "{sent:?}");
    assert!(gap(6) >= 1000, "{sent:?}");
    client.end();
    server.end();
}

/// Major and minor number of the kernel.
fn release() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("there");
    let mut numbers = text
        .split(['.', '-'])
        .map(|part| part.parse().expect("a number"));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_fixed_window_is_no_groups_to_bound() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = PolicyFile::new("fixed", "base = \"cubic\"\nwindow.fixed = 30\n");
    let tried = output(&[
        "run",
        "--policy",
        policy.path(),
        "--group",
        "bulk",
        "--",
        "true",
    ]);
    let error = String::from_utf8_lossy(&tried.stderr);
    assert!(!tried.status.success());
    assert!(
        error.contains("policy fixed fixes the window (window.fixed), which group bulk"),
        "{error}"
    );
}

#[test]
fn an_ecn_connection_keeps_its_flags_and_status_shows_it() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = PolicyFile::new("quick", "base = \"cubic\"\nack.every = 1\n");
    let net = Net::new();
    for host in [0, 1] {
        net.sysctl(host, "net/ipv4/tcp_ecn", "1");
    }
    let (mut client, mut server) = (net.peer(0), net.job(1, policy.path()));
    connect(&mut client, &mut server, SERVER4);
    transfer(&mut client, &mut server, 100_000);
    let shown = connection(&server);
    assert_eq!(shown["quick"], "ecn", "{shown}");
    assert!(shown["why"].as_str().unwrap().contains("ECN"), "{shown}");
    client.end();
    server.end();
}

/// ACKs take 10 ms, and data is lost so; false where the kernel has no netem, as the guests'
/// kernels have, for which the same test runs. A capture sees
/// what leaves only when it has been through netem, so data has no delay.
fn path(net: &Net, loss: &str) -> bool {
    for (host, impairment) in [(0, loss), (1, "delay 10ms limit 10000")] {
        let namespace = &net.names()[host];
        let netem = format!("-n {namespace} qdisc replace dev v root netem {impairment}");
        let made = Command::new("tc").args(netem.split(' ')).output();
        if !made.is_ok_and(|made| made.status.success()) {
            assert!(!exact_clock(), "the guests have netem");
            println!("not on this kernel, which has no netem: in the guests");
            return false;
        }
    }
    true
}

#[test]
fn a_fixed_window_stays_through_loss() {
    let Some(_alone) = alone() else {
        return;
    };
    const NO_LOSS: &str = "loss 0%";
    const LOSS: &str = "loss 1%";
    for (base, segs, loss) in [
        ("cubic", 10, NO_LOSS),
        ("cubic", 40, NO_LOSS),
        ("cubic", 30, LOSS),
        ("reno", 30, LOSS),
    ] {
        let text = format!("base = \"{base}\"\nwindow.fixed = {segs}\n");
        let policy = PolicyFile::new("fixed", &text);
        let net = Net::new();
        without_offload(&net);
        if !path(&net, loss) {
            return;
        }
        let (mut client, mut server) = (net.job(0, policy.path()), net.peer(1));
        let (port, mut packets) = connected(&net, SERVER4, &mut client, &mut server);
        transfer(&mut client, &mut server, 3_000_000);
        let packets = packets.read();
        let flights: Vec<u32> = in_flight(&packets, port)
            .iter()
            .map(|bytes| bytes.div_ceil(SEGMENT4))
            .collect();
        let again = sent_again(&packets, port);
        if loss == NO_LOSS {
            assert_eq!(flights.iter().max(), Some(&segs));
            assert_eq!(again, 0);
            // After a loss it is the kernel's own until the next transmission.
            assert_eq!(connection(&client)["cwnd_segs"], segs);
        } else {
            assert!(again > 5, "{again}");
        }
        let full = flights.iter().filter(|flight| **flight >= segs).count();
        let sent = flights.len();
        assert!(full * 2 >= sent, "{base} {segs}: {full} of {sent}");
        client.end();
        server.end();
    }
}

#[test]
fn the_initial_window_comes_again_after_idle() {
    let Some(_alone) = alone() else {
        return;
    };
    const SEGS: u32 = 20;
    for (again, wanted) in [(true, SEGS), (false, 10)] {
        let policy = PolicyFile::new(
            "again",
            &format!("base = \"cubic\"\nwindow.initial = {SEGS}\nwindow.again = {again}\n"),
        );
        let net = Net::new();
        without_offload(&net);
        if !path(&net, "loss 0%") {
            return;
        }
        let (mut client, mut server) = (net.job(0, policy.path()), net.peer(1));
        let (port, mut packets) = connected(&net, SERVER4, &mut client, &mut server);
        for burst in 0..3 {
            transfer(&mut client, &mut server, 60_000);
            let packets = packets.read();
            let first: Vec<_> = packets
                .iter()
                .skip_while(|packet| packet.length == 0)
                .collect();
            let segments = first
                .iter()
                .take_while(|packet| packet.source != port)
                .count();
            let wanted = if burst == 0 { SEGS } else { wanted };
            assert_eq!(segments as u32, wanted, "burst {burst}, again {again}");
            client.ask("sleep-ms 1000");
        }
        client.end();
        server.end();
    }
}

#[test]
fn the_initial_window_comes_again_after_a_timeout() {
    let Some(_alone) = alone() else {
        return;
    };
    const SEGS: u32 = 20;
    const MESSAGE: usize = 60_000;
    for again in [true, false] {
        let text = format!("base = \"cubic\"\nwindow.initial = {SEGS}\nwindow.again = {again}\n");
        let policy = PolicyFile::new("again", &text);
        let net = Net::new();
        without_offload(&net);
        if !path(&net, "loss 0%") {
            return;
        }
        let (mut client, mut server) = (net.job(0, policy.path()), net.peer(1));
        let (port, mut packets) = connected(&net, SERVER4, &mut client, &mut server);
        transfer(&mut client, &mut server, 10_000);
        packets.read();
        // All of the first flight is lost, and what the timers send after it.
        net.silence();
        client.ask(&format!("send {MESSAGE}"));
        let mut lost = Vec::new();
        while sent_again(&lost, port) < 3 {
            lost.extend(packets.read());
        }
        net.ip(1, &format!("addr add {SERVER4}/24 dev v"));
        server.ask(&format!("receive {MESSAGE}"));
        // What leaves between the first ACK and the next one.
        let repaired = packets.read();
        let answered = repaired.iter().skip_while(|packet| packet.source != port);
        let run = answered
            .skip(1)
            .take_while(|packet| packet.source != port)
            .count();
        let wanted = if again { 15..=SEGS as usize + 2 } else { 1..=4 };
        assert!(wanted.contains(&run), "again {again}: {run}");
        client.end();
        server.end();
    }
}

/// All of these tests with a kernel of Debian's, which has netem.
const ALL: [&str; 2] = ["--skip", "on_the_kernel_of"];

#[test]
fn all_of_it_on_the_kernel_of_bookworm() {
    tests_in_guest("bookworm", &ALL, true);
}

#[test]
fn all_of_it_on_the_kernel_of_sid() {
    tests_in_guest(UNRELEASED, &ALL, true);
}
