// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline set`: the policy of a running job, and of its connections.

#[path = "../common/mod.rs"]
mod common;

use std::time::Instant;

use common::guest::{tests_in_guest, UNRELEASED};
use common::setting::{connected, id_of, job_of, key, of_all, set, stderr, stdout};
use common::{
    alone, connect, output, paceline, status, transfer, transfer_on_all, Net, Peer, PolicyFile,
    SERVER4,
};
use serde_json::Value;

const CONNECTIONS: usize = 1000;

#[test]
fn a_thousand_running_connections_change_and_none_breaks() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let (mut client, mut server) = connected(&net, "lfn", CONNECTIONS);
    let id = id_of(&client);
    transfer_on_all(&mut client, &mut server, 1000);

    // All that is wrong at once, and nothing changed.
    let before = job_of(&client);
    let bad = ["ack.dely=12ms", "rto.least=1ms", "window.initial=0"];
    let refused = set(&id, &[&bad[..], &["ack.delay=12ms"]].concat());
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    for part in [
        "ack.dely: unknown key",
        "rto.least: 1ms is",
        "window.initial: 0 is",
    ] {
        assert!(stderr(&refused).contains(part), "{refused:?}");
    }
    let after = job_of(&client);
    assert_eq!(after["generation"], 0);
    assert_eq!(key(&after, "ack.delay"), key(&before, "ack.delay"));
    assert_eq!(key(&after, "ack.delay").1, "preset");

    let begin = Instant::now();
    let changed = set(
        &id,
        &["ack.delay=12ms", "rto.least=16ms", "window.initial=20"],
    );
    println!("{CONNECTIONS} connections in {:?}", begin.elapsed());
    assert!(changed.status.success(), "{changed:?}");
    assert_eq!(
        stdout(&changed),
        format!(
            "rto.least: tick -> 16ms (new connections only)\n\
             ack.delay: tick -> 12ms\n\
             window.initial: the kernel's -> 20 (new connections only)\n\
             {CONNECTIONS} running connections changed\n"
        )
    );
    let job = job_of(&client);
    assert_eq!(
        (&job["generation"], &job["earlier"], &job["policy"]),
        (&1.into(), &0.into(), &"lfn".into())
    );
    assert_eq!(key(&job, "ack.delay"), ("12ms".into(), "set".into()));
    assert_eq!(key(&job, "base"), ("cubic".into(), "preset".into()));
    assert_eq!(job["connections"].as_array().unwrap().len(), CONNECTIONS);
    for least in of_all(&job, "rto_least_us") {
        // With the jitter of up to a tick.
        assert!(
            (16_000..=26_000).contains(&least.as_u64().unwrap()),
            "{least}"
        );
    }
    transfer_on_all(&mut client, &mut server, 1000);

    // Another policy, and another congestion control, under way.
    let replaced = set(&id, &["--policy", "standard", "--json"]);
    let report: Value = serde_json::from_slice(&replaced.stdout).unwrap();
    assert_eq!(report["connections"], CONNECTIONS);
    let job = job_of(&client);
    assert_eq!(job["policy"], "standard");
    for name in of_all(&job, "congestion") {
        assert!(!name.as_str().unwrap().starts_with("paceline"), "{name}");
    }
    transfer_on_all(&mut client, &mut server, 1000);
    let (mut other, mut its_server) = connected(&net, "lfn", 1);

    let back = set(&id, &["--reset"]);
    assert!(back.status.success(), "{back:?}");
    let job = job_of(&client);
    assert_eq!(
        (&job["policy"], &job["generation"]),
        (&"lfn".into(), &3.into())
    );
    assert_eq!(of_all(&job, "congestion"), ["paceline_cubic"]);
    assert_eq!(key(&job, "ack.delay"), ("tick".into(), "preset".into()));
    assert_eq!(key(&job, "window.initial"), (Value::Null, Value::Null));
    assert_eq!(job["earlier"], 0);
    transfer_on_all(&mut client, &mut server, 20_000);
    // Of another job nothing was changed.
    assert_eq!(job_of(&other)["generation"], 0);
    transfer(&mut other, &mut its_server, 1000);

    let same = set(&id, &["ack.delay=tick"]);
    assert_eq!(stdout(&same), "no key has another value: policy lfn\n");
    // What was left out is told, too.
    let left_out = set(&id, &["ack=", "startup.initial_rate=1gbit"]);
    assert!(
        stdout(&left_out)
            .starts_with("startup.initial_rate: none -> 1gbit\nack.delay: tick -> the kernel's\n"),
        "{left_out:?}"
    );
    let job = job_of(&client);
    assert_eq!(key(&job, "ack.delay"), (Value::Null, "set".into()));
    let shown = stdout(&output(&["status"]));
    let words: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().take(4).collect())
        .collect();
    let wanted = ["ack.delay", "the", "kernel's", "set"];
    assert!(words.iter().any(|line| line == &wanted), "{shown}");
    for peer in [client, server, other, its_server] {
        peer.end();
    }
    assert_eq!(status()["jobs"], Value::Array(Vec::new()));
}

