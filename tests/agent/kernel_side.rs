// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel side in states that users meet rarely: a setting refused, and
//! another build's jobs at an upgrade.
//!
//! These tests write to the live kernel side, so they run in a guest of the virtual lab:
//! nothing that they do can reach a job of this machine.

#[path = "../common/mod.rs"]
mod common;

use common::guest::{guest, has_qemu};
use common::{alone, connect, job_alive, jobs, output, status, transfer, Net, SERVER4};
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

/// The kernel's maps of this name and type that hold something.
fn maps(name: &str, kind: MapType) -> Vec<MapHandle> {
    MapInfoIter::default()
        .filter(|info| info.name == name && info.ty == kind)
        .filter_map(|info| MapHandle::from_map_id(info.id).ok())
        .collect()
}

/// The live kernel side says that another build loaded it, from here on.
fn pretend_another_build() {
    let zero = 0u32.to_ne_bytes();
    let live: Vec<_> = maps("pl_meta", MapType::Array)
        .into_iter()
        .filter_map(|meta| Some((meta.lookup(&zero, MapFlags::ANY).ok()??, meta)))
        .filter(|(ours, _)| ours.iter().any(|byte| *byte != 0))
        .collect();
    let Ok([(ours, meta)]) = <[_; 1]>::try_from(live) else {
        panic!("one kernel side is live");
    };
    let other: Vec<u8> = ours.iter().map(|byte| byte ^ 0x55).collect();
    meta.update(&zero, &other, MapFlags::ANY).unwrap();
}

#[test]
fn the_states_that_users_meet_rarely() {
    if !has_qemu() {
        return;
    }
    let tests = std::env::current_exe().expect("this program");
    let tests = tests.to_str().expect("UTF-8");
    // In the guest none of the two may be skipped.
    let files = [
        "--file",
        env!("CARGO_BIN_EXE_paceline"),
        "--file",
        "/sbin/ip",
    ];
    let options = [&files[..], &["--env", "CI=true"]].concat();
    let command = [tests, "--ignored", "--skip", "peer_program", "--nocapture"];
    let output = guest("trixie", &options, &command);
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    assert!(text.contains("test result: ok. 2 passed"), "{text}{error}");
}

#[test]
#[ignore = "runs in a guest"]
fn a_refused_setting_leaves_the_connection_alone_and_shows() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut client = net.job(0, "pace");
    let mut server = net.peer(1);
    let (before, _) = connect(&mut client, &mut server, SERVER4);
    assert_eq!(before, "paceline_cubic");

    // Somebody takes the congestion control away (bpftool can): the kernel then
    // refuses its name, and connections that have it keep it.
    let removed = maps("paceline_cubic", MapType::StructOps)
        .iter()
        .filter(|map| map.delete(&0u32.to_ne_bytes()).is_ok())
        .count();
    assert_eq!(removed, 1);
    let (after, _) = connect(&mut client, &mut server, SERVER4);
    assert!(!after.starts_with("paceline"), "{after}");
    transfer(&mut client, &mut server, 100_000);

    let shown = jobs(&status(), &format!("paceline.{}.", client.process.id()));
    assert_eq!(
        (&shown[0]["governed"], &shown[0]["refused"]),
        (&1.into(), &1.into())
    );
    let connections = shown[0]["connections"].as_array().unwrap();
    let refused = connections
        .iter()
        .find(|connection| connection["reason"] == "refused")
        .expect("the refused connection is shown");
    assert_eq!(refused["errno"], libc::ENOENT);
    assert!(refused["why"].as_str().unwrap().contains("No such file"));

    // The next job registers it again.
    let mut next = net.job(0, "pace");
    assert_eq!(connect(&mut next, &mut server, SERVER4).0, "paceline_cubic");
    next.end();
    client.end();
    server.end();
}

#[test]
#[ignore = "runs in a guest"]
fn another_builds_jobs_are_named_and_its_remains_replaced() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut old = net.job(0, "pace");
    let mut server = net.peer(1);
    assert_eq!(connect(&mut old, &mut server, SERVER4).0, "paceline_cubic");
    let place = format!("paceline.{}.", old.process.id());

    pretend_another_build();
    let alive = job_alive().expect("tests do not run beside it");
    assert!(alive.contains(&place), "{alive}");

    for (arguments, code) in [(&["run", "--", "true"][..], 125), (&["status"], 1)] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("another Paceline build"), "{message}");
        assert!(message.contains(&place), "{message}");
    }
    // Its job is unharmed, and ends as any other.
    assert_eq!(connect(&mut old, &mut server, SERVER4).0, "paceline_cubic");
    old.end();
    let mut new = net.job(0, "pace");
    assert_eq!(connect(&mut new, &mut server, SERVER4).0, "paceline_cubic");
    assert!(jobs(&status(), &place).is_empty());
    new.end();
    server.end();
}
