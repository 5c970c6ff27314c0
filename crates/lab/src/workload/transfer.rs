// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files from the near hosts to the far ones, by `paceline send` (crate `courier`).

use paceline_courier::{Host, Prepared};
use paceline_experiment::plan::Transfer;
use paceline_experiment::record::{Record, TransferRecord};

use super::Case;
use crate::host::cpu::{self, CpuMeter};
use crate::CaseError;

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
    for repeat in 0..transfer.repeats {
        let seed = plan.seed.wrapping_add(u64::from(repeat));
        let prepared = Prepared::new(transfer, &plan.adaptation, seed, sides)?;
        let before = cpu::segments(network.hosts())?;
        let meter = CpuMeter::start()?;
        let outcome = prepared.run(|| case.heartbeat())?;
        let cpu = meter.stop(workload, outcome.elapsed_ns, outcome.payload_bytes)?;
        let after = cpu::segments(network.hosts())?;
        case.record(&Record::Transfer(TransferRecord {
            workload,
            repeat,
            elapsed_ns: outcome.elapsed_ns,
            payload_bytes: outcome.payload_bytes,
            streams_ns: outcome.streams_ns,
            segments: after[0] - before[0],
            retransmitted: after[1] - before[1],
        }))?;
        case.record(&Record::Cpu(cpu))?;
        case.advance()?;
    }
    Ok(())
}
