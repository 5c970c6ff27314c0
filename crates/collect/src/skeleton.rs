// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of benchmark skeletons.

use paceline_experiment::plan;
use paceline_experiment::record::{Record, RunRecord};
use paceline_experiment::skeleton::replay::{self, Network};
use paceline_experiment::skeleton::{compute, Benchmark, Skeleton, RANKS};

use super::{pick, seconds, CollectError, Collector, Place};

/// Tail of the metric of all benchmarks together.
const MEAN: &str = "mean";

/// A run that took no longer than this many times its bound is one that a busy CPU can
/// hardly have slowed down.
const NEAR_BOUND: f64 = 1.02;

impl Collector {
    /// Returns whether the CPU can have set the pace: not where the run is as short as
    /// the network and the computing allow, however busy it was in what time was left.
    pub(super) fn skeleton<'r>(
        &mut self,
        place: &Place,
        index: usize,
        plan: &plan::Skeleton,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<bool, CollectError> {
        let runs = pick(records.clone(), |record| match record {
            Record::Run(run) if run.workload == index => Some(run),
            _ => None,
        });
        if runs.is_empty() {
            return Ok(true);
        }
        let label = plan.benchmark.name();
        let name = |metric| place.metric(metric, &[label]);
        let times: Vec<f64> = runs.iter().map(|run| whole_s(run, plan)).collect();
        let topology = &place.plan.topology;
        let network = Network {
            host_bps: topology.edge_rate_bps as f64,
            link_bps: topology.rate_bps as f64,
            delay_s: topology.one_way_delay_ns as f64 / 1e9,
        };
        let bound = Skeleton::new(plan.benchmark, plan.class, RANKS)
            .ok()
            .map(|skeleton| replay::seconds(&skeleton, network).1);
        let operations = compute::total_mop(plan.benchmark, plan.class);
        let speeds = times.iter().map(|time| operations / time).collect();
        let by_cpu = cpu_may_have_slowed(&times, bound);
        self.put(place, &name("time_s"), times, bound)?;
        let most = bound.map(|bound| operations / bound);
        self.put(place, &name("mop_per_s"), speeds, most)?;
        let sent = runs
            .iter()
            .map(|run| (run.retransmitted, run.spurious, run.segments));
        self.sent_again(place, name, sent)?;
        let samples = pick(records, |record| match record {
            Record::Samples(samples) if samples.workload == index => Some(samples),
            _ => None,
        });
        if let Some(sample) = samples.last() {
            self.series(place, label, "time since the iteration began (ms)", sample);
        }
        Ok(by_cpu)
    }

    /// The geometric mean over the shard's benchmarks that communicate.
    pub(super) fn mean_of_skeletons(&mut self, place: &Place) -> Result<(), CollectError> {
        let labels = place.plan.workloads.iter().filter_map(|workload| {
            let plan::Workload::Ranks(ranks) = workload else {
                return None;
            };
            match &ranks.program {
                plan::Program::Skeleton(plan) if plan.benchmark != Benchmark::Ep => {
                    Some(place.metric("time_s", &[plan.benchmark.name()]))
                }
                _ => None,
            }
        });
        let labels: Vec<String> = labels.collect();
        if labels.is_empty() {
            return Ok(());
        }
        let metrics = self.variants.get(&place.plan.variant);
        let times = labels
            .iter()
            .map(|label| Some(metrics?.get(label)?.median))
            .collect::<Option<Vec<f64>>>();
        let bounds = labels
            .iter()
            .map(|label| self.bounds.get(label).copied())
            .collect::<Option<Vec<f64>>>();
        let Some(times) = times else {
            return Ok(());
        };
        let bound = bounds.map(|bounds| geometric_mean(&bounds));
        let name = place.metric("time_s", &[MEAN]);
        self.put(place, &name, vec![geometric_mean(&times)], bound)
    }
}

fn cpu_may_have_slowed(times: &[f64], bound: Option<f64>) -> bool {
    let slowest = times.iter().copied().fold(0.0, f64::max);
    bound.is_none_or(|bound| slowest > NEAR_BOUND * bound)
}

/// Seconds of the whole timed section: the iterations that were run, and those that
/// were not, each as long as those from `from_iteration` on were.
fn whole_s(run: &RunRecord, plan: &plan::Skeleton) -> f64 {
    let done = |iteration: u32| seconds(run.done_ns[iteration as usize]);
    let counted = plan.iterations + 1 - plan.from_iteration;
    let one = (done(plan.iterations) - done(plan.from_iteration - 1)) / f64::from(counted);
    let all = compute::iterations(plan.benchmark, plan.class);
    done(plan.iterations + 1) + f64::from(all - plan.iterations) * one
}

fn geometric_mean(values: &[f64]) -> f64 {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (logarithms / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_experiment::skeleton::Class;

    #[test]
    fn omitted_iterations_take_as_long_as_measured_ones() {
        let plan = plan::Skeleton {
            benchmark: Benchmark::Is,
            class: Class::B,
            iterations: 4,
            from_iteration: 3,
            repeats: 1,
            spread_ns: 0,
        };
        let second = 1_000_000_000;
        let run = RunRecord {
            workload: 0,
            // Half a second before, a slow first iteration, then one second each.
            done_ns: [500, 5_500, 6_500, 7_500, 8_500, 8_750]
                .map(|ms| ms * second / 1000)
                .to_vec(),
            from_ns: 0,
            segments: 0,
            retransmitted: 0,
            spurious: 0,
        };
        // Six of ten iterations were not run.
        assert_eq!(whole_s(&run, &plan), 8.75 + 6.0);
    }

    #[test]
    fn the_cpu_cannot_have_slowed_a_run_as_short_as_its_bound() {
        assert!(!cpu_may_have_slowed(&[9.9, 10.1], Some(10.0)));
        assert!(cpu_may_have_slowed(&[9.9, 10.3], Some(10.0)));
        assert!(cpu_may_have_slowed(&[10.0], None));
    }

    #[test]
    fn the_mean_is_geometric() {
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
    }
}
