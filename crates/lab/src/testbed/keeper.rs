// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that holds a lab. `paceline lab up` starts it and waits until the lab
//! stands; until then it ends with that command, from then on it is on its own.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, getppid, setsid};
use serde::{Deserialize, Serialize};

use super::build::Network;
use super::mark::{end_orphans, Mark};
use super::node::Node;
use super::read_back::{self, LaunchPaths};
use super::socket::{self, Reply, Request};
use super::{doing, require_root, State, TestbedError, Topology};
use crate::case::{CaseError, Doing};

/// The hidden command of `paceline lab` that [`keep`] is behind.
pub const COMMAND: &str = "keep";
/// A client that says nothing is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same program as the keeper, under a path without spaces, whatever becomes of
/// the file. `/proc/KEEPER/fd/N` names this script to launchers, which take a program
/// without arguments, in all of the lab's namespaces.
const SHELL: &str = "#!/bin/sh\nexec /proc/KEEPER/exe lab shell \"$@\"\n";

/// What the keeper is told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    lab: String,
    topology_file: String,
    topology: Topology,
    /// Who gives it.
    starter: u32,
}

/// What the keeper says, once.
#[derive(Debug, Serialize, Deserialize)]
enum Outcome {
    Stands(Box<State>),
    IsUp(i32),
    NotTrusted(i32, u32),
    Failed(String),
}

/// Makes a lab called `lab`, which stays when this process ends. For the main thread:
/// while the lab is being built it goes with that.
///
/// # Errors
/// What was in the way; nothing is left then.
pub fn up(topology: &Topology, topology_file: &str, lab: &str) -> Result<State, TestbedError> {
    require_root("up")?;
    if !socket::is_name(lab) {
        return Err(TestbedError::BadName {
            name: lab.to_owned(),
        });
    }
    end_orphans().map_err(doing("cleaning up after labs that are gone"))?;
    let mut keeper = Command::new("/proc/self/exe")
        .arg0("paceline")
        .args(["lab", COMMAND, lab])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(doing("starting the lab's keeper"))?;
    let order = Order {
        lab: lab.to_owned(),
        topology_file: topology_file.to_owned(),
        topology: topology.clone(),
        starter: std::process::id(),
    };
    let told = keeper
        .stdin
        .take()
        .map(|stdin| socket::write(stdin, &order));
    let outcome = keeper.stdout.take().map(socket::read::<Outcome>);
    match outcome {
        Some(Ok(Some(Outcome::Stands(state)))) => return Ok(*state),
        Some(Ok(Some(Outcome::IsUp(keeper)))) => Err(TestbedError::IsUp {
            lab: lab.to_owned(),
            keeper,
        }),
        Some(Ok(Some(Outcome::NotTrusted(process, user)))) => Err(TestbedError::NotTrusted {
            lab: lab.to_owned(),
            process,
            user,
        }),
        Some(Ok(Some(Outcome::Failed(message)))) => Err(TestbedError::Keeper(message)),
        _ => {
            let status = keeper
                .wait()
                .map_err(doing("waiting for the lab's keeper"))?;
            drop(told);
            return Err(TestbedError::KeeperEnded(status));
        }
    }
    .inspect_err(|_| drop(keeper.wait()))
}

/// Keeps a lab as it is told on stdin, and says on stdout how that went. Returns only
/// when the lab could not be made.
///
/// # Errors
/// Where it was not started by [`up`].
pub fn keep() -> Result<(), TestbedError> {
    let order: Order = socket::read(io::stdin())
        .map_err(doing("reading what lab to keep"))?
        .ok_or(TestbedError::NoLab)?;
    go_with(order.starter).map_err(doing("leaving the terminal"))?;
    let outcome = match Keeper::start(&order) {
        Ok((keeper, state)) => {
            // From here on it may outlive who started it; if that is gone already,
            // nobody has been told of the lab, and it goes, too.
            set_pdeathsig(None).map_err(doing("letting go of who started it"))?;
            let stands = Outcome::Stands(Box::new(state));
            socket::write(io::stdout(), &stands).map_err(doing("saying that the lab stands"))?;
            detach().map_err(doing("leaving the terminal"))?;
            keeper.serve()
        }
        Err(outcome) => outcome,
    };
    socket::write(io::stdout(), &outcome).map_err(doing("saying what is wrong"))
}

/// Makes this process end when the one that started it does, and a session of its own.
fn go_with(starter: u32) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid().as_raw() != starter as i32 {
        return Err(io::Error::other("who started the keeper has ended"));
    }
    setsid()?;
    std::env::set_current_dir("/")
}

/// Leaves nothing of the terminal's, or the caller's pipes, open.
fn detach() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// Of descriptors a node has three and its socket one, which for many hosts is more
/// than a process usually may have.
fn allow_many_files() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// What `lab shell` and the list of hosts are handed out as: files that only this
/// process has.
#[derive(Debug)]
struct Launching {
    shell: OwnedFd,
    hosts: OwnedFd,
}

