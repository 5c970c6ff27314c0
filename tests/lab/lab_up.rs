// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labs that stay up, from outside: what is inside of them, what commands there see and
//! answer, several at once, and what is said when something is wrong.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::host::{interfaces, settings};
use common::lab::{self, assert_nothing_is_left, Lab, TopologyFile, TWO_CLUSTERS};
use common::{connect, is_root, output, paceline, transfer, Peer};
use serde_json::Value;

/// Twice the delay of the link.
const ROUND_TRIP_US: u32 = 10_000;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn peer(lab: &Lab, node: &str) -> Peer {
    let mut command = lab.command(node);
    command.arg(std::env::current_exe().unwrap());
    Peer::spawn(command)
}

#[test]
fn hosts_reach_each_other_as_far_as_the_link_is_long() {
    if !is_root() {
        return;
    }
    let lab = Lab::up("reach", TWO_CLUSTERS);
    let state = lab.state();
    let address = |node: &str, family: &str| {
        let nodes = state["nodes"].as_array().unwrap().iter();
        let mut named = nodes.filter(|other| other["name"] == node);
        named.next().unwrap()[family].as_str().unwrap().to_owned()
    };
    for family in ["ipv4", "ipv6"] {
        let (mut client, mut server) = (peer(&lab, "near0"), peer(&lab, "far1"));
        connect(&mut client, &mut server, &address("far1", family));
        let across: u32 = client.ask("round-trip-us").parse().unwrap();
        assert!(across >= ROUND_TRIP_US, "{family}: {across} us");
        transfer(&mut client, &mut server, 100_000);

        let mut neighbour = peer(&lab, "near1");
        connect(&mut client, &mut neighbour, &address("near1", family));
        for peer in [client, server, neighbour] {
            peer.end();
        }
    }
    // By its name, and the way it is meant to go: what near0 sends is counted there.
    let result = lab.shell("near0", "getent ahostsv4 far1");
    assert!(
        text(&result.stdout).starts_with(&address("far1", "ipv4")),
        "{result:?}"
    );
    let state = lab.state();
    assert!(state["wans"][0]["forward"]["traffic"]["carried_bytes"].as_u64() > Some(200_000));
    assert_eq!(state["routes"][0]["via"][0], "near-far");
}

#[test]
fn requested_settings_are_read_back() {
    if !is_root() {
        return;
    }
    let lab = Lab::up("read-back", TWO_CLUSTERS);
    let state = lab.state();
    let mut ports = BTreeMap::new();
    for port in state["ports"].as_array().unwrap() {
        let read = (&port["rate_bps"]["read"], &port["buffer_bytes"]["read"]);
        let toward = port["toward"].as_str().unwrap();
        ports.insert((port["node"].as_str().unwrap(), toward), read);
        assert_eq!(port["rate_bps"]["read"], port["rate_bps"]["asked"]);
        assert_eq!(port["buffer_bytes"]["read"], port["buffer_bytes"]["asked"]);
    }
    assert_eq!(ports.len(), 8);
    let far = (&Value::from(100_000_000), &Value::from(65_536));
    assert_eq!(ports[&("far", "far1")], far);
    assert_eq!(*ports[&("near1", "near")].0, 1_000_000_000);
    for way in ["forward", "reverse"] {
        let line = &state["wans"][0][way];
        assert_eq!(line["rate_bps"]["asked"], 200_000_000);
        // How much more depends on how busy this machine is.
        let delay = line["one_way_delay_s"]["read"].as_f64().unwrap();
        assert!(delay >= 0.005, "{delay}");
    }
    let key = "net.ipv4.tcp_slow_start_after_idle";
    assert_eq!(state["sysctl"][key]["read"], "0");
    let result = lab.shell("far1", &format!("cat /proc/sys/{}", key.replace('.', "/")));
    assert_eq!(text(&result.stdout), "0\n");
    // The page shows the same.
    let page = std::env::temp_dir().join(format!("{}.html", lab.name));
    let result = output(&["lab", "show", &lab.name, "--page", page.to_str().unwrap()]);
    assert!(result.status.success(), "{result:?}");
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    for shown in ["<svg", "near-far", "200 Mbit/s", "far1", key, "64 KiB"] {
        assert!(html.contains(shown), "{shown}");
    }
}

#[test]
fn all_connections_have_the_congestion_control_that_was_asked_for() {
    if !is_root() {
        return;
    }
    // Of two, one is not this machine's default, and no sysctl of a namespace may be it
    // unless the machine allows it.
    let default = "/proc/sys/net/ipv4/tcp_congestion_control";
    let before = std::fs::read_to_string(default).unwrap();
    let other = match before.trim() {
        "reno" => "cubic",
        _ => "reno",
    };
    let topology = format!("congestion = \"{other}\"\n{TWO_CLUSTERS}");
    let lab = Lab::up("congestion", &topology);
    let state = lab.state();
    assert_eq!(state["congestion"]["asked"], other);
    assert_eq!(state["congestion"]["read"], other);
    assert_eq!(std::fs::read_to_string(default).unwrap(), before);
    drop(lab);
    let lab = Lab::up("congestion", TWO_CLUSTERS);
    assert!(lab.state()["congestion"].is_null());
}

