// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of parallel streams, from outside: the socket options of a program that knows
//! nothing of Paceline, what leaves the host under a bound, and who can reach whom.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::agent::{group_id, Agent, GROUP, OTHER_USER, USER};
use crate::common::lab::Lab;
use crate::common::noise::measured;
use crate::common::service::Service;
use crate::common::streams::{connect, streams, Program};
use crate::common::{alone, is_root, output, paceline, status, Net, PolicyFile, SERVER4};
use paceline_agent::group::{Bounds, Group, Stream};
use serde_json::Value;

/// A path with a round trip, and a queue that holds what the window holds beyond it.
pub const LONG_PATH: &str = r#"
[[cluster]]
name = "near"
hosts = 1
switch_buffer = "4MiB"

[[cluster]]
name = "far"
hosts = 1
switch_buffer = "4MiB"

[[wan]]
from = "near"
to = "far"
rate = "50mbit"
one_way_delay = "20ms"
buffer = "1MiB"
"#;

#[test]
fn a_program_names_a_group_lists_it_and_bounds_it() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut client = Program::in_job(&net, 0, &["--policy", "lfn"]);
    let mut server = Program::without(&net, 1);
    connect(&mut client, &mut server, SERVER4);

    // In no group: nothing to see, nothing to bound.
    assert_eq!(client.error("info"), "ENOTCONN");
    assert_eq!(client.error("limits 0 10 1000"), "ENOTCONN");
    assert_eq!(client.error("attach bulk"), "none");
    assert_eq!(client.error("bytes 123456789"), "none");
    let info = client.ask("info");
    assert_eq!((&info["members"], &info["pages"]), (&1.into(), &1.into()));
    assert_eq!(streams(&info)[0]["total"], 123_456_789);

    // Before connect; and the connections that a listener accepts.
    let port = server.ask(&format!("listen {SERVER4}"))["port"].to_string();
    client.ask(&format!("connect-in-group {SERVER4} {port} bulk"));
    server.ask("accept-and-receive");
    let info = client.ask("info");
    assert_eq!(streams(&info).len(), 2, "{info}");
    let port = client.ask("listen-in-group 10.98.0.1 bulk")["port"].to_string();
    server.ask(&format!("connect 10.98.0.1 {port}"));
    client.ask("accept");
    assert_eq!(client.ask("info")["members"], 3);

    // What it says of them.
    client.ask("send 100000");
    let info = client.ask("info");
    let cookies: std::collections::BTreeSet<u64> = streams(&info)
        .iter()
        .map(|stream| stream["cookie"].as_u64().unwrap())
        .collect();
    assert_eq!(cookies.len(), 3, "{info}");
    assert!(streams(&info).iter().any(|stream| stream["mss"] == 1448));

    // Bounds, and what is none.
    assert_eq!(client.error("limits 2 10 60000"), "none");
    let info = client.ask("info");
    assert_eq!((&info["min"], &info["max"]), (&2.into(), &10.into()));
    assert!((1..=60_000).contains(&info["lease_ms"].as_u64().unwrap()));
    for wrong in [
        "limits 11 10 1000",
        "limits 0 10 0",
        "limits 0 10 3600001",
        "raw-limits 0 0 0 0 0 0",
        "raw-limits 4 0 0 0 0 0",
        "raw-limits 2 0 0 10 1000 1",
        "raw-limits 2 0 0 10 1000",
        "page 205",
        "attach 0123456789012345678901234567890x",
        "attach a\\nb",
        "info 16",
    ] {
        assert_eq!(client.error(wrong), "EINVAL", "{wrong}");
    }
    assert_eq!(client.ask("info")["max"], 10, "and changes nothing");
    assert_eq!(client.error("limits 0 0 0"), "none");
    assert_eq!(client.ask("info")["max"], 0);
    // A short buffer gets as many as fit.
    assert_eq!(streams(&client.ask("info 128")).len(), 2);

    // Status knows it, too.
    let shown = status();
    assert_eq!(shown["groups"][0]["name"], "bulk");
    assert_eq!(shown["groups"][0]["streams"], 3);

    // Out of the group again, by name and by closing.
    assert_eq!(client.error("attach"), "none");
    assert_eq!(client.error("info"), "ENOTCONN");
    client.ask("close");
    assert_eq!(client.ask("info")["members"], 2);
    client.end();
    server.end();
}

