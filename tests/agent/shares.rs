// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all jobs share, and users who take all they can get of it.

#[path = "../common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{alone, jobs, paceline, status, transfer, Net, Peer};
use paceline_abi::{PL_ABI_VERSION, PL_MAX_GROUPS, PL_MAX_PATHS};
use serde_json::Value;

/// The third user, who takes what everybody takes.
const VICTIM: u32 = 65531;
const HOSTILE: [u32; 2] = [65533, 65532];

/// The program of `common/hostile.py`.
struct Program {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Program {
    fn spawn(mut command: Command, net: &Net, host: usize, argument: &str) -> Self {
        net.enter(host, &mut command);
        let mut process = command
            .args([
                "python3",
                "-c",
                include_str!("../common/hostile.py"),
                argument,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        Self {
            commands: process.stdin.take(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    fn server(net: &Net) -> (Self, String) {
        let mut command = Command::new("prlimit");
        command.args(["--nofile=20000", "--"]);
        let mut server = Self::spawn(command, net, 1, "server");
        let port = server.line();
        (server, port)
    }

    /// As a job of this user, whose connections go to a server at `port`.
    fn job(net: &Net, user: u32, port: &str) -> Self {
        let mut command = paceline();
        command
            .env("SUDO_UID", user.to_string())
            .args(["run", "--policy", "lfn", "--", "prlimit", "--nofile=20000"])
            .arg("--")
            .stderr(Stdio::piped());
        Self::spawn(command, net, 0, port)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        assert!(!line.is_empty(), "it ended");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, what: &str) {
        writeln!(self.commands.as_ref().unwrap(), "{what}").expect("it listens");
        assert_eq!(self.line(), "done");
    }

    fn shown(&self) -> Value {
        let mut found = jobs(&status(), &format!("paceline.{}.", self.process.id()));
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    /// What `paceline run` has said when it is over.
    fn end(mut self) -> String {
        drop(self.commands.take());
        let output = self.process.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Two hosts, of which the second has ten million addresses.
fn wide() -> Net {
    let net = Net::new();
    net.ip(1, "route add local 10.128.0.0/9 dev lo");
    net.ip(0, "route add 10.128.0.0/9 via 10.98.0.2");
    net
}

fn number(job: &Value, name: &str) -> u64 {
    job[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {job}"))
}

#[test]
fn a_job_that_takes_all_resources_is_limited_and_warned() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = wide();
    let (server, port) = Program::server(&net);
    let most = u64::from(PL_MAX_PATHS);

    // One invents phases, more of them than there are paths.
    let mut one = Program::job(&net, HOSTILE[0], &port);
    one.ask(&format!("phases {} {PL_ABI_VERSION}", PL_MAX_PATHS + 64));
    one.ask(&format!("groups {}", PL_MAX_GROUPS / 3 + 50));
    let shown = one.shown();
    let third = most / 3 + 1;
    assert_eq!(number(&shown, "paths_used"), third, "{}", shown["warnings"]);
    assert!(number(&shown, "groups_full") >= 40, "{}", shown["warnings"]);

    // The other goes to more hosts than it may.
    let mut two = Program::job(&net, HOSTILE[1], &port);
    two.ask(&format!("far 0 {}", (most - third) / 3 + 500));
    two.ask(&format!("groups {}", PL_MAX_GROUPS / 4));
    let shown = two.shown();
    let used = number(&shown, "paths_used");
    assert!(used <= (most - third) / 3 + 1, "{used}");
    assert!(number(&shown, "groups_full") > 0, "{}", shown["warnings"]);
    // What it used long ago is forgotten for what it uses now.
    let mut host = 100_000;
    loop {
        host += 1;
        two.ask(&format!("far {host} 1"));
        let octets = (10 << 24) + (128 << 16) + host;
        let address = std::net::Ipv4Addr::from_bits(octets).to_string();
        let paths = two.shown()["paths"].as_array().unwrap().clone();
        assert!(paths.len() as u64 <= used);
        if paths.iter().any(|path| path["peer"] == address.as_str()) {
            break;
        }
    }

    // A third has its law and its group, and nothing to complain of.
    let arguments = ["run", "--policy", "lfn", "--group", "bulk", "--"];
    let mut command = paceline();
    command
        .env("SUDO_UID", VICTIM.to_string())
        .args(arguments)
        .arg(std::env::current_exe().unwrap());
    net.enter(0, &mut command);
    let mut client = Peer::spawn(command);
    let mut peer = net.peer(1);
    common::connect(&mut client, &mut peer, common::SERVER4);
    transfer(&mut client, &mut peer, 300_000);
    let now = status();
    let job = &jobs(&now, &format!("paceline.{}.", client.process.id()))[0];
    let path = &job["paths"][0];
    assert_eq!(path["peer"], common::SERVER4);
    assert_ne!(number(path, "rate_bits_per_s"), 0, "{path}");
    assert_eq!(job["connections"][0]["group"], "bulk");
    assert_eq!(job["warnings"].as_array().unwrap().len(), 0, "{job}");

    // Who went without something is told, and what it had is everybody's again.
    let text = one.end();
    assert!(text.contains("groups_full"), "{text}");
    two.end();
    let mut three = Program::job(&net, HOSTILE[0], &port);
    three.ask("far 0 100");
    three.ask("groups 100");
    let shown = three.shown();
    assert_eq!(number(&shown, "paths_used"), 101, "{shown}");
    assert_eq!(shown["warnings"].as_array().unwrap().len(), 0, "{shown}");
    let text = three.end();
    assert!(!text.contains("WARN"), "{text}");
    client.end();
    peer.end();
    server.end();
}
