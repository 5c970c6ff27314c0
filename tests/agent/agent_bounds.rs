// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline agent` beside callers who mean it ill, who come while it restarts, and beside
//! another agent; and what a host that forbids something is told.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::agent::{Agent, OTHER_USER, USER};
use common::{alone, paceline};
use libbpf_rs::query::ProgInfoIter;

fn end(agent: &mut Agent) {
    // SAFETY: no pointers; the process is our child and not waited for yet.
    assert_eq!(
        unsafe { libc::kill(agent.process.id() as i32, libc::SIGTERM) },
        0
    );
    assert!(agent.process.wait().unwrap().success());
}

#[test]
fn strangers_are_hung_up_on_and_take_no_place() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    // Some user in none of the groups, who says nothing.
    let python = format!(
        "import socket\n\
         for i in range(3000):\n\
         \u{20}   s = socket.socket(socket.AF_UNIX)\n\
         \u{20}   s.settimeout(60)\n\
         \u{20}   s.connect({:?})\n\
         \u{20}   assert b'\"group\"' in s.recv(4096)\n\
         print('refused')",
        agent.socket()
    );
    let mut stranger = Command::new("python3");
    stranger.args(["-c", &python]).uid(USER).gid(USER);
    let output = stranger.output().unwrap();
    assert_eq!(output.stdout, b"refused\n", "{output:?}");
    let output = agent.run(OTHER_USER, None, &["--", "true"]).output();
    assert!(output.unwrap().status.success());
}

#[test]
fn silent_members_keep_nobody_from_a_job() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    // Root is admitted everywhere. More than one user may have waiting.
    let silent: Vec<UnixStream> = ["run/jobs.sock", "run/agent.sock"]
        .iter()
        .flat_map(|socket| std::iter::repeat_n(agent.place.join(socket), 600))
        .map(|socket| UnixStream::connect(socket).unwrap())
        .collect();
    let output = agent.run(USER, None, &["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(silent);
}

#[test]
fn a_run_waits_for_an_agent_that_restarts() {
    let Some(_alone) = alone() else {
        return;
    };
    let mut agent = Agent::start();
    agent.kill();
    let mut waiting = agent
        .run(USER, None, &["--", "echo", "started"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = [0; 5];
    waiting
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut words)
        .expect("it says that it waits");
    agent.restart();
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"started\n", "{output:?}");
}

/// As systemd does with a socket unit: the sockets are there before the agent, and after it.
#[test]
fn a_managers_sockets_outlive_the_agent() {
    let Some(_alone) = alone() else {
        return;
    };
    let mut agent = Agent::start();
    end(&mut agent);
    let directory = agent.place.join("run");
    fs::create_dir(&directory).unwrap();
    let listen = |name: &str| {
        let path = directory.join(name);
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        listener
    };
    let sockets = ["jobs.sock", "groups.sock", "agent.sock"].map(listen);
    let user = |agent: &Agent| {
        let mut command = agent.run(USER, None, &["--", "echo", "started"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    for _ in 0..2 {
        let early = user(&agent);
        agent.begin_with(&sockets);
        agent.wait_until_ready();
        for run in [early, user(&agent)] {
            let output = run.wait_with_output().unwrap();
            assert_eq!(output.stdout, b"started\n", "{output:?}");
        }
        end(&mut agent);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), sockets.len());
    }

    // One that the agent does not know: nobody would ever answer there.
    let strange = [listen("strange.sock")];
    agent.begin_with(&strange);
    assert_eq!(agent.process.wait().unwrap().code(), Some(1));
}

#[test]
fn a_directory_that_was_there_stays() {
    let Some(_alone) = alone() else {
        return;
    };
    let mut agent = Agent::start();
    let directory = agent.place.join("run");
    end(&mut agent);
    assert!(!directory.exists());
    fs::create_dir(&directory).unwrap();
    agent.restart();
    end(&mut agent);
    assert!(directory.exists());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn two_agents_serve_a_host_side_by_side() {
    let Some(_alone) = alone() else {
        return;
    };
    let (first, second) = (Agent::start(), Agent::start());
    for (agent, user) in [(&first, USER), (&second, OTHER_USER), (&first, OTHER_USER)] {
        let output = agent.run(user, None, &["--", "true"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    drop(second);
    let output = first.run(USER, None, &["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_kernel_side_stays_for_the_next_job_and_then_goes() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    let acked = || {
        ProgInfoIter::default()
            .find(|program| program.name == "pl_cubic_acked")
            .map(|program| (program.id, program.verified_insns))
    };
    let run = || {
        let output = agent.run(USER, None, &["--", "true"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run();
    let (first, verified) = acked().expect("it is loaded");
    run();
    assert_eq!(acked().map(|(id, _)| id), Some(first), "loaded again");
    // Less than half of what the verifier allows, and most of what a first start takes.
    assert!(verified < 450_000, "{verified} instructions verified");
    // This one: a program of another build may come meanwhile.
    let there = || ProgInfoIter::default().any(|program| program.id == first);
    common::agent::until("the end of the kernel side", || !there());
}

/// Makes a system call fail with EPERM in `command`.
fn deny(command: &mut Command, call: libc::c_long) {
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let filter = [
        (0x20, 0, 0, 0), // the call's number
        (0x15, 0, 1, call as u32),
        (0x06, 0, 0, ERRNO | libc::EPERM as u32),
        (0x06, 0, 0, ALLOW),
    ]
    .map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k });
    // SAFETY: plain system calls on what the closure owns.
    unsafe {
        command.pre_exec(move || {
            let mut filter = filter;
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_mut_ptr(),
            };
            let failed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) != 0;
            match failed {
                true => Err(std::io::Error::last_os_error()),
                false => Ok(()),
            }
        });
    }
}

#[test]
fn denied_system_calls_are_reported_before_the_command_starts() {
    let Some(_alone) = alone() else {
        return;
    };
    for (call, parts) in [
        (libc::SYS_pidfd_open, ["pidfd_open", "seccomp"]),
        (libc::SYS_bpf, ["bpf() is denied", "seccomp"]),
    ] {
        let mut command = paceline();
        command.args(["run", "--", "echo", "started"]);
        deny(&mut command, call);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        for part in parts {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    // Descriptors run out.
    let mut command = paceline();
    command.args(["run", "--", "echo", "started"]);
    // SAFETY: one system call on a value on the stack.
    unsafe {
        command.pre_exec(|| {
            let few = libc::rlimit {
                rlim_cur: 12,
                rlim_max: 12,
            };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &few) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("ulimit -n"), "{message}");
}
