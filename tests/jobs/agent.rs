// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline agent`: jobs of users who are not root, from their `paceline run` to what
//! root's `paceline status` says.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output, Stdio};

use crate::common::agent::{directory_of, until_gone, Agent, GROUP, OTHER_USER, USER};
use crate::common::packets::{Packets, SYN};
use crate::common::{alone, connect, jobs, status, transfer, Net, SERVER4};

fn part_of(process: u32) -> String {
    format!("paceline.{process}.")
}

fn signal(process: u32, signal: i32) {
    // SAFETY: no pointers; the process is our child and not waited for yet.
    assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0);
}

/// Refused: with this code and these words, and nothing was started.
fn assert_refused(output: &Output, parts: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(message.starts_with("paceline: error: "), "{message}");
    for word in parts {
        assert!(message.contains(word), "{word}: {message}");
    }
}

#[test]
fn a_member_of_the_group_runs_a_job_without_root() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, agent) = (Net::new(), Agent::start());
    let mut client = agent.peer(USER, &net, "lfn");
    let mut server = net.peer(1);
    let (active, _) = connect(&mut client, &mut server, SERVER4);
    assert_eq!(active, "paceline_cubic");
    assert!(client.ask("uid").starts_with(&format!("{USER} {USER} ")));

    let process = client.process.id();
    let shown = jobs(&status(), &part_of(process));
    let [job] = &shown[..] else {
        panic!("one job of {process}: {shown:?}");
    };
    assert_eq!(job["owner_uid"], USER);
    assert_eq!(job["policy"], "lfn");
    assert_eq!(job["connections"][0]["congestion"], "paceline_cubic");
    assert_eq!(job["connections"][0]["reason"], "none");
    client.end();
    server.end();
    until_gone(process);
}

#[test]
fn signals_and_the_exit_code_pass_through() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, agent) = (Net::new(), Agent::start());
    for (command, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/no/such/program"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let arguments = [&["--"], command].concat();
        let output = agent.run(USER, None, &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command:?}: {output:?}");
    }
    let mut job = agent.peer(USER, &net, "lfn");
    job.ask("pid");
    signal(job.process.id(), libc::SIGTERM);
    assert_eq!(job.process.wait().unwrap().code(), Some(143));
    until_gone(job.process.id());
}

