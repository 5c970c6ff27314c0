// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run and its metrics.

use indexmap::IndexMap;

use crate::event::{NEVER, SECOND};
use crate::link::Counts;
use crate::meter::Spread;
use crate::scenario::{Plan, WINDOW_PARTS};
use crate::sender::Totals;
use crate::source::SourceConfig;
use crate::world::{Coordination, Samples, World};

/// Time scales of the index of dispersion, in windows of the meter, beside a quarter of one.
const SCALES: [u64; 4] = [1, 4, 16, 64];

/// Results of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Metrics by name; those of a group of several end in its name.
    pub metrics: IndexMap<String, f64>,
    /// Samples over time.
    pub samples: Samples,
    /// Events that happened, and packets that links took in.
    pub events: u64,
    /// ACKs too.
    pub transmissions: u64,
    /// Segments delivered.
    pub delivered: u64,
}

/// Counters at one moment.
struct Counted {
    link: Counts,
    /// Per flow: segments that arrived, segments sent, packets dropped.
    flows: Vec<(u64, Totals, u64)>,
    windows: usize,
}

fn count(world: &World) -> Counted {
    Counted {
        link: world.links[world.measured as usize].counts(),
        flows: world
            .flows
            .iter()
            .map(|flow| {
                (
                    flow.receiver.distinct(),
                    flow.sender.totals(),
                    u64::from(flow.dropped),
                )
            })
            .collect(),
        windows: world.meter.counts().len(),
    }
}

/// Runs `plan` once. `sampled`: whether samples over time are taken. `stop` is called ten
/// times; where it returns true, the run ends without an outcome.
pub fn run(plan: &Plan, seed: u64, sampled: bool, stop: &dyn Fn() -> bool) -> Option<Outcome> {
    let mut world = plan.world(seed);
    if let Some(trace) = plan.file().trace.as_ref().filter(|_| sampled) {
        world.samples.every_ns = trace.every.micros() * 1_000;
        world.samples.flows = (0..trace.flows.min(world.flows.len() as u32)).collect();
    }
    world.prepare();
    let mut begin = None;
    let tenths = (1..=10u64).map(|tenth| plan.duration_ns / 10 * tenth);
    let mut stops: Vec<u64> = tenths.chain(plan.steady_ns).collect();
    stops.sort_unstable();
    for until in stops {
        world.run(until);
        if plan.steady_ns == Some(until) && begin.is_none() {
            begin = Some(count(&world));
        }
        if stop() {
            return None;
        }
    }
    world.run(plan.duration_ns);
    let end = count(&world);
    let mut metrics = IndexMap::new();
    let (seconds, steady_seconds) = plan.seconds();
    part(&mut metrics, "", &world, None, &end, seconds);
    if let (Some(begin), Some(seconds)) = (&begin, steady_seconds) {
        part(&mut metrics, "steady_", &world, Some(begin), &end, seconds);
    }
    completions(&mut metrics, &world);
    Some(Outcome {
        metrics,
        events: world.events,
        transmissions: world.transmissions,
        delivered: end.flows.iter().map(|flow| flow.0).sum(),
        samples: world.samples,
    })
}

