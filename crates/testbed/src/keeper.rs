// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that holds a lab. `paceline lab up` starts it and waits until the lab
//! stands; until then it ends with that command, from then on it is on its own.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, getppid, setsid};
use paceline_net::Error;
use serde::{Deserialize, Serialize};

use super::build::Network;
use super::door::{Door, Holder};
use super::launching::Launching;
use super::mark::{end_orphans, Mark};
use super::node::Node;
use super::read_back;
use super::socket::{self, Reply};
use super::{doing, require_root, State, TestbedError, Topology};

/// The hidden command of `paceline lab` that calls [`keep`].
pub const COMMAND: &str = "keep";
/// The order to the keeper.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    lab: String,
    topology_file: String,
    topology: Topology,
    /// The process that gives the order.
    starter: u32,
}

/// The keeper's report.
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
/// The obstacle; nothing is left then.
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
    let ready = keeper
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
            drop(ready);
            return Err(TestbedError::KeeperEnded(status));
        }
    }
    .inspect_err(|_| drop(keeper.wait()))
}

/// Keeps the lab of the order on stdin, and reports the outcome on stdout. Returns only
/// when the lab could not be made.
///
/// # Errors
/// Where it was not started by [`up`].
pub fn keep() -> Result<(), TestbedError> {
    let order: Order = socket::read(io::stdin())
        .map_err(doing("reading the lab to build"))?
        .ok_or(TestbedError::NoLab)?;
    go_with(order.starter).map_err(doing("starting a session"))?;
    let outcome = match Keeper::start(&order) {
        Ok((keeper, state)) => {
            // From here on it may outlive its starter. If that is gone already, the
            // report fails, and the lab goes, too.
            set_pdeathsig(None).map_err(doing("clearing the parent-death signal"))?;
            let stands = Outcome::Stands(Box::new(state));
            socket::write(io::stdout(), &stands).map_err(doing("reporting the lab"))?;
            detach().map_err(doing("starting a session"))?;
            keeper.serve()
        }
        Err(outcome) => outcome,
    };
    socket::write(io::stdout(), &outcome).map_err(doing("reporting the error"))
}

/// Makes this process end when the one that started it does, and a session of its own.
fn go_with(starter: u32) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid().as_raw() != starter as i32 {
        return Err(io::Error::other(
            "the process that started the keeper has ended",
        ));
    }
    setsid()?;
    std::env::set_current_dir("/")
}

/// Closes the terminal and the caller's pipes.
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

/// The kept state.
struct Kept {
    lab: String,
    topology_file: String,
    network: Network,
    launching: Launching,
}

struct Keeper {
    kept: Kept,
    door: Door,
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
        let hosts = order.topology.hosts().map(|(name, ..)| name);
        let launching = Launching::new(hosts).map_err(failed)?;
        let mark = Mark::own(&order.lab).map_err(failed)?;
        let built = || -> Result<(Self, State), Error> {
            let kept = Kept {
                lab: order.lab.clone(),
                topology_file: order.topology_file.clone(),
                network: Network::build(&order.topology, &mark)?,
                launching,
            };
            let mut door = Door::open(&order.lab, &kept.nodes())?;
            door.add(listener);
            let state = kept.state()?;
            Ok((Keeper { kept, door }, state))
        };
        built().map_err(|error| Outcome::Failed(error.to_string()))
    }

    /// Answers until the process is ended.
    fn serve(mut self) -> ! {
        loop {
            self.door.answer_next(&self.kept, None);
        }
    }
}

impl Kept {
    fn state(&self) -> Result<State, Error> {
        read_back::state(
            &self.lab,
            &self.topology_file,
            &self.network,
            self.launching.paths(),
        )
    }
}

impl Holder for Kept {
    fn nodes(&self) -> Vec<&Node> {
        let network = &self.network;
        network.hosts.iter().chain(&network.switches).collect()
    }

    fn describe(&self) -> Reply {
        match self.state() {
            Ok(state) => Reply::State(Box::new(state)),
            Err(error) => Reply::Failed(error.to_string()),
        }
    }
}

/// The lab that has the name already.
fn taken(lab: &str) -> Outcome {
    let peer = socket::connect(lab).and_then(|stream| socket::peer(&stream));
    match peer {
        Ok(peer) if peer.uid() == 0 => Outcome::IsUp(peer.pid()),
        Ok(peer) => Outcome::NotTrusted(peer.pid(), peer.uid()),
        // It has just gone.
        Err(error) => Outcome::Failed(format!("the name \"{lab}\" is in use: {error}")),
    }
}
