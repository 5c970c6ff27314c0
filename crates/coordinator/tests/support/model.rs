// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts, drop-tail bottlenecks and a coordinator, packet by packet, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use paceline_coordinator::algorithm::{Algorithm, Limits, Stream, StreamId};
use paceline_coordinator::local::StreamSample;

use super::sender::{Sender, MS, MSS, NO_SSTHRESH};

/// On the wire: Ethernet's frame, preamble and gap around a full segment.
const FRAME: u64 = MSS + 90;
/// What a queue's limit counts.
const QUEUED: u64 = MSS + 66;
/// What a host takes for a packet at most, nanoseconds.
const HOST_NS: u64 = 5_000;
/// A host's own interface, bits per second.
const EDGE_BPS: u64 = 1_000_000_000;

#[derive(Clone)]
pub struct Link {
    pub rate_bps: u64,
    pub buffer_bytes: u64,
}

#[derive(Clone)]
pub struct Flow {
    pub host: usize,
    pub link: usize,
    pub rtt: u64,
    pub bytes: u64,
    pub start: u64,
    /// In the group; else nobody's business.
    pub grouped: bool,
    /// Third byte of its destination's address.
    pub network: u8,
}

#[derive(Clone)]
pub struct Case {
    pub links: Vec<Link>,
    pub flows: Vec<Flow>,
    /// The program says how much it will send.
    pub declared: bool,
    /// A host stopped from one moment to the other.
    pub stop: Option<(usize, u64, u64)>,
    /// When the coordinator is killed.
    pub kill: Option<u64>,
    /// Samples do not tell of recoveries.
    pub blind: bool,
    /// When the first round is.
    pub first_round: u64,
    /// When programs start, and how long hosts take for a packet, to the microsecond.
    pub seed: u64,
}

#[derive(Debug)]
pub struct Outcome {
    /// Seconds at which the group's flows ended, in the case's order.
    pub ends: Vec<f64>,
    /// Bits per second of the others until the group's last end.
    pub foreign_bps: Vec<f64>,
    pub dropped: u64,
    pub retransmitted: u64,
    pub timeouts: u64,
    pub segments: u64,
}

impl Outcome {
    pub fn first(&self) -> f64 {
        self.ends.iter().copied().fold(f64::MAX, f64::min)
    }

    pub fn last(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }

    pub fn spread(&self) -> f64 {
        self.last() / self.first()
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(usize),
    Wake(usize),
    Arrive(usize, u64),
    Ack(usize, u64),
    Timer(usize),
    Round,
    Stop(usize, bool),
}

struct Run<'a> {
    case: &'a Case,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    senders: Vec<Sender>,
    started: Vec<bool>,
    ends: Vec<Option<u64>>,
    link_free: Vec<u64>,
    edge_free: Vec<u64>,
    /// A wake-up is due already.
    waking: Vec<bool>,
    dropped: u64,
    random: u64,
}

/// Longest that a case may take, nanoseconds of its time.
const MOST: u64 = 600_000 * MS;

pub fn run(case: &Case, algorithm: &mut dyn Algorithm) -> Outcome {
    run_watched(case, algorithm, &mut |_, _, _| {})
}

pub type Watch<'w> = &'w mut dyn FnMut(f64, &[Stream], &[Limits]);

