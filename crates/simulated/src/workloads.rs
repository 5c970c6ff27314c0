// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workloads of a plan as the simulator's applications, and their records.

use paceline_experiment::plan::{Bulk, Burst, Incast, Plan, Step, Streams, When};
use paceline_experiment::record::{
    BurstRecord, FlowRecord, Record, RoundRecord, StreamSample, StreamsRecord, TimerRecord,
    SAMPLE_NS,
};
use paceline_simulator::event::NEVER;
use paceline_simulator::random::{sequence, Purpose};
use paceline_simulator::sender::config::SenderConfig;
use paceline_simulator::source::{Source, SourceConfig};
use paceline_simulator::world::{Coordination, World};

use crate::network::{Flows, Network};
use crate::{kind, SimulatedError, Watch, LONGEST_NS};

/// Interval of the checks for progress, nanoseconds.
const LOOK_NS: u64 = 1_000_000;
/// Time within which the programs of a workload begin, nanoseconds: not all threads of a
/// machine wake up at once.
const TOGETHER_NS: u64 = 1_000_000;
/// Time of a host to write a segment, nanoseconds: of connections that begin together each waits for those
/// before it. About that of the virtual backend.
const WRITING_NS: u64 = 1_000;
/// Connections begin in the same order each time, as threads that wait in a queue do, but for neighbours:
/// each up to so many places later.
const MOST_PLACES_LATER: u64 = 3;
/// Time of a receiver for one more request, nanoseconds.
const ASKING_NS: u64 = 10_000;

/// Runs workloads, one after the other.
pub(super) struct Runner<'r, 'p> {
    pub plan: &'p Plan,
    pub network: Network<'p>,
    pub watch: &'r Watch<'r>,
    pub done: u64,
    pub records: &'r mut Vec<Record>,
}

/// Of all senders: segments sent, of these again, timeouts, and tail-loss probes.
fn sent(world: &World) -> [u64; 4] {
    world.flows.iter().fold([0; 4], |sum, flow| {
        let totals = flow.sender.totals();
        [
            sum[0] + totals.sent,
            sum[1] + totals.again,
            sum[2] + u64::from(totals.timeouts),
            sum[3] + u64::from(totals.probes),
        ]
    })
}

/// Payload of so many segments.
fn arrived_bytes(segments: u64, sender: &SenderConfig) -> u64 {
    segments * u64::from(sender.packet_bytes - sender.header_bytes)
}

fn arrived(world: &World) -> u64 {
    let of = |flow: &paceline_simulator::world::Flow| flow.receiver.distinct();
    world.flows.iter().map(of).sum()
}

impl Runner<'_, '_> {
    /// A message of `bytes` in the fewest segments of one size: the sender of that segment size,
    /// and their number.
    fn message(&self, sender: &SenderConfig, bytes: u64) -> (SenderConfig, u32) {
        let segments = bytes.div_ceil(self.plan.topology.frame().payload).max(1);
        let mut sender = sender.clone();
        sender.packet_bytes = sender.header_bytes + bytes.div_ceil(segments) as u32;
        (sender, u32::try_from(segments).unwrap_or(u32::MAX))
    }

    fn advance(&mut self) {
        self.done += 1;
        (self.watch.step)(self.done);
    }

    /// Goes on by `by_ns`, unless it is to stop or has run for too long.
    fn look(&self, world: &mut World, by_ns: u64) -> Result<(), SimulatedError> {
        if (self.watch.halt)() {
            return Err(SimulatedError::Interrupted);
        }
        if world.now() > LONGEST_NS {
            return Err(SimulatedError::Stalled {
                shard: self.plan.shard_name(),
            });
        }
        let until = world.now() + by_ns;
        world.run(until);
        Ok(())
    }

