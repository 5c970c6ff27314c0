// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of long flows side by side.

use paceline_experiment::plan::{Bulk, Topology, When};
use paceline_experiment::record::{CpuRecord, FlowRecord, PacketRecord, Record, RoundTrip};
use paceline_report::Series;

use super::{gateway, pick, seconds, share, CollectError, Collector, Place};

impl Collector {
    pub(super) fn bulk<'r>(
        &mut self,
        place: &Place,
        index: usize,
        bulk: &Bulk,
        records: impl Iterator<Item = &'r Record> + Clone,
        cpus: &[CpuRecord],
    ) -> Result<(), CollectError> {
        let flows: Vec<&FlowRecord> = pick(records.clone(), |record| match record {
            Record::Flow(flow) if flow.workload == index => Some(flow),
            _ => None,
        });
        let topology = &place.plan.topology;
        let share_of_link = gateway::arriving_share(topology);
        let full_bps = share_of_link * topology.frame().goodput_bps(topology.rate_bps);
        self.gateways(place, index, bulk, full_bps, records.clone())?;
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
            let each = of_group.chunks(group.flows as usize);
            let rates: Vec<Vec<f64>> = each
                .map(|flows| flows.iter().map(|flow| goodput(flow)).collect())
                .collect();
            let sums: Vec<f64> = rates.iter().map(|rates| rates.iter().sum()).collect();
            let bound = share_of_link
                * topology
                    .frame()
                    .goodput_bps(mean_rate_bps(topology, bulk.duration_ns));
            self.put(
                place,
                &place.metric("goodput_bps", &tails),
                sums.clone(),
                Some(bound),
            )?;
            if group.flows > 1 {
                let indices = rates.iter().map(|rates| jain(rates)).collect();
                self.put(place, &place.metric("jain", &tails), indices, None)?;
                let least = || rates.iter().map(|rates| striped(rates));
                let evenness = least().zip(&sums).map(|(least, sum)| least / sum).collect();
                let metric = place.metric("least_to_mean", &tails);
                self.put(place, &metric, evenness, Some(1.0))?;
                let metric = place.metric("striped_bps", &tails);
                self.put(place, &metric, least().collect(), Some(bound))?;
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
            let marked = of_group.iter().map(|flow| (flow.marked, flow.segments));
            self.marked(place, &tails, marked)?;
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
        let recorded = records.into_iter().find_map(|record| match record {
            Record::Packets(packets) if packets.workload == index => Some(packets),
            _ => None,
        });
        if let Some(packets) = recorded {
            self.packets(place, &bulk.label, packets)?;
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

    /// How the packets of one flow left: by the millisecond, and by the round trip.
    fn packets(
        &mut self,
        place: &Place,
        label: &str,
        packets: &PacketRecord,
    ) -> Result<(), CollectError> {
        let PacketRecord {
            per_ms,
            rtt_ns,
            round_trips,
            ..
        } = packets;
        let idle = per_ms.iter().filter(|count| **count == 0).count() as u64;
        let idle = share([(idle, per_ms.len() as u64)].into_iter());
        self.put(
            place,
            &place.metric("idle_share", &[label]),
            vec![idle],
            None,
        )?;
        let most = per_ms.iter().copied().max().unwrap_or(0);
        let most = vec![most as f64];
        self.put(place, &place.metric("most_in_1ms", &[label]), most, None)?;
        let in_slow_start = || {
            let rounds = round_trips.iter().take_while(|round| round.slow_start);
            rounds.filter_map(|round| Some((round, packet_level_bps(round)?)))
        };
        let ratios: Vec<f64> = in_slow_start()
            .map(|(round, packet_level)| packet_level / flow_level_bps(round, *rtt_ns))
            .collect();
        if !ratios.is_empty() {
            let metric = place.metric("packet_to_flow", &[label]);
            self.put(place, &metric, ratios, Some(1.0))?;
        }
        let mut series = |part: &str, line: &str, y_label: &str, points| {
            self.series.push(Series {
                experiment_part: place.metric(label, &[part]),
                variant: place.plan.variant.clone(),
                line: line.to_owned(),
                x_label: "time since the start of the connection (s)".to_owned(),
                y_label: y_label.to_owned(),
                points,
            });
        };
        let counts = (0u32..).zip(per_ms);
        let counts = counts.map(|(ms, &count)| (f64::from(ms) / 1e3, count as f64));
        series("packets", "", "packets per ms", counts.collect());
        // The drawing ends after one more round trip.
        let shown = in_slow_start().count() + 1;
        let rates = |rate: &dyn Fn(&RoundTrip) -> f64| {
            let rounds = (0u32..).zip(round_trips.iter().take(shown));
            rounds
                .map(|(number, round)| (f64::from(number) * seconds(*rtt_ns), rate(round) / 1e6))
                .collect()
        };
        let flow_level = rates(&|round| flow_level_bps(round, *rtt_ns));
        series("rates", "flow-level", "rate (Mbit/s)", flow_level);
        let packet_level = rates(&|round| packet_level_bps(round).unwrap_or(0.0));
        series("rates", "packet-level", "rate (Mbit/s)", packet_level);
        Ok(())
    }
}

/// Rate over a whole round trip, bits per second: kamezawa-2004, 2.3.
fn flow_level_bps(round: &RoundTrip, rtt_ns: u64) -> f64 {
    round.wire_bytes as f64 * 8e9 / rtt_ns as f64
}

/// Rate over the busy part of a round trip, bits per second; `None` if nothing left.
fn packet_level_bps(round: &RoundTrip) -> Option<f64> {
    (round.busy_ns > 0).then(|| round.wire_bytes as f64 * 8e9 / round.busy_ns as f64)
}

/// The link's mean rate over so long, bits per second; none where it is down.
fn mean_rate_bps(topology: &Topology, duration_ns: u64) -> u64 {
    let (mut up_bps, mut is_down) = (topology.rate_bps, false);
    let (mut rate_bps, mut since_ns, mut bits) = (topology.rate_bps, 0, 0);
    for step in &topology.steps {
        let When::Time { at_ns } = step.when else {
            continue;
        };
        up_bps = step.change.rate_bps.unwrap_or(up_bps);
        is_down = step.change.down.unwrap_or(is_down);
        let next = if is_down { 0 } else { up_bps };
        let until_ns = at_ns.min(duration_ns);
        bits += u128::from(rate_bps) * u128::from(until_ns - since_ns);
        (rate_bps, since_ns) = (next, until_ns);
    }
    bits += u128::from(rate_bps) * u128::from(duration_ns - since_ns);
    (bits / u128::from(duration_ns.max(1))) as u64
}

fn goodput(flow: &FlowRecord) -> f64 {
    flow.bytes as f64 * 8e9 / flow.active_ns.max(1) as f64
}

/// Rate of a program that gives each flow as much, and goes on when all are through: the
/// slowest flow's rate times their number.
fn striped(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(f64::INFINITY, f64::min) * rates.len() as f64
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
