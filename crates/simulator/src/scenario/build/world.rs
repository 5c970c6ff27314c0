// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a plan to the world that runs it.

use std::net::{IpAddr, Ipv4Addr};

use indexmap::IndexMap;
use paceline_input::units::Time;

use super::{flows_of, ns, Flows, Plan, WINDOW_PARTS};
use crate::event::{NEVER, SECOND, US};
use crate::link::{Limit, Link};
use crate::memory;
use crate::meter::Meter;
use crate::random::{sequence, Purpose};
use crate::red::Red;
use crate::scenario::file::{File, LinkTable, QueueTable};
use crate::sender::config::SenderConfig;
use crate::source::{Source, SourceConfig};
use crate::world::{Coordination, Way, World};

/// An address of the network that a group of flows sends to: each to its own, 10.0.0.0/24 and on.
fn network(route: usize) -> IpAddr {
    let [_, second, third, fourth] = (route as u32).to_be_bytes();
    Ipv4Addr::new(10_u8.wrapping_add(second), third, fourth, 1).into()
}

impl Plan {
    /// The file of this point.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The link whose queue is measured.
    pub fn measured_link(&self) -> &LinkTable {
        &self.file.link[self.measured]
    }

    /// Packets per second that all flows offer, where all are Poisson sources, and bytes
    /// of a packet.
    pub fn offered_per_second(&self) -> Option<f64> {
        self.groups
            .iter()
            .map(|group| {
                let each = group.source.offered_per_second()?;
                Some(each * flows_of(&group.table) as f64)
            })
            .sum()
    }

    /// The first group's sender, packets per second of each of its flows, and how many
    /// they are, where they are Poisson sources: the stochastic model's parameters.
    pub fn clients(&self) -> Option<(&SenderConfig, f64, u32)> {
        let group = self.groups.first()?;
        let each = group.source.offered_per_second()?;
        Some((&group.sender, each, group.table.count))
    }