    /// The receiver answers a complete burst with one byte.
    pub fn burst(
        &mut self,
        workload: usize,
        sender: &SenderConfig,
        burst: &Burst,
    ) -> Result<(), SimulatedError> {
        let topology = &self.plan.topology;
        let mut reply_ns = self.network.one_way_ns();
        let share = burst
            .chunk(1)
            .size_bytes
            .div_ceil(u64::from(burst.connections));
        let (sender, segments) = self.message(sender, share);
        let apart_ns = u64::from(segments) * WRITING_NS;
        let flows = Flows {
            sender: &sender,
            source: SourceConfig::Phases {
                segments,
                compute_ns: reply_ns + burst.chunk(1).gap_ns,
                count: burst.count,
                apart_ns,
                spread_ns: match burst.connections {
                    1 => 0,
                    _ => MOST_PLACES_LATER * apart_ns,
                },
            },
            each: (0..burst.connections)
                .map(|place| (0, u64::from(place) * apart_ns))
                .collect(),
        };
        let mut world = self.network.world(&[flows], self.plan.seed);
        let (mut before, mut window) = (sent(&world), world.flows[0].sender.window());
        for number in 0..burst.count {
            let link = topology.after(topology.steps_before(number + 1, None));
            if !topology.steps.is_empty() {
                self.network.change(&mut world, &link, sender.packet_bytes);
                reply_ns = link.one_way_delay_ns;
            }
            while world.groups[0].rounds.len() <= number as usize {
                self.look(&mut world, LOOK_NS)?;
            }
            let (began, ended) = world.groups[0].rounds[number as usize];
            let (after, now) = (sent(&world), world.flows[0].sender.window());
            self.records.push(Record::Burst(BurstRecord {
                workload,
                burst: number + 1,
                completion_ns: ended - began + reply_ns,
                began_ns: None,
                segments: after[0] - before[0],
                retransmitted: after[1] - before[1],
                spurious: 0,
                marked: 0,
                cwnd: [window.cwnd as u32, now.cwnd as u32],
                ssthresh: [window.ssthresh as u32, now.ssthresh as u32],
                loop_ns: None,
                timers: Some(after[2] + after[3] - before[2] - before[3]),
            }));
            (before, window) = (after, now);
            self.advance();
        }
        Ok(())
    }

    /// The receiver requests from one host after the other; a round ends with the last answer.
    pub fn incast(
        &mut self,
        workload: usize,
        sender: &SenderConfig,
        incast: &Incast,
    ) -> Result<(), SimulatedError> {
        let request_ns = self.network.one_way_ns();
        let (sender, segments) = self.message(sender, incast.answer_bytes);
        let flows = Flows {
            sender: &sender,
            source: SourceConfig::Phases {
                segments,
                compute_ns: incast.period_ns,
                count: incast.rounds,
                apart_ns: 0,
                spread_ns: u64::from(incast.senders) * ASKING_NS,
            },
            each: (0..incast.senders).map(|host| (host, 0)).collect(),
        };
        let mut world = self.network.world(&[flows], self.plan.seed);
        let mut before = sent(&world);
        let begun = before[2];
        for number in 0..incast.rounds {
            let (mut moved, mut quiet, mut longest) = (arrived(&world), 0, 0);
            while world.groups[0].rounds.len() <= number as usize {
                let began = world.groups[0].round_began;
                self.look(&mut world, LOOK_NS)?;
                let now = arrived(&world);
                let still = now == moved && world.now() > began;
                quiet = if still { quiet + LOOK_NS } else { 0 };
                (moved, longest) = (now, longest.max(quiet));
            }
            let (began, ended) = world.groups[0].rounds[number as usize];
            let after = sent(&world);
            self.records.push(Record::Round(RoundRecord {
                workload,
                round: number + 1,
                completion_ns: request_ns + ended - began,
                longest_pause_ns: longest,
                segments: after[0] - before[0],
                retransmitted: after[1] - before[1],
                spurious: 0,
            }));
            before = after;
            self.advance();
        }
        self.records.push(Record::Timers(TimerRecord {
            workload,
            timeouts: before[2] - begun,
            ..TimerRecord::default()
        }));
        Ok(())
    }

