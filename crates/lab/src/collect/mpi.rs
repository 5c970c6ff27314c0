// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of real MPI programs. They have no bound: nobody but the program knows what it
//! sends.

use super::{pick, seconds, share, CollectError, Collector, Place};
use crate::plan::Mpi;
use crate::record::{MpiRecord, Record};

impl Collector {
    pub(super) fn mpi<'r>(
        &mut self,
        place: &Place,
        index: usize,
        mpi: &Mpi,
        records: impl Iterator<Item = &'r Record>,
    ) -> Result<(), CollectError> {
        let runs: Vec<&MpiRecord> = pick(records, |record| match record {
            Record::Mpi(run) if run.workload == index => Some(run),
            _ => None,
        });
        if runs.is_empty() {
            return Ok(());
        }
        let name = |family| place.metric(family, &[&mpi.label]);
        let times = runs.iter().map(|run| seconds(run.elapsed_ns)).collect();
        self.put(place, &name("time_s"), times, None)?;
        for (at, (key, _)) in mpi.values.iter().enumerate() {
            let speeds = runs.iter().map(|run| run.values[at]).collect();
            let metric = place.metric("speed", &[&mpi.label, key]);
            self.put(place, &metric, speeds, None)?;
        }
        let sent = runs.iter().map(|run| (run.retransmitted, run.segments));
        self.put(place, &name("retransmitted_share"), vec![share(sent)], None)?;
        let governed: Vec<_> = runs.iter().filter_map(|run| run.governed).collect();
        if governed.is_empty() {
            return Ok(());
        }
        let connections = governed.iter().map(|seen| seen.connections as f64);
        self.put(place, &name("connections"), connections.collect(), None)?;
        let phases = governed.iter().map(|seen| seen.phases as f64);
        self.put(place, &name("phases"), phases.collect(), None)
    }
}
