// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Phases from the program's call to what status says about its connections.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use crate::common::{
    alone, connect, is_root, jobs, status, transfer, transfer_on_all, wait_for, Net, Peer, SERVER4,
};
use serde_json::Value;

/// The one job of a client, and the connection that it has.
fn job_of(status: &Value, client: &Peer) -> Option<Value> {
    let mut found = jobs(status, &format!("paceline.{}.", client.process.id()));
    (found.len() == 1).then(|| found.remove(0))
}

fn process_of(job: &Value, pid: u64) -> &Value {
    job["processes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|process| process["pid"].as_u64() == Some(pid))
        .expect("the process is shown")
}

/// Sends something in the phase that the client is in.
fn exchange(client: &mut Peer, server: &mut Peer) {
    transfer(client, server, 20_000);
}

/// A job with a connection to a peer without Paceline. The hosts go with the first.
fn connected() -> (Net, Peer, Peer) {
    let net = Net::new();
    let mut client = net.job(0, "lfn");
    let mut server = net.peer(1);
    connect(&mut client, &mut server, SERVER4);
    (net, client, server)
}

#[test]
fn a_connection_follows_its_process_from_class_to_class() {
    let Some(_alone) = alone() else {
        return;
    };
    let (_net, mut client, mut server) = connected();
    let pid: u64 = client.ask("pid").parse().unwrap();
    assert_eq!(client.ask("active"), "1");
    exchange(&mut client, &mut server);
    const COLLECTIVES: u64 = 3;
    for _ in 0..COLLECTIVES {
        assert_eq!(client.ask("enter 5"), "0");
        exchange(&mut client, &mut server);
        assert_eq!(client.ask("leave"), "0");
        exchange(&mut client, &mut server);
    }
    assert_eq!(client.ask("enter 7"), "0");
    exchange(&mut client, &mut server);

    let job = job_of(&status(), &client).expect("the job is shown");
    let process = process_of(&job, pid);
    assert_eq!(process["phases"]["class"], 7);
    assert_eq!(process["phases"]["entered"]["5"], COLLECTIVES);
    assert_eq!(process["phases"]["entered"]["7"], 1);
    let connection = &job["connections"][0];
    assert_eq!(connection["process"], pid);
    assert_eq!(connection["class"], 7);
    // In and out of each collective, and into class 7.
    assert_eq!(connection["phase_switches"], 2 * COLLECTIVES + 1);
    let mut classes: Vec<u64> = job["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path["class"].as_u64().unwrap())
        .collect();
    classes.sort_unstable();
    assert_eq!(classes, [0, 5, 7]);
    client.end();
    server.end();
    assert!(!Path::new("/run/paceline").exists(), "a socket is left");
}

#[test]
fn wrong_use_has_a_defined_result() {
    let Some(_alone) = alone() else {
        return;
    };
    let (_net, mut client, server) = connected();
    let pid: u64 = client.ask("pid").parse().unwrap();
    assert_eq!(client.ask("leave"), "-2", "a leave without an enter");
    assert_eq!(client.ask("enter 3"), "0");
    // Out of range: the class stays, and the enter is to be left.
    assert_eq!(client.ask("enter 64"), "-1");
    assert_eq!(client.ask("enter 4000000000"), "-1");
    let class = |client: &Peer| {
        let job = job_of(&status(), client).expect("the job is shown");
        process_of(&job, pid)["phases"]["class"].clone()
    };
    assert_eq!(class(&client), 3);
    assert_eq!(
        (client.ask("leave"), client.ask("leave")),
        ("0".into(), "0".into())
    );
    assert_eq!(class(&client), 3);
    // A child is a process of its own: it enters its own class.
    assert_eq!(client.ask("fork-and-enter 9"), "0");
    assert_eq!(class(&client), 3);
    assert_eq!(client.ask("leave"), "0");
    assert_eq!(class(&client), 0);
    assert_eq!(client.ask("leave"), "-2");
    client.end();
    server.end();
}

#[test]
fn ten_thousand_connections_follow_one_process() {
    if !is_root() {
        return;
    }
    const CONNECTIONS: usize = 10_000;
    // Fewer than the listener's backlog.
    const AT_ONCE: usize = 100;
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut client = net.job(0, "lfn");
    let mut server = net.peer(1);
    let port = server.ask(&format!("listen {SERVER4}"));
    for _ in 0..CONNECTIONS / AT_ONCE {
        client.ask(&format!("connect-many {SERVER4} {port} {AT_ONCE}"));
        server.ask(&format!("accept-many {AT_ONCE}"));
    }
    assert_eq!(client.ask("enter 5"), "0");
    transfer_on_all(&mut client, &mut server, 1_000);
    assert_eq!(client.ask("leave"), "0");
    transfer_on_all(&mut client, &mut server, 1_000);

    let job = job_of(&status(), &client).expect("the job is shown");
    let connections = job["connections"].as_array().unwrap();
    assert_eq!(connections.len(), CONNECTIONS);
    for connection in connections {
        assert_eq!(connection["phase_switches"], 2, "{connection}");
        assert_eq!(connection["class"], 0, "{connection}");
    }
    // They share what is known of their one destination.
    assert_eq!(job["paths"].as_array().unwrap().len(), 2);
    let part = format!("paceline.{}.", client.process.id());
    client.end();
    server.end();
    wait_for("the job to be gone", |status| {
        jobs(status, &part).is_empty()
    });
}

#[test]
fn a_process_that_dies_inside_a_phase_leaves_nothing() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut client = net.job(0, "lfn");
    let pid: i32 = client.ask("pid").parse().unwrap();
    assert_eq!(client.ask("enter 3"), "0");
    // SAFETY: the client's own process, which is waiting for its next command.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    let part = format!("paceline.{}.", client.process.id());
    wait_for("the job to be gone", |status| {
        jobs(status, &part).is_empty()
    });
    // The pages go after the job.
    assert_eq!(
        client.process.wait().unwrap().code(),
        Some(128 + libc::SIGKILL)
    );
    assert!(!Path::new("/run/paceline").exists(), "a socket is left");
}

#[test]
fn a_python_program_shows_its_class() {
    if !is_root() {
        return;
    }
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let built = Path::new(env!("CARGO_BIN_EXE_paceline")).parent().unwrap();
    // Cargo puts it beside the binary only where the whole workspace is built.
    let library = ["deps/libpaceline.so", "libpaceline.so"]
        .map(|name| built.join(name))
        .into_iter()
        .find(|path| path.exists())
        .expect("libpaceline is built");
    let program = "
import paceline, sys
paceline.enter(5)
assert paceline.active()
print('entered', flush=True)
sys.stdin.readline()
paceline.leave()
with paceline.phase(7):
    print('entered', flush=True)
    sys.stdin.readline()
try:
    paceline.leave()
except RuntimeError:
    print('refused', flush=True)
";
    let Some(_alone) = alone() else {
        return;
    };
    let started = crate::common::paceline()
        .args(["run", "--", "python3", "-c", program])
        .env("PYTHONPATH", module)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PACELINE_LIBRARY", library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut run = started.expect("paceline runs");
    let part = format!("paceline.{}.", run.id());
    let mut input = run.stdin.take().unwrap();
    let mut output = BufReader::new(run.stdout.take().unwrap()).lines();
    for class in [5, 7] {
        let line = output.next().expect("python3 is installed").unwrap();
        assert_eq!(line, "entered");
        let shown = jobs(&status(), &part);
        let processes = shown[0]["processes"].as_array().unwrap();
        let phases = processes.iter().find_map(|process| process.get("phases"));
        let phases = phases.expect("the program has a page");
        assert_eq!(phases["class"], class);
        assert_eq!(phases["entered"][class.to_string()], 1);
        writeln!(input).unwrap();
    }
    assert_eq!(output.next().unwrap().unwrap(), "refused");
    assert!(run.wait().unwrap().success());
}

#[test]
fn without_phases_in_the_policy_there_are_none() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut client = net.job(0, "rto");
    assert_eq!(client.ask("active"), "0");
    assert_eq!(client.ask("enter 3"), "0");
    assert_eq!(client.ask("leave"), "0");
    client.end();
    // Nor outside of any job.
    let mut peer = net.peer(0);
    assert_eq!(peer.ask("active"), "0");
    assert_eq!(peer.ask("leave"), "0");
    peer.end();
}