impl Launching {
    fn new(topology: &Topology) -> io::Result<Self> {
        let hosts: String = topology.hosts().map(|(name, ..)| name + "\n").collect();
        let shell = SHELL.replace("KEEPER", &std::process::id().to_string());
        Ok(Launching {
            shell: memory_file(c"shell", &shell)?,
            hosts: memory_file(c"hosts", &hosts)?,
        })
    }
}

fn memory_file(name: &std::ffi::CStr, text: &str) -> io::Result<OwnedFd> {
    let name = CString::from(name);
    let descriptor = memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC)?;
    File::from(descriptor.try_clone()?).write_all(text.as_bytes())?;
    Ok(descriptor)
}

struct Keeper {
    lab: String,
    topology_file: String,
    network: Network,
    launching: Launching,
    listeners: Vec<UnixListener>,
    /// Whoever was given a node, until it is inside: if the keeper ends before, it sees
    /// that by its end of this.
    entering: Vec<UnixStream>,
}

impl Keeper {
    /// Takes the name, then builds.
    fn start(order: &Order) -> Result<(Self, State), Outcome> {
        let failed = |error: io::Error| Outcome::Failed(error.to_string());
        let listener = match socket::listen(&order.lab) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(taken(&order.lab));
            }
            Err(error) => return Err(failed(error)),
        };
        allow_many_files().map_err(failed)?;
        let launching = Launching::new(&order.topology).map_err(failed)?;
        let mark = Mark::own(&order.lab).map_err(failed)?;
        let built = || -> Result<(Self, State), CaseError> {
            let network = Network::build(&order.topology, &mark)?;
            let mut listeners = vec![listener];
            for node in network.hosts.iter().chain(&network.switches) {
                listeners.push(node.network().enter(|| {
                    socket::listen(&order.lab)
                        .doing(format!("listening in {}", node.network().name()))
                })?);
            }
            let keeper = Keeper {
                lab: order.lab.clone(),
                topology_file: order.topology_file.clone(),
                network,
                launching,
                listeners,
                entering: Vec::new(),
            };
            let state = keeper.state()?;
            Ok((keeper, state))
        };
        built().map_err(|error| Outcome::Failed(error.to_string()))
    }

    fn state(&self) -> Result<State, CaseError> {
        let path = |file: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let launching = LaunchPaths {
            shell: path(&self.launching.shell),
            hosts: path(&self.launching.hosts),
        };
        read_back::state(&self.lab, &self.topology_file, &self.network, launching)
    }

    /// Answers until the process is ended.
    fn serve(mut self) -> ! {
        loop {
            let mut sources: Vec<PollFd> = Vec::new();
            let listeners = self.listeners.iter().map(AsFd::as_fd);
            for source in listeners.chain(self.entering.iter().map(AsFd::as_fd)) {
                sources.push(PollFd::new(source, PollFlags::POLLIN));
            }
            // It fails when a signal comes, which is for the next look.
            let _ = poll(&mut sources, PollTimeout::NONE);
            let ready: Vec<bool> = sources
                .iter()
                .map(|source| source.any().unwrap_or_default())
                .collect();
            let (callers, inside) = ready.split_at(self.listeners.len());
            let mut inside = inside.iter();
            self.entering
                .retain(|_| !inside.next().copied().unwrap_or_default());
            for (index, _) in callers.iter().enumerate().filter(|(_, ready)| **ready) {
                if let Ok((stream, _)) = self.listeners[index].accept() {
                    // One that goes away before its answer has its own reasons.
                    let _ = self.answer(stream);
                }
            }
        }
    }

    fn answer(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if socket::peer(&stream)?.uid() != 0 {
            return Ok(());
        }
        match socket::read(&stream)? {
            Some(Request::Describe) => {
                let reply = match self.state() {
                    Ok(state) => Reply::State(Box::new(state)),
                    Err(error) => Reply::Failed(error.to_string()),
                };
                socket::write(&stream, &reply)
            }
            Some(Request::Enter(name)) => match self.node(&name) {
                Some(node) => {
                    socket::send_node(&stream, node.descriptors())?;
                    self.entering.push(stream);
                    Ok(())
                }
                None => {
                    let known: Vec<&str> = self.nodes().map(|node| node.network().name()).collect();
                    socket::write(&stream, &Reply::NoSuchNode(known.join(", ")))
                }
            },
            None => Ok(()),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.network.hosts.iter().chain(&self.network.switches)
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes().find(|node| node.network().name() == name)
    }
}

/// Who has the name already.
fn taken(lab: &str) -> Outcome {
    let peer = socket::connect(lab).and_then(|stream| socket::peer(&stream));
    match peer {
        Ok(peer) if peer.uid() == 0 => Outcome::IsUp(peer.pid()),
        Ok(peer) => Outcome::NotTrusted(peer.pid(), peer.uid()),
        // It has just gone.
        Err(error) => Outcome::Failed(format!("the name \"{lab}\" was taken: {error}")),
    }
}