#[test]
fn new_connections_have_what_was_set() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let (mut client, mut server) = connected(&net, "standard", 1);
    let id = id_of(&client);
    let changed = set(
        &id,
        &[
            "base=reno",
            "startup.target=delivery-rate",
            "rto.least=16ms",
        ],
    );
    assert!(changed.status.success(), "{changed:?}");
    assert_eq!(client.ask("congestion"), "paceline_reno");
    // With the defaults of the table.
    let half_life = key(&job_of(&client), "startup.half_life");
    assert_eq!(half_life, ("60s".into(), "set".into()));
    let (active, _) = connect(&mut client, &mut server, SERVER4);
    assert_eq!(active, "paceline_reno");
    let job = job_of(&client);
    assert_eq!(of_all(&job, "rto_least_us"), [16_000]);
    transfer(&mut client, &mut server, 1_000_000);
    // The file that another policy is in; by its path, for root.
    let file = PolicyFile::new("other", "base = \"cubic\"\n[ack]\ndelay = \"40ms\"\n");
    assert!(set(&id, &["--policy", file.path()]).status.success());
    let job = job_of(&client);
    assert_eq!(key(&job, "ack.delay"), ("40ms".into(), "file".into()));
    assert_eq!(client.ask("congestion"), "cubic");
    transfer(&mut client, &mut server, 1_000_000);
    client.end();
    server.end();
}

/// What a listener accepts has its minimum RTO from the first sample on.
#[test]
fn a_listener_passes_on_what_was_set() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let (mut client, mut server) = (net.peer(0), net.job(1, "lfn"));
    // When it answers it is a job.
    let port = server.ask(&format!("listen {SERVER4}"));
    let id = id_of(&server);
    let mut accepted = Vec::new();
    for (change, least_us, most_us) in [
        (&[][..], 8_000, 200_000),
        (&["rto="], 200_000, u64::MAX),
        (&["rto.least=48ms"], 48_000, 200_000),
        (&["--policy", "standard"], 200_000, u64::MAX),
        (&["--reset"], 8_000, 200_000),
    ] {
        if !change.is_empty() {
            let changed = set(&id, change);
            assert!(changed.status.success(), "{changed:?}");
        }
        client.ask(&format!("connect {SERVER4} {port}"));
        server.ask("accept");
        let job = job_of(&server);
        let connections = job["connections"].as_array().unwrap();
        let is_new = |connection: &&Value| !accepted.contains(&connection["cookie"]);
        let new = connections.iter().find(is_new).unwrap();
        accepted.push(new["cookie"].clone());
        let [least, rto] = ["rto_least_us", "rto_us"].map(|key| new[key].as_u64().unwrap());
        // With the jitter of a tick, and of a coarser tick.
        assert!(
            (least_us..=least_us + 22_000).contains(&least),
            "{change:?}: {new}"
        );
        assert!((least_us..most_us).contains(&rto), "{change:?}: {new}");
        assert_eq!(job["earlier"], 0);
    }
    client.end();
    server.end();
}

#[test]
fn a_group_stays_together() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let run = ["run", "--policy", "lfn", "--group", "bulk", "--"];
    let (mut client, mut server) = (Peer::start(&net, 0, Some(&run)), net.peer(1));
    for _ in 0..3 {
        connect(&mut client, &mut server, SERVER4);
    }
    let id = id_of(&client);
    for (change, control) in [
        (&["base=reno"][..], "paceline_reno"),
        // A group's windows are wrapped, whatever the policy.
        (&["startup="], "paceline_reno"),
        (&["--policy", "pace"], "paceline_cubic"),
    ] {
        let changed = set(&id, change);
        assert!(changed.status.success(), "{changed:?}");
        let job = job_of(&client);
        assert_eq!(of_all(&job, "congestion"), [control]);
        assert_eq!(of_all(&job, "group"), ["bulk"]);
        assert_eq!(status()["groups"][0]["streams"], 3, "{change:?}");
        transfer(&mut client, &mut server, 1_000_000);
    }
    client.end();
    server.end();
}

