// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs one [`Plan`] on the kernel it stands on: network namespaces as hosts,
//! the workloads in this process's threads. The virtual backend calls it inside
//! its guest, the live backend on this machine.
//!
//! Needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).

mod arrivals;
mod beside;
mod bulk;
mod burst;
mod cross;
mod incast;
mod messages;
mod netpipe;
mod random;
pub mod ranks;
mod real_program;
mod streams;
mod transfer;

use paceline_experiment::plan::{Impairments, Plan, Workload};
use paceline_experiment::record::{Record, Sink};

use crate::network::gateways::Gateways;
use crate::network::topology::{Bottleneck, Network};
use crate::network::validity::Watch;
use crate::network::{calibrate, changes, impairments};
use crate::CaseError;

/// The parts that workloads share.
pub(crate) struct Case<'a> {
    plan: &'a Plan,
    network: &'a Network<'a>,
    sink: Sink<'a>,
    done: u64,
    gateways: Option<Gateways>,
}

impl Case<'_> {
    fn record(&mut self, record: &Record) -> Result<(), CaseError> {
        (self.sink)(record).map_err(CaseError::Sink)
    }

    /// Reports that the case is alive; fails if the run was interrupted.
    fn heartbeat(&mut self) -> Result<(), CaseError> {
        let done = self.done;
        self.record(&Record::Progress { done })
    }

    fn advance(&mut self) -> Result<(), CaseError> {
        self.done += 1;
        self.heartbeat()
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
        gateways: None,
    };
    let reading = calibrate::read_back(case.network)?;
    case.record(&Record::Link(bottleneck.read_back(reading)))?;
    let wanted = &plan.topology;
    if wanted.impairments != Impairments::default() {
        network.change(wanted, false)?;
        let reading = impairments::read_back(&network, reading.rtt_ns)?;
        case.record(&Record::Impairments(reading))?;
    }
    if let Some(gateway) = &plan.adaptation.gateway {
        case.gateways = Some(Gateways::start(&network, gateway)?);
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
            Workload::Messages(messages) => messages::run(&mut case, index, messages)?,
            Workload::Netpipe(netpipe) => netpipe::run(&mut case, index, netpipe)?,
            Workload::Ranks(ranks) => ranks::run(&mut case, index, ranks)?,
            Workload::RealProgram(program) => real_program::run(&mut case, index, program)?,
            Workload::Transfer(transfer) => transfer::run(&mut case, index, transfer)?,
        }
    }
    let problems = watch.problems(case.network, plan)?;
    for text in problems.into_iter().chain(bottleneck.problems()?) {
        case.record(&Record::Untrusted { text })?;
    }
    Ok(())
}
