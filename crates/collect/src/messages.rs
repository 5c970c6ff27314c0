// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics of messages between two hosts, and of a matrix in files of all hosts.

use paceline_experiment::plan::{Messages, Netpipe, OutOfCore, Topology};
use paceline_experiment::record::{MessagesRecord, Record, TracedPacket};
use paceline_input::units::Size;
use paceline_report::html::{LADDER_ACK, LADDER_DATA, LADDER_PART};
use paceline_report::Series;

use super::{pick, seconds, CollectError, Collector, Place};

/// A receiver acknowledges its first segments at once (TCP_MAX_QUICKACKS, linux/net/tcp.h).
const QUICK_ACKS: usize = 16;

impl Collector {
    pub(super) fn messages<'r>(
        &mut self,
        place: &Place,
        index: usize,
        plan: &Messages,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let runs: Vec<&MessagesRecord> = pick(records.clone(), |record| match record {
            Record::Messages(run) if run.workload == index => Some(run),
            _ => None,
        });
        if runs.is_empty() {
            return Ok(());
        }
        let topology = &place.plan.topology;
        let name = |metric| place.metric(metric, &[&plan.label]);
        let of_each = |value: &dyn Fn(&MessagesRecord) -> f64| -> Vec<f64> {
            runs.iter().map(|run| value(run)).collect()
        };
        let time_s = |run: &MessagesRecord| seconds(run.time_ns).max(f64::EPSILON);
        let bound = messages_bound_s(topology, plan);
        self.put(place, &name("time_s"), of_each(&time_s), Some(bound))?;
        let count = f64::from(plan.count) * f64::from(plan.writes);
        let rates = of_each(&|run| count / time_s(run));
        self.put(place, &name("messages_per_s"), rates, None)?;
        let answers = u64::from(plan.answered) * plan.size_bytes * u64::from(plan.count);
        let payload_bits = 8.0 * (plan.payload_bytes() + answers) as f64;
        let goodput = of_each(&|run| payload_bits / time_s(run));
        self.put(
            place,
            &name("goodput_bps"),
            goodput,
            Some(payload_bits / bound),
        )?;
        let acks = of_each(&|run| run.acks as f64 / run.segments.max(1) as f64);
        self.put(place, &name("acks_per_segment"), acks, None)?;
        let sent = runs
            .iter()
            .map(|run| (run.retransmitted, run.spurious, run.segments));
        self.sent_again(place, name, sent)?;
        let traces = pick(records, |record| match record {
            Record::Trace(trace) if trace.workload == index => Some(&trace.packets),
            _ => None,
        });
        let rtt_ns = 2 * topology.one_way_delay_ns;
        if let Some(packets) = traces.first() {
            self.ladder(place, &plan.label, packets);
        }
        let delays: Vec<f64> = traces
            .iter()
            .flat_map(|packets| ack_delays_ns(packets).into_iter().skip(QUICK_ACKS))
            .map(|delay| seconds(delay.saturating_sub(rtt_ns)))
            .collect();
        if delays.is_empty() {
            return Ok(());
        }
        self.put(place, &name("ack_delay_s"), delays, None)
    }

    /// The packets of a connection as lines of a ladder.
    fn ladder(&mut self, place: &Place, label: &str, packets: &[TracedPacket]) {
        let millisecond = |packet: &TracedPacket| seconds(packet.time_ns) * 1e3;
        let data = packets.iter().filter(|one| !one.back && one.bytes > 0);
        let data = data.map(|one| {
            let end = one.seq.wrapping_add(one.bytes);
            (millisecond(one), f64::from(end))
        });
        let acks = packets.iter().filter(|one| one.back);
        let acks = acks.map(|one| (millisecond(one), f64::from(one.ack)));
        let lines: [(&str, Vec<(f64, f64)>); 2] =
            [(LADDER_DATA, data.collect()), (LADDER_ACK, acks.collect())];
        for (line, points) in lines {
            self.series.push(Series {
                experiment_part: place.metric(LADDER_PART, &[label]),
                variant: place.plan.variant.clone(),
                line: line.to_owned(),
                x_label: "time since the first segment (ms)".to_owned(),
                y_label: "sequence number (bytes)".to_owned(),
                points,
            });
        }
    }

    pub(super) fn netpipe<'r>(
        &mut self,
        place: &Place,
        index: usize,
        plan: &Netpipe,
        records: impl Iterator<Item = &'r Record>,
    ) -> Result<(), CollectError> {
        let sizes = pick(records, |record| match record {
            Record::Netpipe(size) if size.workload == index => Some(*size),
            _ => None,
        });
        let topology = &place.plan.topology;
        let mut points = Vec::new();
        for &bytes in &plan.sizes {
            let of_size = sizes.iter().filter(|size| size.size_bytes == bytes);
            let rates: Vec<f64> = of_size
                .map(|size| {
                    let one_way_s = seconds(size.time_ns) / (2.0 * f64::from(size.exchanges));
                    8.0 * bytes as f64 / one_way_s.max(f64::EPSILON)
                })
                .collect();
            let Some(&rate) = rates.last() else {
                continue;
            };
            points.push(((bytes as f64).log2(), rate / 1e6));
            if !bytes.is_power_of_two() {
                continue;
            }
            let delay_ns = topology.one_way_delay_ns;
            let frame = topology.frame();
            let least_s = frame.completion_s(bytes, 1, topology.rate_bps, delay_ns);
            let size = Size::from_bytes(bytes).to_string();
            let metric = place.metric("bandwidth_bps", &[&plan.label, &size]);
            let bound = 8.0 * bytes as f64 / least_s;
            self.put(place, &metric, rates, Some(bound))?;
        }
        self.series.push(Series {
            experiment_part: place.metric("netpipe", &[&plan.label]),
            variant: place.plan.variant.clone(),
            line: String::new(),
            x_label: "size of a message (logarithm to the base of 2, bytes)".to_owned(),
            y_label: "bandwidth (Mbit/s)".to_owned(),
            points,
        });
        Ok(())
    }

    pub(super) fn out_of_core<'r>(
        &mut self,
        place: &Place,
        index: usize,
        (label, plan): (&str, &OutOfCore),
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let runs = pick(records.clone(), |record| match record {
            Record::Run(run) if run.workload == index => Some(run),
            _ => None,
        });
        if runs.is_empty() {
            return Ok(());
        }
        let name = |metric| place.metric(metric, &[label]);
        let times = runs.iter().filter_map(|run| {
            let last_ns = run.done_ns.last()?;
            Some(seconds(last_ns.saturating_sub(run.from_ns)))
        });
        let counted = plan.iterations + 1 - plan.from_iteration.clamp(1, plan.iterations);
        let bound = f64::from(counted) * iteration_bound_s(&place.plan.topology, plan);
        self.put(place, &name("time_s"), times.collect(), Some(bound))?;
        let sent = runs
            .iter()
            .map(|run| (run.retransmitted, run.spurious, run.segments));
        self.sent_again(place, name, sent)?;
        let samples = pick(records, |record| match record {
            Record::Samples(samples) if samples.workload == index => Some(samples),
            _ => None,
        });
        if let Some(sample) = samples.last() {
            let x_label = "time since the last iteration began (ms)";
            self.series(place, label, x_label, sample);
        }
        Ok(())
    }
}

