// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that knows of Paceline the numbers of its socket options, and does as it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::{paceline, Net};

/// The program of `common/streams.py`, told what to do and asked what came of it.
pub struct Program {
    pub process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    pub fn script() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/common/streams.py")
    }

    /// Started by a command that lacks the program's name only.
    pub fn spawn(mut command: Command) -> Self {
        let text = std::fs::read_to_string(Self::script()).expect("it is there");
        let mut process = command
            .args(["python3", "-c", &text])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        Self {
            commands: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    pub fn in_job(net: &Net, host: usize, options: &[&str]) -> Self {
        let mut command = paceline();
        command.arg("run").args(options).arg("--");
        net.enter(host, &mut command);
        Self::spawn(command)
    }

    pub fn without(net: &Net, host: usize) -> Self {
        let mut command = Command::new("env");
        net.enter(host, &mut command);
        Self::spawn(command)
    }

    pub fn ask(&mut self, what: &str) -> Value {
        writeln!(self.commands, "{what}").expect("it listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{what}: it ended"))
    }

    /// What a command's error is, or "none".
    pub fn error(&mut self, what: &str) -> String {
        let answer = self.ask(what);
        answer["error"].as_str().unwrap_or("none").to_owned()
    }

    pub fn end(mut self) {
        self.ask("exit");
        self.process.wait().unwrap();
    }
}

/// A connection of the two; the port that it leads to.
pub fn connect(client: &mut Program, server: &mut Program, address: &str) -> String {
    let port = server.ask(&format!("listen {address}"))["port"].to_string();
    client.ask(&format!("connect {address} {port}"));
    server.ask("accept-and-receive");
    port
}

pub fn streams(info: &Value) -> &Vec<Value> {
    info["streams"]
        .as_array()
        .unwrap_or_else(|| panic!("{info}"))
}
