// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of parallel streams.

use paceline_experiment::plan::{Route, Streams};
use paceline_experiment::record::{Record, StreamSample, StreamsRecord};
use paceline_report::Series;

use super::{pick, seconds, CollectError, Collector, Place};

impl Collector {
    pub(super) fn streams<'r>(
        &mut self,
        place: &Place,
        index: usize,
        plan: &Streams,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let runs: Vec<&StreamsRecord> = pick(records, |record| match record {
            Record::Streams(run) if run.workload == index => Some(run),
            _ => None,
        });
        let complete = || runs.iter().filter(|run| !run.done_ns.is_empty());
        if complete().next().is_none() {
            return Ok(());
        }
        let name = |metric| place.metric(metric, &[&plan.label]);
        let of_each = |value: fn(&[u64]) -> f64| -> Vec<f64> {
            complete()
                .map(|run| {
                    let mut done = run.done_ns.clone();
                    done.sort_unstable();
                    value(&done)
                })
                .collect()
        };
        let first = |done: &[u64]| seconds(done[0]);
        let last = |done: &[u64]| seconds(done[done.len() - 1]);
        self.put(place, &name("first_s"), of_each(first), None)?;
        let bound = last_bound_s(place, plan);
        self.put(place, &name("last_s"), of_each(last), Some(bound))?;
        let middle = |done: &[u64]| seconds(done[done.len() / 2]);
        self.put(place, &name("median_s"), of_each(middle), None)?;
        let apart = |done: &[u64]| done[done.len() - 1] as f64 / done[0].max(1) as f64;
        self.put(place, &name("last_to_first"), of_each(apart), Some(1.0))?;
        let sent = runs
            .iter()
            .map(|run| (run.retransmitted, run.spurious, run.segments));
        self.sent_again(place, name, sent)?;
        if plan.beside.is_some() {
            let rate = |run: &&&StreamsRecord| run.beside_bytes as f64 * 8e9 / run.beside_ns as f64;
            let rates = complete().map(|run| rate(&run)).collect();
            let tails = [plan.label.as_str(), "beside"];
            let all = f64::from(plan.hosts * plan.per_host + 1);
            let topology = &place.plan.topology;
            let fair = topology.frame().goodput_bps(topology.rate_bps) / all;
            let metric = place.metric("goodput_bps", &tails);
            self.put(place, &metric, rates, Some(fair))?;
        }
        if let Some(run) = runs.last() {
            self.progress(place, plan, run);
        }
        Ok(())
    }

    /// How the streams went on together, over time: of the last repetition.
    fn progress(&mut self, place: &Place, plan: &Streams, run: &StreamsRecord) {
        type Value = fn(&StreamSample) -> f64;
        const ARRIVED: &str = "arrived of one stream (MB)";
        const IN_FLIGHT: &str = "in flight of one stream (segments)";
        let quantities: [(&str, &str, &str, Value); 6] = [
            ("active", "", "active streams", |sample| {
                f64::from(sample.active)
            }),
            ("arrived", "fastest", ARRIVED, |sample| {
                sample.fastest_bytes as f64 / 1e6
            }),
            ("arrived", "slowest", ARRIVED, |sample| {
                sample.slowest_bytes as f64 / 1e6
            }),
            (
                "in-flight",
                "",
                "in flight, all streams (segments)",
                |sample| sample.total_inflight as f64,
            ),
            ("in-flight-of-one", "least", IN_FLIGHT, |sample| {
                f64::from(sample.least_inflight)
            }),
            ("in-flight-of-one", "most", IN_FLIGHT, |sample| {
                f64::from(sample.most_inflight)
            }),
        ];
        let step_s = seconds(run.step_ns);
        let times = || (0u32..).map(|step| f64::from(step) * step_s);
        let mut series = |tail: &str, line: &str, y_label: &str, points| {
            self.series.push(Series {
                experiment_part: place.metric(&plan.label, &[tail]),
                variant: place.plan.variant.clone(),
                line: line.to_owned(),
                x_label: "time since the common start (s)".to_owned(),
                y_label: y_label.to_owned(),
                points,
            });
        };
        // Of each second: in-order data arrives in jumps from one sample to the next.
        let in_second = (1_000_000_000 / run.step_ns.max(1)).max(1) as usize;
        let starts = (0..run.samples.len().saturating_sub(1)).step_by(in_second);
        let throughput = starts.map(|from| {
            let to = (from + in_second).min(run.samples.len() - 1);
            let [begun, ended] = [from, to].map(|at| run.samples[at].arrived_bytes);
            let megabits = ended.saturating_sub(begun) as f64 * 8.0 / 1e6;
            let took_s = (to - from) as f64 * step_s;
            (from as f64 * step_s, megabits / took_s)
        });
        let throughput = throughput.collect();
        series("throughput", "", "throughput (Mbit/s)", throughput);
        for (tail, line, y_label, value) in quantities {
            let points = times().zip(run.samples.iter().map(value)).collect();
            series(tail, line, y_label, points);
        }
    }
}

/// All streams' bytes with their headers at the link's rate, and a round trip, or of the
/// route that needs the longest. Where a host stands still, the others can use what it leaves; a flow beside them has its share.
fn last_bound_s(place: &Place, plan: &Streams) -> f64 {
    let topology = &place.plan.topology;
    let frame = topology.frame();
    let of_route = |route: &Route| {
        let streams = u64::from(route.hosts * plan.per_host);
        let bytes = streams * plan.size_bytes;
        frame.completion_s(bytes, streams, route.rate_bps, route.rtt_ns)
    };
    if !plan.routes.is_empty() {
        return plan.routes.iter().map(of_route).fold(0.0, f64::max);
    }
    let streams = u64::from(plan.hosts * plan.per_host);
    let rate_bps = match plan.beside {
        None => topology.rate_bps,
        Some(_) => topology.rate_bps * streams / (streams + 1),
    };
    let rtt_ns = 2 * topology.one_way_delay_ns;
    frame.completion_s(streams * plan.size_bytes, streams, rate_bps, rtt_ns)
}
