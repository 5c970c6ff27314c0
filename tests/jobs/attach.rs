// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline attach` and `detach`: a policy for what runs already.

use crate::common::service::Service;
use crate::common::{alone, connect, jobs, output, status, transfer, Net, Peer, SERVER4, SERVER6};

/// A cgroup with a client in it, and a server outside.
fn serving() -> (Net, Service, Peer, Peer) {
    let net = Net::new();
    let service = Service::new();
    let (mut client, server) = (net.peer(0), net.peer(1));
    service.add(&client.ask("pid"));
    (net, service, client, server)
}

#[test]
fn existing_connections_come_under_the_policy_and_go_back() {
    let Some(_alone) = alone() else {
        return;
    };
    let (_net, service, mut client, mut server) = serving();
    for address in [SERVER4, SERVER6] {
        let (before, _) = connect(&mut client, &mut server, address);

        let attached = output(&["attach", "--cgroup", service.path(), "--policy", "lfn"]);
        assert!(attached.status.success(), "{attached:?}");
        assert_eq!(client.ask("congestion"), "paceline_cubic");
        let shown = jobs(&status(), service.path());
        assert_eq!(shown[0]["attached"], true);
        let connections = shown[0]["connections"].as_array().unwrap();
        let is_it = |connection: &serde_json::Value| {
            connection["remote"].as_str().unwrap().contains(address)
        };
        assert!(connections.iter().any(is_it), "{address}: {connections:?}");

        let twice = output(&["attach", "--cgroup", service.path()]);
        assert_eq!(twice.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&twice.stderr).contains("already has policy lfn"));

        let detached = output(&["detach", "--cgroup", service.path()]);
        assert!(detached.status.success(), "{detached:?}");
        assert_eq!(client.ask("congestion"), before);
        assert!(jobs(&status(), service.path()).is_empty());
    }
    client.end();
    server.end();
}

#[test]
fn the_timeout_of_an_existing_connection_comes_down_and_stays_there() {
    let Some(_alone) = alone() else {
        return;
    };
    let (_net, service, mut client, mut server) = serving();
    connect(&mut client, &mut server, SERVER4);
    let attach = ["attach", "--cgroup", service.path(), "--policy", "lfn"];
    let rto_us = || {
        let shown = jobs(&status(), service.path());
        shown[0]["connections"][0]["rto_us"].as_u64().unwrap()
    };

    assert!(output(&attach).status.success());
    assert!(rto_us() >= 200_000);
    // By a quarter of the difference in each round trip.
    for _ in 0..30 {
        transfer(&mut client, &mut server, 20_000);
    }
    let short = rto_us();
    assert!(short < 100_000, "{short}");

    // The kernel raises no RTO of a connection that exists.
    assert!(output(&["detach", "--cgroup", service.path()])
        .status
        .success());
    transfer(&mut client, &mut server, 20_000);
    assert!(output(&attach).status.success());
    assert!(rto_us() < 100_000);
    client.end();
    server.end();
}

#[test]
fn new_connections_of_an_attached_cgroup_are_adapted() {
    let Some(_alone) = alone() else {
        return;
    };
    let (_net, service, mut client, mut server) = serving();
    let attached = output(&["attach", "--cgroup", service.path(), "--policy", "pace"]);
    assert!(
        String::from_utf8_lossy(&attached.stdout).contains("now follow it: 0"),
        "{attached:?}"
    );
    let (active, _) = connect(&mut client, &mut server, SERVER4);
    assert_eq!(active, "paceline_cubic");
    let detached = output(&["detach", "--cgroup", service.path()]);
    assert!(
        String::from_utf8_lossy(&detached.stdout).contains("have their former settings again: 1"),
        "{detached:?}"
    );
    client.end();
    server.end();
}