    /// Group k sends from host k.
    pub fn bulk(
        &mut self,
        workload: usize,
        sender: &SenderConfig,
        bulk: &Bulk,
    ) -> Result<(), SimulatedError> {
        let senders = bulk
            .groups
            .iter()
            .map(|group| match &group.congestion {
                Some(name) => kind(self.plan, name),
                None => Ok(sender.clone()),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let reply_ns = self.network.one_way_ns();
        let kinds: Vec<(SenderConfig, SourceConfig)> = bulk
            .groups
            .iter()
            .zip(senders)
            .map(|(group, sender)| match group.bursts {
                None => (sender, SourceConfig::Bulk(None)),
                Some(shape) => {
                    let (sender, segments) = self.message(&sender, shape.size_bytes);
                    let source = SourceConfig::Phases {
                        segments,
                        compute_ns: reply_ns + shape.gap_ns,
                        count: 0,
                        apart_ns: 0,
                        spread_ns: 0,
                    };
                    (sender, source)
                }
            })
            .collect();
        for repeat in 0..bulk.repeats {
            let seed = self.plan.seed + u64::from(repeat);
            let mut chance = Source::new(sequence(seed, Purpose::Start, 0));
            // Flows with bursts are of kinds of their own: they do not wait for one another.
            let mut flows: Vec<Flows> = Vec::new();
            let mut of = Vec::new();
            for (group, (described, (sender, source))) in bulk.groups.iter().zip(&kinds).enumerate()
            {
                let starts: Vec<(u32, u64)> = (0..described.flows)
                    .map(|_| {
                        let late_ns = chance.uniform(described.spread_ns);
                        (group as u32, described.start_ns + late_ns)
                    })
                    .collect();
                let apart = if described.bursts.is_some() {
                    1
                } else {
                    starts.len().max(1)
                };
                for (number, each) in starts.chunks(apart).enumerate() {
                    of.push((group, (number * apart) as u32));
                    flows.push(Flows {
                        sender,
                        source: source.clone(),
                        each: each.to_vec(),
                    });
                }
            }
            let mut world = self.network.world(&flows, seed);
            // Goodput counts from the first start.
            let first = flows.iter().flat_map(|flows| &flows.each);
            let begin = first.map(|(_, start)| *start).min().unwrap_or(0);
            let end = begin + bulk.duration_ns;
            let topology = &self.plan.topology;
            let packet_bytes = flows.first().map_or(0, |flows| flows.sender.packet_bytes);
            let mut link = topology.clone();
            let mut steps = topology.steps.iter().peekable();
            let mut second = world.now();
            while world.now() < end {
                let due = |step: &&&Step| match step.when {
                    When::Time { at_ns } => at_ns,
                    When::Burst { .. } => NEVER,
                };
                let next = steps.peek().as_ref().map_or(NEVER, due);
                if next <= world.now() {
                    if let Some(step) = steps.next() {
                        link = link.changed(&step.change);
                        self.network.change(&mut world, &link, packet_bytes);
                    }
                    continue;
                }
                let until = end.min(next).min(second + 1_000_000_000);
                let by_ns = until - world.now();
                self.look(&mut world, by_ns)?;
                if world.now() == second + 1_000_000_000 || world.now() == end {
                    second = world.now();
                    self.advance();
                }
            }
            for (kind, (group, from)) in world.groups.iter().zip(of) {
                for (flow, number) in (from..).zip(kind.flows.clone()) {
                    let one = &world.flows[number as usize];
                    let totals = one.sender.totals();
                    let reply_ns = self.network.one_way_ns();
                    let rounds = kind.rounds.iter();
                    self.records.push(Record::Flow(FlowRecord {
                        workload,
                        group,
                        flow,
                        bytes: arrived_bytes(one.receiver.distinct(), &kind.sender),
                        active_ns: end - one.start,
                        segments: totals.sent,
                        retransmitted: totals.again,
                        marked: 0,
                        bursts_ns: rounds
                            .map(|(began, ended)| ended - began + reply_ns)
                            .filter(|_| bulk.groups[group].bursts.is_some())
                            .collect(),
                    }));
                }
            }
        }
        Ok(())
    }

    /// Each run has new connections and a new job.
    pub fn streams(
        &mut self,
        workload: usize,
        sender: &SenderConfig,
        streams: &Streams,
    ) -> Result<(), SimulatedError> {
        let distant = streams.distant_hosts as usize;
        self.network.longer_ns = vec![streams.distant_rtt_ns; distant];
        self.network.routes.clone_from(&streams.routes);
        let other = streams.beside.as_deref().map(|name| kind(self.plan, name));
        let other = other.transpose()?;
        let (sender, segments) = self.message(sender, streams.size_bytes);
        for repeat in 0..streams.repeats {
            let seed = self.plan.seed + u64::from(repeat);
            let mut chance = Source::new(sequence(seed, Purpose::Start, 0));
            let hosts = 0..streams.hosts;
            let mut flows = vec![Flows {
                sender: &sender,
                source: SourceConfig::Bulk(Some(segments)),
                each: hosts
                    .flat_map(|host| vec![host; streams.per_host as usize])
                    .map(|host| (host, chance.uniform(TOGETHER_NS)))
                    .collect(),
            }];
            flows.extend(other.as_ref().map(|sender| Flows {
                sender,
                source: SourceConfig::Bulk(None),
                each: vec![(streams.hosts, chance.uniform(TOGETHER_NS))],
            }));
            let mut world = self.network.world(&flows, seed);
            if let Some(coordination) = self.coordination(&world, streams) {
                world.coordinate(coordination);
            }
            let mut samples = Vec::new();
            loop {
                let each = look(&world, streams.size_bytes);
                let sample = StreamSample::of(&each);
                samples.push(sample);
                if sample.active == 0 {
                    break;
                }
                self.look(&mut world, SAMPLE_NS)?;
            }
            let members = world.groups[0].flows.clone();
            let members = &world.flows[members.start as usize..members.end as usize];
            let beside_bytes = world.groups.get(1).map_or(0, |group| {
                let flow = &world.flows[group.flows.start as usize];
                arrived_bytes(flow.receiver.distinct(), &group.sender)
            });
            let total = |of: fn(&paceline_simulator::sender::Totals) -> u64| {
                members.iter().map(|flow| of(&flow.sender.totals())).sum()
            };
            self.records.push(Record::Streams(StreamsRecord {
                workload,
                repeat,
                done_ns: members.iter().map(|flow| flow.completed).collect(),
                segments: total(|totals| totals.sent),
                retransmitted: total(|totals| totals.again),
                spurious: 0,
                beside_bytes,
                beside_ns: world.now(),
                step_ns: SAMPLE_NS,
                samples,
            }));
            self.advance();
        }
        Ok(())
    }

    /// The coordinator of the streams, which are the world's first group.
    fn coordination(&self, world: &World, streams: &Streams) -> Option<Coordination> {
        let choice = self.plan.adaptation.coordinate.clone()?;
        let dies_ns = streams.coordinator_dies_ns.unwrap_or(NEVER);
        let mut coordination = Coordination::new("", choice, dies_ns);
        for number in world.groups[0].flows.clone() {
            let host = number / streams.per_host;
            // As the receiver's addresses in the other backends: a network for each route.
            let network = self
                .network
                .route_of(host)
                .map_or(0, |route| 1 + route as u8);
            coordination.add(number, Some([10, 154, network, 1].into()));
        }
        Some(coordination)
    }
}

/// Of each stream the delivered bytes, and its inflight unless it is complete.
fn look(world: &World, size: u64) -> Vec<(u64, Option<u32>)> {
    let group = &world.groups[0];
    let flows = &world.flows[group.flows.start as usize..group.flows.end as usize];
    let each = flows.iter().map(|flow| {
        let arrived = arrived_bytes(flow.receiver.distinct(), &group.sender).min(size);
        // Before it has begun nothing is complete.
        let under_way = flow.completed == NEVER;
        (arrived, under_way.then(|| flow.sender.outstanding()))
    });
    each.collect()
}