pub fn run_watched(case: &Case, algorithm: &mut dyn Algorithm, watch: Watch) -> Outcome {
    let hosts = case.flows.iter().map(|f| f.host).max().unwrap_or(0) + 1;
    let mut run = Run {
        case,
        now: 0,
        order: 0,
        events: BinaryHeap::new(),
        senders: case
            .flows
            .iter()
            .map(|flow| Sender::new(flow.bytes.div_ceil(MSS)))
            .collect(),
        started: vec![false; case.flows.len()],
        ends: vec![None; case.flows.len()],
        link_free: vec![0; case.links.len()],
        edge_free: vec![0; hosts],
        waking: vec![false; case.flows.len()],
        dropped: 0,
        random: case.seed,
    };
    for (number, flow) in case.flows.iter().enumerate() {
        // Programs do not start in the same microsecond.
        let jitter = run.random(1000) * 1000;
        run.at(flow.start + jitter, Event::Start(number));
    }
    if let Some((host, from, until)) = case.stop {
        run.at(from, Event::Stop(host, true));
        run.at(until, Event::Stop(host, false));
    }
    let jitter = run.random(50) * MS;
    run.at(case.first_round + jitter, Event::Round);
    while let Some(Reverse((time, _, event))) = run.events.pop() {
        run.now = time;
        if time > MOST || run.finished() {
            break;
        }
        run.handle(event, algorithm, watch);
    }
    run.outcome()
}