#[test]
fn a_full_switch_drops() {
    if !is_root() {
        return;
    }
    let lab = Lab::up("drop", TWO_CLUSTERS);
    // Both send into the queue towards far1, each as fast as that is drained.
    let mut receiver = peer(&lab, "far1");
    let port = receiver.ask("listen 10.2.0.2");
    let mut senders = [peer(&lab, "far0"), peer(&lab, "near0")];
    for sender in &mut senders {
        sender.ask(&format!("connect 10.2.0.2 {port}"));
        receiver.ask("accept");
    }
    let dropped = || {
        let state = lab.state();
        let ports = state["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["toward"] == "far1").unwrap();
        let dropped = &port["traffic"]["dropped_packets"];
        dropped.as_u64().expect("a number")
    };
    // On a busy machine one may be done before the other begins: again, then.
    let [first, second] = &mut senders;
    let rounds = (0..20).take_while(|_| {
        std::thread::scope(|scope| {
            scope.spawn(|| first.ask("send 3000000"));
            scope.spawn(|| second.ask("send 3000000"));
            receiver.ask("receive-on-all 3000000");
        });
        dropped() == 0
    });
    assert!(rounds.count() < 20, "nothing is dropped");
    senders.into_iter().for_each(Peer::end);
    receiver.end();
}

#[test]
fn exec_is_the_command() {
    if !is_root() {
        return;
    }
    let lab = Lab::up("exec", TWO_CLUSTERS);
    let mut child = lab
        .command("near1")
        .args(["sh", "-c", "cat; hostname; echo wrong >&2; exit 7"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let result = child.wait_with_output().unwrap();
    assert_eq!(result.status.code(), Some(7));
    assert_eq!(text(&result.stdout), "in\nnear1\n");
    assert_eq!(text(&result.stderr), "wrong\n");

    // No process of ours is between the caller and the command.
    let result = lab.shell("near1", "kill -TERM $$");
    assert_eq!(result.status.signal(), Some(libc::SIGTERM));
    // The caller's directory, and its cgroups, so that jobs can be made inside.
    let directory = std::env::current_dir().unwrap();
    let result = lab.shell(
        "far",
        "pwd; grep -c cgroup2 /proc/self/mountinfo; ls /sys/class/net",
    );
    let result = text(&result.stdout);
    let lines: Vec<&str> = result.lines().collect();
    assert_eq!(lines[0], directory.to_str().unwrap());
    assert_ne!(lines[1], "0");
    assert_eq!(lines[2..], ["lo", "port0", "port1", "switch", "wan0"]);
    // A command in there finds its own lab, and no other.
    let inner = format!(
        "{} lab exec far0 -- hostname",
        env!("CARGO_BIN_EXE_paceline")
    );
    assert_eq!(text(&lab.shell("near0", &inner).stdout), "far0\n");

    let code = |words: &[&str]| {
        lab.command("near0")
            .args(words)
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(code(&["no-such-program"]), Some(127));
    assert_eq!(code(&["/"]), Some(126));
    let inside = [env!("CARGO_BIN_EXE_paceline"), "lab", "down"];
    let result = lab.command("near0").args(inside).output().unwrap();
    assert!(text(&result.stderr).contains("from outside"), "{result:?}");
    let result = lab.command("nowhere").arg("true").output().unwrap();
    assert_eq!(result.status.code(), Some(125));
    let message = text(&result.stderr);
    assert!(
        message.contains("\"nowhere\"; it has near0, near1, far0"),
        "{message}"
    );
}

#[test]
fn several_labs_share_nothing() {
    if !is_root() {
        return;
    }
    let (one, two) = (Lab::up("one", TWO_CLUSTERS), Lab::up("two", TWO_CLUSTERS));
    let mut server = peer(&one, "far0");
    let port = server.ask("listen 10.2.0.1");
    let reaches = |lab: &Lab| {
        let script = format!("exec 3<>/dev/tcp/10.2.0.1/{port}");
        let mut command = lab.command("near0");
        command.args(["bash", "-c", &script]).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    assert!(reaches(&one));
    assert!(!reaches(&two), "the other lab has the same addresses");

    let names = text(&output(&["lab", "list"]).stdout);
    assert!(
        names.contains(&one.name) && names.contains(&two.name),
        "{names}"
    );
    let result = output(&["lab", "exec", "near0", "--", "true"]);
    assert_eq!(result.status.code(), Some(125));
    assert!(
        text(&result.stderr).contains("several labs are up"),
        "{result:?}"
    );
    let file = TopologyFile::new(&format!("{}-again", one.name), TWO_CLUSTERS);
    let result = output(&["lab", "up", file.path(), "--name", &one.name]);
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("is already up"), "{result:?}");

    let namespaces = lab::namespaces(&two.state());
    two.down();
    assert_nothing_is_left(&two.name, &namespaces, "down");
    assert!(reaches(&one));
    // Not there any more: success, which says so.
    let result = output(&["lab", "down", &two.name]);
    assert!(result.status.success(), "{result:?}");
    assert!(text(&result.stdout).contains(&format!("no lab {} was up", two.name)));
    server.end();
}

#[test]
fn of_two_with_one_name_one_comes_up() {
    if !is_root() {
        return;
    }
    let name = lab::name("race");
    let file = TopologyFile::new(&name, TWO_CLUSTERS);
    let start = || {
        let mut command = paceline();
        command.args(["lab", "up", file.path(), "--name", &name]);
        let (out, err) = (Stdio::piped(), Stdio::piped());
        command.stdout(out).stderr(err).spawn().unwrap()
    };
    let both = [start(), start()].map(|child| child.wait_with_output().unwrap());
    let _lab = Lab { name };
    let losers: Vec<_> = both
        .iter()
        .filter(|result| !result.status.success())
        .collect();
    assert_eq!(losers.len(), 1, "{both:?}");
    assert!(
        text(&losers[0].stderr).contains("is already up"),
        "{both:?}"
    );
}

/// Wherever it fails, nothing is there afterwards.
#[test]
fn errors_are_reported_and_nothing_is_left() {
    let name = lab::name("wrong");
    let message = |from: &str, to: &str, code: i32| {
        assert!(TWO_CLUSTERS.contains(from), "{from}");
        let file = TopologyFile::new(&name, &TWO_CLUSTERS.replacen(from, to, 1));
        let result = output(&["lab", "up", file.path(), "--name", &name]);
        assert_eq!(result.status.code(), Some(code), "{result:?}");
        text(&result.stderr)
    };
    let unknown = message("hosts = 2", "host = 2", 2);
    assert!(
        unknown.contains(".toml:4:1: cluster.host: unknown key, did you mean \"hosts\"?"),
        "{unknown}"
    );
    let bare = message("\"5ms\"", "5", 2);
    assert!(
        bare.contains(":17:17: wan.one_way_delay: 5 has no unit") && bare.contains("10ms"),
        "{bare}"
    );
    let result = output(&["lab", "up", "/no/such/file.toml"]);
    assert!(
        text(&result.stderr).contains("cannot read the topology"),
        "{result:?}"
    );
    if !is_root() {
        return;
    }
    let before = (settings(), interfaces());
    let refused = message("tcp_slow_start_after_idle", "no_such_setting", 1);
    assert!(refused.contains("no_such_setting in near0"), "{refused}");
    assert_nothing_is_left(&name, &[], "refused");
    assert_eq!((settings(), interfaces()), before);
    let result = output(&["lab", "exec", "--lab", &name, "near0", "--", "true"]);
    assert_eq!(result.status.code(), Some(125));
    assert!(
        text(&result.stderr).contains(&format!("no lab \"{name}\" is up")),
        "{result:?}"
    );
}

#[test]
fn ranks_are_spread_over_the_hosts_under_open_mpi() {
    ranks_are_spread("openmpi");
}

#[test]
fn ranks_are_spread_over_the_hosts_under_mpich() {
    ranks_are_spread("mpich");
}

fn ranks_are_spread(library: &str) {
    if !is_root() || !is_installed(library) {
        return;
    }
    let lab = Lab::up(library, TWO_CLUSTERS);
    let mpirun = |words: &[&str]| {
        let mut command = paceline();
        command.args(["lab", "mpirun", "--lab", &lab.name, "--mpi", library]);
        command.args(words).output().unwrap()
    };
    let result = mpirun(&["-np", "6", "--", "hostname"]);
    assert!(result.status.success(), "{result:?}");
    let names = text(&result.stdout);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["far0", "far1", "near0", "near0", "near1", "near1"]);

    let result = mpirun(&["-np", "2", "hostname"]);
    assert_eq!(result.status.code(), Some(125));
    assert!(
        text(&result.stderr).contains("-np 8 -- ./prog"),
        "{result:?}"
    );
    assert_ne!(mpirun(&["-np", "2", "--", "false"]).status.code(), Some(0));
}

/// In CI it must be.
fn is_installed(library: &str) -> bool {
    let mut command = Command::new(format!("mpirun.{library}"));
    command.arg("--version").env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    let installed = command
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .output()
        .is_ok_and(|result| result.status.success());
    if !installed {
        let is_ci = std::env::var("CI").as_deref() == Ok("true");
        assert!(!is_ci, "in CI both MPI libraries must be installed");
        println!("skipped: {library} is not installed");
    }
    installed
}
