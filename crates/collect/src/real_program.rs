// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of real programs. They have no bound: only the program knows its traffic.

use paceline_experiment::plan::{RealProgram, Starter};
use paceline_experiment::record::{RealProgramRecord, Record};

use super::{pick, seconds, share, CollectError, Collector, Place};

impl Collector {
    pub(super) fn real_program<'r>(
        &mut self,
        place: &Place,
        index: usize,
        program: &RealProgram,
        records: impl Iterator<Item = &'r Record>,
    ) -> Result<(), CollectError> {
        let runs: Vec<&RealProgramRecord> = pick(records, |record| match record {
            Record::RealProgram(run) if run.workload == index => Some(run),
            _ => None,
        });
        if runs.is_empty() {
            return Ok(());
        }
        let name = |family| place.metric(family, &[&program.label]);
        // A client's time depends on its configured pauses between questions.
        if let Starter::Launcher { .. } = program.starter {
            let times = runs.iter().map(|run| seconds(run.elapsed_ns)).collect();
            self.put(place, &name("time_s"), times, None)?;
        }
        let speeds = program.values.iter().map(|(key, _)| ("speed", key));
        let times = program.times.iter().map(|(key, _)| ("time_s", key));
        for (at, (family, key)) in speeds.chain(times).enumerate() {
            let all = runs.iter().map(|run| run.values[at]).collect();
            let metric = place.metric(family, &[&program.label, key]);
            self.put(place, &metric, all, None)?;
        }
        let sent = runs.iter().map(|run| (run.retransmitted, run.segments));
        self.put(place, &name("retransmitted_share"), vec![share(sent)], None)?;
        let governed: Vec<_> = runs.iter().filter_map(|run| run.governed).collect();
        if governed.is_empty() {
            return Ok(());
        }
        let connections = governed.iter().map(|seen| seen.connections as f64);
        self.put(place, &name("connections"), connections.collect(), None)?;
        if let Starter::Client { .. } = program.starter {
            return Ok(());
        }
        let phases = governed.iter().map(|seen| seen.phases as f64);
        self.put(place, &name("phases"), phases.collect(), None)
    }
}
