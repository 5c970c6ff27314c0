// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections of hosts that know nothing of gateways. What the hosts see of an end is read from
//! their sockets, and from the packets in both LANs.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::packets::{Packet, Packets, FIN, RST, SYN};
use common::sites::{
    arrived, bytes, ended_by, ip, is_able, is_reset, received, reset, send, Sites, PATIENCE,
};
use nix::sys::socket::{setsockopt, sockopt};
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Kills of `make test`; `make torture` has more, by PACELINE_KILLS.
const KILLS: usize = 10;

#[test]
fn data_and_ends_cross_as_they_were_made() {
    if !is_able() {
        return;
    }
    let sites = Sites::started("d");
    let mut lans = [0, 3].map(|host| Packets::start_in(&sites.name(host)));
    for (is_from_near, is_v6) in [(true, false), (true, true), (false, false), (false, true)] {
        let which = format!("from near: {is_from_near}, IPv6: {is_v6}");
        let (there, back) = (bytes(3_000_000, 1), bytes(2_000_000, 2));
        // One direction ends first, and the other still has all of its bytes to carry: once
        // the client's, once the server's.
        for is_client_first in [true, false] {
            let (client, server, port) = sites.connection(is_from_near, is_v6);
            let (first, second) = match is_client_first {
                true => (&client, &server),
                false => (&server, &client),
            };
            std::thread::scope(|scope| {
                scope.spawn(|| send(first, &there));
                assert!(received(second) == there, "{which}: other bytes");
                scope.spawn(|| send(second, &back));
                assert!(received(first) == back, "{which}: other bytes");
            });
            for lan in &mut lans {
                let packets = lan.read();
                assert!(arrived(&packets, port, FIN) >= 1, "{which}");
                assert_eq!(arrived(&packets, port, RST), 0, "{which}");
            }
        }
        // A reset of either is one of the other, and nothing that looks like an end.
        for is_client in [true, false] {
            let (client, server, port) = sites.connection(is_from_near, is_v6);
            let (broken, mut other) = match is_client {
                true => (client, server),
                false => (server, client),
            };
            other.write_all(&[1; 1_000]).expect("taken");
            (&broken).read_exact(&mut [0; 1_000]).expect("it came");
            reset(broken);
            is_reset(&other);
            let lan = usize::from(is_client == is_from_near);
            let packets = lans.each_mut().map(|lan| lan.read());
            assert_eq!(arrived(&packets[lan], port, FIN), 0, "{which}");
            assert!(arrived(&packets[lan], port, RST) >= 1, "{which}");
        }
    }
    // The gateway's own port: what it would dial is itself.
    let socket = sites.at(0, || {
        TcpStream::connect("10.97.1.254:7421").expect("a gateway")
    });
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    is_reset(&socket);
    let counts = &sites.status(0)["transparent"];
    let expected = serde_json::json!({
        "peer": "far", "connect": "honest", "programs": 0, "taken": 9, "refused": 0, "failed": 0, "loops": 1
    });
    assert_eq!(*counts, expected);
    assert_eq!(sites.status(1)["transparent"]["taken"], 8);
}

/// What a program is told of a connect.
fn tried(sites: &Sites, host: usize, to: &str) -> Option<i32> {
    let address: SocketAddr = to.parse().expect("an address");
    sites.at(host, || {
        let tried = TcpStream::connect_timeout(&address, PATIENCE);
        tried
            .err()
            .map(|error| error.raw_os_error().expect("of the kernel"))
    })
}

/// A reset came that acknowledges a SYN to this port.
fn is_answered(packets: &[Packet], port: u16) -> bool {
    let syns = packets
        .iter()
        .filter(|packet| packet.leaves && packet.target == port && packet.flags & SYN != 0);
    let syns: Vec<&Packet> = syns.collect();
    packets.iter().any(|packet| {
        let is_reset = !packet.leaves && packet.source == port && packet.flags & RST != 0;
        let is_its = |syn: &&Packet| {
            syn.source == packet.target && syn.sequence.wrapping_add(1) == packet.ack
        };
        is_reset && syns.iter().any(is_its)
    })
}

