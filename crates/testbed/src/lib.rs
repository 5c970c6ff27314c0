// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network that stays up for programs of the user's: clusters of hosts with switches
//! of finite buffers, and links of a given rate, delay and buffer between them.
//!
//! - [`topology`] is the file, checked ([`mod@file`], [`check`], [`routes`], [`address`]);
//! - [`build`] makes it of [`node`]s and [`wan`]s, [`probe`] and [`read_back`] measure it
//!   and return a [`state`];
//! - [`keeper`] is the process that holds it, [`client`] has the other commands on it over
//!   [`socket`]s of the keeper's [`door`], [`mpi`] and [`launching`] set up an MPI launcher
//!   for it;
//! - [`site`] makes such nodes of an experiment's hosts, for launchers;
//! - [`mark`] finds the processes inside.
//!
//! Nothing of a lab is in the file system. Namespaces, links and sockets are descriptors
//! of the keeper and go with it, however it ends; processes inside bear the lab's mark,
//! and the next command ends those whose keeper is gone.

#![deny(unsafe_code)]

pub mod address;
pub mod build;
pub mod check;
pub mod client;
pub mod congestion;
pub mod door;
pub mod file;
pub mod keeper;
pub mod launching;
#[allow(unsafe_code, reason = "processes by descriptor and number")]
pub mod mark;
pub mod mpi;
pub mod node;
pub mod page;
mod picture;
pub mod probe;
pub mod read_back;
pub mod routes;
pub mod site;
#[allow(unsafe_code, reason = "descriptors that come over a socket")]
pub mod socket;
pub mod state;
pub mod topology;
pub mod wan;

use std::io;
use std::path::Path;
use std::process::ExitStatus;

use paceline_net::Error;

pub use state::State;
pub use topology::{Topology, TopologyError};

/// Why a lab could not be made, found or used.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// Namespaces are root's.
    #[error("paceline lab {action} needs root: sudo paceline lab {action} ...")]
    NotRoot {
        /// The command.
        action: &'static str,
    },
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] Error),
    /// There is one of that name.
    #[error("a lab \"{lab}\" is already up, kept by process {keeper}: run paceline lab down {lab}, or give another name with --name")]
    IsUp {
        /// Its name.
        lab: String,
        /// Its keeper.
        keeper: i32,
    },
    /// There is none of that name.
    #[error("no lab \"{asked}\" is up; up: {known}")]
    NoSuchLab {
        /// The requested name.
        asked: String,
        /// Names, or "none".
        known: String,
    },
    /// There is none at all.
    #[error("no lab is up: run paceline lab up TOPOLOGY.toml")]
    NoLab,
    /// The command must name one.
    #[error("several labs are up, so name one: {known}")]
    SeveralLabs {
        /// Their names.
        known: String,
    },
    /// Not a valid lab's name.
    #[error(
        "\"{name}\" is not a lab name: write letters, digits, \"-\", \"_\" and \".\", at most {}",
        socket::LONGEST_NAME
    )]
    BadName {
        /// The given name.
        name: String,
    },
    /// The lab has no such node.
    #[error("the lab \"{lab}\" has no node \"{node}\"; it has {known}")]
    NoSuchNode {
        /// The lab.
        lab: String,
        /// The requested name.
        node: String,
        /// Its nodes.
        known: String,
    },
    /// A user without root's rights listens at a lab's address.
    #[error("process {process} of user {user}, not of root, answers as lab \"{lab}\"")]
    NotTrusted {
        /// The name.
        lab: String,
        /// The listening process.
        process: i32,
        /// Its user.
        user: u32,
    },
    /// A lab cannot be taken down from its inside.
    #[error("this command runs inside of the lab \"{lab}\": take it down from outside")]
    Inside {
        /// The lab.
        lab: String,
    },
    /// The keeper's message.
    #[error("{0}")]
    Keeper(String),
    /// The keeper ended without a report.
    #[error("the lab's keeper ended before the lab was up: {0}")]
    KeeperEnded(ExitStatus),
    /// The keeper of a lab has just ended.
    #[error("the lab \"{lab}\" went down meanwhile")]
    Gone {
        /// The lab.
        lab: String,
    },
    /// No launcher to be found.
    #[error("{0}")]
    NoLauncher(String),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Adds the action that failed to an error of the system.
pub(crate) fn doing<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> TestbedError {
    move |error| TestbedError::System {
        doing: what,
        source: error.into(),
    }
}

/// Fails without root.
pub fn require_root(action: &'static str) -> Result<(), TestbedError> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(TestbedError::NotRoot { action }),
    }
}

/// Whether this kernel has IPv6, and it was not switched off when it started.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