#[test]
fn a_large_group_comes_page_by_page() {
    if !is_root() {
        return;
    }
    const STREAMS: usize = 150;
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut client = Program::in_job(&net, 0, &["--policy", "standard", "--group", "many"]);
    let mut server = Program::without(&net, 1);
    let port = server.ask(&format!("listen {SERVER4}"))["port"].to_string();
    client.ask(&format!("connect-many {SERVER4} {port} {STREAMS}"));
    server.ask(&format!("accept-many {STREAMS}"));
    let mut cookies = std::collections::BTreeSet::new();
    for page in 0..8 {
        assert_eq!(client.error(&format!("page {page}")), "none");
        let info = client.ask("info");
        assert_eq!((&info["page"], &info["pages"]), (&page.into(), &8.into()));
        assert_eq!(info["members"], STREAMS);
        cookies.extend(
            streams(&info)
                .iter()
                .map(|stream| stream["cookie"].as_u64()),
        );
    }
    assert_eq!(cookies.len(), STREAMS);
    // Places are used again, and the lists do not grow. A connection has its place until
    // the other end has closed as well.
    server.ask("close-all");
    client.ask("close-all");
    client.ask(&format!("connect {SERVER4} {port}"));
    while client.ask("info")["members"] != 1 {}
    let more = STREAMS - 1;
    client.ask(&format!("connect-many {SERVER4} {port} {more}"));
    assert_eq!(client.ask("info")["pages"], 8);
    client.end();
    server.end();
}

#[test]
fn foreign_options_are_as_without_paceline() {
    if !is_root() {
        return;
    }
    // TCP_INFO, TCP_CONGESTION, TCP_MAXSEG, an unknown one; SO_SNDBUF, SO_RCVBUF, SO_COOKIE;
    // and IPT_SO_GET_INFO, SO_GET_ENTRIES: large ones that most kernels refuse for TCP.
    const GETS: [(i32, i32); 10] = [
        (6, 11),
        (6, 13),
        (6, 2),
        (6, 0x504c7f),
        (1, 7),
        (1, 8),
        (1, 57),
        (0, 64),
        (0, 65),
        (0, 1),
    ];
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut inside = Program::in_job(&net, 0, &["--policy", "rto"]);
    let mut outside = Program::without(&net, 0);
    let mut server = Program::without(&net, 1);
    for program in [&mut inside, &mut outside] {
        connect(program, &mut server, SERVER4);
    }
    for (level, name) in GETS {
        for size in [4, 256, 4096, 70_000] {
            let what = format!("get {level} {name} {size}");
            assert_eq!(inside.ask(&what), outside.ask(&what), "{what}");
        }
    }
    // TCP_NODELAY, SO_SNDBUF, TCP_CONGESTION of nothing, an unknown one, IPT_SO_SET_REPLACE.
    for (level, name) in [(6, 1), (1, 7), (6, 13), (6, 0x504c7f), (0, 64)] {
        for size in [0, 4, 4096, 200_000] {
            let what = format!("set {level} {name} {size}");
            assert_eq!(inside.ask(&what), outside.ask(&what), "{what}");
        }
    }
    // Outside of a job there are no such options; where the kernel's own algorithm stays
    // there is nothing to bound.
    for (what, there, here) in [
        ("attach bulk", "ENOPROTOOPT", "EOPNOTSUPP"),
        ("limits 0 10 1000", "ENOPROTOOPT", "EOPNOTSUPP"),
        ("bytes 1000", "ENOPROTOOPT", "none"),
        ("info", "ENOPROTOOPT", "EOPNOTSUPP"),
    ] {
        assert_eq!(outside.error(what), there, "{what}");
        assert_eq!(inside.error(what), here, "{what}");
    }
    for program in [inside, outside, server] {
        program.end();
    }
}

/// A policy that fixes it leaves nothing to bound.
#[test]
fn a_fixed_window_comes_into_no_group() {
    let Some(_alone) = alone() else {
        return;
    };
    let policy = PolicyFile::new("fixed", "base = \"cubic\"\nwindow.fixed = 30\n");
    let net = Net::new();
    let mut client = Program::in_job(&net, 0, &["--policy", policy.path()]);
    let mut server = Program::without(&net, 1);
    connect(&mut client, &mut server, SERVER4);
    assert_eq!(client.error("attach bulk"), "EOPNOTSUPP");
    client.end();
    server.end();
}

