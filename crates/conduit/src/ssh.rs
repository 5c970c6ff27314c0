// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other side by the system's ssh: agent, jump hosts and second factors work as they do
//! there.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use paceline_security::Protection;
use tokio::net::unix::pipe;

use crate::connect::Raw;
use crate::{Error, Result};
use paceline_transfer::wire::{Direction, Reason};

/// Number and length of waits for a helper whose work is over.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Calls of ssh.
#[derive(Debug, Clone)]
pub struct Ssh {
    /// The program and its options.
    pub command: Vec<String>,
    /// `paceline` at the other side: a command for its shell.
    pub remote: String,
    /// Ports for data connections at the other side, as its option takes them.
    pub ports: Option<String>,
    /// Options of a sending host, for its shell: its policy, and the connections' group.
    pub sending: Option<String>,
    /// `-v`s for the other side.
    pub verbose: u8,
}

/// A host that ssh reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost(String);

impl SshHost {
    /// `[USER@]HOST`.
    ///
    /// # Errors
    /// [`Error::NoAddress`] if ssh could take it for an option.
    pub fn new(text: &str) -> Result<Self> {
        let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
        if text.starts_with('-') || host.is_empty() || host.starts_with('-') {
            return Err(Error::NoAddress {
                address: text.to_owned(),
                expected: "[USER@]HOST",
            });
        }
        Ok(Self(text.to_owned()))
    }

    /// The host alone.
    pub fn host(&self) -> &str {
        let host = self
            .0
            .rsplit_once('@')
            .map_or(&self.0[..], |(_, host)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// A helper that runs.
pub struct Helper {
    child: Child,
    is_left: bool,
}

impl Helper {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Ssh`]; [`Error::Stop`] without a command.
    pub fn start(ssh: &Ssh, host: &SshHost, direction: Direction) -> Result<(Self, Raw)> {
        let (program, options) = ssh.command.split_first().ok_or_else(|| {
            Error::stop(
                Reason::Usage,
                "--ssh: expected a command, such as \"ssh -p 2222\"",
            )
        })?;
        let role = match direction {
            Direction::Push => "receive",
            Direction::Pull | Direction::Across => "send",
        };
        let mut remote = format!("{} {role} --stdio", ssh.remote);
        if let Some(ports) = &ssh.ports {
            remote.push_str(&format!(" --ports {ports}"));
        }
        if let (Some(sending), Direction::Pull | Direction::Across) = (&ssh.sending, direction) {
            remote.push_str(&format!(" {sending}"));
        }
        (0..ssh.verbose).for_each(|_| remote.push_str(" -v"));
        let child = Command::new(program)
            .args(options)
            .arg(host.host_argument())
            .arg(remote)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child =
            child.map_err(|error| Error::Ssh(format!("cannot start {program}: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Ssh("its pipes are missing".to_owned()));
        };
        let failed = |error: std::io::Error| Error::Ssh(format!("its pipes: {error}"));
        let write = pipe::Sender::from_owned_fd(OwnedFd::from(input)).map_err(failed)?;
        let read = pipe::Receiver::from_owned_fd(OwnedFd::from(output)).map_err(failed)?;
        let raw = Raw {
            read: Box::new(read),
            write: Box::new(write),
            protection: Protection::Kernel,
            socket: None,
        };
        let helper = Self {
            child,
            is_left: false,
        };
        Ok((helper, raw))
    }

    /// All is done: it ends by itself, a round trip or two later, without a wait for it.
    pub fn leave(&mut self) {
        self.is_left = true;
    }

    /// Finds the cause of the pipe's end: ssh, or the program behind it.
    pub fn explain(&mut self, error: Error) -> Error {
        let is_pipe = matches!(error, Error::Frame(_))
            || matches!(&error, Error::Security(paceline_security::Error::Malformed));
        if !is_pipe {
            return error;
        }
        // It has closed its end: it is about to end.
        let code = self.child.wait().ok().and_then(|status| status.code());
        match code {
            Some(127) => Error::Ssh(
                "the other side has no paceline in its PATH: install it there, or give \
                 --remote-command"
                    .to_owned(),
            ),
            Some(255) => Error::Ssh("ssh failed: see its message above".to_owned()),
            Some(0) | None => Error::Ssh(format!(
                "{error} (does the shell at the other side write something when it starts?)"
            )),
            Some(code) => Error::Ssh(format!("the other side ended with code {code}: {error}")),
        }
    }
}

impl SshHost {
    fn host_argument(&self) -> &str {
        &self.0
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // Its pipes are closed: it ends by itself, unless it hangs.
        for _ in 0..TRIES {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for wrong in ["", "-oProxyCommand=x", "user@", "user@-x"] {
            assert!(SshHost::new(wrong).is_err(), "{wrong}");
        }
        for (text, host) in [
            ("h", "h"),
            ("u@h", "h"),
            ("u@[fe80::1]", "fe80::1"),
            ("a@b@c", "c"),
        ] {
            assert_eq!(SshHost::new(text).expect("good").host(), host);
        }
    }
}
