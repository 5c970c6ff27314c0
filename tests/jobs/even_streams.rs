// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Even streams: the connections of a job to one destination share a window, as `status`
//! shows it while they send over a path with a round trip and losses.

use crate::common::lab::Lab;
use crate::common::streams::{connect, Program};
use crate::common::{alone, is_root, jobs, output, paceline, status, wait_for, PolicyFile};
use serde_json::Value;

use super::groups::LONG_PATH;

const STREAMS: usize = 4;

/// The connections of the job with this policy.
fn connections(shown: &Value) -> Vec<Value> {
    let jobs = jobs(shown, "paceline.");
    let of_policy = jobs.into_iter().filter(|job| job["policy"] == "even");
    let lists = of_policy.filter_map(|job| job["connections"].as_array().cloned());
    lists.flatten().collect()
}

fn number(connection: &Value, key: &str) -> u64 {
    connection[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {connection}"))
}

fn share_with(shown: &Value, streams: usize) -> bool {
    let each = connections(shown);
    each.len() == STREAMS
        && each
            .iter()
            .all(|one| number(one, "even_streams") == streams as u64)
}

#[test]
fn streams_of_a_job_have_equal_windows() {
    if !is_root() {
        return;
    }
    let Some(_alone) = alone() else {
        return;
    };
    // With a queue that overflows soon.
    let lab = Lab::up("even", &LONG_PATH.replace("1MiB", "128KiB"));
    let policy = PolicyFile::new("even", "base = \"cubic\"\nstreams.even = true\n");
    let mut command = paceline();
    command
        .args(["run", "--policy", policy.path(), "--"])
        .arg(env!("CARGO_BIN_EXE_paceline"))
        .args(["lab", "exec", "--lab", &lab.name, "near0", "--"]);
    let mut client = Program::spawn(command);
    let mut server = Program::spawn(lab.command("far0"));
    client.ask("sleep-ms 0");
    let state = lab.state();
    let nodes = state["nodes"].as_array().unwrap();
    let far = nodes.iter().find(|node| node["name"] == "far0").unwrap();
    let address = far["ipv4"].as_str().expect("an address").to_owned();

    // The first one has all of the path before the others begin.
    connect(&mut client, &mut server, &address);
    client.ask("keep-sending");
    wait_for("the first stream's window", |shown| {
        let each = connections(shown);
        each.iter().any(|one| number(one, "cwnd_segs") >= 100)
    });
    for _ in 1..STREAMS {
        connect(&mut client, &mut server, &address);
        client.ask("keep-sending");
    }
    // A look takes a while, in which windows go on; one that repairs a loss has its own.
    let mut reasons = Vec::new();
    wait_for("equal windows", |shown| {
        let each = connections(shown);
        let windows = || each.iter().map(|one| number(one, "cwnd_segs"));
        reasons = each.iter().map(|one| one["why"].to_string()).collect();
        share_with(shown, STREAMS)
            && windows().min() >= Some(20)
            && windows().max() <= windows().min().map(|least| least + 1)
    });
    for reason in reasons {
        assert!(
            reason.contains("an equal part of 4 streams' window"),
            "{reason}"
        );
    }

    // While it runs it is turned off, and on again.
    let job = jobs(&status(), "paceline.")
        .into_iter()
        .find(|job| job["policy"] == "even")
        .expect("the job runs");
    let id = job["cgroup"].as_str().expect("a path").to_owned();
    let set = |what: &str| {
        let output = output(&["set", &id, what]);
        assert!(output.status.success(), "{output:?}");
    };
    set("streams.even=false");
    wait_for("each by itself", |shown| share_with(shown, 0));
    set("streams.even=true");
    wait_for("equal parts again", |shown| share_with(shown, STREAMS));

    // Who is gone is no stream any more.
    client.ask("close");
    wait_for("one stream less", |shown| {
        let each = connections(shown);
        let open = each.iter().filter(|one| one["state"] == "established");
        let mut open = open.peekable();
        open.peek().is_some() && open.all(|one| number(one, "even_streams") < STREAMS as u64)
    });
    client.end();
    server.end();
}
