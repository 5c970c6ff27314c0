// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline send --policy`: the transfer is a job while it sends already.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "another test uses the rest")]
mod namespaces;
#[allow(dead_code, reason = "another test uses the rest")]
mod scratch;

use std::process::Child;

use common::{alone, jobs, status, wait_for};
use scratch::{assert_same, Scratch};

/// A slow transfer between two network namespaces, and the beginning of its ID's job.
fn start(scratch: &Scratch, namespaces: &namespaces::Namespaces) -> (Child, String) {
    namespaces.shell(&scratch.path("shell"));
    let own = ["send", "--policy", "lfn", "--rate", "24mbit"];
    let command = [&own[..], &["from/huge", "b:@to/"]].concat();
    let child = namespaces
        .enter(&scratch.command_with_remote(&command))
        .spawn();
    let child = child.expect("it starts");
    let job = format!("/paceline.{}.", child.id());
    (child, job)
}

#[test]
fn connections_that_exist_come_under_the_policy_and_into_a_group() {
    let Some(_alone) = alone() else {
        return;
    };
    let scratch = Scratch::new();
    let namespaces = namespaces::Namespaces::new();
    scratch.write("from/huge", 40_000_000);
    let (mut child, job) = start(&scratch, &namespaces);
    let id = scratch.wait_until_running();
    let group = format!("mover-{id}");
    wait_for("both in the group", |status| {
        let mut groups = status["groups"].as_array().into_iter().flatten();
        let streams = groups.find(|own| own["name"] == *group);
        streams.is_some_and(|own| own["streams"].as_u64() >= Some(2))
    });
    let shown = jobs(&status(), &job);
    assert_eq!(shown[0]["policy"], "lfn");
    // One that is made later is in it, too.
    let set = ["transfers", "set", &id, "--rate", "none"];
    scratch.paceline(&set).ok();
    assert!(child.wait().expect("it ends").success());
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
    assert!(jobs(&status(), &job).is_empty());
}

#[test]
fn after_a_kill_the_next_command_takes_the_job_away() {
    let Some(_alone) = alone() else {
        return;
    };
    let scratch = Scratch::new();
    let namespaces = namespaces::Namespaces::new();
    scratch.write("from/huge", 40_000_000);
    let (mut child, job) = start(&scratch, &namespaces);
    wait_for("it is a job", |status| !jobs(status, &job).is_empty());
    let helper = scratch::helper_of(child.id());
    scratch::kill(child.id());
    child.wait().expect("it ends");
    helper.into_iter().for_each(scratch::kill);
    wait_for("it is none", |status| jobs(status, &job).is_empty());
}

/// Another host sends: the policy is for its connections.
#[test]
fn the_other_side_adapts_if_it_is_the_one_that_sends() {
    let Some(_alone) = alone() else {
        return;
    };
    let scratch = Scratch::new();
    let namespaces = namespaces::Namespaces::new();
    namespaces.shell(&scratch.path("shell"));
    scratch.write("from/huge", 40_000_000);
    let own = ["receive", "--policy", "lfn", "--rate", "24mbit"];
    let there = format!("b:{}", scratch.path("from/huge").display());
    let command = [&own[..], &[&there, "to/"]].concat();
    let child = namespaces
        .enter(&scratch.command_with_remote(&command))
        .spawn();
    let mut child = child.expect("it starts");
    let id = scratch.wait_until_running();
    let group = format!("mover-{id}");
    let streams = |status: &serde_json::Value| {
        let mut groups = status["groups"].as_array().into_iter().flatten();
        let own = groups.find(|own| own["name"] == *group);
        own.and_then(|own| own["streams"].as_u64())
    };
    wait_for("both in the group", |status| streams(status) >= Some(2));
    let set = ["transfers", "set", &id, "--rate", "none"];
    scratch.paceline(&set).ok();
    assert!(child.wait().expect("it ends").success());
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
    wait_for("its job is gone", |status| streams(status).is_none());
}
