// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel side in states that users meet rarely: a setting refused, and
//! another build's jobs at an upgrade.

mod common;

use common::{alone, connect, is_root, jobs, output, status, transfer, Net, SERVER4};
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

/// The kernel's maps of this name and type that hold something.
fn maps(name: &str, kind: MapType) -> Vec<MapHandle> {
    MapInfoIter::default()
        .filter(|info| info.name == name && info.ty == kind)
        .filter_map(|info| MapHandle::from_map_id(info.id).ok())
        .collect()
}

#[test]
fn a_refused_setting_leaves_the_connection_alone_and_shows() {
    if !is_root() {
        return;
    }
    let _alone = alone();
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
fn another_builds_jobs_are_named_and_its_remains_replaced() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let net = Net::new();
    let mut old = net.job(0, "pace");
    let mut server = net.peer(1);
    assert_eq!(connect(&mut old, &mut server, SERVER4).0, "paceline_cubic");
    let place = format!("paceline.{}.", old.process.id());

    // As if another build had loaded it.
    let mut rewritten = 0;
    for meta in maps("pl_meta", MapType::Array) {
        let value = meta
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap();
        if value.iter().any(|byte| *byte != 0) {
            let other: Vec<u8> = value.iter().map(|byte| byte ^ 0x55).collect();
            meta.update(&0u32.to_ne_bytes(), &other, MapFlags::ANY)
                .unwrap();
            rewritten += 1;
        }
    }
    assert_eq!(rewritten, 1);

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