#[test]
fn users_outside_the_group_are_refused() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    let outside = |arguments| agent.run_with(USER, None, None, arguments).output();
    let output = outside(&["--", "echo", "started"]).unwrap();
    assert_refused(&output, &["none of the groups", GROUP, "(group)"]);
    // Root's own, without the capabilities, is in no group and allowed all the same.
    let mut root = agent.run_with(0, None, None, &["--", "true"]);
    // SAFETY: plain system calls on numbers, between fork and exec.
    unsafe {
        root.pre_exec(|| {
            for capability in [12, 21, 39] {
                if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let output = root.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn only_the_listed_policies_are_had() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    let run = |policy: &str, command: &[&str]| {
        let arguments = [&["--policy", policy, "--"], command].concat();
        agent.run(USER, None, &arguments).output().unwrap()
    };
    let listed = agent.place.join("site.toml");
    let refused = [
        "is not allowed: use one of lfn, pace, ",
        "site.toml",
        "(policy)",
    ];
    assert_refused(&run("rto", &["echo", "started"]), &refused);
    // Nor a file of the user's own, whatever name the policy inside has.
    let own = agent.place.join("own.toml");
    fs::write(&own, "name = \"lfn\"\n").unwrap();
    assert_refused(&run(own.to_str().unwrap(), &["echo", "started"]), &refused);
    let output = run(listed.to_str().unwrap(), &["true"]);
    assert!(output.status.success(), "{output:?}");

    let arguments = ["--user", "nobody", "--", "echo", "started"];
    let output = agent.run(USER, None, &arguments).output().unwrap();
    assert_refused(&output, &["--user needs root"]);
}

/// By the name of a listed policy, at the interface of the user's network namespace.
#[test]
fn a_users_job_goes_without_options_where_it_is() {
    let Some(_alone) = alone() else {
        return;
    };
    const WINDOW_SCALING: u8 = 3;
    let (net, mut agent) = (Net::new(), Agent::start());
    let policy = agent.place.join("site.toml");
    let text = "name = \"site\"\n[options]\ninterface = \"v\"\nwindow_scaling = false\n";
    fs::write(&policy, text).unwrap();
    agent.kill();
    agent.restart();
    let mut client = agent.peer(USER, &net, policy.to_str().unwrap());
    let mut server = net.peer(1);
    let mut packets = Packets::start(&net, 0);
    connect(&mut client, &mut server, SERVER4);
    let sent = packets.read();
    let syn = sent.iter().find(|packet| packet.leaves).expect("a SYN");
    assert!(syn.flags & SYN != 0 && !syn.options.is_empty(), "{syn:?}");
    assert!(!syn.options.contains(&WINDOW_SCALING), "{syn:?}");
    client.end();
    server.end();
}

#[test]
fn without_an_agent_the_message_names_it() {
    let Some(_alone) = alone() else {
        return;
    };
    let mut agent = Agent::start();
    agent.kill();
    // Where none has been, none is waited for.
    fs::remove_file(agent.socket()).unwrap();
    let output = agent.run(USER, None, &["--", "true"]).output().unwrap();
    assert_refused(&output, &["root", "CAP_BPF", "paceline agent", "jobs.sock"]);
}

#[test]
fn a_killed_agent_leaves_the_job_and_its_successor_cleans() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, mut agent) = (Net::new(), Agent::start());
    let mut first = agent.peer(USER, &net, "lfn");
    let mut second = agent.peer(USER, &net, "lfn");
    let mut server = net.peer(1);
    assert_eq!(first.ask("active"), "1");
    second.ask("pid");
    agent.kill();
    let (active, _) = connect(&mut first, &mut server, SERVER4);
    assert_eq!(active, "paceline_cubic");
    transfer(&mut first, &mut server, 100_000);

    // One job ends while there is no agent, the other one under the next.
    let ended = second.process.id();
    second.end();
    assert!(directory_of(ended).exists());
    agent.restart();
    until_gone(ended);
    transfer(&mut first, &mut server, 100_000);
    // A page from the former agent is as good, and a new process gets one from the new.
    assert_eq!(first.ask("enter 5"), "0");
    let mut third = agent.peer(USER, &net, "lfn");
    assert_eq!(third.ask("active"), "1");
    third.end();
    let process = first.process.id();
    assert!(directory_of(process).exists());
    first.end();
    server.end();
    until_gone(process);
}

#[test]
fn a_second_agent_is_refused() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    let output = Agent::command(&agent.place).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("another agent listens"), "{message}");
    // The first one is as it was.
    let output = agent.run(USER, None, &["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_agent_that_is_ended_takes_its_sockets_and_leaves_the_jobs() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, mut agent) = (Net::new(), Agent::start());
    for number in [libc::SIGTERM, libc::SIGINT] {
        let mut client = agent.peer(USER, &net, "lfn");
        let mut server = net.peer(1);
        client.ask("pid");
        signal(agent.process.id(), number);
        assert_eq!(agent.process.wait().unwrap().code(), Some(0));
        assert!(!agent.place.join("run").exists());
        assert_eq!(
            connect(&mut client, &mut server, SERVER4).0,
            "paceline_cubic"
        );
        agent.restart();
        let process = client.process.id();
        client.end();
        server.end();
        until_gone(process);
    }
}

#[test]
fn a_killed_paceline_run_leaves_nothing_after_its_processes() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, agent) = (Net::new(), Agent::start());
    let mut client = agent.peer(USER, &net, "lfn");
    let mut server = net.peer(1);
    client.ask("pid");
    let process = client.process.id();
    client.process.kill().unwrap();
    client.process.wait().unwrap();
    let (active, _) = connect(&mut client, &mut server, SERVER4);
    assert_eq!(active, "paceline_cubic");
    assert!(directory_of(process).exists());
    client.ask("exit");
    server.end();
    until_gone(process);
}

#[test]
fn processes_in_the_background_keep_the_job() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    let script = "exec 3<&0; cat <&3 >/dev/null & echo started";
    let mut started = agent
        .run(USER, None, &["--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let input = started.stdin.take().unwrap();
    assert!(started.wait().unwrap().success());
    assert_eq!(jobs(&status(), &part_of(started.id())).len(), 1);
    drop(input);
    until_gone(started.id());
}

#[test]
fn two_users_have_jobs_side_by_side() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, agent) = (Net::new(), Agent::start());
    let mut first = agent.peer(USER, &net, "lfn");
    let mut second = agent.peer(OTHER_USER, &net, "pace");
    let mut server = net.peer(1);
    for client in [&mut first, &mut second] {
        assert_eq!(connect(client, &mut server, SERVER4).0, "paceline_cubic");
    }
    let now = status();
    for (client, user, policy) in [(&first, USER, "lfn"), (&second, OTHER_USER, "pace")] {
        let shown = jobs(&now, &part_of(client.process.id()));
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0]["owner_uid"], user);
        assert_eq!(shown[0]["policy"], policy);
    }
    let (one, other) = (first.process.id(), second.process.id());
    first.end();
    until_gone(one);
    assert_eq!(second.ask("congestion"), "paceline_cubic");
    assert!(directory_of(other).exists());
    second.end();
    server.end();
    until_gone(other);
}

