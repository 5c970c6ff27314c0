// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections without timestamps, window scaling or SACK: ligon-1999, Table 2, `-o`.
//!
//! On this machine's kernel (TCX from 6.6 on), and again in a guest with 6.1 (cls_bpf).

#[path = "../common/mod.rs"]
mod common;

use std::time::Duration;

use common::guest::tests_in_guest;
use common::packets::{Packet, Packets, SYN};
use common::service::Service;
use libbpf_rs::query::ProgInfoIter;

use common::{alone, connect, output, paceline, transfer, Net, Peer, PolicyFile, SERVER4, SERVER6};

/// Kinds of options, and their bits in tcpi_options.
const TIMESTAMPS: (u8, u8) = (8, 1);
const SACK: (u8, u8) = (4, 2);
const SCALING: (u8, u8) = (3, 4);
const ALL: u8 = 7;
const CASES: [(&str, &[(u8, u8)]); 4] = [
    ("timestamps = false\n", &[TIMESTAMPS]),
    ("window_scaling = false\n", &[SCALING]),
    ("sack = false\n", &[SACK]),
    (
        "timestamps = false\nwindow_scaling = false\nsack = false\n",
        &[TIMESTAMPS, SCALING, SACK],
    ),
];
/// More than a window that is not scaled.
const BYTES: usize = 1_000_000;

fn policy(keys: &str) -> PolicyFile {
    PolicyFile::new("options", &format!("[options]\ninterface = \"v\"\n{keys}"))
}

/// Whether the SYN (or the SYN-ACK) that left offers an option.
fn offers(packets: &[Packet], kind: u8) -> bool {
    let mut syns = packets
        .iter()
        .filter(|packet| packet.leaves && packet.flags & SYN != 0);
    let syn = syns.next().expect("a SYN");
    assert!(syns.next().is_none(), "one connection at a time");
    syn.options.contains(&kind)
}

/// Makes a connection; what host 0, which connects, and host 1 sent.
fn made(net: &Net, client: &mut Peer, server: &mut Peer, address: &str) -> [Vec<Packet>; 2] {
    let mut packets = [0, 1].map(|host| Packets::start(net, host));
    connect(client, server, address);
    transfer(client, server, BYTES);
    transfer(server, client, BYTES);
    [packets[0].read(), packets[1].read()]
}

fn assert_without(packets: &[Packet], without: &[(u8, u8)]) {
    for (kind, bit) in [TIMESTAMPS, SACK, SCALING] {
        let kept = !without.contains(&(kind, bit));
        assert_eq!(offers(packets, kind), kept, "option {kind}");
    }
}

#[test]
fn a_job_that_connects_goes_without() {
    let Some(_alone) = alone() else {
        return;
    };
    for (keys, without) in CASES {
        let policy = policy(keys);
        let left = without.iter().fold(ALL, |all, (_, bit)| all & !bit);
        for address in [SERVER4, SERVER6] {
            let net = Net::new();
            let (mut client, mut server) = (net.job(0, policy.path()), net.peer(1));
            let [sent, _] = made(&net, &mut client, &mut server, address);
            assert_without(&sent, without);
            for peer in [&mut client, &mut server] {
                assert_eq!(
                    peer.ask("tcp-options"),
                    left.to_string(),
                    "{keys} {address}"
                );
            }
            client.end();
            server.end();
        }
    }
}

#[test]
fn a_job_that_listens_goes_without() {
    let Some(_alone) = alone() else {
        return;
    };
    for (keys, without) in CASES {
        let policy = policy(keys);
        let left = without.iter().fold(ALL, |all, (_, bit)| all & !bit);
        for address in [SERVER4, SERVER6] {
            let net = Net::new();
            // So that the checksum is looked at where the SYN arrives.
            net.without_checksum_offload(0);
            let (mut client, mut server) = (net.peer(0), net.job(1, policy.path()));
            let [sent, answered] = made(&net, &mut client, &mut server, address);
            assert_without(&sent, &[]);
            assert_without(&answered, without);
            for peer in [&mut client, &mut server] {
                assert_eq!(
                    peer.ask("tcp-options"),
                    left.to_string(),
                    "{keys} {address}"
                );
            }
            client.end();
            server.end();
        }
    }
}

