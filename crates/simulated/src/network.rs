// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan's dumbbell, made of the simulator's links.

use paceline_experiment::plan::{self, Route, Topology};
use paceline_simulator::link::{Limit, Link, Loss};
use paceline_simulator::meter::Meter;
use paceline_simulator::random::{sequence, Purpose};
use paceline_simulator::sender::config::SenderConfig;
use paceline_simulator::source::{Source, SourceConfig};
use paceline_simulator::world::{Way, World};

/// Preamble, gap and frame check sequence: on the wire, but in no queue.
const FRAMING_BYTES: u64 = 24;
/// The burst meter is not used here; a coarse window costs the least.
const METER_NS: u64 = 1_000_000_000;

/// Flows of one kind.
pub struct Flows<'f> {
    /// Their senders.
    pub sender: &'f SenderConfig,
    /// Their applications.
    pub source: SourceConfig,
    /// Host of each, and when it starts, nanoseconds.
    pub each: Vec<(u32, u64)>,
}

/// See the module's text.
pub struct Network<'t> {
    topology: &'t Topology,
    /// Delay added to the return path of each host, nanoseconds; later hosts have none.
    pub longer_ns: Vec<u64>,
    /// Routes beside the link, each that of the next hosts.
    pub routes: Vec<Route>,
}

impl<'t> Network<'t> {
    /// The topology's, with no host farther away than another.
    pub fn of(topology: &'t Topology) -> Self {
        Network {
            topology,
            longer_ns: Vec::new(),
            routes: Vec::new(),
        }
    }

    /// The route of a host, if there are routes.
    pub fn route_of(&self, host: u32) -> Option<usize> {
        let mut hosts = 0;
        self.routes.iter().position(|route| {
            hosts += route.hosts;
            host < hosts
        })
    }

    /// A new world with these flows and no path state. Random draws differ with `seed`.
    pub fn world(&self, flows: &[Flows], seed: u64) -> World {
        let topology = self.topology;
        let packet = flows.first().map_or(0, |flows| flows.sender.packet_bytes);
        let line = |rate_bps: u64, delay_ns: u64, buffer_bytes: u64| {
            [
                Link::new(rate_bps, delay_ns, limit(buffer_bytes, packet), None),
                Link::new(0, delay_ns, Limit::None, None),
            ]
        };
        let mut links = Vec::from(line(
            topology.rate_bps,
            topology.one_way_delay_ns,
            topology.buffer_bytes,
        ));
        if let Some(loss) = topology.impairments.loss {
            let random = sequence(seed, Purpose::Line, 0);
            links[0] = links[0].clone().with_loss(of_line(loss), random);
        }
        for route in &self.routes {
            links.extend(line(route.rate_bps, route.rtt_ns / 2, route.buffer_bytes));
        }
        let edges = links.len() as u32;
        let hosts = flows
            .iter()
            .flat_map(|flows| &flows.each)
            .map(|(host, _)| host + 1)
            .max()
            .unwrap_or(0);
        for host in 0..hosts {
            let longer = self.longer_ns.get(host as usize).copied().unwrap_or(0);
            links.push(Link::new(topology.edge_rate_bps, 0, Limit::None, None));
            links.push(Link::new(0, longer, Limit::None, None));
        }
        let mut world = World::new(links, 0, Meter::new(METER_NS), seed);
        let mut number = 0;
        for flows in flows {
            world.add_group("", flows.sender.clone(), flows.source.clone());
            for (host, start) in &flows.each {
                let line = self.route_of(*host).map_or(0, |route| 2 + 2 * route as u32);
                let edge = edges + 2 * host;
                let way = Way {
                    there: vec![edge, line],
                    back: vec![line + 1, edge + 1],
                    path: *host,
                    turn: *host,
                };
                let source = Source::new(sequence(seed, Purpose::Source, number));
                world.add_flow(&way, *start, source);
                number += 1;
            }
        }
        world.prepare();
        world
    }

    /// Sets the line of a world to `link`, for packets of this size on the wire.
    pub fn change(&self, world: &mut World, link: &Topology, packet_bytes: u32) {
        let buffer = limit(link.buffer_bytes, packet_bytes);
        world.links[0].change(link.rate_bps, link.one_way_delay_ns, buffer);
        world.links[1].change(0, link.one_way_delay_ns, Limit::None);
    }

    /// One way to the receiver, or back, nanoseconds.
    pub fn one_way_ns(&self) -> u64 {
        self.topology.one_way_delay_ns
    }
}

fn of_line(loss: plan::Loss) -> Loss {
    match loss {
        plan::Loss::Random { share } => Loss {
            to_bad: 0.0,
            to_good: 1.0,
            good: share,
            bad: share,
        },
        plan::Loss::Bursts {
            to_bad,
            to_good,
            good,
            bad,
        } => Loss {
            to_bad,
            to_good,
            good,
            bad,
        },
    }
}

/// The simulator's queue counts packets as they are on the wire.
fn limit(buffer_bytes: u64, packet_bytes: u32) -> Limit {
    let packet = u64::from(packet_bytes).max(FRAMING_BYTES + 1);
    Limit::Bytes(buffer_bytes * packet / (packet - FRAMING_BYTES))
}
