// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files from the near hosts to the far ones, by `paceline send` (crate `courier`).

use std::net::SocketAddr;

use paceline_courier::{Host, Prepared};
use paceline_experiment::plan::Transfer;
use paceline_experiment::record::{Record, TransferRecord};
use paceline_net::clock::{now_ns, sleep_until};

use super::beside::Beside;
use super::Case;
use crate::host::connection::listen;
use crate::host::cpu::{self, CpuMeter};
use crate::CaseError;

/// A flow beside the transfer begins so much earlier: it has filled the path by then.
const BESIDE_NS: u64 = 2_000_000_000;

/// Runs the workload.
pub fn run(case: &mut Case, workload: usize, transfer: &Transfer) -> Result<(), CaseError> {
    let (network, plan) = (case.network, case.plan);
    if let Some(name) = &plan.adaptation.congestion {
        network.set_congestion(name)?;
    }
    let all = network.hosts().zip(network.addresses());
    let all: Vec<_> = all
        .map(|(network, address)| Host { network, address })
        .collect();
    let (near, far) = all.split_at(network.senders.len());
    let hosts = transfer.hosts as usize;
    let sides = (&near[..hosts], &far[..hosts]);
    let own = || sides.0.iter().chain(sides.1).map(|host| host.network);
    for repeat in 0..transfer.repeats {
        let seed = plan.seed.wrapping_add(u64::from(repeat));
        let prepared = Prepared::new(transfer, &plan.adaptation, seed, sides)?;
        let mut beside = None;
        if let Some(name) = &transfer.beside {
            let address = SocketAddr::new(far[hosts].address, 0);
            let (listener, address) = listen(far[hosts].network, address)?;
            let host = near[hosts].network;
            let mut flow = Beside::connect(host, (&listener, address), name)?;
            flow.start(now_ns())?;
            sleep_until(now_ns() + BESIDE_NS);
            flow.count()?;
            beside = Some(flow);
        }
        let before = cpu::segments(own())?;
        let meter = CpuMeter::start()?;
        let outcome = prepared.run(|| case.heartbeat())?;
        let (beside_bytes, beside_ns) = match beside {
            Some(flow) => flow.stop()?,
            None => (0, 0),
        };
        let payload_bytes = outcome.payload_bytes + beside_bytes;
        let cpu = meter.stop(workload, outcome.elapsed_ns, payload_bytes)?;
        let after = cpu::segments(own())?;
        case.record(&Record::Transfer(TransferRecord {
            workload,
            repeat,
            elapsed_ns: outcome.elapsed_ns,
            payload_bytes: outcome.payload_bytes,
            streams_ns: outcome.streams_ns,
            segments: after[0] - before[0],
            retransmitted: after[1] - before[1],
            beside_bytes,
            beside_ns,
        }))?;
        case.record(&Record::Cpu(cpu))?;
        case.advance()?;
    }
    Ok(())
}