#[test]
fn a_connect_ends_as_its_destination_has_it() {
    if !is_able() {
        return;
    }
    let mut sites = Sites::started("h");
    let mut lan = Packets::start_in(&sites.name(0));
    // Nobody listens: a reset that answers the SYN, and never a SYN-ACK.
    for to in ["10.97.2.1:9", "[fd97:2::1]:9"] {
        assert_eq!(tried(&sites, 0, to), Some(libc::ECONNREFUSED), "{to}");
        let packets = lan.read();
        assert!(is_answered(&packets, 9), "{to}: {packets:?}");
        assert_eq!(arrived(&packets, 9, SYN), 0, "{to}");
    }
    // No such host.
    for to in ["10.97.2.77:9", "[fd97:2::77]:9"] {
        assert_eq!(tried(&sites, 0, to), Some(libc::EHOSTUNREACH), "{to}");
    }
    // A SYN that was sent again and met the answer on its way is one more.
    let counts = &sites.status(0)["transparent"];
    assert_eq!(counts["connect"], "honest");
    let count = |key: &str| counts[key].as_u64().expect("a number");
    assert!(count("refused") >= 2 && count("failed") >= 2, "{counts}");
    assert!(count("taken") >= 4 && count("loops") == 0, "{counts}");
    // The same port of a host's again, whose connection the other side ended first: the
    // gateway has that in TIME-WAIT.
    for (from, to) in [
        ("10.97.1.1:4000", "10.97.2.1:80"),
        ("[fd97:1::1]:4000", "[fd97:2::1]:80"),
    ] {
        let (from, to): (SocketAddr, SocketAddr) =
            (from.parse().expect("one"), to.parse().expect("one"));
        let listener = sites.at(3, || TcpListener::bind(to).expect("its own"));
        for _ in 0..2 {
            let client: TcpStream = sites.at(0, || {
                let domain = socket2::Domain::for_address(from);
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None);
                let socket = socket.expect("a socket");
                socket.set_reuse_address(true).expect("set");
                socket.bind(&from.into()).expect("its own");
                socket.connect(&to.into()).expect("a gateway");
                socket.into()
            });
            client.set_read_timeout(Some(PATIENCE)).expect("set");
            let (server, _) = listener.accept().expect("it came");
            server.set_read_timeout(Some(PATIENCE)).expect("set");
            send(&server, b"first");
            assert_eq!(received(&client), b"first");
            send(&client, b"second");
            assert_eq!(received(&server), b"second");
        }
    }
    // Without the far gateway there is no way.
    sites.kill(1);
    sites.start(1);
    sites.connected();
    assert_eq!(tried(&sites, 0, "10.97.2.1:9"), Some(libc::ECONNREFUSED));
    let far = sites.gateways[1].take().expect("it runs");
    ended_by(far, nix::sys::signal::SIGTERM);
    let begun = Instant::now();
    while !sites.status(0)["peers"]["far"].is_null() {
        assert!(begun.elapsed() < PATIENCE, "still a session");
        std::thread::sleep(Duration::from_millis(50));
    }
    for to in ["10.97.2.1:9", "[fd97:2::1]:9"] {
        assert_eq!(tried(&sites, 0, to), Some(libc::ENETUNREACH), "{to}");
    }
}

#[test]
fn destinations_see_the_host_that_connects() {
    if !is_able() {
        return;
    }
    let mut sites = Sites::new("s");
    sites.edit(1, "[accept]\n", "[accept]\nsource = \"keep\"\n");
    sites.start(1);
    sites.start(0);
    sites.connected();
    for is_v6 in [false, true] {
        let (client, server, _) = sites.connection(true, is_v6);
        let from = client.local_addr().expect("connected");
        assert_eq!(server.peer_addr().expect("connected"), from);
        let content = bytes(1_000_000, 6);
        std::thread::scope(|scope| {
            scope.spawn(|| send(&client, &content));
            assert!(received(&server) == content, "{from}: other bytes");
            scope.spawn(|| send(&server, &content));
            assert!(received(&client) == content, "{from}: other bytes");
        });
        // The other way this gateway is the client.
        let (_client, server, _) = sites.connection(false, is_v6);
        let from = server.peer_addr().expect("connected").ip().to_string();
        assert!(
            from.ends_with(if is_v6 { "::254" } else { ".254" }),
            "{from}"
        );
    }
    // A refused port is refused all the same.
    assert_eq!(tried(&sites, 0, "10.97.2.1:9"), Some(libc::ECONNREFUSED));
    // A host that is none of the other site's: the far gateway's file says whose they are.
    let near = sites.name(0);
    ip(&format!("-n {near} addr add 10.98.1.1/32 dev lan"));
    ip(&format!(
        "-n {near} route replace default via 10.97.1.254 src 10.98.1.1"
    ));
    ip(&format!(
        "-n {} route add 10.98.1.1/32 dev lan",
        sites.name(1)
    ));
    assert_eq!(tried(&sites, 0, "10.97.2.1:9"), Some(libc::EHOSTUNREACH));
}

