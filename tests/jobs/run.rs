// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline run`: inside the job the policy, outside the kernel's own.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use paceline_agent::cgroup::Hierarchy;

use crate::common::{
    alone, connect, jobs, output, paceline, status, transfer, Net, Peer, PolicyFile, SERVER4,
    SERVER6,
};

/// Neither ours, nor a name that only a job could have set.
fn is_usual(congestion: &str) -> bool {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    congestion == default.trim()
}

#[test]
fn only_the_jobs_end_is_changed_for_both_address_families() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    for address in [SERVER4, SERVER6] {
        let mut client = net.job(0, "lfn");
        let mut server = net.peer(1);
        let (active, passive) = connect(&mut client, &mut server, address);
        assert_eq!(active, "paceline_cubic", "{address}");
        assert!(is_usual(&passive), "{address}: {passive}");
        transfer(&mut client, &mut server, 300_000);

        let pid = client.process.id();
        let shown = jobs(&status(), &format!("paceline.{pid}."));
        let [job] = &shown[..] else {
            panic!("one job of {pid}: {shown:?}");
        };
        assert_eq!(job["policy"], "lfn");
        assert_eq!(job["governed"], 1);
        let connection = &job["connections"][0];
        assert_eq!(connection["congestion"], "paceline_cubic");
        assert_eq!(connection["reason"], "none");
        assert!(connection["remote"].as_str().unwrap().contains(address));
        assert!(connection["rto_least_us"].as_u64().unwrap() < 200_000);
        client.end();
        server.end();
    }
}

#[test]
fn an_accepted_connection_gets_its_listeners_policy() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    for address in [SERVER4, SERVER6] {
        let mut client = net.peer(0);
        let mut server = net.job(1, "pace");
        let (active, passive) = connect(&mut client, &mut server, address);
        assert!(is_usual(&active), "{address}: {active}");
        assert_eq!(passive, "paceline_cubic", "{address}");
        client.end();
        server.end();
    }
}

#[test]
fn both_ends_begin_with_the_policys_initial_window() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let policy = PolicyFile::new("window", "[window]\ninitial = 40\n");
    let mut client = net.job(0, policy.path());
    let mut server = net.job(1, policy.path());
    connect(&mut client, &mut server, SERVER4);
    for peer in [&client, &server] {
        let shown = jobs(&status(), &format!("paceline.{}.", peer.process.id()));
        assert_eq!(shown[0]["connections"][0]["cwnd_segs"], 40, "{shown:?}");
    }
    client.end();
    server.end();
}

#[test]
fn loopback_is_unchanged_and_status_shows_it() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut job = net.job(0, "lfn");
    for address in ["127.0.0.1", "::1", "10.98.0.1"] {
        let port = job.ask(&format!("listen {address}"));
        let active = job.ask(&format!("connect {address} {port}"));
        assert!(is_usual(&active), "{address}: {active}");
    }
    let shown = jobs(&status(), &format!("paceline.{}.", job.process.id()));
    let connections = shown[0]["connections"].as_array().unwrap();
    assert!(connections.len() >= 3, "{connections:?}");
    for connection in connections {
        assert_eq!(connection["reason"], "loopback");
        assert!(connection["why"]
            .as_str()
            .unwrap()
            .contains("unchanged: both ends"));
    }
    job.end();
}

#[test]
fn two_jobs_with_different_policies_run_at_once() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let reno = policy_file(
        "reno",
        "base = \"reno\"\n[startup]\ntarget = \"ssthresh\"\n",
    );
    let mut first = net.job(0, "pace");
    let mut second = net.job(0, reno.to_str().unwrap());
    let mut third = net.job(0, "rto");
    let mut server = net.peer(1);
    assert_eq!(
        connect(&mut first, &mut server, SERVER4).0,
        "paceline_cubic"
    );
    assert_eq!(
        connect(&mut second, &mut server, SERVER4).0,
        "paceline_reno"
    );
    let third_has = connect(&mut third, &mut server, SERVER4).0;
    assert!(!third_has.starts_with("paceline"), "{third_has}");

    let now = status();
    let policy = |peer: &Peer| {
        let shown = jobs(&now, &format!("paceline.{}.", peer.process.id()));
        shown[0]["policy"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        [policy(&first), policy(&second), policy(&third)],
        ["pace", "reno", "rto"]
    );
    let least = |peer: &Peer| {
        let shown = jobs(&now, &format!("paceline.{}.", peer.process.id()));
        shown[0]["connections"][0]["rto_least_us"].as_u64().unwrap()
    };
    assert_eq!(least(&first), 200_000);
    assert!(least(&third) < 20_000);
    // One ending leaves the others as they are.
    first.end();
    assert_eq!(second.ask("congestion"), "paceline_reno");
    assert_eq!(
        connect(&mut second, &mut server, SERVER6).0,
        "paceline_reno"
    );
    second.end();
    third.end();
    server.end();
    std::fs::remove_file(reno).unwrap();
}

