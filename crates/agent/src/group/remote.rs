// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A group by way of the agent.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use paceline_abi::pl_stream_record;

use super::protocol::{self, Question};
use super::Bounds;
use crate::error::{Error, Result};
use crate::listening::GROUPS_SOCKET;

/// How long an answer may take: the first one loads a program.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Remote {
    socket: PathBuf,
    name: String,
    /// None after an error: the agent may have restarted.
    stream: Option<UnixStream>,
}

impl Remote {
    /// # Errors
    /// [`Error::NoAgent`].
    pub fn connect(directory: &Path, name: &str) -> Result<Self> {
        let mut remote = Self {
            socket: directory.join(GROUPS_SOCKET),
            name: name.to_owned(),
            stream: None,
        };
        remote.stream = Some(remote.call()?);
        Ok(remote)
    }

    fn call(&self) -> Result<UnixStream> {
        let failed = |error| Error::path("ask the agent at", &self.socket, error);
        let mut stream = UnixStream::connect(&self.socket).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NoAgent {
                socket: self.socket.clone(),
            },
            _ => failed(error),
        })?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        send(&mut stream, &protocol::hello(&self.name)).map_err(failed)?;
        Ok(stream)
    }

    fn ask<T>(&mut self, question: &Question, read: impl Fn(&[u8]) -> io::Result<T>) -> Result<T> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.call()?,
        };
        let answer = send(&mut stream, &question.to_frame())
            .and_then(|()| protocol::read_answer(&mut stream))
            .map_err(|error| Error::path("ask the agent at", &self.socket, error))?;
        let answer = answer.map_err(|message| Error::AgentRefused {
            socket: self.socket.clone(),
            code: "group".to_owned(),
            message,
        })?;
        let answer =
            read(&answer).map_err(|error| Error::path("ask the agent at", &self.socket, error))?;
        self.stream = Some(stream);
        Ok(answer)
    }

    pub fn streams(&mut self) -> Result<Vec<pl_stream_record>> {
        self.ask(&Question::List, protocol::read_list)
    }

    pub fn apply(&mut self, bounds: &[Bounds], lease_us: u64) -> Result<usize> {
        let question = Question::Apply {
            lease_us,
            bounds: bounds.to_vec(),
        };
        self.ask(&question, protocol::read_applied)
    }
}

/// An agent that refuses closes the connection first; its message is still readable.
fn send(stream: &mut UnixStream, frame: &[u8]) -> io::Result<()> {
    match protocol::write_frame(stream, frame) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        sent => sent,
    }
}