#[test]
fn a_fast_connect_succeeds_before_its_destination_answers() {
    if !is_able() {
        return;
    }
    let mut sites = Sites::new("f");
    sites.edit(0, "to = [", "connect = \"fast\"\nto = [");
    sites.start(1);
    sites.start(0);
    sites.connected();
    // A port where nobody listens: the connect is taken, and reset.
    for address in ["10.97.2.1:9", "[fd97:2::1]:9"] {
        let socket = sites.at(0, || TcpStream::connect(address).expect("a gateway"));
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        is_reset(&socket);
    }
    let expected = serde_json::json!({
        "peer": "far", "connect": "fast", "programs": 0, "taken": 2, "refused": 2, "failed": 0, "loops": 0
    });
    assert_eq!(sites.status(0)["transparent"], expected);
}

#[test]
fn unmodified_programs_reach_each_other() {
    if !is_able() {
        return;
    }
    let sites = Sites::started("u");
    let content = bytes(5_000_000, 3);
    fs::write(sites.path().join("served"), &content).expect("ours");
    for (bind, url) in [
        ("10.97.2.1", "http://10.97.2.1:8000/served"),
        ("fd97:2::1", "http://[fd97:2::1]:8000/served"),
    ] {
        let mut server = Command::new("ip")
            .args(["netns", "exec", &sites.name(3)])
            .args(["python3", "-m", "http.server", "8000", "--bind", bind])
            .current_dir(sites.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ip");
        let fetched = Command::new("ip")
            .args([
                "netns",
                "exec",
                &sites.name(0),
                "curl",
                "--silent",
                "--fail",
            ])
            // Until it listens, the connection is reset.
            .args(["--retry", "600", "--retry-delay", "1", "--retry-all-errors"])
            .args(["--noproxy", "*", url])
            .output()
            .expect("ip");
        let _ = server.kill();
        let _ = server.wait();
        assert!(fetched.status.success(), "{fetched:?}");
        assert!(fetched.stdout == content, "{url}: other bytes");
    }
}

#[test]
fn a_gateway_killed_at_any_moment_is_a_reset_and_never_a_clean_end() {
    if !is_able() {
        return;
    }
    let mut sites = Sites::started("k");
    let mut random = rand_pcg::Pcg64::seed_from_u64(33);
    let mut lans = [0, 3].map(|host| Packets::start_in(&sites.name(host)));
    let kills =
        std::env::var("PACELINE_KILLS").map_or(KILLS, |kills| kills.parse().expect("a number"));
    let (mut whole, mut broken) = (0, 0);
    for kill in 0..kills {
        let (gateway, is_v6) = (kill % 2, random.next_u32() % 2 == 0);
        let is_to_client = random.next_u32() % 2 == 0;
        let (client, server, port) = sites.connection(true, is_v6);
        let (from, mut to) = match is_to_client {
            true => (server, client),
            false => (client, server),
        };
        // More than all buffers hold, so it never comes to its own end.
        let sender = std::thread::spawn(move || {
            let sent = (&from).write_all(&vec![7; 256 << 20]);
            (from, sent.expect_err("reset").kind())
        });
        // And others that may end in the very moment: the kill comes when the first of them has
        // read a random share of what it is sent, or soon after it has read all.
        let content = bytes(1_000 + random.next_u32() as usize % 16_000_000, kill as u64);
        let until = random.next_u32() as usize % (content.len() * 8 / 7);
        let (progress, has_read) = std::sync::mpsc::channel();
        let pairs: Vec<_> = (0..3).map(|_| sites.connection(true, is_v6)).collect();
        let endings: Vec<_> = (0..3)
            .zip(pairs)
            .map(|(number, (client, server, _))| {
                let (from, mut to) = match is_to_client {
                    true => (server, client),
                    false => (client, server),
                };
                // Most of it is in the gateways, not in the reader's kernel.
                setsockopt(&to, sockopt::RcvBuf, &65_536).expect("set");
                let (sent, length) = (content.clone(), content.len());
                let sender = std::thread::spawn(move || {
                    let sent = (&from).write_all(&sent);
                    let _ = sent.and_then(|()| from.shutdown(Shutdown::Write));
                    from
                });
                let progress = (number == 0).then(|| progress.clone());
                let reader = std::thread::spawn(move || {
                    let mut got = Vec::with_capacity(length);
                    let mut some = vec![0; 16 << 10];
                    loop {
                        match to.read(&mut some) {
                            Ok(0) => return (true, got),
                            Ok(count) => got.extend_from_slice(&some[..count]),
                            Err(_) => return (false, got),
                        }
                        if let Some(progress) = &progress {
                            // Nobody hears of it after the kill.
                            let _ = progress.send(got.len());
                        }
                    }
                });
                (sender, reader)
            })
            .collect();
        drop(progress);
        to.read_exact(&mut [0; 1_000]).expect("it comes");
        let reader = std::thread::spawn(move || is_reset(&to));
        while has_read.recv().is_ok_and(|count| count < until) {}
        sites.kill(gateway);
        // The other side hears of it when it is back.
        sites.start(gateway);
        reader.join().expect("a reset");
        for (sender, reader) in endings {
            let (is_end, got) = reader.join().expect("it ends");
            let is_all = got == content;
            assert!(
                is_all || !is_end,
                "kill {kill}: an end after {} bytes",
                got.len()
            );
            *(if is_end { &mut whole } else { &mut broken }) += 1;
            drop(sender.join().expect("it ends"));
        }
        let (_from, kind) = sender.join().expect("it ends");
        let is_end = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&kind);
        assert!(is_end, "{kind}");
        for lan in &mut lans {
            let packets = lan.read();
            assert_eq!(arrived(&packets, port, FIN), 0, "kill {kill}");
            assert!(arrived(&packets, port, RST) >= 1, "kill {kill}");
        }
        sites.connected();
    }
    println!("{kills} kills: {whole} transfers were over in order, {broken} broken by a reset");
}

