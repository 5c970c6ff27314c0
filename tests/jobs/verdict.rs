// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job whose policy had nothing to do says so when it ends, and why; others say nothing.

use std::process::{Command, Output};

use crate::common::agent::{Agent, USER};
use crate::common::{alone, paceline, Net, SERVER4};

const LINE: &str = "no connection of the job to another host got the policy lfn: ";

const LOOPBACK: &str = "
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
server.accept()
";

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The one line that was said.
fn verdict(output: &Output) -> String {
    let text = stderr(output);
    let mut lines = text.lines().filter(|line| line.contains(LINE));
    let line = lines.next().unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(lines.next(), None);
    line.to_owned()
}

fn run(arguments: &[&str]) -> Command {
    let mut command = paceline();
    command.args(["run", "--"]).args(arguments);
    command
}

#[test]
fn a_job_without_governed_connections_gives_the_reason() {
    let Some(_alone) = alone() else {
        return;
    };
    // While a job lives, the others start at once.
    let net = Net::new();
    let mut server = net.peer(1);
    let first = net.job(0, "lfn");

    // As it looks where a daemon has started the processes.
    let output = run(&["sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let line = verdict(&output);
    assert!(line.contains("no TCP connection at all"), "{line}");
    assert!(
        line.contains("[OPTIONS] paceline run --policy lfn -- ./prog"),
        "{line}"
    );

    let output = run(&["python3", "-c", LOOPBACK]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let line = verdict(&output);
    assert!(line.contains("2 within this host"), "{line}");

    // Who had a connection, or goes on in the background, or is one of many.
    let port = server.ask(&format!("listen {SERVER4}"));
    let connect = format!("import socket; socket.create_connection(('{SERVER4}', {port}))");
    let mut command = run(&["python3", "-c", &connect]);
    net.enter(0, &mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!stderr(&output).contains(LINE), "{output:?}");

    let output = run(&["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"])
        .output()
        .unwrap();
    assert!(!stderr(&output).contains(LINE), "{output:?}");
    let sleeper: i32 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    // SAFETY: a plain system call; the process is this test's own.
    unsafe { libc::kill(sleeper, libc::SIGKILL) };

    for (name, value) in [("PMIX_RANK", "1"), ("PACELINE_LOG", "error")] {
        let output = run(&["true"]).env(name, value).output().unwrap();
        assert!(!stderr(&output).contains(LINE), "{name}: {output:?}");
    }
    let output = run(&["true"]).env("PMIX_RANK", "0").output().unwrap();
    verdict(&output);

    first.end();
    server.end();
}

#[test]
fn a_job_of_the_agent_gives_the_reason_too() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, agent) = (Net::new(), Agent::start());
    let mut server = net.peer(1);
    let output = agent
        .run(USER, None, &["--", "sh", "-c", "exit 7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let line = verdict(&output);
    assert!(line.contains("no TCP connection at all"), "{line}");

    let port = server.ask(&format!("listen {SERVER4}"));
    let connect = format!("import socket; socket.create_connection(('{SERVER4}', {port}))");
    let output = agent
        .run(USER, Some(&net), &["--", "python3", "-c", &connect])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!stderr(&output).contains(LINE), "{output:?}");
    server.end();
}
