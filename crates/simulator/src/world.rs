// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links and flows, run event by event.

mod coordination;
mod flow;

pub use coordination::Coordination;
use flow::NEAR;
pub use flow::{Flow, Group, GroupSample, Samples, Way};
use paceline_abi::{pl_path, pl_turn};
use rand::RngExt;

use crate::agenda::Agenda;
use crate::ahead::fetch;
use crate::event::{Event, Kind, NEVER};
use crate::link::Link;
use crate::memory;
use crate::meter::Meter;
use crate::random::{sequence, Purpose};
use crate::receiver::{Answer, Receiver};
use crate::sender::config::{Algorithm, SenderConfig};
use crate::sender::{Ack, Known, Sender};
use crate::source::{Source, SourceConfig};

/// From so many flows on they exceed the nearest caches: the data of the next events is
/// prefetched,
const MANY_FLOWS: usize = 500;
/// of the flow so many events before,
const FAR_AHEAD: usize = 16;
/// and of the link, which the flow names, so many.
const NEAR_AHEAD: usize = 8;

/// A world.
pub struct World {
    now: u64,
    seed: u64,
    agenda: Agenda,
    /// All links, each direction by itself.
    pub links: Vec<Link>,
    /// Links whose packets all come from one other link, in order: no event is needed
    /// between the two.
    follows: Vec<bool>,
    routes: Vec<u32>,
    /// The kinds of flows.
    pub groups: Vec<Group>,
    /// The flows.
    pub flows: Vec<Flow>,
    paths: Vec<pl_path>,
    turns: Vec<pl_turn>,
    /// Coordinators of flows.
    pub coordinations: Vec<Coordination>,
    /// The link at whose queue arrivals are counted.
    pub measured: u32,
    /// The count.
    pub meter: Meter,
    /// Samples over time.
    pub samples: Samples,
    /// Events that happened.
    pub events: u64,
    /// Packets that a link took in, ACKs too.
    pub transmissions: u64,
}

impl World {
    /// A world of links without flows, whose meter looks at `measured`. Of `seed` come the
    /// flows' initial sequence numbers.
    pub fn new(links: Vec<Link>, measured: u32, meter: Meter, seed: u64) -> Self {
        World {
            now: 0,
            seed,
            agenda: Agenda::new(),
            follows: vec![false; links.len()],
            links,
            routes: Vec::new(),
            groups: Vec::new(),
            flows: Vec::new(),
            paths: Vec::new(),
            turns: Vec::new(),
            coordinations: Vec::new(),
            measured,
            meter,
            samples: Samples::default(),
            events: 0,
            transmissions: 0,
        }
    }

    /// Makes room for so many flows more.
    pub fn reserve(&mut self, flows: usize) {
        memory::reserve(&mut self.flows, flows);
    }

    /// Adds a kind of flows, to which [`World::add_flow`] adds.
    pub fn add_group(&mut self, name: &str, sender: SenderConfig, source: SourceConfig) {
        let next = self.flows.len() as u32;
        self.groups.push(Group {
            name: name.to_owned(),
            sender,
            source,
            pending: 0,
            rounds: Vec::new(),
            round_began: 0,
            flows: next..next,
        });
    }

    /// Adds a flow to the group that was added last.
    pub fn add_flow(&mut self, way: &Way, start: u64, source: Source) {
        let group = self.groups.last_mut().expect("a group was added");
        let number = self.flows.len() as u32;
        group.flows.end = number + 1;
        group.pending += 1;
        if group.flows.len() == 1 || start < group.round_began {
            group.round_began = start;
        }
        let mut links = [self.routes.len() as u32; NEAR];
        if way.there.len() + way.back.len() <= NEAR {
            for (near, link) in links.iter_mut().zip(way.there.iter().chain(&way.back)) {
                *near = *link;
            }
        } else {
            self.routes.extend(way.there.iter().chain(&way.back));
        }
        let paths = self.paths.len().max(way.path as usize + 1);
        let turns = self.turns.len().max(way.turn as usize + 1);
        if group.sender.policy.is_some() {
            self.paths.resize(paths, pl_path::default());
            self.turns.resize(turns, pl_turn::default());
        }
        let mut flow = Flow {
            group: self.groups.len() as u32 - 1,
            links,
            there: way.there.len() as u8,
            back: way.back.len() as u8,
            path: way.path,
            turn: way.turn,
            start,
            opens: start,
            sender: Sender::new(&self.groups[self.groups.len() - 1].sender),
            receiver: Receiver::default(),
            source,
            timer_event: NEVER,
            delayed_event: NEVER,
            pace_event: NEVER,
            completed: NEVER,
            dropped: 0,
        };
        let config = &self.groups[flow.group as usize].sender;
        let ways = way.there.iter().chain(&way.back);
        let crossing = |link: &u32| self.links[*link as usize].crossing_ns(config.ack_bytes);
        let round_trip_ns = ways.map(crossing).fold(0, u64::saturating_add);
        if config.handshake {
            flow.opens = start.saturating_add(round_trip_ns);
        }
        flow.sender.shake_hands(round_trip_ns, config);
        let mut chance = sequence(self.seed, Purpose::SequenceNumber, u64::from(number));
        flow.sender.begin_at(chance.random());
        let config = &self.groups[flow.group as usize].source;
        let first = flow.source.first(config, start);
        if first != NEVER {
            self.agenda.put(Event::plain(first, Kind::Source, number));
        }
        self.flows.push(flow);
    }

