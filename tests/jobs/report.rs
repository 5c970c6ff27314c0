// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a job's connections did outlives them, and, with an agent, the job; `paceline report`.

use std::process::{Command, Output};

use crate::common::agent::{directory_of, until, until_gone, Agent, OTHER_USER, USER};
use crate::common::setting::{connected, id_of, job_of, set, stderr, stdout};
use crate::common::{
    alone, output, paceline, transfer, transfer_on_all, wait_for, Net, PolicyFile, SERVER4,
};
use serde_json::Value;

const BYTES: usize = 20_000;

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn is_called(job: &Value, id: &str) -> bool {
    job["id"].as_u64() == id.parse().ok()
}

/// What was counted of a job, once `done` says that it is complete.
fn counted(id: &str, done: impl Fn(&Value) -> bool) -> Value {
    let mut traffic = Value::Null;
    wait_for("the job's counters", |status| {
        let jobs = status["jobs"].as_array().unwrap();
        let job = jobs.iter().find(|job| is_called(job, id)).unwrap();
        traffic = job["traffic"].clone();
        done(&traffic)
    });
    traffic
}

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn counters_outlive_their_connections() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    for (policy, wrapped) in [("lfn", true), ("rto", false)] {
        let (mut client, mut server) = connected(&net, policy, 3);
        let id = id_of(&client);
        for _ in 0..10 {
            transfer_on_all(&mut client, &mut server, BYTES);
        }
        let sent = 3 * 10 * BYTES as u64;
        let before = counted(&id, |traffic| number(traffic, "bytes") >= sent);
        // A burst that the next one overtakes is one with it.
        let bursts = number(&before, "bursts");
        assert_eq!(bursts > 0, wrapped, "{before}");
        assert!(bursts <= 30, "{before}");
        assert!(number(&before, "segments") >= sent / 1460, "{before}");

        // A connection that is closed takes nothing with it, and adds nothing twice.
        client.ask("close-all");
        server.ask("close-all");
        wait_for("the end of the connections", |status| {
            let jobs = status["jobs"].as_array().unwrap();
            let job = jobs.iter().find(|job| is_called(job, &id)).unwrap();
            job["connections"].as_array().unwrap().is_empty()
        });
        let after = counted(&id, |_| true);
        // The FIN takes a byte of the sequence numbers.
        let bytes = number(&after, "bytes");
        assert!((sent..=sent + 6).contains(&bytes), "{after}");
        let sizes: u64 = after["sizes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|size| size.as_u64().unwrap())
            .sum();
        assert_eq!(sizes, number(&after, "bursts"), "{after}");

        let report = json(&output(&["report", &id, "--json"]));
        assert_eq!(report["counts"]["governed"], 3, "{report}");
        assert_eq!(number(&report["counts"]["traffic"], "bytes"), bytes);
        assert_eq!(report["overall"], Value::Null);
        let text = stdout(&output(&["report", &id]));
        assert!(text.contains("the policy holds out no bursts"), "{text}");
        client.end();
        server.end();
    }
}

#[test]
fn a_job_reports_its_outcome_in_one_line() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut server = net.peer(1);
    let _first = net.job(0, "lfn");
    for quiet in [false, true] {
        let port = server.ask(&format!("listen {SERVER4}"));
        let connect = format!(
            "import socket\nc = socket.create_connection(('{SERVER4}', {port}))\nc.sendall(b'x' * {BYTES})\nc.shutdown(1)\nc.recv(1)"
        );
        let mut command = paceline();
        command.arg("run").args(quiet.then_some("--quiet"));
        command.args(["--", "python3", "-c", &connect]);
        net.enter(0, &mut command);
        let running = command
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        server.ask("accept");
        server.ask(&format!("receive {BYTES}"));
        server.ask("close-all");
        let output = running.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = stderr(&output);
        let summary: Vec<&str> = lines
            .lines()
            .filter(|line| line.contains("retransmitted"))
            .collect();
        match quiet {
            true => assert_eq!(lines, "", "{output:?}"),
            false => {
                assert_eq!(summary.len(), 1, "{output:?}");
                assert!(
                    summary[0].contains("1 connection, 1 burst, "),
                    "{summary:?}"
                );
                assert!(summary[0].contains(" RTO"), "{summary:?}");
            }
        }
    }
}

