// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of all-to-all after all-to-all.

use paceline_experiment::plan::{AllToAll, Topology};
use paceline_experiment::record::Record;

use super::{pick, seconds, CollectError, Collector, Place};

impl Collector {
    pub(super) fn all_to_all<'r>(
        &mut self,
        place: &Place,
        index: usize,
        (label, plan): (&str, &AllToAll),
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let runs = pick(records.clone(), |record| match record {
            Record::Run(run) if run.workload == index => Some(run),
            _ => None,
        });
        if runs.is_empty() {
            return Ok(());
        }
        let topology = &place.plan.topology;
        let name = |metric| place.metric(metric, &[label]);
        let others = topology.senders + topology.far_hosts - 1;
        let payload_bits = u64::from(others) * plan.block_bytes * 8;
        let from = plan.from_round.max(1) as usize - 1;
        let rates = runs.iter().filter_map(|run| {
            let rounds = run.done_ns.len().checked_sub(from)? as u64;
            let time = run.done_ns.last()?.saturating_sub(run.from_ns);
            Some((rounds * payload_bits) as f64 / seconds(time).max(f64::EPSILON))
        });
        let rates = rates.collect();
        let bound = payload_bits as f64 / round_bound_s(topology, plan.block_bytes);
        self.put(place, &name("bandwidth_bps"), rates, Some(bound))?;
        let samples = pick(records, |record| match record {
            Record::Samples(samples) if samples.workload == index => Some(samples),
            _ => None,
        });
        let pauses = samples
            .iter()
            .map(|samples| longest_pause_s(&samples.bytes_per_ms));
        self.put(place, &name("longest_pause_s"), pauses.collect(), None)?;
        let sent = runs
            .iter()
            .map(|run| (run.retransmitted, run.spurious, run.segments));
        self.sent_again(place, name, sent)?;
        if let Some(sample) = samples.last() {
            self.series(
                place,
                label,
                "time since the first round that counts (ms)",
                sample,
            );
        }
        Ok(())
    }
}

/// The longest time in which nothing passed the link, seconds.
fn longest_pause_s(bytes_per_ms: &[u64]) -> f64 {
    let used = bytes_per_ms
        .iter()
        .rposition(|bytes| *bytes > 0)
        .map_or(0, |last| last + 1);
    let pauses = bytes_per_ms[..used].split(|bytes| *bytes > 0);
    pauses.map(<[u64]>::len).max().unwrap_or(0) as f64 / 1e3
}

/// Bound of a round: the time of a host's received data on its own link, or of the
/// crossing data on the link between the clusters, whichever is longer.
fn round_bound_s(topology: &Topology, block_bytes: u64) -> f64 {
    let (near, far) = (u64::from(topology.senders), u64::from(topology.far_hosts));
    let wire_bits = topology.frame().wire_bytes(block_bytes) * 8;
    let at_host = (near + far - 1) * wire_bits;
    let across = near * far * wire_bits;
    let delay_s = topology.one_way_delay_ns as f64 / 1e9;
    (at_host as f64 / topology.edge_rate_bps as f64)
        .max(across as f64 / topology.rate_bps as f64 + delay_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_between_what_passes() {
        assert_eq!(longest_pause_s(&[0, 5, 0, 0, 7, 0, 0, 0]), 0.002);
        assert_eq!(longest_pause_s(&[0, 0, 0, 5]), 0.003);
        assert_eq!(longest_pause_s(&[]), 0.0);
    }

    #[test]
    fn the_link_between_the_clusters_bounds_what_eight_share() {
        let topology = Topology {
            senders: 8,
            far_hosts: 8,
            gateways: false,
            down: false,
            one_switch: false,
            rate_bps: 1_000_000_000,
            one_way_delay_ns: 0,
            buffer_bytes: 65_536,
            edge_rate_bps: 1_000_000_000,
            switch_buffer_bytes: 65_536,
            initial_window: 0,
            socket_buffer_bytes: 1 << 20,
            ip: 4,
            offload: false,
            bottleneck: None,
            mtu: 1500,
            host_queue: None,
            cross: None,
            impairments: paceline_experiment::plan::Impairments::default(),
            steps: Vec::new(),
        };
        // matsuda-2005, 4.4: 29 MB/s, headers not counted.
        let payload = 15.0 * 32_000.0;
        let bound = payload / round_bound_s(&topology, 32_000);
        assert!((27e6..28e6).contains(&bound), "{bound}");
    }
}