    /// Everything at time zero.
    pub fn world(&self, seed: u64) -> World {
        let packet = |groups: &[Flows]| groups.first().map_or(1500, |g| g.sender.packet_bytes);
        let bytes = packet(&self.groups);
        let mut links = Vec::new();
        // An edge of two directions for each host, of which there are no more than flows.
        memory::reserve(
            &mut links,
            2 * (self.file.link.len() + self.flows() as usize),
        );
        let add = |links: &mut Vec<Link>, rate: u64, delay: Time, queue: &QueueTable| {
            let number = links.len();
            let red = queue.red.map(|config| {
                let chance = sequence(seed, Purpose::Queue, number as u64);
                Red::new(config, Link::transmission_ns(rate, bytes), chance)
            });
            let limit = match (queue.packets, queue.bytes) {
                (Some(packets), _) => Limit::Packets(packets),
                (_, Some(size)) => Limit::Bytes(size.bytes()),
                (None, None) => Limit::None,
            };
            links.push(Link::new(rate, ns(delay), limit, red));
            number as u32
        };
        for table in self.file.link.values() {
            let rate = table.rate.bits_per_second();
            add(&mut links, rate, table.delay, &table.queue);
            add(&mut links, rate, table.delay, &table.reverse_queue);
        }
        // Of each group: a link up and one down for each host.
        let mut edges = Vec::new();
        for group in &self.groups {
            let table = &group.table;
            let rate = table.edge_rate.map_or(0, |rate| rate.bits_per_second());
            let each = table.count.div_ceil(table.per_host);
            let hosts = table.hosts.unwrap_or(each);
            edges.push(links.len() as u32);
            let open = QueueTable::default();
            let port = if table.hosts.is_some() {
                &table.edge_queue
            } else {
                &open
            };
            for _ in 0..hosts {
                let up = if table.hosts.is_some() {
                    &open
                } else {
                    &table.edge_queue
                };
                add(&mut links, rate, table.edge_delay, up);
                add(&mut links, rate, table.edge_delay, port);
            }
        }
        let measured = 2 * self.measured as u32;
        let meter = Meter::new(self.window_ns / WINDOW_PARTS);
        let mut world = World::new(links, measured, meter, seed);
        world.reserve(self.flows() as usize);
        let mut transfers: IndexMap<&String, Coordination> = IndexMap::new();
        for (name, table) in &self.file.group {
            let coordination = Coordination::new(name, table.coordinate.clone(), NEVER);
            transfers.insert(name, coordination);
        }
        let (mut number, mut path, mut host) = (0u64, 0, 0);
        for (route, (group, edge)) in self.groups.iter().zip(edges).enumerate() {
            let first = number as u32;
            world.add_group(&group.name, group.sender.clone(), group.source.clone());
            let mut add = |way: &Way| {
                let mut start = Source::new(sequence(seed, Purpose::Start, number));
                let start = ns(group.table.start) + start.uniform(ns(group.table.spread));
                let source = Source::new(sequence(seed, Purpose::Source, number));
                world.add_flow(way, start, source);
                number += 1;
            };
            let middle = group.path.iter().map(|&link| 2 * link as u32);
            let back = group.path.iter().rev().map(|&link| 2 * link as u32 + 1);
            match group.table.hosts {
                None => {
                    for flow in 0..group.table.count {
                        // Flows of a host share its link, and the path to the destination.
                        let shared = flow / group.table.per_host;
                        let (up, down) = (edge + 2 * shared, edge + 2 * shared + 1);
                        add(&Way {
                            there: std::iter::once(up).chain(middle.clone()).collect(),
                            back: back.clone().chain([down]).collect(),
                            path: path + shared,
                            turn: host + shared,
                        });
                    }
                    let hosts = group.table.count.div_ceil(group.table.per_host);
                    (path, host) = (path + hosts, host + hosts);
                }
                Some(hosts) => {
                    for from in 0..hosts {
                        for to in (0..hosts).filter(|to| *to != from) {
                            let first = std::iter::once(edge + 2 * from);
                            let reply = std::iter::once(edge + 2 * to);
                            let way = Way {
                                there: first
                                    .chain(middle.clone())
                                    .chain([edge + 2 * to + 1])
                                    .collect(),
                                back: reply
                                    .chain(back.clone())
                                    .chain([edge + 2 * from + 1])
                                    .collect(),
                                path,
                                turn: host + from,
                            };
                            for _ in 0..group.table.count {
                                add(&way);
                            }
                            path += 1;
                        }
                    }
                    host += hosts;
                }
            }
            let transfer = group.table.group.as_ref();
            if let Some(transfer) = transfer.and_then(|name| transfers.get_mut(name)) {
                for flow in first..number as u32 {
                    transfer.add(flow, Some(network(route)));
                }
            }
        }
        for transfer in transfers.into_values() {
            world.coordinate(transfer);
        }
        world
    }

    /// Flows of all groups.
    pub fn flows(&self) -> u64 {
        self.groups.iter().map(|group| flows_of(&group.table)).sum()
    }

    /// Whether each moment of it is short: no source writes millions of segments at once.
    pub fn offers_little(&self) -> bool {
        self.groups.iter().all(|group| match group.source {
            SourceConfig::Poisson { mean_ns } => mean_ns >= 10 * US,
            SourceConfig::Bulk(segments) => segments.is_some_and(|segments| segments <= 10_000),
            SourceConfig::OnOff { gap_ns, .. } => gap_ns >= 10 * US,
            SourceConfig::Phases { segments, .. } => segments <= 10_000,
            SourceConfig::Trace(_) => true,
        })
    }

    /// Seconds of the whole run and, if there is one, of its steady part.
    pub fn seconds(&self) -> (f64, Option<f64>) {
        let seconds = |ns: u64| ns as f64 / SECOND as f64;
        let steady = self.steady_ns.map(|from| seconds(self.duration_ns - from));
        (seconds(self.duration_ns), steady)
    }
}