#[test]
fn a_missing_job_is_reported() {
    let Some(_alone) = alone() else {
        return;
    };
    for (arguments, message) in [
        (&["1", "ack.delay=12ms"][..], "no job 1:"),
        (&["/tmp", "ack.delay=12ms"], "not a cgroup v2 directory"),
        (&["1", "--policy", "lfm"], "did you mean \"lfn\""),
    ] {
        let refused = set(arguments[0], &arguments[1..]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(stderr(&refused).contains(message), "{refused:?}");
    }
    for arguments in [
        &["1"][..],
        &["1", "ack.delay"],
        &["1", "ack.delay=1ms", "--reset"],
    ] {
        let refused = set(arguments[0], &arguments[1..]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}

/// Killed before the change, after it, and when all connections have it.
#[test]
fn a_killed_command_leaves_the_old_policy_or_the_new_one() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let (client, server) = connected(&net, "lfn", 50);
    let id = id_of(&client);
    let mut delay = "tick".to_owned();
    let mut generation = 0;
    for (number, (point, done)) in [("checked", false), ("written", true), ("given", true)]
        .into_iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        let asked = format!("{}ms", 20 + number);
        let killed = paceline()
            .args(["set", &id, &format!("ack.delay={asked}"), "base=reno"])
            .env("PACELINE_KILL_AT", point)
            .output()
            .unwrap();
        assert_eq!(killed.status.code(), None, "{point}: {killed:?}");
        if done {
            delay = asked;
            generation += 1;
        }
        // Any command goes on where it was killed.
        let shown = output(&["-v", "status"]);
        let finished = stderr(&shown).contains("a killed command had changed the policy");
        assert_eq!(finished, done, "{point}: {shown:?}");
        let job = job_of(&client);
        assert_eq!(key(&job, "ack.delay").0, delay.as_str(), "{point}");
        assert_eq!(job["generation"], generation, "{point}");
        assert_eq!(job["earlier"], 0, "{point}");
        let control = ["paceline_cubic", "paceline_reno"][usize::from(generation > 0)];
        assert_eq!(of_all(&job, "congestion"), [control], "{point}");
    }
    client.end();
    server.end();
    assert_eq!(status()["jobs"], Value::Array(Vec::new()));
}

/// Killed at any moment.
#[test]
fn whenever_it_is_killed_all_connections_have_one_policy() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let (client, server) = connected(&net, "lfn", 200);
    let id = id_of(&client);
    let begin = Instant::now();
    assert!(set(&id, &["ack.delay=100ms"]).status.success());
    let spread = begin.elapsed().mul_f64(1.2);
    for number in 0..12_u32 {
        let asked = format!("ack.delay={}ms", 20 + number);
        let base = ["base=reno", "base=cubic"][number as usize % 2];
        let mut command = paceline().args(["set", &id, &asked, base]).spawn().unwrap();
        std::thread::sleep(spread.mul_f64((f64::from(number) * 0.618_034).fract()));
        command.kill().unwrap();
        command.wait().unwrap();
        let job = job_of(&client);
        assert_eq!(job["earlier"], 0, "{number}");
        let base = key(&job, "base").0;
        let control = format!("paceline_{}", base.as_str().unwrap());
        assert_eq!(of_all(&job, "congestion"), [control.as_str()], "{number}");
    }
    client.end();
    server.end();
}

/// On the oldest kernel and on the newest.
const IN_GUESTS: [&str; 4] = [
    "--exact",
    "a_thousand_running_connections_change_and_none_breaks",
    "a_killed_command_leaves_the_old_policy_or_the_new_one",
    "a_listener_passes_on_what_was_set",
];

#[test]
fn it_works_on_linux_6_1() {
    tests_in_guest("bookworm", &IN_GUESTS, true);
}

#[test]
fn it_works_on_the_newest_kernel() {
    tests_in_guest(UNRELEASED, &IN_GUESTS, true);
}