#[test]
fn a_share_of_bursts_is_held_out_and_compared() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let policy = PolicyFile::new(
        "held",
        "base = \"cubic\"\n[startup]\ntarget = \"delivery-rate\"\n[report]\nheld_out = \"50%\"\n",
    );
    let (mut client, mut server) = connected(&net, policy.path(), 1);
    let id = id_of(&client);
    assert_eq!(job_of(&client)["held_out_percent"], 50);
    let mut report = Value::Null;
    // Each is a burst of its own: the answer of the other side comes after its last ACK, or
    // with it. Of 400 draws less than a quarter of one kind has a chance of 1 to 10^20.
    for _ in 0..400 {
        transfer(&mut client, &mut server, 8_000);
        transfer(&mut server, &mut client, 1);
    }
    wait_for("the last burst", |_| {
        report = json(&output(&["report", &id, "--json"]));
        let trials = report["trials"].as_array().unwrap();
        let bursts = |arm: &str| -> u64 {
            trials
                .iter()
                .map(|trial| number(&trial[arm], "bursts"))
                .sum()
        };
        bursts("policy") >= 100 && bursts("held_out") >= 100
    });
    let interval = report["overall"]["interval_us"].as_array().unwrap();
    let [least, most] = [0, 1].map(|at| interval[at].as_f64().unwrap());
    let difference = report["overall"]["difference_us"].as_f64().unwrap();
    assert!(least <= difference && difference <= most, "{report}");
    let text = stdout(&output(&["report", &id]));
    assert!(text.contains("50 % of bursts held out"), "{text}");

    // A running job's share is one key.
    let changed = set(&id, &["report.held_out="]);
    assert!(changed.status.success(), "{changed:?}");
    let refused = set(&id, &["report.held_out=51%"]);
    assert!(
        stderr(&refused).contains("report.held_out: 51%"),
        "{refused:?}"
    );
    let refused = set(&id, &["startup=", "report.held_out=5%"]);
    assert!(
        stderr(&refused).contains("where no law changes a burst"),
        "{refused:?}"
    );
    client.end();
    server.end();
}

fn report(agent: &Agent, user: u32, arguments: &[&str]) -> Command {
    let mut command = agent.as_user(
        user,
        Some(crate::common::agent::group_id(crate::common::agent::GROUP)),
        None,
    );
    command
        .arg("report")
        .args(["--agent".as_ref(), agent.place.join("run").as_os_str()])
        .args(arguments);
    command
}

#[test]
fn the_agent_remembers_ended_jobs_for_their_owner() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut agent = Agent::start();
    let mut server = net.peer(1);
    let mut client = agent.peer(USER, &net, "lfn");
    let process = client.process.id();
    crate::common::connect(&mut client, &mut server, SERVER4);
    transfer(&mut client, &mut server, BYTES);
    let name = directory_of(process);
    let name = name.file_name().unwrap().to_str().unwrap().to_owned();
    let running = json(&report(&agent, USER, &[&name, "--json"]).output().unwrap());
    assert_eq!(running["owner_uid"], USER);
    assert_eq!(running.get("ended_unix_s"), None);
    client.end();
    until_gone(process);
    let mut ended = Value::Null;
    until("the job's record", || {
        let output = report(&agent, USER, &[&name, "--json"]).output().unwrap();
        ended = serde_json::from_slice(&output.stdout).unwrap_or_default();
        ended.get("ended_unix_s").is_some()
    });
    assert_eq!(ended["counts"]["governed"], 1);
    assert!(
        number(&ended["counts"]["traffic"], "bytes") >= BYTES as u64,
        "{ended}"
    );
    let listed = json(&report(&agent, USER, &["--json"]).output().unwrap());
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");

    // Whose it is not is told of nothing; root of all.
    let refused = report(&agent, OTHER_USER, &[&name]).output().unwrap();
    assert!(stderr(&refused).contains("there is no job"), "{refused:?}");
    let none = json(&report(&agent, OTHER_USER, &["--json"]).output().unwrap());
    assert_eq!(none, Value::Array(Vec::new()));
    let place = agent.place.join("run");
    let all = output(&["report", &name, "--agent", place.to_str().unwrap()]);
    assert!(stdout(&all).contains(", ended "), "{all:?}");
    agent.kill();

    let place = place.to_str().unwrap();
    let nobody = output(&["report", &name, "--agent", place]);
    let message = stderr(&nobody);
    assert!(message.contains("and no agent at"), "{message}");
}