/// Metrics of a stretch of time, from `begin` or from the beginning.
fn part(
    metrics: &mut IndexMap<String, f64>,
    prefix: &str,
    world: &World,
    begin: Option<&Counted>,
    end: &Counted,
    seconds: f64,
) {
    let mut put = |name: String, value: f64| {
        if value.is_finite() {
            metrics.insert(format!("{prefix}{name}"), value);
        }
    };
    let parts = WINDOW_PARTS as usize;
    // Windows lie at multiples of their length, whatever the stretch.
    let first = begin.map_or(0, |begin| begin.windows.next_multiple_of(parts));
    let counts = world.meter.counts().get(first..).unwrap_or(&[]);
    if let Some(spread) = Spread::of(counts, parts) {
        put("cov".into(), spread.cov());
        put("over_poisson".into(), spread.cov() / spread.poisson_cov());
    }
    for scale in SCALES {
        if let Some(spread) = Spread::of(counts, parts * scale as usize) {
            put(format!("dispersion_x{scale}"), spread.dispersion());
        }
    }
    let link = begin.map_or(end.link, |begin| end.link.since(&begin.link));
    let arrived = link.arrived.max(1) as f64;
    put("loss_share".into(), link.dropped() as f64 / arrived);
    put("early_loss_share".into(), link.early as f64 / arrived);
    put("queue_packets".into(), link.queued as f64 / arrived);
    if begin.is_none() {
        put("longest_queue_packets".into(), f64::from(link.longest));
    }
    let flow = |number: u32| {
        let now = &end.flows[number as usize];
        let before = begin.map(|begin| &begin.flows[number as usize]);
        let totals = before.map_or((0, 0, 0, 0), |before| {
            let totals = before.1;
            (
                totals.sent,
                totals.again,
                totals.timeouts,
                totals.recoveries,
            )
        });
        (
            now.0 - before.map_or(0, |before| before.0),
            now.1.sent - totals.0,
            now.1.again - totals.1,
            now.1.timeouts - totals.2,
            now.1.recoveries - totals.3,
            now.2 - before.map_or(0, |before| before.2),
        )
    };
    for group in &world.groups {
        let tail = match world.groups.len() {
            1 => String::new(),
            _ => format!("/{}", group.name),
        };
        let bits = f64::from(group.sender.packet_bytes) * 8.0;
        let (mut delivered, mut squares) = (0u64, 0.0);
        let (mut sent, mut again, mut timeouts, mut recoveries, mut dropped) = (0, 0, 0, 0, 0);
        for number in group.flows.clone() {
            let of = flow(number);
            delivered += of.0;
            squares += (of.0 as f64) * (of.0 as f64);
            sent += of.1;
            again += of.2;
            timeouts += of.3;
            recoveries += of.4;
            dropped += of.5;
        }
        let flows = group.flows.len() as f64;
        put(
            format!("goodput_bps{tail}"),
            delivered as f64 * bits / seconds,
        );
        put(format!("delivered_packets{tail}"), delivered as f64);
        if delivered > 0 {
            let jain = (delivered as f64) * (delivered as f64) / (flows * squares);
            put(format!("jain{tail}"), jain);
        }
        if !tail.is_empty() {
            let offered = (delivered + dropped).max(1) as f64;
            put(format!("dropped_share{tail}"), dropped as f64 / offered);
        }
        if sent > 0 {
            put(
                format!("retransmitted_share{tail}"),
                again as f64 / sent as f64,
            );
            put(format!("timeouts{tail}"), f64::from(timeouts));
            put(format!("recoveries{tail}"), f64::from(recoveries));
        }
    }
}

fn completions(metrics: &mut IndexMap<String, f64>, world: &World) {
    let seconds = |ns: u64| ns as f64 / SECOND as f64;
    for group in &world.groups {
        let tail = match world.groups.len() {
            1 => String::new(),
            _ => format!("/{}", group.name),
        };
        let mut put = |name: &str, value: f64| {
            metrics.insert(format!("{name}{tail}"), value);
        };
        match group.source {
            SourceConfig::Bulk(Some(_)) => {
                let flows = &world.flows[group.flows.start as usize..group.flows.end as usize];
                let mut times: Vec<u64> = flows
                    .iter()
                    .filter(|flow| flow.completed != NEVER)
                    .map(|flow| flow.completed - flow.start)
                    .collect();
                times.sort_unstable();
                put("completed_flows", times.len() as f64);
                if let (Some(first), Some(last)) = (times.first(), times.last()) {
                    put("first_s", seconds(*first));
                    put("completion_s", seconds(times[times.len() / 2]));
                    if times.len() == flows.len() {
                        put("last_s", seconds(*last));
                    }
                }
            }
            SourceConfig::Phases { .. } => {
                let mut times: Vec<u64> = group.rounds.iter().map(|(a, b)| b - a).collect();
                put("rounds", times.len() as f64);
                times.sort_unstable();
                if let Some(last) = times.last() {
                    put("round_s", seconds(times[times.len() / 2]));
                    put("longest_round_s", seconds(*last));
                }
            }
            _ => {}
        }
    }
    for transfer in &world.coordinations {
        transfer_times(metrics, world, transfer);
    }
}

/// When the first and the last stream of a transfer are over, since the first one's start.
fn transfer_times(metrics: &mut IndexMap<String, f64>, world: &World, transfer: &Coordination) {
    let flows = || transfer.flows().map(|flow| &world.flows[flow as usize]);
    let Some(start) = flows().map(|flow| flow.start).min() else {
        return;
    };
    let completed = || flows().map(|flow| flow.completed);
    let first = completed().min().filter(|time| *time != NEVER);
    let last = completed().max().filter(|time| *time != NEVER);
    let seconds = |time: u64| (time - start) as f64 / SECOND as f64;
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("{name}/{}", transfer.name), value);
    };
    if let Some(first) = first {
        put("first_s", seconds(first));
    }
    if let (Some(first), Some(last)) = (first, last) {
        put("last_s", seconds(last));
        put("last_to_first", seconds(last) / seconds(first));
    }
}