#[test]
fn others_keep_theirs_and_nothing_is_left() {
    let Some(_alone) = alone() else {
        return;
    };
    let all = policy(CASES[3].0);
    let other = PolicyFile::new("other", "ack.delay = \"40ms\"\n");
    let net = Net::new();
    let mut server = net.peer(1);
    let mut job = net.job(0, all.path());
    // Beside the job: another job, and none.
    let mut others = [net.job(0, other.path()), net.peer(0)];
    for peer in &mut others {
        let [sent, _] = made(&net, peer, &mut server, SERVER4);
        assert_without(&sent, &[]);
    }
    // And a job with another policy inside of it.
    let run = ["run", "--policy", all.path(), "--"];
    let within = ["run", "--policy", other.path(), "--"];
    let nested = [&run[..], &[env!("CARGO_BIN_EXE_paceline")], &within].concat();
    let mut nested = Peer::start(&net, 0, Some(&nested));
    let [sent, _] = made(&net, &mut nested, &mut server, SERVER4);
    assert_without(&sent, &[]);
    // Two jobs at one interface do not take each other's filters.
    assert_filters(4);
    nested.end();
    assert_filters(2);
    let [sent, _] = made(&net, &mut job, &mut server, SERVER4);
    assert_without(&sent, CASES[3].1);
    job.end();
    assert_filters(0);
    let [sent, _] = made(&net, &mut others[1], &mut server, SERVER4);
    assert_without(&sent, &[]);
    for peer in others {
        peer.end();
    }
    server.end();
}

/// So many filters of [options] are in the kernel: one that is attached nowhere any more is
/// freed soon.
fn assert_filters(wanted: usize) {
    const ATTEMPTS: usize = 100;
    let filters = || {
        ProgInfoIter::default()
            .filter(|info| info.name.to_string_lossy().starts_with("pl_options_"))
            .count()
    };
    for _ in 0..ATTEMPTS {
        if filters() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(filters(), wanted);
}

#[test]
fn a_killed_run_leaves_them_to_the_job_and_the_next_command_takes_them_off() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = policy(CASES[0].0);
    let net = Net::new();
    let (mut client, mut server) = (net.job(0, policy.path()), net.peer(1));
    client.ask("pid");
    client.process.kill().unwrap();
    client.process.wait().unwrap();
    // The job goes on, with its options.
    assert!(output(&["status"]).status.success());
    let [sent, _] = made(&net, &mut client, &mut server, SERVER4);
    assert_without(&sent, CASES[0].1);
    client.end();
    // From another network namespace than the job's.
    common::wait_for("the job's end", |status| {
        common::jobs(status, "paceline.").is_empty()
    });
    assert_filters(0);
    server.end();
}

#[test]
fn attach_and_detach_and_set() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = policy(CASES[0].0);
    let net = Net::new();
    let service = Service::new();
    let (mut client, mut server) = (net.peer(0), net.peer(1));
    service.add(&client.ask("pid"));
    let here = |arguments: &[&str]| {
        let mut command = paceline();
        net.enter(0, command.args(arguments));
        command.output().expect("paceline runs")
    };
    let attached = here(&[
        "attach",
        "--cgroup",
        service.path(),
        "--policy",
        policy.path(),
    ]);
    assert!(attached.status.success(), "{attached:?}");
    let [sent, _] = made(&net, &mut client, &mut server, SERVER4);
    assert_without(&sent, CASES[0].1);
    for change in [
        ["options.sack=false"],
        ["options="],
        ["options.interface=w"],
    ] {
        let set = here(&[&["set", service.path()][..], &change].concat());
        let error = String::from_utf8_lossy(&set.stderr);
        assert!(!set.status.success(), "{change:?}");
        assert!(error.contains("[options] of a running job"), "{error}");
    }
    let detached = output(&["detach", "--cgroup", service.path()]);
    assert!(detached.status.success(), "{detached:?}");
    assert_filters(0);
    let [sent, _] = made(&net, &mut client, &mut server, SERVER4);
    assert_without(&sent, &[]);
    client.end();
    server.end();
}

#[test]
fn an_interface_that_is_not_there_is_one_clear_error() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = PolicyFile::new(
        "options",
        "[options]\ninterface = \"none0\"\nsack = false\n",
    );
    let tried = output(&["run", "--policy", policy.path(), "--", "true"]);
    let error = String::from_utf8_lossy(&tried.stderr);
    assert!(!tried.status.success());
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains(
            "policy options, [options]: there is no interface none0 in this network namespace"
        ),
        "{error}"
    );
    assert_filters(0);
}

#[test]
fn all_of_it_on_the_kernel_of_bookworm() {
    // These do not load the congestion controls, and look at how the kernel side goes, too.
    tests_in_guest("bookworm", &["--skip", "on_the_kernel_of"], false);
}
