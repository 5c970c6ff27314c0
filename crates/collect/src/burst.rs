// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of bursts after idle.

use paceline_experiment::plan::{Burst, Chunk, Topology};
use paceline_experiment::record::{BurstRecord, CrossRecord, Record};

use super::{pick, seconds, share, CollectError, Collector, Place};

/// The first burst that counts after a change of the link: a sender learns the change from
/// the ones before.
const SETTLED: u32 = 3;
/// Where one burst in so many is of these, they may decide the median.
const UNSURE_SHARE: usize = 4;
/// Segments of a connection: if so short a burst has a loss, its detection decides nearly all
/// of the burst's time.
const SHORT_SEGS: u64 = 64;

/// Whether the simulated duration of the burst is uncertain; only the simulator's records
/// have timers. The lab's tests compare it with a real kernel.
fn is_unsure(record: &BurstRecord, connections: u32) -> bool {
    let short = record.segments <= SHORT_SEGS * u64::from(connections);
    let lost = |timers| timers > 0 || short && record.retransmitted > 0;
    record.timers.is_some_and(lost)
}

/// A burst, its chunk, and the number of the link's changes before it.
struct Seen<'r> {
    record: &'r BurstRecord,
    chunk: &'r Chunk,
    steps: usize,
}

impl Collector {
    pub(super) fn burst<'r>(
        &mut self,
        place: &Place,
        index: usize,
        burst: &Burst,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let topology = &place.plan.topology;
        let bursts: Vec<Seen> = pick(records.clone(), |record| match record {
            Record::Burst(record) if record.workload == index => Some(Seen {
                record,
                chunk: burst.chunk(record.burst),
                steps: topology.steps_before(record.burst, record.began_ns),
            }),
            _ => None,
        });
        let links: Vec<Topology> = (0..=topology.steps.len())
            .map(|steps| topology.after(steps))
            .collect();
        let bound = |seen: &Seen| {
            let link = &links[seen.steps];
            let rtt_ns = 2 * link.one_way_delay_ns;
            let connections = burst.connections.into();
            let bytes = seen.chunk.size_bytes;
            link.frame()
                .completion_s(bytes, connections, link.rate_bps, rtt_ns)
        };
        let mut chunks: Vec<&Chunk> = Vec::new();
        for chunk in &burst.chunks {
            if !chunks.iter().any(|other| other.label == chunk.label) {
                chunks.push(chunk);
            }
        }
        for (tail, chosen) in parts(burst, links.len(), &bursts) {
            for chunk in &chunks {
                let within = || chosen.iter().filter(|seen| seen.chunk.label == chunk.label);
                let Some(first) = within().next() else {
                    continue;
                };
                let tails = [burst.label.as_str(), chunk.label.as_str(), tail.as_str()];
                let of: Vec<&BurstRecord> = within().map(|seen| seen.record).collect();
                self.note_unsure(place, &place.metric("completion_s", &tails), &of, burst);
                self.times(
                    place,
                    &place.metric("completion_s", &tails),
                    &of,
                    bound(first),
                )?;
                let share = share(of.iter().map(|burst| (burst.retransmitted, burst.segments)));
                let metric = place.metric("retransmitted_share", &tails);
                self.put(place, &metric, vec![share], None)?;
                let marked = of.iter().map(|burst| (burst.marked, burst.segments));
                self.marked(place, &tails, marked)?;
                self.empty_loop(place, &tails, &of)?;
            }
        }
        for position in &burst.positions {
            let of = bursts.iter().filter(|seen| seen.record.burst == *position);
            let of: Vec<&Seen> = of.collect();
            let Some(first) = of.first() else {
                continue;
            };
            let bound = bound(first);
            let metric = place.metric("completion_s", &[&format!("{}#{position}", burst.label)]);
            let records: Vec<&BurstRecord> = of.iter().map(|seen| seen.record).collect();
            self.note_unsure(place, &metric, &records, burst);
            self.times(place, &metric, &records, bound)?;
        }
        self.cross(place, index, burst, records.clone())?;
        let samples = records.into_iter().find_map(|record| match record {
            Record::Samples(samples) if samples.workload == index => Some(samples),
            _ => None,
        });
        if let Some(samples) = samples {
            let x_label = "time since the start of the chunk (ms)";
            self.series(place, &burst.label, x_label, samples);
        }
        Ok(())
    }

    /// Metrics of the other traffic on the link.
    fn cross<'r>(
        &mut self,
        place: &Place,
        index: usize,
        burst: &Burst,
        records: impl Iterator<Item = &'r Record>,
    ) -> Result<(), CollectError> {
        let all: Vec<&CrossRecord> = pick(records, |record| match record {
            Record::Cross(record) if record.workload == index => Some(record),
            _ => None,
        });
        let tails = [burst.label.as_str()];
        let rate = |record: &&CrossRecord| record.bytes as f64 * 8.0 / seconds(record.elapsed_ns);
        let rates: Vec<f64> = all.iter().map(rate).collect();
        if rates.is_empty() {
            return Ok(());
        }
        self.put(place, &place.metric("cross_bps", &tails), rates, None)?;
        let times: Vec<f64> = (all.iter())
            .flat_map(|record| record.flows_ns.iter().map(|took| seconds(*took)))
            .collect();
        match times.is_empty() {
            true => Ok(()),
            false => self.put(place, &place.metric("cross_s", &tails), times, None),
        }
    }

    /// Claims about uncertain durations of the simulator are not judged.
    fn note_unsure(&mut self, place: &Place, metric: &str, of: &[&BurstRecord], burst: &Burst) {
        let unsure = of.iter().filter(|one| is_unsure(one, burst.connections));
        if unsure.count() * UNSURE_SHARE >= of.len() {
            let variant = &place.plan.variant;
            self.unsure.push(format!("{variant}/{metric}"));
        }
    }

    fn times(
        &mut self,
        place: &Place,
        metric: &str,
        bursts: &[&BurstRecord],
        bound: f64,
    ) -> Result<(), CollectError> {
        let times = bursts.iter().map(|burst| seconds(burst.completion_ns));
        self.put(place, metric, times.collect(), Some(bound))
    }

    /// The time that an empty loop lost to each burst.
    fn empty_loop(
        &mut self,
        place: &Place,
        tails: &[&str],
        bursts: &[&BurstRecord],
    ) -> Result<(), CollectError> {
        let lost: Vec<(u64, u64)> = bursts.iter().filter_map(|burst| burst.loop_ns).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let times = lost.iter().map(|(lost, _)| seconds(*lost)).collect();
        self.put(place, &place.metric("cpu_s", tails), times, None)?;
        let shares = lost.iter().map(|loss| share([*loss].into_iter())).collect();
        self.put(place, &place.metric("loop_share", tails), shares, None)
    }
}

/// The bursts that are counted together, and the tail of their metrics' names: steady until
/// the first change of the link; after each change its third burst, and all from there on.
fn parts<'s, 'r>(
    burst: &Burst,
    links: usize,
    bursts: &'s [Seen<'r>],
) -> Vec<(String, Vec<&'s Seen<'r>>)> {
    let steady = bursts
        .iter()
        .filter(|seen| seen.steps == 0 && seen.record.burst >= burst.from_burst);
    let mut parts = vec![(String::new(), steady.collect())];
    for steps in 1..links {
        let after = || bursts.iter().filter(|seen| seen.steps == steps);
        let Some(first) = after().map(|seen| seen.record.burst).min() else {
            continue;
        };
        let third = first + SETTLED - 1;
        let alone = after().filter(|seen| seen.record.burst == third);
        parts.push((format!("step{steps}-third"), alone.collect()));
        let on = after().filter(|seen| seen.record.burst >= third);
        parts.push((format!("step{steps}"), on.collect()));
    }
    parts
}
