// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of all-to-all and one-to-one in turn.

use paceline_experiment::plan::Switch;
use paceline_experiment::record::Record;

use super::{pick, seconds, CollectError, Collector, Place};
use crate::recovery;

impl Collector {
    pub(super) fn switch<'r>(
        &mut self,
        place: &Place,
        index: usize,
        (label, switch): (&str, &Switch),
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let from = switch.from_cycle;
        let transfers = pick(records.clone(), |record| match record {
            Record::Burst(burst) if burst.workload == index && burst.burst >= from => Some(burst),
            _ => None,
        });
        let samples = pick(records, |record| match record {
            Record::Samples(samples) if samples.workload == index && samples.burst >= from => {
                Some(samples)
            }
            _ => None,
        });
        if transfers.is_empty() {
            return Ok(());
        }
        let topology = &place.plan.topology;
        let rtt_ns = 2 * topology.one_way_delay_ns;
        let name = |metric| place.metric(metric, &[label]);
        let held = samples
            .iter()
            .map(|samples| recovery::held_from_s(&samples.bytes_per_ms, topology.rate_bps, rtt_ns))
            .collect();
        self.put(
            place,
            &name("rate_recovered_s"),
            held,
            Some(recovery::bound_s(rtt_ns)),
        )?;
        let (rate_bps, frame) = (topology.rate_bps, topology.frame());
        let bound = frame.completion_s(switch.transfer_bytes, 1, rate_bps, rtt_ns);
        let times = transfers
            .iter()
            .map(|transfer| seconds(transfer.completion_ns))
            .collect();
        self.put(place, &name("completion_s"), times, Some(bound))?;
        for (metric, at) in [("cwnd_at_switch", 0), ("cwnd_after_switch", 1)] {
            let windows = transfers
                .iter()
                .map(|transfer| transfer.cwnd[at].into())
                .collect();
            self.put(place, &name(metric), windows, None)?;
        }
        let sent = transfers
            .iter()
            .map(|transfer| (transfer.retransmitted, transfer.spurious, transfer.segments));
        self.sent_again(place, name, sent)?;
        if let Some(sample) = samples.last() {
            self.series(place, label, "time since the switch (ms)", sample);
        }
        Ok(())
    }
}