/// All messages at the link's rate in full segments, and a round trip; or as many round trips
/// as there are answers, with the pauses between them.
fn messages_bound_s(topology: &Topology, plan: &Messages) -> f64 {
    let frame = topology.frame();
    let rtt_ns = 2 * topology.one_way_delay_ns;
    let gaps_s = seconds(u64::from(plan.count) * plan.gap_ns);
    if !plan.answered {
        // Nothing is waited for but the gaps: the first messages are under way meanwhile.
        let took = |bytes| frame.completion_s(bytes, 1, topology.rate_bps, rtt_ns);
        let last_s = seconds(u64::from(plan.count - 1) * plan.gap_ns) + took(plan.size_bytes);
        return last_s.max(gaps_s).max(took(plan.payload_bytes()));
    }
    let there = frame.completion_s(
        plan.size_bytes * u64::from(plan.writes),
        1,
        topology.rate_bps,
        rtt_ns,
    );
    let back_bps = match topology.one_switch {
        true => Some(topology.rate_bps),
        false => topology.impairments.return_rate_bps,
    };
    let answer_bits = 8 * frame.wire_bytes(plan.size_bytes);
    let back = back_bps.map_or(0.0, |rate_bps| answer_bits as f64 / rate_bps as f64);
    gaps_s + f64::from(plan.count) * (there + back)
}

/// The computing time of a rank, and twice the time of the slab on its host's link: each host
/// receives the data that its rank reads, and then the data that others write; it sends as
/// much.
fn iteration_bound_s(topology: &Topology, plan: &OutOfCore) -> f64 {
    let ranks = topology.senders;
    let share = topology.frame().wire_bytes(plan.share_bytes(ranks));
    let slab_bits = 8 * share * u64::from(ranks.saturating_sub(1));
    seconds(plan.compute_ns) + 2.0 * slab_bits as f64 / topology.rate_bps as f64
}

/// Of each ACK without data that came back for new data: how long after the first segment that
/// it covers. An answer is late by the program's own time.
fn ack_delays_ns(packets: &[TracedPacket]) -> Vec<u64> {
    let mut waiting: Vec<(u32, u64)> = Vec::new();
    let mut delays = Vec::new();
    for packet in packets {
        if !packet.back && packet.bytes > 0 {
            waiting.push((packet.seq.wrapping_add(packet.bytes), packet.time_ns));
        } else if packet.back {
            let covered = |&(end, _): &(u32, u64)| packet.ack.wrapping_sub(end) < 1 << 31;
            if let Some(first) = waiting.iter().copied().find(covered) {
                if packet.bytes == 0 {
                    delays.push(packet.time_ns.saturating_sub(first.1));
                }
                waiting.retain(|segment| !covered(segment));
            }
        }
    }
    delays
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(time_ns: u64, back: bool, seq: u32, bytes: u32, ack: u32) -> TracedPacket {
        TracedPacket {
            time_ns,
            back,
            seq,
            bytes,
            ack,
        }
    }

    #[test]
    fn an_ack_is_late_by_the_first_segment_that_it_covers() {
        let packets = [
            packet(0, false, 0, 100, 0),
            packet(10, false, 100, 100, 0),
            packet(40, true, 0, 0, 200),
            // Nothing new: a window update.
            packet(50, true, 0, 0, 200),
            packet(60, false, 200, 100, 0),
            packet(70, false, 300, 100, 0),
            packet(75, true, 0, 0, 300),
            packet(99, true, 0, 5, 400),
            packet(100, false, 400, 100, 5),
            packet(130, true, 5, 0, 500),
        ];
        assert_eq!(ack_delays_ns(&packets), [40, 15, 30]);
        assert_eq!(ack_delays_ns(&packets[..2]), [0; 0]);
    }
}