#[test]
fn in_nested_jobs_the_innermost_decides() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let reno = policy_file(
        "inner",
        "base = \"reno\"\n[startup]\ntarget = \"ssthresh\"\n",
    );
    let inner = [
        "run",
        "--policy",
        "lfn",
        "--",
        env!("CARGO_BIN_EXE_paceline"),
        "run",
        "--policy",
        reno.to_str().unwrap(),
        "--",
    ];
    let mut client = Peer::start(&net, 0, Some(&inner));
    let mut server = net.peer(1);
    assert_eq!(
        connect(&mut client, &mut server, SERVER4).0,
        "paceline_reno"
    );
    let outer = format!("paceline.{}.", client.process.id());
    assert_eq!(client.ask("cgroup").matches("paceline.").count(), 2);
    assert_eq!(jobs(&status(), &outer).len(), 2);
    client.end();
    assert_eq!(jobs(&status(), &outer).len(), 0);
    server.end();
    std::fs::remove_file(reno).unwrap();
}

#[test]
fn the_last_job_takes_the_kernel_side_with_it() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let mut client = net.job(0, "lfn");
    let path = client.ask("cgroup");
    assert!(available().contains("paceline_cubic"));
    client.end();
    let directory = crate::common::own_cgroup().join(path.rsplit('/').next().unwrap());
    assert!(!directory.exists(), "{}", directory.display());
    if status()["jobs"].as_array().unwrap().is_empty() {
        assert!(!available().contains("paceline"), "{}", available());
    }
}

#[test]
fn processes_in_the_background_keep_the_policy() {
    let Some(_alone) = alone() else {
        return;
    };
    // The shell ends, what it started does not, until its input ends.
    let script = "exec 3<&0; cat <&3 >/dev/null & echo started";
    let mut started = paceline()
        .args(["run", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let input = started.stdin.take().unwrap();
    let part = format!("paceline.{}.", started.id());
    assert!(started.wait().unwrap().success());
    assert_eq!(jobs(&status(), &part).len(), 1);
    drop(input);
    crate::common::wait_for("the end of the background process", |status| {
        jobs(status, &part).is_empty()
    });
    let left = std::fs::read_dir(crate::common::own_cgroup())
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(&part));
    assert!(!left);
}

#[test]
fn the_commands_own_exit_code_comes_back() {
    let Some(_alone) = alone() else {
        return;
    };
    for (command, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["true"], 0),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/no/such/program"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let output = output(&[&["run", "--"], command].concat());
        assert_eq!(output.status.code(), Some(code), "{command:?}: {output:?}");
    }
}

#[test]
fn signals_reach_the_command() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    for (signal, code) in [
        (libc::SIGTERM, 143),
        (libc::SIGINT, 130),
        (libc::SIGHUP, 129),
    ] {
        let mut job = net.job(0, "lfn");
        job.ask("pid");
        // SAFETY: no pointers; the process is our child.
        assert_eq!(unsafe { libc::kill(job.process.id() as i32, signal) }, 0);
        assert_eq!(job.process.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn the_command_can_run_as_another_user() {
    let Some(_alone) = alone() else {
        return;
    };
    let output = output(&[
        "run",
        "--user",
        "nobody",
        "--",
        "sh",
        "-c",
        "id -un; echo $HOME",
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("nobody\n"), "{output:?}");
    let output = crate::common::output(&["run", "--user", "no-such-user", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-user"));
}

#[test]
fn a_refused_policy_starts_nothing() {
    let Some(_alone) = alone() else {
        return;
    };
    let file = policy_file(
        "bad",
        "base = \"cubic\"\n[startup]\ntarget = \"delivery-rate\"\nhalf_life = 60\n",
    );
    let output = output(&[
        "run",
        "--policy",
        file.to_str().unwrap(),
        "--",
        "echo",
        "started",
    ]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty(), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("half_life"), "{message}");
    assert!(message.starts_with("paceline: error: "), "{message}");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_user_who_locks_the_hierarchy_stops_nobody() {
    const NOBODY: u32 = 65534;
    let Some(_alone) = alone() else {
        return;
    };
    let hierarchy = Hierarchy::find().unwrap();
    // One alone, and several who share it.
    for (kind, count) in [("--exclusive", 1), ("--shared", 3)] {
        let mut holders: Vec<_> = (0..count)
            .map(|_| {
                let mut holder = Command::new("flock")
                    .arg(kind)
                    .arg(hierarchy.mount())
                    .args(["sh", "-c", "echo locked; exec cat"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .uid(NOBODY)
                    .spawn()
                    .unwrap();
                let mut locked = String::new();
                BufReader::new(holder.stdout.take().unwrap())
                    .read_line(&mut locked)
                    .unwrap();
                holder
            })
            .collect();
        let ran = output(&["run", "--policy", "lfn", "--", "true"]);
        assert!(ran.status.success(), "{ran:?}");
        assert!(output(&["status"]).status.success());
        for holder in &mut holders {
            drop(holder.stdin.take());
            holder.wait().unwrap();
        }
    }
    assert!(!std::path::Path::new("/run/paceline.lock").exists());
    // Nor can a user have the other one.
    let tried = Command::new("flock")
        .args(["/run/paceline.lock", "true"])
        .uid(NOBODY)
        .output()
        .unwrap();
    assert!(!tried.status.success(), "{tried:?}");
}

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

fn policy_file(name: &str, rest: &str) -> std::path::PathBuf {
    let path =
        std::env::temp_dir().join(format!("paceline-test-{}-{name}.toml", std::process::id()));
    std::fs::write(&path, format!("name = \"{name}\"\n{rest}")).unwrap();
    path
}