    /// Lets a coordinator bound the windows of flows, which are of senders with selective
    /// acknowledgement. The first round is at the beginning.
    pub fn coordinate(&mut self, coordination: Coordination) {
        for number in coordination.flows() {
            self.flows[number as usize].sender.join_group();
        }
        let number = self.coordinations.len() as u32;
        self.coordinations.push(coordination);
        self.agenda.put(Event::plain(0, Kind::Round, number));
    }

    /// To be called once all flows are there: finds the links that follow another, and
    /// begins to sample.
    pub fn prepare(&mut self) {
        const NONE: u32 = u32::MAX;
        const MANY: u32 = u32::MAX - 1;
        let mut before = vec![NONE; self.links.len()];
        for flow in &self.flows {
            let (there, back) = (usize::from(flow.there), usize::from(flow.back));
            for way in [0..there, there..there + back] {
                let mut previous = MANY;
                for link in way.map(|at| flow.link(&self.routes, at)) {
                    let known = &mut before[link as usize];
                    if *known == NONE {
                        *known = previous;
                    } else if *known != previous {
                        *known = MANY;
                    }
                    previous = link;
                }
            }
        }
        self.follows = before.iter().map(|link| *link < MANY).collect();
        if self.samples.every_ns > 0 {
            let names = self.groups.iter().map(|group| group.name.clone());
            self.samples.group_names = names.collect();
            self.agenda.put(Event::plain(0, Kind::Sample, 0));
        }
    }

    /// Now, nanoseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Runs everything that happens before `until`.
    pub fn run(&mut self, until: u64) {
        let many = self.flows.len() >= MANY_FLOWS;
        loop {
            if self.agenda.fill(until) && many {
                (0..FAR_AHEAD).for_each(|others| self.fetch_flow(others));
                (0..NEAR_AHEAD).for_each(|others| self.fetch_link(others));
            }
            let Some(event) = self.agenda.take_before(until) else {
                break;
            };
            if many {
                self.fetch_flow(FAR_AHEAD);
                self.fetch_link(NEAR_AHEAD);
            }
            debug_assert!(event.time >= self.now, "time goes forwards");
            self.now = event.time;
            self.events += 1;
            match event.kind {
                Kind::Data => self.on_data(&event),
                Kind::Ack => self.on_ack(&event),
                Kind::Source => self.on_source(event.flow),
                Kind::Pace => self.on_pace(&event),
                Kind::Timer => self.on_timer(&event),
                Kind::Delayed => self.on_delayed(&event),
                Kind::Round => self.on_round(event.flow),
                Kind::Sample => self.on_sample(),
            }
        }
        self.now = until;
        self.meter.finish(until);
    }

    /// Prefetches the flow of the event after `others` more.
    #[inline(always)]
    fn fetch_flow(&self, others: usize) {
        let Some(event) = self.agenda.ahead(others) else {
            return;
        };
        let flow = &self.flows[event.flow as usize];
        fetch(&flow.group);
        match event.kind {
            Kind::Data if event.hop > 0 => fetch(&flow.receiver),
            Kind::Data | Kind::Delayed | Kind::Round | Kind::Sample => {}
            Kind::Ack | Kind::Timer | Kind::Pace => fetch(&flow.sender),
            Kind::Source => {
                fetch(&flow.source);
                fetch(&flow.sender);
            }
        }
    }

    /// And the link that it will send over, once its flow is fetched, which names it.
    #[inline(always)]
    fn fetch_link(&self, others: usize) {
        let Some(event) = self.agenda.ahead(others) else {
            return;
        };
        let flow = &self.flows[event.flow as usize];
        if event.kind != Kind::Data && flow.there > 0 {
            fetch(&self.links[flow.link(&self.routes, 0) as usize]);
        }
    }

    /// Packets that are on links or in queues: each is an event.
    pub fn has_more(&self) -> bool {
        !self.agenda.is_empty()
    }

