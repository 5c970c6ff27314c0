// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline set`: ACKs and the window of a running connection; jobs of users.

#[path = "../common/mod.rs"]
mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use common::agent::{directory_of, Agent, GROUP, OTHER_USER, USER};
use common::capture::Capture;
use common::guest::{tests_in_guest, UNRELEASED};
use common::noise::measured;
use common::setting::{connected, id_of, job_of, key, of_all, set, stderr, stdout};
use common::{alone, connect, output, transfer, Net, PolicyFile, SERVER4};

/// Quick and held ACKs, a fixed window: under way, and back.
#[test]
fn tuning_of_the_congestion_control_changes_on_running_connections() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let policy = PolicyFile::new("plain", "base = \"cubic\"\n");
    let (mut client, mut server) = connected(&net, policy.path(), 1);
    let id = id_of(&client);
    for (change, quick, control) in [
        (&["ack.every=1"][..], "on", "paceline_cubic"),
        (&["ack.every=4"], "none", "cubic"),
        (
            &["window.fixed=30", "socket.nodelay=true"],
            "none",
            "paceline_cubic",
        ),
        (&["--reset"], "none", "cubic"),
    ] {
        let changed = set(&id, change);
        assert!(
            stdout(&changed).contains("1 running connection changed"),
            "{changed:?}"
        );
        transfer(&mut client, &mut server, 1_000_000);
        transfer(&mut server, &mut client, 1_000_000);
        let job = job_of(&client);
        assert_eq!(of_all(&job, "quick"), [quick], "{change:?}");
        assert_eq!(of_all(&job, "congestion"), [control], "{change:?}");
        if change[0] == "window.fixed=30" {
            assert_eq!(of_all(&job, "cwnd_segs"), [30]);
        }
        assert_eq!(job["earlier"], 0);
    }
    client.end();
    server.end();
}

/// Programs of a cgroup that its packets run, on their way in and out.
fn packet_programs(cgroup: &str) -> [u32; 2] {
    /// BPF_PROG_QUERY of enum bpf_cmd, and the first fields of its union bpf_attr.
    const PROG_QUERY: libc::c_int = 16;
    #[repr(C)]
    struct Query {
        target: u32,
        place: u32,
        flags: [u32; 2],
        ids: u64,
        count: u32,
        padding: u32,
    }
    let directory = File::open(cgroup).expect("a cgroup");
    // BPF_CGROUP_INET_INGRESS and BPF_CGROUP_INET_EGRESS.
    [0, 1].map(|place| {
        let mut query = Query {
            target: directory.as_raw_fd() as u32,
            place,
            flags: [0; 2],
            ids: 0,
            count: 0,
            padding: 0,
        };
        // SAFETY: the kernel reads and writes these fields, all of which are there.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                PROG_QUERY,
                &raw mut query,
                size_of::<Query>(),
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        query.count
    })
}

/// What is known of the ACKs of a connection stands still while none is held back, and is old
/// when they are again.
#[test]
fn acks_are_held_back_and_not_and_again() {
    let Some(_alone) = alone() else {
        return;
    };
    const BYTES: usize = 1_500_000;
    /// Segments are further apart than it takes to acknowledge one.
    const PACED: &str = "pace 12500000";
    let net = Net::new();
    for host in [0, 1] {
        net.ip(host, "link set v gso_max_segs 1");
    }
    let policy = PolicyFile::new("held", "ack.every = 4\n");
    let (mut client, mut server) = (net.peer(0), net.job(1, policy.path()));
    connect(&mut client, &mut server, SERVER4);
    client.ask(PACED);
    let id = id_of(&server);
    let mut held = 0;
    for (every, holds) in [(4, true), (2, false), (4, true), (1, false), (4, true)] {
        let base = if every == 1 {
            "base=cubic"
        } else {
            "base=keep"
        };
        // The first one it has.
        set(&id, &[&format!("ack.every={every}"), base]);
        transfer(&mut client, &mut server, BYTES);
        let job = job_of(&server);
        assert_eq!(key(&job, "ack.every").0, every.to_string());
        let now = of_all(&job, "held_acks")[0].as_u64().unwrap();
        // A fifth of the ACKs that two segments cause: some leave, whatever the policy.
        let few = BYTES as u64 / 1448 / 2 / 5;
        match holds {
            true => assert!(now > held + few, "every {every}: {held}, then {now}"),
            false => assert_eq!(now, held, "every {every}"),
        }
        held = now;
        assert_eq!(job["earlier"], 0);
        // Without a policy that asks, packets run no program.
        let programs = packet_programs(job["cgroup"].as_str().unwrap());
        assert_eq!(programs, [u32::from(holds); 2], "every {every}");
    }
    client.end();
    server.end();
}

