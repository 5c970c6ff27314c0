// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stays of it: nothing.

use std::process::{Command, Stdio};

use libbpf_rs::libbpf_sys as sys;
use paceline_burst::Interface;

use crate::common::{is_root, paceline};
use crate::place::{inside, ip, tc, Burst, Place};

/// Programs that the kernel has at a hook of `eth0`, in a namespace.
fn attached(namespace: &str, hook: sys::bpf_attach_type) -> u32 {
    inside(namespace, || {
        let index = Interface::find("eth0").unwrap().index();
        let mut options = sys::bpf_prog_query_opts {
            sz: size_of::<sys::bpf_prog_query_opts>() as sys::size_t,
            ..Default::default()
        };
        // SAFETY: the options live across the call, and have no room for identifiers.
        let result = unsafe { sys::bpf_prog_query_opts(index as i32, hook, &mut options) };
        assert_eq!(result, 0);
        // SAFETY: plain number of a plain union.
        unsafe { options.__bindgen_anon_1.count }
    })
}

fn has_xdp(namespace: &str) -> bool {
    let output = Command::new("ip")
        .args(["-n", namespace, "-d", "link", "show", "eth0"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().contains("xdp")
}

#[test]
fn a_kill_leaves_nothing_at_tcx_and_xdp() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let host = &place.names[0];
    let both = [sys::BPF_TCX_INGRESS, sys::BPF_TCX_EGRESS];
    let interface = place.interface(0, "eth0");
    let tcx = Burst::start(&interface, &["--direction", "both"]);
    let xdp = Burst::start(&interface, &["--attach", "xdp"]);
    assert_eq!(both.map(|hook| attached(host, hook)), [1, 1]);
    assert!(has_xdp(host));
    for burst in [tcx, xdp] {
        burst.signal(libc::SIGKILL);
        let (_, status, _) = burst.finish();
        assert!(!status.success());
    }
    assert_eq!(both.map(|hook| attached(host, hook)), [0, 0]);
    assert!(!has_xdp(host));
}

#[test]
fn filters_of_a_killed_run_are_removed_at_the_next_start() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let host = &place.names[0];
    let interface = place.interface(0, "eth0");
    let start = || Burst::start(&interface, &["--attach", "tc", "--direction", "both"]);
    let filters = || {
        ["ingress", "egress"].map(|side| {
            let text = tc(host, &format!("filter show dev eth0 {side}"));
            text.matches("direct-action").count()
        })
    };
    let killed = start();
    killed.signal(libc::SIGKILL);
    killed.finish();
    assert_eq!(filters(), [1, 1]);
    let first = start();
    assert_eq!(filters(), [1, 1]);
    let second = start();
    assert_eq!(filters(), [2, 2]);
    for (burst, left) in [(first, 1), (second, 0)] {
        burst.signal(libc::SIGTERM);
        assert_eq!(burst.end()["reason"], "interrupted");
        assert_eq!(filters(), [left, left]);
    }
    // The discipline that the killed one made has gone with the last of them.
    assert!(!tc(host, "qdisc show dev eth0").contains("clsact"));
    // And somebody else's stays.
    tc(host, "qdisc add dev eth0 clsact");
    let burst = start();
    burst.signal(libc::SIGINT);
    burst.end();
    assert!(tc(host, "qdisc show dev eth0").contains("clsact"));
}

#[test]
fn a_run_ends_with_its_interface() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    for hook in ["tcx", "tc", "xdp"] {
        let burst = Burst::start(&place.interface(0, "eth0"), &["--attach", hook]);
        ip(&format!("-n {} link delete eth0", place.names[0]));
        let (_, status, error) = burst.finish();
        assert_eq!(status.code(), Some(1));
        assert!(error.contains("the interface is gone"), "{error}");
        let [a, b] = [&place.names[0], &place.names[1]];
        ip(&format!(
            "-n {a} link add eth0 type veth peer name eth0 netns {b}"
        ));
        ip(&format!("-n {a} link set eth0 up"));
        ip(&format!("-n {b} link set eth0 up"));
    }
}

#[test]
fn people_get_a_table_and_a_reader_may_go() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let interface = place.interface(0, "eth0");
    let arguments = ["burst", "--dev", &interface, "--window", "1ms"];
    let output = paceline()
        .args(arguments)
        .args(["--windows", "64"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for wanted in ["all packets", "since the start", "c.o.v.", "8ms"] {
        assert!(text.contains(wanted), "{text}");
    }
    let mut child = paceline()
        .args(arguments)
        .arg("--json")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
