// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs one [`Plan`] on the kernel it stands on: network namespaces as hosts,
//! the workloads in this process's threads. The virtual backend calls it inside
//! its guest, the live backend on this machine.
//!
//! Needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).

pub(crate) mod adaptation;
mod bulk;
mod burst;
pub(crate) mod calibrate;
mod changes;
pub(crate) mod clusters;
mod codel;
pub(crate) mod connection;
mod coordination;
mod cpu;
mod empty_loop;
mod emulated;
mod impairments;
mod incast;
mod kernel_link;
mod packets;
pub mod ranks;
mod real_program;
mod routes;
pub(crate) mod sample;
pub(crate) mod streams;
pub mod topology;
mod validity;
pub(crate) mod windows;

use std::io;

use paceline_experiment::plan::{Impairments, Means, Plan, Workload};
use paceline_experiment::record::Record;

use self::validity::Watch;

pub use emulated::EmulatedBottleneck;
pub use kernel_link::KernelBottleneck;
pub use topology::{Bottleneck, Network};

/// Why a case could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The network could not be made or read.
    #[error(transparent)]
    Network(#[from] paceline_net::Error),
    /// Paceline could not adapt a sender's job.
    #[error("policy for the senders: {message}")]
    Policy {
        /// The agent's message.
        message: String,
    },
    /// A real program did not run to its end, or what it says has no result.
    #[error("[[program]] {program}: {problem}")]
    RealProgram {
        /// Its name.
        program: String,
        /// What is wrong.
        problem: String,
    },
    /// A rank's process failed.
    #[error("a rank failed: {0}")]
    Rank(String),
    /// No record that is right can be made of what came back.
    #[error("{0}")]
    Unexpected(&'static str),
    /// What was measured is worth nothing.
    #[error("the run is invalid: {0}")]
    Untrusted(String),
    /// The records could not be handed on.
    #[error("handing a record on: {0}")]
    Sink(io::Error),
}

/// Takes the records of a run, in order.
pub type Sink<'a> = &'a mut dyn FnMut(&Record) -> io::Result<()>;

/// What the workloads share.
pub(crate) struct Case<'a> {
    plan: &'a Plan,
    network: &'a Network<'a>,
    sink: Sink<'a>,
    done: u64,
}

impl Case<'_> {
    fn record(&mut self, record: &Record) -> Result<(), CaseError> {
        (self.sink)(record).map_err(CaseError::Sink)
    }

    /// Says that it goes on: this ends a run that was interrupted.
    fn heartbeat(&mut self) -> Result<(), CaseError> {
        let done = self.done;
        self.record(&Record::Progress { done })
    }

    fn advance(&mut self) -> Result<(), CaseError> {
        self.done += 1;
        self.heartbeat()
    }
}

/// A bottleneck made of `means`.
pub fn bottleneck(means: Means) -> Box<dyn Bottleneck> {
    match means {
        Means::Kernel => Box::new(KernelBottleneck::default()),
        Means::Emulator => Box::new(EmulatedBottleneck::default()),
    }
}

/// Builds the plan's network, reads the link back, runs the workloads and hands
/// every record to `sink`. The network is gone afterwards.
///
/// # Errors
/// The first thing that failed; records before it have been handed on.
pub fn run(plan: &Plan, bottleneck: &dyn Bottleneck, sink: Sink<'_>) -> Result<(), CaseError> {
    let network = Network::build(&plan.topology, &plan.adaptation.sysctl, bottleneck)?;
    let mut case = Case {
        plan,
        network: &network,
        sink,
        done: 0,
    };
    let reading = calibrate::read_back(case.network)?;
    case.record(&Record::Link(bottleneck.read_back(reading)))?;
    let wanted = &plan.topology;
    if wanted.impairments != Impairments::default() {
        network.change(wanted, false)?;
        let reading = impairments::read_back(&network, reading.rtt_ns)?;
        case.record(&Record::Impairments(reading))?;
    }
    let mut watch = Watch::start(&network)?;
    for (index, workload) in plan.workloads.iter().enumerate() {
        match workload {
            Workload::Burst(burst) => changes::during(&network, |changes| {
                burst::run(&mut case, index, burst, changes)
            })?,
            Workload::Incast(incast) => incast::run(&mut case, index, incast)?,
            Workload::Bulk(bulk) => bulk::run(&mut case, index, bulk)?,
            Workload::Streams(streams) => streams::run(&mut case, index, streams)?,
            Workload::Ranks(ranks) => ranks::run(&mut case, index, ranks)?,
            Workload::RealProgram(program) => real_program::run(&mut case, index, program)?,
        }
    }
    let problems = watch.problems(case.network, plan)?;
    for text in problems.into_iter().chain(bottleneck.problems()?) {
        case.record(&Record::Untrusted { text })?;
    }
    Ok(())
}