impl Run<'_> {
    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// A number below `below` (SplitMix64).
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn finished(&self) -> bool {
        let flows = self.case.flows.iter().zip(&self.ends);
        flows
            .filter(|(flow, _)| flow.grouped)
            .all(|(_, end)| end.is_some())
    }

    fn handle(&mut self, event: Event, algorithm: &mut dyn Algorithm, watch: Watch) {
        match event {
            Event::Start(flow) => {
                self.started[flow] = true;
                self.senders[flow].shake_hands(self.case.flows[flow].rtt);
                self.at(self.now + 100 * MS, Event::Timer(flow));
                self.send(flow);
            }
            Event::Wake(flow) => {
                self.waking[flow] = false;
                self.send(flow);
            }
            Event::Arrive(flow, number) => self.arrive(flow, number),
            Event::Ack(flow, number) => {
                self.senders[flow].acknowledge(self.now, number);
                if self.senders[flow].done() && self.ends[flow].is_none() {
                    self.ends[flow] = Some(self.now);
                }
                self.send(flow);
            }
            Event::Timer(flow) => {
                if self.ends[flow].is_none() {
                    if let Some(number) = self.senders[flow].timer(self.now) {
                        self.transmit(flow, number);
                    }
                    self.send(flow);
                    let next = self.senders[flow].deadline().max(self.now + 10 * MS);
                    self.at(next, Event::Timer(flow));
                }
            }
            Event::Round => self.round(algorithm, watch),
            Event::Stop(host, stopped) => {
                for flow in 0..self.senders.len() {
                    if self.case.flows[flow].host == host {
                        self.senders[flow].stopped = stopped;
                        self.send(flow);
                    }
                }
            }
        }
    }

    fn send(&mut self, flow: usize) {
        if !self.started[flow] || self.ends[flow].is_some() {
            return;
        }
        loop {
            if let Some(gap) = self.senders[flow].gap(self.now) {
                let due = self.senders[flow].next_send;
                if due > self.now {
                    if !self.waking[flow] {
                        self.waking[flow] = true;
                        self.at(due, Event::Wake(flow));
                    }
                    return;
                }
                let Some(number) = self.senders[flow].send(self.now) else {
                    return;
                };
                // One short burst after a pause, no debt of packets.
                self.senders[flow].next_send = due.max(self.now.saturating_sub(gap)) + gap;
                self.transmit(flow, number);
            } else {
                let Some(number) = self.senders[flow].send(self.now) else {
                    return;
                };
                self.transmit(flow, number);
            }
        }
    }

    fn transmit(&mut self, flow: usize, number: u64) {
        let jitter = self.random(HOST_NS);
        let edge = &mut self.edge_free[self.case.flows[flow].host];
        *edge = (*edge).max(self.now + jitter) + FRAME * 8 * 1_000_000_000 / EDGE_BPS;
        let time = *edge;
        self.at(time, Event::Arrive(flow, number));
    }

    fn arrive(&mut self, flow: usize, number: u64) {
        let path = &self.case.flows[flow];
        let link = &self.case.links[path.link];
        let free = &mut self.link_free[path.link];
        let wait = free.saturating_sub(self.now);
        let queued = wait as u128 * u128::from(link.rate_bps) / 8 / 1_000_000_000;
        // The queue counts bytes without the framing.
        let queued = queued as u64 * QUEUED / FRAME;
        if queued + QUEUED > link.buffer_bytes {
            self.dropped += 1;
            return;
        }
        *free = (*free).max(self.now) + FRAME * 8 * 1_000_000_000 / link.rate_bps;
        let time = *free + path.rtt;
        self.at(time, Event::Ack(flow, number));
    }

    fn round(&mut self, algorithm: &mut dyn Algorithm, watch: Watch) {
        if self.case.kill.is_some_and(|kill| self.now >= kill) {
            return;
        }
        let members: Vec<usize> = (0..self.senders.len())
            .filter(|f| self.case.flows[*f].grouped && self.started[*f] && self.ends[*f].is_none())
            .collect();
        let streams: Vec<Stream> = members.iter().map(|flow| self.sample(*flow)).collect();
        let limits = algorithm.round(Duration::from_nanos(self.now), &streams);
        watch(self.now as f64 / 1e9, &streams, &limits);
        assert_eq!(limits.len(), members.len());
        let period = algorithm.period().as_nanos() as u64;
        for (flow, limits) in members.into_iter().zip(limits) {
            let sender = &mut self.senders[flow];
            (sender.min, sender.max) = (limits.min_segs, limits.max_segs);
            // A bound is looked at when the next ACK comes.
            sender.lease = self.now + 4 * period;
        }
        let late = self.random(2000) * 1000;
        self.at(self.now + period + late, Event::Round);
    }

    fn sample(&self, flow: usize) -> Stream {
        let (sender, path) = (&self.senders[flow], &self.case.flows[flow]);
        Stream {
            id: StreamId {
                client: path.host as u32,
                cookie: flow as u64,
            },
            taken: Duration::from_nanos(self.now),
            sample: StreamSample {
                cookie: flow as u64,
                destination: Some(IpAddr::V4(Ipv4Addr::new(10, 0, path.network, 1))),
                inflight_segs: sender.inflight() as u32,
                cwnd_segs: sender.cwnd.min(NO_SSTHRESH) as u32,
                ssthresh_segs: sender.ssthresh as u32,
                mss_bytes: MSS as u32,
                srtt_us: (sender.srtt / 1e3) as u32,
                min_rtt_us: match sender.min_rtt {
                    u64::MAX => 0,
                    rtt => (rtt / 1000) as u32,
                },
                acked_bytes: sender.delivered * MSS,
                delivered_segs: sender.delivered as u32,
                // What a socket buffer of 4 MB holds.
                unsent_bytes: (sender.unsent() * MSS).min(4_000_000),
                total_bytes: match self.case.declared {
                    true => sender.total * MSS,
                    false => 0,
                },
                retransmitted_segs: sender.retransmitted,
                recovering: !self.case.blind && sender.recovering(),
            },
        }
    }

    fn outcome(self) -> Outcome {
        let flows = || self.case.flows.iter().enumerate();
        let ends: Vec<f64> = flows()
            .filter(|(_, flow)| flow.grouped)
            .map(|(number, _)| self.ends[number].map_or(f64::INFINITY, |end| end as f64 / 1e9))
            .collect();
        let last = ends.iter().copied().fold(0.0, f64::max);
        Outcome {
            foreign_bps: flows()
                .filter(|(_, flow)| !flow.grouped)
                .map(|(number, flow)| {
                    let bits = self.senders[number].delivered * FRAME * 8;
                    bits as f64 / (last - flow.start as f64 / 1e9)
                })
                .collect(),
            dropped: self.dropped,
            retransmitted: self.senders.iter().map(|s| s.retransmitted).sum(),
            timeouts: self.senders.iter().map(|s| s.timeouts).sum(),
            segments: self.senders.iter().map(|s| s.delivered).sum(),
            ends,
        }
    }
}