#[test]
fn a_silent_client_blocks_nobody() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    let _silent: Vec<UnixStream> = ["run/jobs.sock", "run/agent.sock"]
        .iter()
        .map(|socket| UnixStream::connect(agent.place.join(socket)).unwrap())
        .collect();
    let mut half = UnixStream::connect(agent.socket()).unwrap();
    half.write_all(b"{\"abi\":").unwrap();
    let output = agent.run(USER, None, &["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(half);
    // And what is no request is answered, not obeyed.
    let mut wrong = UnixStream::connect(agent.socket()).unwrap();
    wrong.write_all(b"{\"abi\":nonsense\n").unwrap();
    let mut answer = String::new();
    wrong.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"malformed\""), "{answer}");
}

#[test]
fn the_process_that_called_must_still_be_there() {
    let Some(_alone) = alone() else {
        return;
    };
    let agent = Agent::start();
    // A child calls with a socket that it shares with us, and ends: what we say then is
    // not its word, and its number may be anybody's.
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    let socket = agent.socket();
    for (to, from) in address
        .sun_path
        .iter_mut()
        .zip(socket.as_os_str().as_bytes())
    {
        *to = *from as libc::c_char;
    }
    // SAFETY: the address is on the stack of both processes; the child makes two system
    // calls and ends.
    let (mut stream, child) = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(descriptor >= 0);
        let child = libc::fork();
        if child == 0 {
            let length = size_of_val(&address) as libc::socklen_t;
            libc::_exit(libc::connect(
                descriptor,
                (&raw const address).cast(),
                length,
            ));
        }
        let mut ended = 0;
        assert_eq!(libc::waitpid(child, &mut ended, 0), child);
        assert_eq!(ended, 0, "the child connects");
        (UnixStream::from_raw_fd(descriptor), child as u32)
    };
    let abi = paceline_abi::PL_ABI_VERSION;
    writeln!(stream, "{{\"abi\":{abi},\"policy\":\"lfn\"}}").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"peer\""), "{answer}");
    assert!(!directory_of(child).exists());
}

#[test]
fn no_user_can_have_all_jobs() {
    let Some(_alone) = alone() else {
        return;
    };
    const MOST: usize = 64;
    let agent = Agent::start();
    let policy = agent.place.join("site.toml");
    let arguments = ["--policy", policy.to_str().unwrap(), "--", "cat"];
    let mut started: Vec<(Child, _)> = Vec::new();
    for _ in 0..MOST {
        let mut command = agent.run(USER, None, &arguments);
        let mut job = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = job.stdin.take().unwrap();
        input.write_all(b"x").unwrap();
        // The command runs, so the job is counted.
        let mut output = job.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        started.push((job, input));
    }
    let run = |user| agent.run(user, None, &["--", "true"]).output().unwrap();
    assert_refused(&run(USER), &["64 jobs", "(too-many-jobs)"]);
    assert!(run(OTHER_USER).status.success());
    for (mut job, input) in started {
        drop(input);
        assert!(job.wait().unwrap().success());
        until_gone(job.id());
    }
    assert!(run(USER).status.success());
}

#[test]
fn a_users_job_has_phases() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, agent) = (Net::new(), Agent::start());
    let mut client = agent.peer(USER, &net, "lfn");
    let mut server = net.peer(1);
    connect(&mut client, &mut server, SERVER4);
    assert_eq!(client.ask("active"), "1");
    assert_eq!(client.ask("enter 5"), "0");
    transfer(&mut client, &mut server, 20_000);
    let shown = jobs(&status(), &part_of(client.process.id()));
    assert_eq!(shown[0]["connections"][0]["class"], 5);
    let pid: u64 = client.ask("pid").parse().unwrap();
    let processes = shown[0]["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["pid"] == pid);
    assert_eq!(process.unwrap()["phases"]["class"], 5);
    let process = client.process.id();
    client.end();
    server.end();
    until_gone(process);
}
