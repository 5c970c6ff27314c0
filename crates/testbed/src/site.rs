// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts of an experiment's network as nodes, so that an MPI launcher can start ranks on
//! them as it does in a lab: this process is their keeper while it holds them.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::{fmt::Write, io};

use nix::sys::eventfd::EventFd;
use paceline_net::{Doing, Error, Namespace};

use super::door::{Door, Holder};
use super::launching::{LaunchPaths, Launching};
use super::mark::{end_inside, Mark};
use super::node::Node;
use super::socket::Reply;

/// The hidden command of `paceline lab` that [`Guard`] starts.
pub const GUARD_COMMAND: &str = "guard";

/// A host, by its name for launchers.
pub struct Host<'a> {
    /// Such as `near0`.
    pub name: String,
    /// Its network.
    pub network: &'a Namespace,
    /// Where it is reached.
    pub address: IpAddr,
}

/// Nodes that can be entered until this is dropped. Processes inside end then.
pub struct Site {
    nodes: Arc<Nodes>,
    launching: Launching,
    mark: Mark,
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
}

struct Nodes(Vec<Node>);

impl Holder for Nodes {
    fn nodes(&self) -> Vec<&Node> {
        self.0.iter().collect()
    }

    fn describe(&self) -> Reply {
        Reply::Failed("these are the hosts of an experiment, not of a lab".to_owned())
    }
}

impl Site {
    /// Makes nodes of `hosts`, one at least. None of them is visible from outside: the
    /// sockets are in the hosts' own networks.
    pub fn open(hosts: &[Host]) -> Result<Self, Error> {
        let lab = format!("run-{}", std::process::id());
        let mark = Mark::own(&lab).doing("identifying this process")?;
        let mut names = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
        for host in hosts {
            let _ = writeln!(names, "{} {}", host.address, host.name);
        }
        let node = |host: &Host| Node::around(host.network, &host.name, &names, &mark.to_string());
        let nodes = hosts.iter().map(node).collect::<Result<Vec<_>, _>>()?;
        let nodes = Arc::new(Nodes(nodes));
        let mut door = Door::open(&lab, &nodes.nodes())?;
        let stop = EventFd::new().doing("making an eventfd")?;
        let stopped = stop
            .as_fd()
            .try_clone_to_owned()
            .doing("making an eventfd")?;
        let inside = nodes.clone();
        let thread = std::thread::Builder::new()
            .name("door".to_owned())
            .spawn(move || while door.answer_next(&*inside, Some(stopped.as_fd())) {})
            .doing("starting a thread")?;
        Ok(Site {
            nodes,
            launching: Launching::new(hosts.iter().map(|host| host.name.clone()))
                .doing("making a file in memory")?,
            mark,
            stop,
            thread: Some(thread),
        })
    }

    /// The environment of launchers.
    pub fn launch_paths(&self) -> LaunchPaths {
        self.launching.paths()
    }

    /// The arguments of [`super::node::join`] for a host, by its index.
    pub fn entrance(&self, host: usize) -> Result<[OwnedFd; 3], Error> {
        let [network, names, mounts] = self.nodes.0[host].descriptors();
        let duplicate = |descriptor: std::os::fd::BorrowedFd| {
            descriptor
                .try_clone_to_owned()
                .doing("duplicating the descriptor of a node")
        };
        Ok([duplicate(network)?, duplicate(names)?, duplicate(mounts)?])
    }

    /// Ends all processes inside. Returns their number.
    pub fn end_all(&self) -> Result<usize, Error> {
        end_inside(&self.mark).doing("ending the processes on the hosts")
    }

    /// Starts a process that does the same, and removes `directory`, if this one is killed.
    pub fn guard(&self, directory: &std::path::Path) -> Result<Guard, Error> {
        use std::os::unix::process::CommandExt;
        let child = Command::new("/proc/self/exe")
            .arg0("paceline")
            .args(["lab", GUARD_COMMAND, &self.mark.to_string()])
            .arg(directory)
            .stdin(Stdio::piped())
            // A signal of the terminal to this process must not end the guard.
            .process_group(0)
            .spawn()
            .doing("starting a guard for the program")?;
        Ok(Guard(child))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.stop.write(1).is_ok() {
            drop(self.thread.take().map(JoinHandle::join));
        }
        // The next command ends a remainder.
        drop(self.end_all());
    }
}

/// A process that cleans up if this one is killed. Dropping it ends it without an action.
pub struct Guard(std::process::Child);

impl Drop for Guard {
    fn drop(&mut self) {
        use std::io::Write;
        if let Some(mut stdin) = self.0.stdin.take() {
            drop(stdin.write_all(b"."));
        }
        drop(self.0.wait());
    }
}

/// Runs the guard. Returns whether its starter was killed; then all processes are ended and
/// the directory is removed.
///
/// # Errors
/// Where something does not end, or the directory stays.
pub fn guard(mark: &str, directory: &std::path::Path) -> io::Result<bool> {
    let mark = Mark::parse(mark).ok_or_else(|| io::Error::other("this is not a lab's mark"))?;
    let mut word = Vec::new();
    io::Read::read_to_end(&mut io::stdin(), &mut word)?;
    if !word.is_empty() {
        return Ok(false);
    }
    end_inside(&mark)?;
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}
