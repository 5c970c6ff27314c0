// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands on labs that are up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::UnixCredentials;

use super::keeper::COMMAND;
use super::mark::{end_orphans, own_marks, Process};
use super::socket::{self, Reply, Request};
use super::{doing, node, require_root, State, TestbedError};

/// A keeper that is still building answers when it is done.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at a process that is ending.
const INTERVAL: Duration = Duration::from_millis(5);

/// The result of `lab down`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Down {
    /// A lab was up, and is not any more.
    Ended {
        /// Its name.
        lab: String,
        /// Processes inside that were ended with it.
        processes: usize,
    },
    /// There was none, or its keeper was gone.
    WasNotUp {
        /// Processes of labs without a keeper that were ended.
        processes: usize,
    },
}

/// The labs of this network namespace, and their states.
///
/// # Errors
/// Where one does not answer. One that goes meanwhile is left out.
pub fn list() -> Result<Vec<State>, TestbedError> {
    require_root("list")?;
    end_orphans().map_err(doing("cleaning up after labs that are gone"))?;
    let mut states = Vec::new();
    for lab in names()? {
        match describe(&lab) {
            Ok(state) => states.push(state),
            Err(TestbedError::Gone { .. } | TestbedError::NoSuchLab { .. }) => {
                end_orphans().map_err(doing("cleaning up after a lab that has gone"))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(states)
}

/// The named lab, or the only one.
pub fn find(lab: Option<&str>) -> Result<String, TestbedError> {
    let known = names()?;
    // A named lab may be a socket of another user, whose answer is refused later.
    let all = socket::labs().map_err(doing("looking for labs"))?;
    match (lab, &known[..]) {
        (Some(lab), _) if all.iter().any(|known| known == lab) => Ok(lab.to_owned()),
        (Some(lab), _) => Err(no_such_lab(lab)),
        (None, []) => Err(TestbedError::NoLab),
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(TestbedError::SeveralLabs {
            known: known.join(", "),
        }),
    }
}

/// The state of a lab.
///
/// # Errors
/// Where there is none of that name, or it does not answer.
pub fn describe(lab: &str) -> Result<State, TestbedError> {
    let stream = Connection::open(lab)?.stream;
    let failed = |error| failed(lab, "requesting the lab's state", error);
    socket::write(&stream, &Request::Describe).map_err(failed)?;
    match socket::read(&stream).map_err(failed)? {
        Some(Reply::State(state)) => Ok(*state),
        Some(Reply::Failed(message)) => Err(TestbedError::Keeper(message)),
        _ => Err(gone(lab)),
    }
}

/// Moves the calling process, which must have one thread only, into a node of a lab.
///
/// # Errors
/// Where there is no such lab or node. The process may be inside already then.
pub fn enter(lab: &str, name: &str) -> Result<(), TestbedError> {
    let stream = Connection::open(lab)?.stream;
    let failed = |error| failed(lab, "requesting a node", error);
    socket::write(&stream, &Request::Enter(name.to_owned())).map_err(failed)?;
    let (reply, descriptors) = socket::receive_node(&stream).map_err(failed)?;
    let descriptors: [OwnedFd; 3] = match (reply, <[OwnedFd; 3]>::try_from(descriptors)) {
        (Some(Reply::Node), Ok(descriptors)) => descriptors,
        (Some(Reply::NoSuchNode(known)), _) => {
            return Err(TestbedError::NoSuchNode {
                lab: lab.to_owned(),
                node: name.to_owned(),
                known,
            })
        }
        _ => return Err(gone(lab)),
    };
    node::enter(&descriptors).map_err(doing("entering a node"))?;
    // From here on this process bears the mark. If the keeper was ended before, the search
    // for processes with it may be over already.
    match is_open(&stream) {
        true => Ok(()),
        false => Err(gone(lab)),
    }
}

/// Takes a lab down, with all processes inside; without a name the only one. Also ends
/// the processes of labs whose keeper was killed. That there is no such lab is success.
///
/// # Errors
/// Where it cannot, or several labs are up and none is named.
pub fn down(lab: Option<&str>) -> Result<Down, TestbedError> {
    require_root("down")?;
    let lab = match (lab, find(lab)) {
        (_, Ok(lab)) => Some(lab),
        (_, Err(TestbedError::NoLab | TestbedError::NoSuchLab { .. })) => None,
        (_, Err(error)) => return Err(error),
    };
    let mut ended = None;
    if let Some(lab) = lab {
        if own_marks().iter().any(|mark| mark.lab == lab) {
            return Err(TestbedError::Inside { lab });
        }
        match Connection::open(&lab) {
            Ok(connection) => {
                end_keeper(&lab, connection.peer.pid())
                    .map_err(doing("ending the lab's keeper"))?;
                ended = Some(lab);
            }
            Err(TestbedError::NoSuchLab { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let processes = end_orphans().map_err(doing("ending the lab's processes"))?;
    Ok(match ended {
        Some(lab) => Down::Ended { lab, processes },
        None => Down::WasNotUp { processes },
    })
}

/// Ends a lab's keeper. Has ended already is success, also where the kernel has not closed its
/// sockets yet: with many processes they were seen open for 60 ms after it had been reaped
/// (Linux 6.18).
fn end_keeper(lab: &str, keeper: i32) -> io::Result<()> {
    let number = match u32::try_from(keeper) {
        Ok(number) if number > 0 => number,
        _ => return Err(io::Error::other("it is in another PID namespace")),
    };
    let process = match Process::open(number) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
        process => process?,
    };
    // Only now: the number may be another process's. While the descriptor is open it is nobody
    // else's.
    if is_keeper(lab, number, &process)? {
        process.kill()?;
        if !process.wait()? {
            return Err(io::Error::other("the process does not end"));
        }
    }
    Ok(())
}

/// Whether this process is the keeper of that lab. One that is ending, or in the middle of
/// `exec`, has no arguments: that is waited for, since a lab's processes count as orphans only
/// when its keeper has ended.
fn is_keeper(lab: &str, number: u32, process: &Process) -> io::Result<bool> {
    let keeper = ["paceline", "lab", COMMAND, lab, ""].map(str::as_bytes);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        match std::fs::read(format!("/proc/{number}/cmdline")) {
            Ok(arguments) if arguments.is_empty() => {}
            Ok(arguments) => return Ok(arguments.split(|byte| *byte == 0).eq(keeper)),
            Err(_) => return Ok(false),
        }
        if process.wait_for(INTERVAL)? {
            return Ok(false);
        }
    }
    Err(io::Error::other("the process does not end"))
}

struct Connection {
    stream: UnixStream,
    peer: UnixCredentials,
}

impl Connection {
    fn open(lab: &str) -> Result<Self, TestbedError> {
        let stream = match socket::connect(lab) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(no_such_lab(lab));
            }
            Err(error) => return Err(doing("connecting to the lab's keeper")(error)),
        };
        let peer = socket::peer(&stream).map_err(doing("identifying the lab's keeper"))?;
        // This process may enter the answer's namespaces as root.
        if peer.uid() != 0 {
            return Err(TestbedError::NotTrusted {
                lab: lab.to_owned(),
                process: peer.pid(),
                user: peer.uid(),
            });
        }
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(doing("connecting to the lab's keeper"))?;
        Ok(Connection { stream, peer })
    }
}

/// Whether a process holds the other end.
fn is_open(stream: &UnixStream) -> bool {
    let mut sources = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    let polled = poll(&mut sources, PollTimeout::ZERO);
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR;
    polled.is_ok()
        && !sources[0]
            .revents()
            .is_some_and(|events| events.intersects(closed))
}

/// Maps an error on a connection to a keeper.
fn failed(lab: &str, what: &'static str, error: io::Error) -> TestbedError {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => gone(lab),
        _ => doing(what)(error),
    }
}

fn gone(lab: &str) -> TestbedError {
    TestbedError::Gone {
        lab: lab.to_owned(),
    }
}

fn no_such_lab(asked: &str) -> TestbedError {
    let known = names().unwrap_or_default();
    TestbedError::NoSuchLab {
        asked: asked.to_owned(),
        known: match &known[..] {
            [] => "none".to_owned(),
            known => known.join(", "),
        },
    }
}

/// The labs of this network namespace: any user can take such a name, but only root's are labs.
fn names() -> Result<Vec<String>, TestbedError> {
    let mut labs = socket::labs().map_err(doing("looking for labs"))?;
    // One that has gone meanwhile has no owner, nor has one that accepts no connections.
    labs.retain(|lab| matches!(socket::owner(lab), Ok(0)));
    Ok(labs)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// A process with these arguments, which ends with its input.
    fn process(name: &str, script: &str, more: &[&str]) -> std::process::Child {
        let mut process = Command::new("sh");
        process.arg0(name).stdin(Stdio::piped());
        process.args(["-c", script]).args(more).spawn().unwrap()
    }

    #[test]
    fn a_keeper_that_has_been_reaped_has_ended() {
        let mut gone = process("sh", ":", &[]);
        gone.wait().unwrap();
        let number = i32::try_from(gone.id()).unwrap();
        end_keeper("two", number).unwrap();
        assert!(end_keeper("two", 0).is_err());
    }

    #[test]
    fn another_process_with_the_number_of_a_keeper_is_not_ended() {
        let mut other = process("paceline", "read line", &["lab", COMMAND, "two"]);
        end_keeper("two", i32::try_from(other.id()).unwrap()).unwrap();
        assert_eq!(other.try_wait().unwrap(), None, "it was ended");
        drop(other.stdin.take());
        other.wait().unwrap();
    }
}