    /// A packet of data goes from hop to hop as far as no other flow's can come between.
    #[inline]
    fn carry(&mut self, mut event: Event, bytes: u32) {
        let flow = &mut self.flows[event.flow as usize];
        let data = event.kind == Kind::Data;
        let (first, hops) = match data {
            true => (0, flow.there),
            false => (usize::from(flow.there), flow.back),
        };
        while event.hop < hops {
            let link = flow.link(&self.routes, first + usize::from(event.hop));
            if data && link == self.measured {
                self.meter.note(event.time);
            }
            self.transmissions += 1;
            match self.links[link as usize].take(event.time, bytes) {
                Some(time) => event.time = time,
                None => {
                    flow.dropped += u32::from(data);
                    return;
                }
            }
            event.hop += 1;
            if event.hop < hops {
                let next = flow.link(&self.routes, first + usize::from(event.hop));
                if !self.follows[next as usize] {
                    break;
                }
            }
        }
        self.agenda.put(event);
    }

    fn on_data(&mut self, event: &Event) {
        let flow = &mut self.flows[event.flow as usize];
        let group = &self.groups[flow.group as usize];
        let config = &group.sender;
        if event.hop < flow.there {
            return self.carry(*event, config.packet_bytes);
        }
        if config.algorithm == Algorithm::Udp {
            flow.receiver.count();
            return self.note_completion(event.flow);
        }
        let latest = config.selective();
        let (every, delay_ns) = config.acknowledges(&mut flow.receiver, event.time);
        let answer = flow.receiver.take(
            event.sequence,
            event.stamp,
            event.time,
            every,
            config.runs_out_ns(event.time, delay_ns) - event.time,
            latest,
        );
        // An application that has its whole message answers, and Linux acknowledges with that.
        let answers = config.linux && matches!(group.source, SourceConfig::Phases { .. });
        let whole = answers && flow.receiver.next() >= flow.sender.written();
        match answer.or_else(|| whole.then(|| flow.receiver.answer(latest))) {
            Some(answer) => self.send_ack(event.flow, answer),
            None => self.arm_delayed(event.flow),
        }
        self.note_completion(event.flow);
    }

    /// Notes when all written data has arrived; after the last flow the next phase begins.
    #[inline]
    fn note_completion(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        if flow.receiver.next() < flow.sender.written() || flow.completed != NEVER {
            return;
        }
        flow.completed = self.now;
        let group = &mut self.groups[flow.group as usize];
        let SourceConfig::Phases {
            compute_ns,
            count,
            apart_ns,
            spread_ns,
            ..
        } = group.source
        else {
            return;
        };
        group.pending -= 1;
        if group.pending > 0 {
            return;
        }
        group.rounds.push((group.round_began, self.now));
        if count > 0 && group.rounds.len() as u32 >= count {
            return;
        }
        group.pending = group.flows.len() as u32;
        group.round_began = self.now + compute_ns;
        for (place, number) in (0..).zip(group.flows.clone()) {
            let flow = &mut self.flows[number as usize];
            let time = group.round_began + place * apart_ns + flow.source.uniform(spread_ns);
            self.agenda.put(Event::plain(time, Kind::Source, number));
        }
    }

    fn send_ack(&mut self, number: u32, answer: Answer) {
        let Answer { next, stamp, block } = answer;
        let length = (block.1 - block.0).min(u32::from(u16::MAX)) as u16;
        let bytes = self.groups[self.flows[number as usize].group as usize]
            .sender
            .ack_bytes;
        let event = Event {
            time: self.now,
            stamp,
            flow: number,
            sequence: next,
            block_end: block.1,
            block_len: length,
            kind: Kind::Ack,
            hop: 0,
        };
        self.carry(event, bytes);
    }

    fn on_ack(&mut self, event: &Event) {
        let flow = &mut self.flows[event.flow as usize];
        let config = &self.groups[flow.group as usize].sender;
        if event.hop < flow.back {
            return self.carry(*event, config.ack_bytes);
        }
        let ack = Ack {
            next: event.sequence,
            stamp: event.stamp,
            block: (
                event.block_end - u32::from(event.block_len),
                event.block_end,
            ),
        };
        let may_send = match &config.policy {
            None => flow.sender.on_ack(&ack, event.time, config, None),
            Some(policy) => {
                let mut known = Known {
                    policy,
                    path: &mut self.paths[flow.path as usize],
                    turn: &mut self.turns[flow.turn as usize],
                };
                flow.sender
                    .on_ack(&ack, event.time, config, Some(&mut known))
            }
        };
        if may_send {
            self.transmit(event.flow);
        } else {
            self.arm_timer(event.flow);
        }
    }

