// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline run` of a user without root.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use paceline_abi::PL_ABI_VERSION;
use paceline_history::verdict::{self, Counts};
use paceline_history::Record;
use serde::Serialize;

use super::request::{
    self, About, Answer, Asked, Inquire, Inquiry, Question, Refused, Request, Setting, Started,
};
use crate::error::{Error, Result};
use crate::job;
use crate::listening::{JOBS_SOCKET, PAGES_SOCKET};
use crate::pages::SOCKET_VARIABLE;
use crate::set::Report;
use crate::supervise::{Outcome, Signals};

/// How long the agent may take. On a slow host, loading the programs takes seconds, and
/// others may be first.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an agent may be away: systemd starts it again after a tenth of a second, and it
/// cleans up first.
const RESTART: Duration = Duration::from_secs(10);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(100);
/// Longer answers are no agent's.
const LONGEST_ANSWER: u64 = 64 << 10;

/// Has the agent of `directory` make a job around this process, runs `command` in it
/// and waits for it, as [`crate::job::run_in_job`] does. For the main thread of a
/// program that does nothing else: it stays in the job.
///
/// `policy` is a name from the agent's list, or a file's path.
///
/// # Errors
/// [`Error::NoAgent`], [`Error::AgentRefused`], [`Error::Spawn`].
pub fn run_by_agent(
    directory: &Path,
    policy: &str,
    group: Option<String>,
    command: &mut Command,
) -> Result<Outcome> {
    let request = Request {
        abi: PL_ABI_VERSION,
        policy: listed(policy),
        group,
    };
    let started = start(directory, &request)?;
    tracing::info!(
        "{}",
        job::notice(&request.policy, &started.cgroup, started.shared)
    );
    // Until here a signal ends this process, and with it the job.
    let signals = Signals::take()?;
    signals.give_back_in(command);
    if started.phases {
        command.env(SOCKET_VARIABLE, directory.join(PAGES_SOCKET));
    }
    let child = command.spawn().map_err(|source| Error::Spawn {
        program: command.get_program().into(),
        source,
    })?;
    let outcome = signals.wait(child)?;
    // While this process is in the job, the agent can report it.
    if is_alone(&started.cgroup) {
        verdict::log(counts(directory), &request.policy, command);
    }
    Ok(outcome)
}

/// Has the agent of `directory` make a job around this process, which goes on in it.
///
/// # Errors
/// [`Error::NoAgent`], [`Error::AgentRefused`].
pub fn enter_by_agent(directory: &Path, policy: &str, group: Option<String>) -> Result<()> {
    let request = Request {
        abi: PL_ABI_VERSION,
        policy: listed(policy),
        group,
    };
    start(directory, &request).map(drop)
}

/// Has the agent of `directory` change a job of the calling user.
///
/// # Errors
/// [`Error::NoAgentToSet`], [`Error::AgentRefused`].
pub fn set_by_agent(directory: &Path, job: u64, asked: Asked) -> Result<Report> {
    let setting = Setting {
        abi: PL_ABI_VERSION,
        job,
        set: asked,
    };
    match ask_patiently(directory, &setting) {
        Ok(Answer::Set(report)) => Ok(*report),
        Ok(Answer::Refused(refused)) => Err(refusal(directory, refused)),
        Ok(_) => Err(no_answer(directory)),
        Err(Error::NoAgent { socket }) => Err(Error::NoAgentToSet { socket }),
        Err(error) => Err(error),
    }
}

/// The jobs that the agent of `directory` knows of the calling user, ended ones too, the newest
/// first; root gets all. With a job's name (id, directory or its last part) this one with all
/// of its numbers, else the newest [`super::MOST_RECORDS`] in short.
///
/// # Errors
/// [`Error::NoAgent`], [`Error::AgentRefused`].
pub fn records_by_agent(directory: &Path, job: Option<&str>) -> Result<Vec<Record>> {
    let inquiry = Inquiry {
        abi: PL_ABI_VERSION,
        records: job.map_or(Inquire::All, |name| Inquire::Job(name.to_owned())),
    };
    match ask_patiently(directory, &inquiry)? {
        Answer::Records(records) => Ok(records),
        Answer::Refused(refused) => Err(refusal(directory, refused)),
        _ => Err(no_answer(directory)),
    }
}