#[test]
fn a_connection_that_set_does_not_reach_is_counted() {
    let Some(_alone) = alone() else {
        return;
    };
    let (_net, service, mut client, mut server) = serving();
    assert!(output(&["attach", "--cgroup", service.path()])
        .status
        .success());
    connect(&mut client, &mut server, SERVER4);
    let set = |value: &str| {
        let output = output(&["set", service.path(), value]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let earlier = || {
        let job = &jobs(&status(), service.path())[0];
        (job["generation"].clone(), job["earlier"].clone())
    };
    assert!(set("ack.delay=12ms").contains("1 running connection changed"));
    assert_eq!(earlier(), (1.into(), 0.into()));
    // Its process leaves, and nobody is left who tells where its sockets are.
    let own = crate::common::own_cgroup().join("cgroup.procs");
    std::fs::write(own, client.ask("pid")).unwrap();
    assert!(set("ack.delay=16ms").contains("0 running connections changed"));
    assert_eq!(earlier(), (2.into(), 1.into()));
    let shown = output(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("connections that still have an earlier policy: 1"),
        "{shown}"
    );
    // Once it is there again it gets what is newest.
    service.add(&client.ask("pid"));
    assert!(set("ack.delay=20ms").contains("1 running connection changed"));
    assert_eq!(earlier(), (3.into(), 0.into()));
    client.end();
    server.end();
}

#[test]
fn a_listener_of_another_cgroup_is_named_with_what_it_accepts() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let service = Service::new();
    let (mut client, mut server) = (net.peer(0), net.peer(1));
    // It listens, and has a connection, before it comes in.
    connect(&mut client, &mut server, SERVER4);
    let port = server.ask(&format!("listen {SERVER4}"));
    service.add(&server.ask("pid"));
    let attached = output(&["attach", "--cgroup", service.path(), "--policy", "pace"]);
    let stderr = String::from_utf8_lossy(&attached.stderr).into_owned();
    let listens = format!("listens at {SERVER4}:{port} with a socket of ");
    assert!(
        attached.status.success() && stderr.contains(&listens),
        "{attached:?}"
    );
    assert!(stderr.contains("has 1 connections of"), "{stderr}");
    let shown = &jobs(&status(), service.path())[0]["warnings"];
    assert!(shown[0].as_str().unwrap().contains(&listens), "{shown}");

    // So it is; one that is made inside is reached, and of no interest.
    client.ask(&format!("connect {SERVER4} {port}"));
    assert!(!server.ask("accept").starts_with("paceline"));
    let (_, inside) = connect(&mut client, &mut server, SERVER4);
    assert_eq!(inside, "paceline_cubic");
    let shown = jobs(&status(), service.path())[0]["warnings"].to_string();
    assert!(!shown.contains("listens at"), "{shown}");
    client.end();
    server.end();
}

#[test]
fn the_whole_host_is_attached_by_its_name_only() {
    let Some(_alone) = alone() else {
        return;
    };
    let refused = output(&["attach", "--cgroup", "/"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(stderr.contains("--whole-host"), "{stderr}");
    assert!(status()["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .all(|job| job["attached"] != true));
    let long = "x".repeat(32);
    for command in [
        &["run", "--group", &long, "--", "true"][..],
        &["attach", "--cgroup", "/", "--group", &long],
    ] {
        let refused = output(command);
        assert!(!refused.status.success(), "{refused:?}");
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(stderr.contains("1 to 31 bytes"), "{stderr}");
    }
}

#[test]
fn an_attached_cgroup_that_goes_is_forgotten() {
    let Some(_alone) = alone() else {
        return;
    };
    let service = Service::new();
    assert!(output(&["attach", "--cgroup", service.path()])
        .status
        .success());
    assert_eq!(jobs(&status(), service.path()).len(), 1);
    std::fs::remove_dir(&service.0).unwrap();
    let left = status();
    assert!(
        left["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|job| !job["cgroup"].is_null()),
        "{left}"
    );
}

#[test]
fn directories_that_are_not_cgroups_or_not_attached_are_refused() {
    let Some(_alone) = alone() else {
        return;
    };
    let service = Service::new();
    for (arguments, message) in [
        (["attach", "--cgroup", "/tmp"], "not a cgroup v2 directory"),
        (["detach", "--cgroup", service.path()], "was not attached"),
    ] {
        let output = output(&arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(message),
            "{output:?}"
        );
    }
}