/// A program each of two users, with a connection in what both call "same".
fn of_two_users(net: &Net, agent: &Agent, server: &mut Program) -> Vec<Program> {
    let arguments = ["--policy", "pace", "--group", "same", "--"];
    [USER, OTHER_USER]
        .map(|user| {
            let mut program = Program::spawn(agent.run(user, Some(net), &arguments));
            connect(&mut program, server, SERVER4);
            program
        })
        .into()
}

#[test]
fn nobody_sees_or_bounds_anothers_group() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let agent = Agent::start();
    let mut server = Program::without(&net, 1);
    let mut programs = of_two_users(&net, &agent, &mut server);
    for program in &mut programs {
        assert_eq!(program.ask("info")["members"], 1);
    }
    assert_eq!(programs[0].error("limits 0 5 60000"), "none");
    assert_eq!(programs[0].ask("info")["max"], 5);
    assert_eq!(programs[1].ask("info")["max"], 0);

    // Nor by the agent, which goes by who connects: here root.
    let directory = agent.place.join("run");
    let mut roots = Group::by_agent("same", &directory).expect("the agent answers");
    assert_eq!(roots.streams().expect("it answers"), []);
    let theirs = |user| {
        let mut group = Group::of_owner("same", user).expect("we are root");
        group.streams().expect("read")
    };
    let [stream] = &theirs(USER)[..] else {
        panic!("one stream");
    };
    let bounds = [Bounds {
        cookie: stream.cookie,
        min_segs: 0,
        max_segs: 3,
    }];
    let applied = roots.apply(&bounds, Duration::from_secs(60));
    assert_eq!(applied.expect("it answers"), 0);
    assert_eq!(theirs(USER)[0].max_segs, 0);
    // Who connects reaches its own streams.
    let mut program = Program::in_job(&net, 0, &["--policy", "pace", "--group", "same"]);
    connect(&mut program, &mut server, SERVER4);
    let [stream] = &roots.streams().expect("it answers")[..] else {
        panic!("one stream");
    };
    let own_bounds = [Bounds {
        cookie: stream.cookie,
        min_segs: 2,
        max_segs: 4,
    }];
    let applied = roots.apply(&own_bounds, Duration::from_secs(60));
    assert_eq!(applied.expect("it answers"), 1);
    let bounded = &roots.streams().expect("it answers")[0];
    assert_eq!((bounded.min_segs, bounded.max_segs), (2, 4));
    programs.push(program);
    let mut own = Group::of_owner("same", USER).expect("we are root");
    let applied = own.apply(&bounds, Duration::from_secs(60));
    assert_eq!(applied.expect("applied"), 1);
    assert_eq!(theirs(USER)[0].max_segs, 3);
    assert_eq!(theirs(OTHER_USER)[0].max_segs, 0);
    for program in programs {
        program.end();
    }
    server.end();
}

/// Two users' programs in one service, by their sockets alone: what one names as the other
/// does is another group.
#[test]
fn in_an_attached_cgroup_each_users_streams_are_its_own() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let service = Service::new();
    let mut server = Program::without(&net, 1);
    let mut programs = [USER, USER, OTHER_USER].map(|user| {
        let user = user.to_string();
        let mut command = Command::new("setpriv");
        // Where every user finds a python.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.args(["--clear-groups", "--regid", &user, "--reuid", &user, "--"]);
        net.enter(0, &mut command);
        let program = Program::spawn(command);
        service.add(&program.process.id().to_string());
        program
    });
    let attached = output(&["attach", "--cgroup", service.path(), "--policy", "pace"]);
    assert!(attached.status.success(), "{attached:?}");
    for program in &mut programs {
        connect(program, &mut server, SERVER4);
        assert_eq!(program.error("attach same"), "none");
    }
    let [own, fellow, other] = &mut programs;
    assert_eq!(own.ask("info")["members"], 2, "of one user");
    assert_eq!(other.ask("info")["members"], 1);

    assert_eq!(own.error("limits 0 5 60000"), "none");
    assert_eq!(fellow.ask("info")["max"], 5, "one group of one user");
    assert_eq!(other.ask("info")["max"], 0);
    assert_eq!(other.error("limits 7 9 60000"), "none");
    assert_eq!(own.ask("info")["max"], 5);

    // What leaves is bounded likewise.
    let largest = |program: &mut Program| {
        program.ask("send 3000000");
        let info = program.ask("info");
        let windows = streams(&info).iter().map(|stream| stream["uwnd"].as_u64());
        windows.max().flatten().expect("a stream")
    };
    assert_eq!((largest(own), largest(other)), (5, 9));
    for program in programs {
        program.end();
    }
    server.end();
}

