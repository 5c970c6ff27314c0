// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the kernel's values of a lab's queues and settings with the requested ones.

use indexmap::IndexMap;
use paceline_net::queues::{queues, Queue};
use paceline_net::shaper::EDGE_QUEUE_BYTES;
use paceline_net::Error;

use super::address::{self, Addresses};
use super::build::{port, wan_device, Network};
use super::has_ipv6;
use super::launching::LaunchPaths;
use super::node::{self, HOST_DEVICE};
use super::probe::Measured;
use super::state::{Kind, Line, Node, Port, Reading, Route, State, Traffic, Wan};
use super::topology;

/// The state of a lab that stands.
pub fn state(
    lab: &str,
    topology_file: &str,
    network: &Network,
    launching: LaunchPaths,
) -> Result<State, Error> {
    let topology = &network.topology;
    let name = |cluster: usize| topology.clusters[cluster].name.clone();
    let routes = (0..topology.clusters.len())
        .flat_map(|from| (0..topology.clusters.len()).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .map(|(from, to)| Route {
            from: name(from),
            to: name(to),
            via: topology
                .path(from, to)
                .iter()
                .map(|&link| topology.wans[link].name.clone())
                .collect(),
        })
        .collect();
    Ok(State {
        lab: lab.to_owned(),
        keeper: std::process::id(),
        topology: topology_file.to_owned(),
        remote_shell: launching.shell,
        host_list: launching.hosts,
        nodes: nodes(network)?,
        ports: ports(network)?,
        wans: wans(network),
        routes,
        congestion: topology.congestion.as_ref().map(|asked| Reading {
            asked: asked.clone(),
            read: network.congestion.clone(),
        }),
        sysctl: sysctl(network)?,
    })
}

fn nodes(network: &Network) -> Result<Vec<Node>, Error> {
    let clusters = &network.topology.clusters;
    let describe = |name: String, kind, cluster: usize, own: Addresses, node: &node::Node| {
        Ok(Node {
            name,
            kind,
            cluster: clusters[cluster].name.clone(),
            ipv4: own.v4,
            ipv6: has_ipv6().then_some(own.v6),
            network_namespace: node.inode()?,
        })
    };
    let hosts = network.topology.hosts().zip(&network.hosts);
    let hosts = hosts.map(|((name, cluster, number), node)| {
        let own = address::host(cluster, number);
        describe(name, Kind::Host, cluster, own, node)
    });
    let switches = network.switches.iter().enumerate().map(|(at, node)| {
        describe(
            clusters[at].name.clone(),
            Kind::Switch,
            at,
            address::switch(at),
            node,
        )
    });
    hosts.chain(switches).collect()
}

fn ports(network: &Network) -> Result<Vec<Port>, Error> {
    let clusters = &network.topology.clusters;
    let mut at_switches = Vec::new();
    for switch in &network.switches {
        at_switches.push(queues(switch.network())?);
    }
    let mut ports = Vec::new();
    for ((name, at, number), node) in network.topology.hosts().zip(&network.hosts) {
        let cluster = &clusters[at];
        let port = |node: &str, device: &str, toward: &str, buffer_bytes: u64, queues: &[Queue]| {
            let queue = queues
                .iter()
                .find(|queue| queue.dev == device && queue.kind == "tbf");
            Port {
                node: node.to_owned(),
                device: device.to_owned(),
                toward: toward.to_owned(),
                rate_bps: Reading {
                    asked: cluster.edge_rate_bps,
                    read: queue.and_then(|queue| Some(queue.options.rate? * 8)),
                },
                buffer_bytes: Reading {
                    asked: buffer_bytes,
                    read: queue.and_then(|queue| queue.options.limit),
                },
                traffic: queue.map_or_else(Traffic::default, |queue| Traffic {
                    carried_packets: queue.packets,
                    carried_bytes: queue.bytes,
                    dropped_packets: queue.drops,
                    peak_queue_bytes: None,
                    late_s: None,
                }),
            }
        };
        let own_queue = u64::from(EDGE_QUEUE_BYTES);
        let own = queues(node.network())?;
        ports.push(port(&name, HOST_DEVICE, &cluster.name, own_queue, &own));
        let device = self::port(number);
        let buffer = cluster.switch_buffer_bytes;
        ports.push(port(
            &cluster.name,
            &device,
            &name,
            buffer,
            &at_switches[at],
        ));
    }
    Ok(ports)
}

fn wans(network: &Network) -> Vec<Wan> {
    let topology = &network.topology;
    let line = |asked: topology::Line, measured: Measured, traffic| Line {
        rate_bps: Reading {
            asked: asked.rate_bps,
            read: measured.rate_bps,
        },
        one_way_delay_s: Reading {
            asked: seconds(asked.one_way_delay_ns),
            read: measured.one_way_delay_ns.map(seconds),
        },
        buffer_bytes: asked.buffer_bytes,
        traffic,
    };
    let running = network.wans.iter().zip(&network.measured);
    (0..)
        .zip(topology.wans.iter().zip(running))
        .map(|(index, (wan, (running, measured)))| {
            let (forward, reverse, problems) = running.traffic();
            Wan {
                name: wan.name.clone(),
                from: topology.clusters[wan.from].name.clone(),
                to: topology.clusters[wan.to].name.clone(),
                device: wan_device(index),
                forward: line(wan.forward, measured[0], forward),
                reverse: line(wan.reverse, measured[1], reverse),
                problems,
            }
        })
        .collect()
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Read on the first host: all had the same written.
fn sysctl(network: &Network) -> Result<IndexMap<String, Reading<String>>, Error> {
    let Some(host) = network.hosts.first() else {
        return Ok(IndexMap::new());
    };
    host.network().enter(|| {
        let read = |key: &str| {
            let path = format!("/proc/sys/{}", key.replace('.', "/"));
            let text = std::fs::read_to_string(path).ok()?;
            // Several numbers are written with spaces and read with tabs.
            Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let all = network.topology.sysctl.iter();
        Ok(all
            .map(|(key, asked)| {
                let reading = Reading {
                    asked: asked.clone(),
                    read: read(key),
                };
                (key.clone(), reading)
            })
            .collect())
    })
}
