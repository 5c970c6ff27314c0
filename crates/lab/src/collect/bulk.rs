// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of long flows side by side.

use super::{pick, seconds, share, CollectError, Collector, Place};
use crate::bounds;
use crate::plan::Bulk;
use crate::record::{CpuRecord, FlowRecord, Record};

impl Collector {
    pub(super) fn bulk<'r>(
        &mut self,
        place: &Place,
        index: usize,
        bulk: &Bulk,
        records: impl Iterator<Item = &'r Record> + Clone,
        cpus: &[CpuRecord],
    ) -> Result<(), CollectError> {
        let flows: Vec<&FlowRecord> = pick(records, |record| match record {
            Record::Flow(flow) if flow.workload == index => Some(flow),
            _ => None,
        });
        let topology = &place.plan.topology;
        let repetitions = cpus.len().max(1);
        for (number, group) in bulk.groups.iter().enumerate() {
            let of_group: Vec<&FlowRecord> = flows
                .iter()
                .copied()
                .filter(|flow| flow.group == number)
                .collect();
            if of_group.is_empty() {
                continue;
            }
            let tails = [bulk.label.as_str(), group.name.as_str()];
            // One sum, and one Jain index, per repetition.
            let each = of_group.chunks(of_group.len() / repetitions.min(of_group.len()));
            let rates: Vec<Vec<f64>> = each
                .map(|flows| flows.iter().map(|flow| goodput(flow)).collect())
                .collect();
            let sums = rates.iter().map(|rates| rates.iter().sum()).collect();
            let bound = bounds::goodput_bps(topology.rate_bps, topology.ip);
            self.put(
                place,
                &place.metric("goodput_bps", &tails),
                sums,
                Some(bound),
            )?;
            if group.flows > 1 {
                let indices = rates.iter().map(|rates| jain(rates)).collect();
                self.put(place, &place.metric("jain", &tails), indices, None)?;
            }
            let shares = share(
                of_group
                    .iter()
                    .map(|flow| (flow.retransmitted, flow.segments)),
            );
            self.put(
                place,
                &place.metric("retransmitted_share", &tails),
                vec![shares],
                None,
            )?;
            let completions: Vec<f64> = of_group
                .iter()
                .flat_map(|flow| &flow.bursts_ns)
                .map(|&ns| seconds(ns))
                .collect();
            if !completions.is_empty() {
                self.put(
                    place,
                    &place.metric("completion_s", &tails),
                    completions,
                    None,
                )?;
            }
        }
        let per_gigabyte: Vec<f64> = cpus
            .iter()
            .filter(|cpu| cpu.payload_bytes > 0)
            .map(|cpu| cpu.busy_ns as f64 / cpu.payload_bytes as f64)
            .collect();
        if per_gigabyte.is_empty() {
            return Ok(());
        }
        self.put(
            place,
            &place.metric("cpu_s", &["GB", &bulk.label]),
            per_gigabyte,
            None,
        )
    }
}

fn goodput(flow: &FlowRecord) -> f64 {
    flow.bytes as f64 * 8e9 / flow.active_ns.max(1) as f64
}

/// Jain's fairness index: 1 if all are equal, 1/n if one has everything.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares > 0.0 {
        sum * sum / (rates.len() as f64 * squares)
    } else {
        1.0
    }
}
