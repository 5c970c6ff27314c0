// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command that the guest runs instead of an experiment. Its output reaches the host
//! while it runs.

use std::fs::File;
use std::io::Read;
use std::process;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use paceline_experiment::record::{Record, Sink, Stream};
use paceline_net::namespace::batch;
use paceline_net::Doing;
use serde::{Deserialize, Serialize};

use super::{furnish, GuestError};

/// Interval of checks for output and end: guest time, which passes at once when idle.
const POLL: Duration = Duration::from_millis(10);
/// Files of a command's output. A process that it leaves behind may hold a file open for
/// ever, and the guest still ends; with a pipe it would not.
const OUTPUTS: [(Stream, &str); 2] = [
    (Stream::Output, "/paceline/stdout"),
    (Stream::Error, "/paceline/stderr"),
];

/// A program to run as root, below `/` and in the root of the cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Path of the program, which the guest has, and its arguments.
    pub words: Vec<String>,
    /// Beside `PATH` and `HOME`.
    pub environment: Vec<(String, String)>,
}

/// Runs `command`; passes on its output and its exit status.
pub fn run(command: &Command, sink: Sink) -> Result<(), GuestError> {
    furnish()?;
    batch("ip", "link set lo up\n")?;
    let (program, arguments) = command.words.split_first().ok_or(GuestError::NoProgram)?;
    let mut outputs = Vec::new();
    for (stream, path) in OUTPUTS {
        let file = File::create(path).doing(format!("making {path}"))?;
        let read = File::open(path).doing(format!("opening {path}"))?;
        outputs.push((file, Output::new(stream, read)));
    }
    let child = process::Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/root")
        .envs(command.environment.iter().cloned())
        .stdin(process::Stdio::null())
        .stdout(
            outputs[0]
                .0
                .try_clone()
                .doing("passing a file descriptor on")?,
        )
        .stderr(
            outputs[1]
                .0
                .try_clone()
                .doing("passing a file descriptor on")?,
        )
        .spawn()
        .doing(format!("starting {program}"))?;
    let child = Pid::from_raw(child.id() as i32);
    loop {
        let status = reap(child).doing(format!("waiting for {program}"))?;
        for (_, output) in &mut outputs {
            output.hand_on(status.is_some(), sink)?;
        }
        if let Some(status) = status {
            return Ok(sink(&Record::Exited { status }).doing("passing a record on")?);
        }
        std::thread::sleep(POLL);
    }
}

/// Waits for every process that has ended, as the first process must; the exit status of
/// `child`, or 128 plus its signal, once it is among them.
fn reap(child: Pid) -> nix::Result<Option<i32>> {
    let mut status = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => status = Some(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                status = Some(128 + signal as i32);
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(status),
            Ok(_) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// One of the command's outputs, on the way to the host.
struct Output {
    stream: Stream,
    file: File,
    line: Vec<u8>,
}

impl Output {
    fn new(stream: Stream, file: File) -> Self {
        Output {
            stream,
            file,
            line: Vec::new(),
        }
    }

    /// Passes on the new whole lines; at the `end`, a partial one, too.
    fn hand_on(&mut self, end: bool, sink: Sink) -> Result<(), GuestError> {
        self.file
            .read_to_end(&mut self.line)
            .doing("reading the command's output")?;
        let length = match end {
            true => self.line.len(),
            false => self
                .line
                .iter()
                .rposition(|&byte| byte == b'\n')
                .map_or(0, |at| at + 1),
        };
        if length == 0 {
            return Ok(());
        }
        let rest = self.line.split_off(length);
        let lines = std::mem::replace(&mut self.line, rest);
        Ok(sink(&Record::Printed {
            stream: self.stream,
            text: String::from_utf8_lossy(&lines).into_owned(),
        })
        .doing("passing a record on")?)
    }
}