    fn on_source(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        let group = &self.groups[flow.group as usize];
        let demand = flow.source.next_demand(&group.source, flow.start, self.now);
        if demand.next_ns != NEVER {
            self.agenda
                .put(Event::plain(demand.next_ns, Kind::Source, number));
        }
        if demand.segments == 0 {
            return;
        }
        flow.completed = NEVER;
        let sequence = flow.sender.written();
        flow.sender.write(demand.segments, self.now, &group.sender);
        if group.sender.algorithm == Algorithm::Udp {
            let bytes = group.sender.packet_bytes;
            let written = flow.sender.written();
            for sequence in sequence..written {
                let event = Event {
                    sequence,
                    stamp: self.now,
                    ..Event::plain(self.now, Kind::Data, number)
                };
                self.carry(event, bytes);
            }
        } else if self.now < flow.opens {
            if flow.pace_event == NEVER {
                flow.pace_event = flow.opens;
                self.agenda
                    .put(Event::plain(flow.opens, Kind::Pace, number));
            }
        } else {
            self.transmit(number);
        }
    }

    /// Sends as window and pace of a flow allow.
    fn transmit(&mut self, number: u32) {
        let now = self.now;
        loop {
            let flow = &mut self.flows[number as usize];
            let config = &self.groups[flow.group as usize].sender;
            let bytes = config.packet_bytes;
            let departure = match &config.policy {
                None => flow.sender.next(now, config, None),
                Some(policy) => {
                    let mut known = Known {
                        policy,
                        path: &mut self.paths[flow.path as usize],
                        turn: &mut self.turns[flow.turn as usize],
                    };
                    flow.sender.next(now, config, Some(&mut known))
                }
            };
            let Some(departure) = departure else {
                break;
            };
            let event = Event {
                sequence: departure.sequence,
                stamp: departure.stamp,
                ..Event::plain(now, Kind::Data, number)
            };
            self.carry(event, bytes);
        }
        self.arm_timer(number);
        let flow = &mut self.flows[number as usize];
        if let Some(at) = flow.sender.pace_ns() {
            if at < flow.pace_event || flow.pace_event <= now {
                flow.pace_event = at;
                self.agenda.put(Event::plain(at, Kind::Pace, number));
            }
        }
    }

    /// A timer that is set again and again, mostly to later, costs one event, which checks the
    /// time when it comes.
    fn arm_timer(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        let at = flow.sender.timer_ns();
        if at < flow.timer_event {
            flow.timer_event = at;
            self.agenda.put(Event::plain(at, Kind::Timer, number));
        }
    }

    fn on_timer(&mut self, event: &Event) {
        let flow = &mut self.flows[event.flow as usize];
        if event.time != flow.timer_event {
            return;
        }
        flow.timer_event = NEVER;
        if flow.sender.timer_ns() > event.time {
            return self.arm_timer(event.flow);
        }
        let config = &self.groups[flow.group as usize].sender;
        match &config.policy {
            None => flow.sender.on_timer(event.time, config, None),
            Some(policy) => {
                let mut known = Known {
                    policy,
                    path: &mut self.paths[flow.path as usize],
                    turn: &mut self.turns[flow.turn as usize],
                };
                flow.sender.on_timer(event.time, config, Some(&mut known));
            }
        }
        self.transmit(event.flow);
    }

    fn on_pace(&mut self, event: &Event) {
        let flow = &mut self.flows[event.flow as usize];
        if event.time == flow.pace_event {
            flow.pace_event = NEVER;
            self.transmit(event.flow);
        }
    }

    fn arm_delayed(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        let at = flow.receiver.delayed_ns();
        if at < flow.delayed_event {
            flow.delayed_event = at;
            self.agenda.put(Event::plain(at, Kind::Delayed, number));
        }
    }

    fn on_delayed(&mut self, event: &Event) {
        let flow = &mut self.flows[event.flow as usize];
        if event.time != flow.delayed_event {
            return;
        }
        flow.delayed_event = NEVER;
        if flow.receiver.delayed_ns() > event.time {
            return self.arm_delayed(event.flow);
        }
        let latest = self.groups[flow.group as usize].sender.selective();
        let answer = flow.receiver.answer(latest);
        self.send_ack(event.flow, answer);
    }

    fn on_round(&mut self, number: u32) {
        let coordination = &mut self.coordinations[number as usize];
        let next = coordination.round(self.now, &mut self.flows, &self.groups);
        if let Some(next) = next {
            self.agenda.put(Event::plain(next, Kind::Round, number));
        }
    }

    fn on_sample(&mut self) {
        let link = &self.links[self.measured as usize];
        self.samples.times.push(self.now);
        self.samples
            .queue
            .push((link.queued(self.now) as u32, link.average()));
        for &flow in &self.samples.flows {
            let window = self.flows[flow as usize].sender.window();
            self.samples.windows.push((window.cwnd, window.ssthresh));
        }
        for group in &self.groups {
            let flows = &self.flows[group.flows.start as usize..group.flows.end as usize];
            let sample = GroupSample::of(flows, group.sender.packet_bytes);
            self.samples.groups.push(sample);
        }
        let next = self.now + self.samples.every_ns;
        self.agenda.put(Event::plain(next, Kind::Sample, 0));
    }
}
