// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of transfers of files.

use paceline_experiment::plan::Transfer;
use paceline_experiment::record::{Record, TransferRecord};

use super::{pick, seconds, share, CollectError, Collector, Place};

impl Collector {
    pub(super) fn transfer<'r>(
        &mut self,
        place: &Place,
        index: usize,
        plan: &Transfer,
        records: impl Iterator<Item = &'r Record>,
    ) -> Result<(), CollectError> {
        let runs: Vec<&TransferRecord> = pick(records, |record| match record {
            Record::Transfer(run) if run.workload == index => Some(run),
            _ => None,
        });
        if runs.is_empty() {
            return Ok(());
        }
        let name = |metric| place.metric(metric, &[&plan.label]);
        let times = runs.iter().map(|run| seconds(run.elapsed_ns)).collect();
        self.put(place, &name("time_s"), times, None)?;
        let topology = &place.plan.topology;
        let line = topology.frame().goodput_bps(topology.rate_bps);
        if plan.beside.is_some() {
            // As much as each of the transfer's connections, if all are equal.
            let fair = |run: &&TransferRecord| line / (run.streams_ns.len() + 1) as f64;
            let fair = runs
                .last()
                .filter(|run| !run.streams_ns.is_empty())
                .map(fair);
            let rate = |run: &&TransferRecord| {
                run.beside_bytes as f64 * 8.0 / seconds(run.beside_ns.max(1))
            };
            let rates = runs.iter().map(rate).collect();
            let metric = place.metric("goodput_bps", &[&plan.label, "beside"]);
            self.put(place, &metric, rates, fair)?;
        }
        let line = plan.rate_bps.map_or(line, |rate| line.min(rate as f64));
        let goodput =
            |run: &&TransferRecord| run.payload_bytes as f64 * 8.0 / seconds(run.elapsed_ns.max(1));
        let goodputs = runs.iter().map(goodput).collect();
        self.put(place, &name("goodput_bps"), goodputs, Some(line))?;
        let sent = runs.iter().map(|run| (run.retransmitted, run.segments));
        self.put(place, &name("retransmitted_share"), vec![share(sent)], None)?;
        let apart: Vec<f64> = runs
            .iter()
            .filter_map(|run| apart(&run.streams_ns))
            .collect();
        match apart.is_empty() {
            true => Ok(()),
            false => self.put(place, &name("last_to_first"), apart, Some(1.0)),
        }
    }
}

/// When the last stream was over, by when the first one was.
fn apart(streams_ns: &[u64]) -> Option<f64> {
    let (first, last) = (streams_ns.iter().min()?, streams_ns.iter().max()?);
    Some(*last as f64 / (*first).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn the_last_is_compared_with_the_first() {
        assert_eq!(apart(&[2000, 3000, 2500]), Some(1.5));
        assert_eq!(apart(&[7]), Some(1.0));
        assert_eq!(apart(&[]), None);
    }
}
