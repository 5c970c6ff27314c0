// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline doctor --job`: what limits a job's connections is told apart.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use crate::common::agent::{group_id, until, Agent, GROUP, OTHER_USER, USER};
use crate::common::lab::Lab;
use crate::common::setting::{connected, id_of, job_of};
use crate::common::{alone, jobs, output, transfer, Net, SERVER4};
use serde_json::Value;

/// A link whose rate and round trip limit whoever has large buffers.
const ONE_LINK: &str = r#"
congestion = "cubic"

[[cluster]]
name = "near"
hosts = 1
switch_buffer = "1MiB"

[[cluster]]
name = "far"
hosts = 1
switch_buffer = "1MiB"

[[wan]]
from = "near"
to = "far"
rate = "20mbit"
one_way_delay = "10ms"
buffer = "512KiB"
"#;

/// As in limited.py.
const KINDS: [(&str, &str); 5] = [
    ("receive-window", "tcp_rmem"),
    ("receive-window", "does not read"),
    ("send-buffer", "tcp_wmem"),
    ("application", ""),
    ("network", ""),
];

/// limited.py under `command`, and the line that it says.
fn limited(mut command: Command, arguments: &[&str]) -> (Child, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/common/limited.py");
    let mut child = command
        .args(["python3", script])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    (child, line.trim_end().to_owned())
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn message_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Limit and remedy of the connection with this local port.
fn verdict(report: &Value, port: &str) -> Option<(String, String)> {
    let destinations = report["destinations"].as_array().unwrap().iter();
    let mut connections = destinations.flat_map(|one| one["connections"].as_array().unwrap());
    let ending = format!(":{port}");
    let found = connections.find(|one| one["local"].as_str().unwrap().ends_with(&ending))?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("limit"), text("remedy")))
}

#[test]
fn each_limit_is_distinguished_from_the_others() {
    let Some(_alone) = alone() else {
        return;
    };
    let lab = Lab::up("limits", ONE_LINK);
    let state = lab.state();
    let nodes = state["nodes"].as_array().unwrap().iter();
    let far = nodes.clone().find(|node| node["name"] == "far0").unwrap();
    let (server, ports) = limited(lab.command("far0"), &["serve"]);
    let mut arguments = vec!["send", far["ipv4"].as_str().unwrap()];
    arguments.extend(ports.split(' '));
    let mut command = lab.command("near0");
    command.args([
        env!("CARGO_BIN_EXE_paceline"),
        "run",
        "--policy",
        "rto",
        "--",
    ]);
    let (client, locals) = limited(command, &arguments);
    let locals: Vec<&str> = locals.split(' ').collect();

    let job = jobs(
        &crate::common::status(),
        &format!("paceline.{}.", client.id()),
    )
    .remove(0);
    let id = job["id"].to_string();
    // Limited so they are from the first full window on; how soon that is, and whether this
    // machine always lets the link work, is not what is tested.
    let mut last = Value::Null;
    until("each limit", || {
        last = json(&output(&["doctor", "--job", &id, "--json"]));
        locals.iter().zip(KINDS).all(|(port, (limit, remedy))| {
            verdict(&last, port)
                .is_some_and(|(found, advice)| found == limit && advice.contains(remedy))
        })
    });
    // One connection is not judged by what another one had.
    assert_eq!(last["destinations"].as_array().unwrap().len(), 1, "{last}");
    assert_eq!(last["destinations"][0]["peer"], far["ipv4"]);
    // By the last part of its cgroup, for people.
    let cgroup = job["cgroup"].as_str().unwrap();
    let name = cgroup.rsplit('/').next().unwrap();
    let doctor = output(&["doctor", "--job", name, "--for", "200ms"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.success(), "{doctor:?}");
    assert!(text.contains("5 connections, 11 looks"), "{text}");
    for mut process in [client, server] {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
}

#[test]
fn a_policy_that_is_not_in_effect_is_reported_and_an_unknown_job_is_one_error() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let (mut client, server) = connected(&net, "rto", 2);
    // Loopback is never under a policy.
    let port = client.ask("listen 127.0.0.1");
    client.ask(&format!("connect 127.0.0.1 {port}"));
    let id = id_of(&client);
    let report = json(&output(&[
        "doctor", "--job", &id, "--for", "200ms", "--json",
    ]));
    let destinations = report["destinations"].as_array().unwrap();
    let to = |peer: &str| {
        let mut found = destinations.iter().filter(|one| one["peer"] == peer);
        found.next().unwrap()["connections"].as_array().unwrap()
    };
    assert_eq!(to(SERVER4).len(), 2, "{report}");
    for connection in to(SERVER4) {
        assert_eq!(connection["limit"], "idle", "{connection}");
        assert!(connection["not_in_effect"].is_null(), "{connection}");
    }
    let local = to("127.0.0.1")[0]["not_in_effect"].as_str().unwrap();
    assert!(local.contains("both ends are on this host"), "{local}");

    let unknown = output(&["doctor", "--job", "paceline.1.999"]);
    let stderr = message_of(&unknown);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("no running job paceline.1.999"), "{stderr}");
    let short = output(&["doctor", "--job", &id, "--for", "1ms"]);
    assert!(message_of(&short).contains("expected 100ms"), "{short:?}");
    let alone = output(&["doctor", "--for", "1s"]);
    assert_eq!(alone.status.code(), Some(2), "--for without --job");
    client.end();
    server.end();
}

#[test]
fn users_without_root_look_at_their_own_jobs() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    let net = Net::new();
    let mut server = net.peer(1);
    let mut client = agent.peer(USER, &net, "lfn");
    crate::common::connect(&mut client, &mut server, SERVER4);
    transfer(&mut client, &mut server, 10_000);
    let id = id_of(&client);
    let directory = agent.socket();
    let directory = directory.parent().unwrap().to_str().unwrap();
    let asked = |user: u32| {
        let mut command = agent.as_user(user, Some(group_id(GROUP)), Some(&net));
        command.args(["doctor", "--job", &id, "--for", "200ms", "--json"]);
        command.args(["--agent", directory]).output().unwrap()
    };
    let report = json(&asked(USER));
    let connections = report["destinations"][0]["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 1, "{report}");
    assert_eq!(report["destinations"][0]["peer"], SERVER4, "{report}");
    assert!(report["notes"][0]
        .as_str()
        .unwrap()
        .contains("without root"));
    assert_eq!(report["policy"], job_of(&client)["policy"]);
    let other = message_of(&asked(OTHER_USER));
    assert_eq!(other.lines().count(), 1, "{other}");
    client.end();
    server.end();
}