/// ACK delays of a running connection, by the clocks of both ends in the packets.
#[test]
fn the_ack_delay_of_a_running_connection_changes() {
    let Some(_alone) = alone() else {
        return;
    };
    /// Linux acknowledges up to 16 segments at once, of a new connection and of one that was
    /// idle for a timeout: while `set` runs, it is.
    const MESSAGES: usize = 32;
    /// Two ticks of the coarsest kernel: what comes within was not delayed.
    const AT_ONCE_MS: i64 = 4;
    let net = Net::new();
    let policy = PolicyFile::new("late", "[ack]\ndelay = \"40ms\"\n");
    let (mut client, mut server) = (net.peer(0), net.job(1, policy.path()));
    let (mut data, mut acks) = (Capture::start(&net, 1), Capture::start(&net, 0));
    let port = server.ask(&format!("listen {SERVER4}"));
    client.ask(&format!("connect {SERVER4} {port}"));
    server.ask("accept");
    let port = port.parse().unwrap();
    let id = id_of(&server);
    let mut at_once = None;
    // From data to its ACK, less what the clocks differ by and an ACK at once takes; sorted.
    // None of what was acknowledged at once.
    let mut delayed = || -> Result<Vec<i64>, String> {
        for _ in 0..MESSAGES {
            client.ask("send 1000");
            // Whoever reads at once acknowledges at once.
            std::thread::sleep(Duration::from_millis(80));
            server.ask("receive 1000");
        }
        let acks = acks.acks_from(port);
        let mut delays: Vec<i64> = data
            .segments_to(port)
            .iter()
            .filter_map(|segment| {
                let end = segment.sequence.wrapping_add(segment.length as u32);
                let (_, at) = acks.iter().find(|(ack, _)| *ack == end)?;
                Some(i64::from(*at) - i64::from(segment.sent_ms))
            })
            .collect();
        if delays.len() != MESSAGES {
            return Err(format!("ACKs of {} messages", delays.len()));
        }
        delays.sort_unstable();
        let at_once = *at_once.get_or_insert(delays[0]);
        let delays = delays.into_iter().map(|delay| delay - at_once);
        Ok(delays.filter(|delay| *delay > AT_ONCE_MS).collect())
    };
    for (change, wanted) in [(None, 39..=52), (Some("ack.delay=12ms"), 8..=24)] {
        if let Some(change) = change {
            let changed = set(&id, &[change]);
            assert_eq!(
                stdout(&changed),
                "ack.delay: 40ms -> 12ms\n1 running connection changed\n"
            );
        }
        // Most of them: on a busy machine a timer is late, and what was acknowledged at once.
        measured(&format!("ACK delays of {wanted:?} ms"), || {
            let delayed = delayed()?;
            println!("ACK delays {delayed:?} ms");
            match delayed.get(delayed.len() / 2) {
                Some(usual) if wanted.contains(usual) => Ok(()),
                _ => Err(format!("{delayed:?}")),
            }
        });
    }
    client.end();
    server.end();
}

#[test]
fn the_owner_sets_by_the_agent_what_is_harmless() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, agent) = (Net::new(), Agent::start());
    let group = Some(common::agent::group_id(GROUP));
    let mut client = agent.peer(USER, &net, "lfn");
    let mut server = net.peer(1);
    connect(&mut client, &mut server, SERVER4);
    let process = client.process.id();
    let id = id_of(&client);
    let run = agent.place.join("run");
    let ask = |user: u32, job: &str, arguments: &[&str]| {
        let mut command = agent.as_user(user, group, None);
        command.args(["set", job, "--agent", run.to_str().unwrap()]);
        command.args(arguments).output().unwrap()
    };
    // By its id, and by its cgroup.
    let changed = ask(USER, &id, &["ack.delay=12ms", "rto.least=16ms"]);
    assert!(
        stdout(&changed).contains("1 running connection changed"),
        "{changed:?}"
    );
    let cgroup = directory_of(process);
    let changed = ask(USER, cgroup.to_str().unwrap(), &["window.initial=10"]);
    assert!(changed.status.success(), "{changed:?}");
    let listed = ask(USER, &id, &["--policy", "pace"]);
    assert!(listed.status.success(), "{listed:?}");
    assert_eq!(job_of(&client)["policy"], "pace");
    assert!(ask(USER, &id, &["--reset"]).status.success());

    let before = job_of(&client);
    for (user, arguments, message) in [
        (USER, &["base=bbr"][..], "base: only root sets this key"),
        (
            USER,
            &["window.initial=11"],
            "window.initial: more than any",
        ),
        (USER, &["ack.dely=1ms"], "ack.dely: is no key that can be"),
        (USER, &["ack.delay=1ms"], "ack.delay: 1ms is out of range"),
        (USER, &["--policy", "rto"], "policy rto is not allowed"),
        (OTHER_USER, &["ack.delay=12ms"], "no job"),
    ] {
        let refused = ask(user, &id, arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(stderr(&refused).contains(message), "{refused:?}");
    }
    let foreign = output(&["run", "--policy", "lfn", "--", "true"]);
    assert!(foreign.status.success());
    assert_eq!(job_of(&client)["generation"], before["generation"]);

    // Without an agent: what it takes, and where none is.
    let nowhere = agent.place.join("nowhere");
    let mut command = agent.as_user(USER, group, None);
    let alone = command
        .args([
            "set",
            &id,
            "ack.delay=12ms",
            "--agent",
            nowhere.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert_eq!(alone.status.code(), Some(1));
    let message = stderr(&alone);
    assert!(
        message.contains("paceline set needs root") && message.contains("nowhere/jobs.sock"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
    client.end();
    server.end();
}

/// On the oldest kernel and on the newest.
const IN_GUESTS: [&str; 4] = [
    "--exact",
    "the_ack_delay_of_a_running_connection_changes",
    "tuning_of_the_congestion_control_changes_on_running_connections",
    "acks_are_held_back_and_not_and_again",
];

#[test]
fn it_works_on_linux_6_1() {
    tests_in_guest("bookworm", &IN_GUESTS, true);
}

#[test]
fn it_works_on_the_newest_kernel() {
    tests_in_guest(UNRELEASED, &IN_GUESTS, true);
}