#[test]
fn a_gateway_whose_address_changes_keeps_its_connections() {
    if !is_able() {
        return;
    }
    let sites = Sites::started("a");
    let content = bytes(2_000_000, 7);
    let (client, server, _) = sites.connection(true, false);
    let near = sites.name(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&client).write_all(&content[..500_000]).expect("taken");
        });
        (&server)
            .read_exact(&mut vec![0; 500_000])
            .expect("it comes");
    });
    ip(&format!("-n {near} addr del 10.97.9.1/24 dev wan"));
    ip(&format!("-n {near} addr add 10.97.9.3/24 dev wan"));
    std::thread::scope(|scope| {
        scope.spawn(|| send(&client, &content));
        assert!(received(&server) == content, "other bytes");
        scope.spawn(|| send(&server, &content));
        assert!(received(&client) == content, "other bytes");
    });
}

#[test]
fn a_listening_gateway_with_a_new_address_is_found_by_its_name() {
    if !is_able() {
        return;
    }
    let mut sites = Sites::new("n");
    sites.name_far("10.97.9.2");
    sites.edit(0, "10.97.9.2:7420", "far.test:7420");
    sites.edit(1, "10.97.9.2:7420", "0.0.0.0:7420");
    sites.start(1);
    sites.start(0);
    sites.connected();
    let (client, server, _) = sites.connection(true, false);
    let far = sites.name(2);
    ip(&format!("-n {far} addr del 10.97.9.2/24 dev wan"));
    ip(&format!("-n {far} addr add 10.97.9.4/24 dev wan"));
    sites.name_far("10.97.9.4");
    // The old session's connections are reset on both sides, long before its patience of 90 s.
    is_reset(&client);
    is_reset(&server);
    sites.connected();
    let content = bytes(1_000_000, 8);
    let (client, server, _) = sites.connection(true, false);
    std::thread::scope(|scope| {
        scope.spawn(|| send(&client, &content));
        assert!(received(&server) == content, "other bytes");
    });
}