/// `paceline coordinate`, of a user, at a socket.
fn coordinate(agent: &Agent, user: u32, arguments: &[&str], socket: &Path) -> Ended {
    let mut command = agent.as_user(user, Some(group_id(GROUP)), None);
    command.arg("coordinate").args(arguments).arg(socket);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ended(command.spawn().expect("it starts"))
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_user_without_root_has_its_own_streams_coordinated() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let agent = Agent::start();
    let mut server = Program::without(&net, 1);
    let programs = of_two_users(&net, &agent, &mut server);
    let place = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(place.path(), Some(USER), Some(USER)).expect("ours");
    let socket = place.path().join("socket");
    let serve = ["serve", "--algorithm", "none:period=50ms", "--listen"];
    let _server_of_user = coordinate(&agent, USER, &serve, &socket);
    let directory = agent.place.join("run");
    let directory = directory.to_str().expect("text");
    let join = ["join", "--group", "same", "--agent", directory, "--to"];
    let _client = coordinate(&agent, USER, &join, &socket);
    // Two connections are in groups of that name; one of them is the user's.
    let streams_seen = || {
        let mut command = agent.as_user(USER, None, None);
        command.args(["coordinate", "status", "--json", "--to"]);
        let output = command.arg(&socket).output().expect("it starts");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["groups"][0]["clients"][0]["streams"].as_u64()
    };
    let mut seen = streams_seen();
    for _ in 0..6000 {
        if seen.is_some_and(|streams| streams > 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        seen = streams_seen();
    }
    assert_eq!(seen, Some(1));

    // Who may run no jobs has none to join with; and the coordinator is nobody else's.
    let mut stranger = agent.as_user(USER, None, None);
    stranger.args([
        "coordinate",
        "join",
        "--group",
        "same",
        "--agent",
        directory,
    ]);
    let stranger = stranger
        .arg("--to")
        .arg(&socket)
        .output()
        .expect("it starts");
    assert_eq!(stranger.status.code(), Some(1));
    let message = String::from_utf8_lossy(&stranger.stderr);
    assert!(message.contains("may run jobs"), "{message}");
    let mut refused = coordinate(&agent, OTHER_USER, &["status", "--to"], &socket);
    assert!(!refused.0.wait().expect("it ends").success());
    for program in programs {
        program.end();
    }
    server.end();
}

/// A sender on a path of 40 ms, by a policy, and the receiver.
fn long_transfer(lab: &Lab, base: &str) -> (Program, Program, String) {
    let policy = PolicyFile::new("group", &format!("base = \"{base}\"\n"));
    let mut command = paceline();
    command
        .args(["run", "--policy", policy.path(), "--group", "long", "--"])
        .arg(env!("CARGO_BIN_EXE_paceline"))
        .args(["lab", "exec", "--lab", &lab.name, "near0", "--"]);
    let mut client = Program::spawn(command);
    let mut server = Program::spawn(lab.command("far0"));
    // The job has read it by the time that its program answers.
    client.ask("sleep-ms 0");
    drop(policy);
    let state = lab.state();
    let nodes = state["nodes"].as_array().unwrap();
    let far = nodes.iter().find(|node| node["name"] == "far0").unwrap();
    let address = far["ipv4"].as_str().expect("an address").to_owned();
    let port = connect(&mut client, &mut server, &address);
    (client, server, port)
}

fn group(owner: u32) -> Group {
    Group::of_owner("long", owner).expect("we are root")
}

fn only(group: &mut Group) -> Stream {
    let streams = group.streams().expect("read");
    assert_eq!(streams.len(), 1, "{streams:?}");
    streams.into_iter().next().unwrap()
}

/// Until the only stream of the group is as it should be; gives up after a minute of
/// looks, as any test does that waits on a condition.
fn until(group: &mut Group, what: &str, done: impl Fn(&Stream) -> bool) -> Stream {
    for _ in 0..6000 {
        let stream = only(group);
        if done(&stream) {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never came: {what}: {:?}", only(group));
}

#[test]
fn inflight_never_exceeds_a_cap_and_its_end_is_no_burst() {
    if !is_root() {
        return;
    }
    const CAP: u32 = 20;
    let Some(_alone) = alone() else {
        return;
    };
    let lab = Lab::up("cap", LONG_PATH);
    for base in ["cubic", "reno", "bbr"] {
        let (mut client, server, port) = long_transfer(&lab, base);
        let mut group = group(0);
        client.ask("keep-sending");
        let before = until(&mut group, "a window", |stream| stream.cwnd_segs >= 150);
        let bounds = [Bounds {
            cookie: before.cookie,
            min_segs: 0,
            max_segs: CAP,
        }];
        let lease = Duration::from_secs(120);
        assert_eq!(group.apply(&bounds, lease).expect("applied"), 1);
        let capped = until(&mut group, "the cap", |stream| stream.inflight_segs <= CAP);
        assert_eq!(capped.max_segs, CAP);
        // What was in flight when the cap came is acknowledged.
        client.ask("sleep-ms 300");
        // A busy machine's capture may lose packets, and then says so.
        measured(&format!("what {base} has in flight under a cap"), || {
            client.ask(&format!("capture {port}"));
            client.ask("sleep-ms 1500");
            let found = client.ask("captured");
            let inflight = found["inflight"].as_u64().unwrap();
            if found["dropped"] == 0 && inflight > 0 {
                assert!(inflight <= u64::from(CAP) * 1448, "{base}: {found}");
                return Ok(());
            }
            Err(found.to_string())
        });
        // The algorithm's own window did not grow meanwhile.
        let held = only(&mut group);
        if base != "bbr" {
            assert!(
                held.cwnd_segs <= before.cwnd_segs.max(capped.cwnd_segs),
                "{base}: {held:?}"
            );
            assert_eq!(held.uwnd_segs, Some(CAP), "{base}");
        }

        // It goes by itself; what is added leaves in no burst of half of it. Where this host
        // stops a while meanwhile, ACKs come at once: one of some ends has to show it.
        let short = Duration::from_millis(400);
        let paced = (0..5).any(|_| {
            assert_eq!(group.apply(&bounds, lease).expect("applied"), 1);
            let held = until(&mut group, "the cap", |stream| stream.inflight_segs <= CAP);
            assert_eq!(group.apply(&bounds, short).expect("applied"), 1);
            client.ask(&format!("capture {port}"));
            let free = until(&mut group, "the lease's end", |stream| {
                stream.max_segs == 0 && stream.uwnd_segs.is_none() && stream.inflight_segs > 2 * CAP
            });
            client.ask("sleep-ms 300");
            let found = client.ask("captured");
            println!(
                "{base}: own window {} held {}, then {}: {found}",
                before.cwnd_segs, held.cwnd_segs, free.inflight_segs
            );
            assert!(found["inflight"].as_u64().unwrap() > 2 * u64::from(CAP) * 1448);
            let added = u64::from(held.cwnd_segs - CAP) * 1448;
            base == "bbr" || found["burst"].as_u64().unwrap() < added / 2
        });
        assert!(paced, "{base}: the end of a cap is a burst");
        client.end();
        server.end();
    }
}

#[test]
fn a_lift_is_seen_on_the_wire_and_ends_with_its_lease() {
    if !is_root() {
        return;
    }
    const LIFT: u32 = 120;
    let Some(_alone) = alone() else {
        return;
    };
    let lab = Lab::up("lift", LONG_PATH);
    let (mut client, server, _) = long_transfer(&lab, "cubic");
    let mut group = group(0);
    // A window of 10, held by a cap of the group's own until the lift comes.
    assert_eq!(client.error("limits 0 10 60000"), "none");
    client.ask("keep-sending");
    let held = until(&mut group, "the cap", |stream| stream.uwnd_segs == Some(10));
    assert!(held.inflight_segs <= 10, "{held:?}");
    // A machine that stops for a second sees nothing of a lift of a second.
    measured("the lift", || {
        assert_eq!(client.error(&format!("limits {LIFT} {LIFT} 1000")), "none");
        for _ in 0..100 {
            if only(&mut group).inflight_segs > LIFT * 3 / 4 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!("{:?}", only(&mut group)))
    });
    // The lease ends, and with it every limit.
    while client.ask("info")["max"] != 0 {}
    until(&mut group, "the end", |stream| {
        stream.cwnd_segs > LIFT && stream.uwnd_segs.is_none()
    });
    client.end();
    server.end();
}