/// Whether this process is the only one in the cgroup: the job ends with it.
fn is_alone(cgroup: &Path) -> bool {
    let processes = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    processes.trim() == std::process::id().to_string()
}

/// The counts of the job's connections. A missing answer is no failure: the command has run.
fn counts(directory: &Path) -> Option<Counts> {
    let question = Question {
        abi: PL_ABI_VERSION,
        about: About::Connections,
    };
    match ask(directory, &question) {
        Ok(Answer::Connections(counts)) => Some(counts),
        other => {
            tracing::debug!("the agent did not report the job's connections: {other:?}");
            None
        }
    }
}

/// A file by the path that the administrator would give it.
pub(super) fn listed(policy: &str) -> String {
    // As `Policy::load` distinguishes files and presets.
    if !policy.contains('/') && !policy.ends_with(".toml") {
        return policy.to_owned();
    }
    std::fs::canonicalize(policy)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or_else(|| policy.to_owned())
}

fn start(directory: &Path, request: &Request) -> Result<Started> {
    match ask_patiently(directory, request)? {
        Answer::Started(started) => Ok(started),
        Answer::Refused(refused) => Err(refusal(directory, refused)),
        _ => Err(no_answer(directory)),
    }
}

fn refusal(directory: &Path, refused: Refused) -> Error {
    Error::AgentRefused {
        socket: directory.join(JOBS_SOCKET),
        code: refused.code.to_string(),
        message: refused.message,
    }
}

/// The answer is not from an agent of this version.
fn no_answer(directory: &Path) -> Error {
    let socket = directory.join(JOBS_SOCKET);
    Error::path(
        "ask the agent at",
        &socket,
        io::ErrorKind::InvalidData.into(),
    )
}

/// Repeats the request while the agent restarts. If its socket was never there, it does not
/// wait.
fn ask_patiently(directory: &Path, request: &impl Serialize) -> Result<Answer> {
    let until = Instant::now() + RESTART;
    let was_there = directory.join(JOBS_SOCKET).exists();
    let mut is_warned = false;
    loop {
        match ask(directory, request) {
            Err(error) if was_there && is_restart(&error) && Instant::now() < until => {}
            answer => return answer,
        }
        if !is_warned {
            tracing::warn!(
                "no answer at {}: waiting up to {} s for the agent to restart",
                directory.join(JOBS_SOCKET).display(),
                RESTART.as_secs()
            );
            is_warned = true;
        }
        std::thread::sleep(RETRY);
    }
}

/// Whether the agent has ended, or hung up because it has too much to do.
fn is_restart(error: &Error) -> bool {
    match error {
        Error::NoAgent { .. } => true,
        Error::System { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        ),
        _ => false,
    }
}

fn ask(directory: &Path, request: &impl Serialize) -> Result<Answer> {
    let socket = directory.join(JOBS_SOCKET);
    let failed = |error| Error::path("ask the agent at", &socket, error);
    let mut stream = UnixStream::connect(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NoAgent {
            socket: socket.clone(),
        },
        _ => failed(error),
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let sent = stream.write_all(&request::line(request));
    // After an early refusal the connection is closed, but the answer is readable.
    if sent
        .as_ref()
        .is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe)
    {
        sent.map_err(failed)?;
    }
    let mut answer = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER))
        .read_line(&mut answer)
        .map_err(failed)?;
    match serde_json::from_str(&answer) {
        Ok(answer) => Ok(answer),
        Err(_) if !answer.ends_with('\n') => Err(failed(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it ended before it answered",
        ))),
        // It is no agent.
        Err(error) => Err(failed(error.into())),
    }
}