#[test]
fn a_job_is_led_through_the_gateway_of_its_own_host() {
    if !is_able() {
        return;
    }
    let mut sites = Sites::new("j");
    sites.edit(0, "interface = \"lan\"\n", "");
    sites.start(1);
    sites.start(0);
    sites.connected();
    // Programs choose their address by their routes; nobody forwards anything on this one.
    let near = sites.name(1);
    ip(&format!("-n {near} route add 10.97.2.0/24 via 10.97.1.1"));
    ip(&format!("-n {near} -6 route add fd97:2::/64 via fd97:1::1"));
    let content = bytes(1_000_000, 5);
    fs::write(sites.path().join("content"), &content).expect("ours");
    let job = |sites: &Sites, peer: &str, to: SocketAddr| {
        let script = "import socket, sys\n\
             s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)\n\
             s.sendall(open('content', 'rb').read())\n\
             s.shutdown(socket.SHUT_WR)\n\
             print(s.recv(100))\n";
        let mut command = sites.with_cgroups(1);
        command
            .arg(env!("CARGO_BIN_EXE_paceline"))
            .args(["run", "--policy", "lfn", "--gateway", peer])
            .args([
                "--gateway-socket",
                "near.sock",
                "--",
                "python3",
                "-c",
                script,
            ])
            .args([to.ip().to_string(), to.port().to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("ip")
    };
    for address in ["10.97.2.1:0", "[fd97:2::1]:0"] {
        let address: SocketAddr = address.parse().expect("one");
        let listener = sites.at(3, || TcpListener::bind(address).expect("its own"));
        let to = listener.local_addr().expect("bound");
        let mut child = job(&sites, "far", to);
        listener.set_nonblocking(true).expect("set");
        let server = loop {
            if let Ok((server, _)) = listener.accept() {
                break server;
            }
            if child.try_wait().expect("ours").is_some() {
                panic!("{:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        server.set_nonblocking(false).expect("set");
        server.set_read_timeout(Some(PATIENCE)).expect("set");
        assert!(received(&server) == content, "{to}: other bytes");
        assert_eq!(sites.status(0)["transparent"]["programs"], 1);
        send(&server, b"thanks");
        let output = child.wait_with_output().expect("ours");
        assert_eq!(output.stdout, b"b'thanks'\n", "{output:?}");
        // A port where nobody listens is refused.
        drop(listener);
        let refused = job(&sites, "far", to).wait_with_output().expect("ours");
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(stderr.contains("ConnectionRefusedError"), "{stderr}");
    }
    let begun = Instant::now();
    while sites.status(0)["transparent"]["programs"] != 0 {
        assert!(begun.elapsed() < PATIENCE, "still led");
        std::thread::sleep(Duration::from_millis(50));
    }
    let counts = &sites.status(0)["transparent"];
    assert_eq!(
        (&counts["taken"], &counts["refused"]),
        (&4.into(), &2.into())
    );
    let to = "10.97.2.1:9".parse().expect("one");
    let fails = |sites: &Sites, peer: &str, what: &str| {
        let output = job(sites, peer, to).wait_with_output().expect("ours");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(what), "{stderr}");
        assert_eq!(output.status.code(), Some(125), "{stderr}");
    };
    fails(
        &sites,
        "elsewhere",
        "--gateway elsewhere: the gateway leads to far",
    );
    sites.kill(0);
    fails(&sites, "far", "--gateway far: no gateway at near.sock");
}

#[test]
fn rules_end_with_the_gateway_or_with_the_next_start() {
    if !is_able() {
        return;
    }
    let mut sites = Sites::new("r");
    assert_eq!(sites.rules(0), (0, 0));
    let checked = sites.paceline(&["gateway", "check", "--config", "near.toml"]);
    let stdout = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        stdout.ends_with(
            "this kernel has what it needs; connects wait for their destination's answer\n"
        ),
        "{checked:?}"
    );
    let without = Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(["gateway", "check", "--config", "near.toml"])
        .current_dir(sites.path())
        .env("PATH", "/nonexistent")
        .output()
        .expect("paceline");
    let stderr = String::from_utf8_lossy(&without.stderr).into_owned();
    assert_eq!(without.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("needs nft (package nftables)"), "{stderr}");
    for signal in [nix::sys::signal::SIGTERM, nix::sys::signal::SIGINT] {
        sites.start(0);
        assert_eq!(sites.rules(0), (1, 4));
        let child = sites.gateways[0].take().expect("it runs");
        ended_by(child, signal);
        assert_eq!(sites.rules(0), (0, 0), "{signal}");
    }
    // Networks and ports that overlap, and all of them.
    let file = sites.path().join("near.toml");
    let text = fs::read_to_string(&file).expect("ours");
    let wide = text.replacen(
        "to = [",
        "ports = [\"22\", \"22-80\", \"1-65535\"]\nto = [\"0.0.0.0/0\", \"::/0\", ",
        1,
    );
    assert_ne!(text, wide);
    fs::write(&file, wide).expect("ours");
    for _ in 0..2 {
        sites.start(0);
        sites.kill(0);
        assert_eq!(sites.rules(0), (1, 4), "nobody could remove them");
    }
    // Another gateway does not take the rules of one that runs.
    sites.start(0);
    assert_eq!(sites.rules(0), (1, 4));
    let text = fs::read_to_string(sites.path().join("near.toml")).expect("ours");
    let text = text.replace("near.sock", "second.sock");
    fs::write(sites.path().join("second.toml"), text).expect("ours");
    let second = Command::new("ip")
        .args(["netns", "exec", &sites.name(1)])
        .arg(env!("CARGO_BIN_EXE_paceline"))
        .args(["gateway", "serve", "--config", "second.toml"])
        .current_dir(sites.path())
        .output()
        .expect("ip");
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(stderr.contains("at port 7421"), "{stderr}");
    assert_eq!(sites.rules(0), (1, 4));
}
