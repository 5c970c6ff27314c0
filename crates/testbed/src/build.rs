// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds a topology. A cluster's switch is a bridge and a router in one node:
//!
//! ```text
//! near0 eth0 --- port0 |                    |
//! near1 eth0 --- port1 | near: bridge,      | wan0 === ...
//!                      | address .254       | wan1 === ...
//! ```
//!
//! Rates and the queues that drop are at both ends of a host's cable; the links
//! between clusters are the emulator's ([`super::wan`]).

use std::collections::BTreeSet;

use paceline_experiment::plan::ETHERNET_MTU;
use paceline_net::shaper::{shaper, EDGE_QUEUE_BYTES};
use paceline_net::{Error, Namespace};

use super::address::{self, Addresses};
use super::congestion;
use super::has_ipv6;
use super::mark::Mark;
use super::node::{Node, HOST_DEVICE};
use super::probe::{self, Measured};
use super::topology::{Topology, Wan};
use super::wan::RunningWan;

/// The bridge of a switch, which has the gateway's address.
const BRIDGE: &str = "switch";
/// Number of the routing table that leads to the first link; the kernel's own are
/// below 256.
const FIRST_TABLE: usize = 1000;

/// A network that stands. Dropping it takes it down.
#[derive(Debug)]
pub struct Network {
    /// Its topology.
    pub topology: Topology,
    /// Hosts in the order of [`Topology::hosts`].
    pub hosts: Vec<Node>,
    /// One for each cluster.
    pub switches: Vec<Node>,
    /// One for each link.
    pub wans: Vec<RunningWan>,
    /// The congestion control that connections had when the network was new, where the
    /// topology sets one.
    pub congestion: Option<String>,
    /// Measurements of each new link: forward, reverse.
    pub measured: Vec<[Measured; 2]>,
}

impl Network {
    /// Builds `topology`; its nodes bear `mark`.
    ///
    /// # Errors
    /// The first thing that failed. Nothing is left then.
    pub fn build(topology: &Topology, mark: &Mark) -> Result<Self, Error> {
        let hosts_file = address::hosts_file(topology, has_ipv6());
        let node = |name: &str| Node::create(name, &hosts_file, &mark.to_string());
        let mut network = Network {
            topology: topology.clone(),
            hosts: Vec::new(),
            switches: Vec::new(),
            wans: Vec::new(),
            measured: Vec::new(),
            congestion: None,
        };
        for cluster in &topology.clusters {
            network.switches.push(node(&cluster.name)?);
        }
        for (name, ..) in topology.hosts() {
            network.hosts.push(node(&name)?);
        }
        network.build_clusters()?;
        for (index, wan) in topology.wans.iter().enumerate() {
            let started = network.start_wan(index, wan)?;
            network.wans.push(started);
        }
        for at in 0..topology.clusters.len() {
            network.route(at)?;
        }
        if let Some(name) = &topology.congestion {
            congestion::set(topology, &network.hosts, name)?;
        }
        for host in &network.hosts {
            for (key, value) in &topology.sysctl {
                host.network().sysctl(key, value)?;
            }
        }
        if topology.congestion.is_some() {
            network.congestion = congestion::read(topology, &network.hosts)?;
        }
        for (index, wan) in topology.wans.iter().enumerate() {
            let measured = network.measure(index, wan)?;
            network.measured.push(measured);
        }
        Ok(network)
    }

    fn switch(&self, cluster: usize) -> &Namespace {
        self.switches[cluster].network()
    }

    /// Switches, and hosts on them.
    fn build_clusters(&self) -> Result<(), Error> {
        for (at, cluster) in self.topology.clusters.iter().enumerate() {
            let switch = self.switch(at);
            prepare_router(switch)?;
            // Multicast snooping of the bridge could delay IPv6's neighbours.
            switch.ip(&format!(
                "link set lo up\nlink add {BRIDGE} type bridge mcast_snooping 0\n{}",
                interface(BRIDGE, address::switch(at), 24)
            ))?;
            let hosts = self.topology.hosts().zip(&self.hosts);
            let (mut lines, mut queues) = (String::new(), String::new());
            for ((_, _, number), node) in hosts.filter(|((_, of, _), _)| *of == at) {
                let port = port(number);
                let host = node.network();
                allow_ipv6(host)?;
                // All in one: starting a program takes longer than its work here.
                lines += &format!(
                    "link add {port} type veth peer name {HOST_DEVICE} netns {}\n\
                     link set {port} master {BRIDGE}\nlink set {port} up\n",
                    host.path()
                );
                queues += &port_shaper(&port, cluster.edge_rate_bps, cluster.switch_buffer_bytes);
            }
            switch.ip(&lines)?;
            switch.tc(&queues)?;
            let hosts = self.topology.hosts().zip(&self.hosts);
            for ((_, _, number), node) in hosts.filter(|((_, of, _), _)| *of == at) {
                let gateway = address::switch(at);
                let own = address::host(at, number);
                node.network().ip(&format!(
                    "link set lo up\n{}{}",
                    interface(HOST_DEVICE, own, 24),
                    route("default", "default", gateway, "")
                ))?;
                let queue = u64::from(EDGE_QUEUE_BYTES);
                node.network()
                    .tc(&port_shaper(HOST_DEVICE, cluster.edge_rate_bps, queue))?;
            }
        }
        Ok(())
    }

    fn start_wan(&self, index: usize, wan: &Wan) -> Result<RunningWan, Error> {
        let device = wan_device(index);
        let (from, to) = (self.switch(wan.from), self.switch(wan.to));
        let running = RunningWan::start(wan, &device, from, to)?;
        // Packets of the kernel itself would be lost while the other end is down.
        let quiet = |router: &Namespace, quiet: &str| match has_ipv6() {
            true => router.sysctl(&format!("net.ipv6.conf.{device}.disable_ipv6"), quiet),
            false => Ok(()),
        };
        for router in [from, to] {
            quiet(router, "1")?;
            router.ip(&format!("link set dev {device} up\n"))?;
        }
        for (router, is_from) in [(from, true), (to, false)] {
            quiet(router, "0")?;
            let own = interface(&device, address::wan(index, is_from), 30);
            let other = address::wan(index, !is_from);
            let [mac, other_mac] = [is_from, !is_from].map(|end| address::wan_mac(index, end));
            // Permanent neighbour entries: with resolution over the line a connection's
            // first packet would wait for a round trip more.
            let mut lines = format!("link set dev {device} address {mac}\n{own}");
            lines += &format!("neigh add {} lladdr {other_mac} dev {device}\n", other.v4);
            if has_ipv6() {
                lines += &format!("neigh add {} lladdr {other_mac} dev {device}\n", other.v6);
            }
            router.ip(&lines)?;
        }
        Ok(running)
    }

    /// Sets up a cluster's router to forward to other clusters.
    fn route(&self, at: usize) -> Result<(), Error> {
        let (topology, router) = (&self.topology, self.switch(at));
        let beyond = |link: usize| address::wan(link, topology.wans[link].from != at);
        let mut lines = String::new();
        for (to, link) in topology.next_hop[at].iter().enumerate() {
            if let Some(link) = *link {
                let [v4, v6] = address::networks(to);
                lines += &route(&v4, &v6, beyond(link), "");
            }
        }
        // Requested ways depend on both ends of a packet's way: a table for each link.
        let mut rules = [String::new(), String::new()];
        let mut tables = BTreeSet::new();
        for way in &topology.ways {
            let steps = way.steps(&topology.wans).unwrap_or_default();
            for (_, link) in steps.into_iter().filter(|(cluster, _)| *cluster == at) {
                let table = format!(" table {}", FIRST_TABLE + link);
                let ends = address::networks(way.from)
                    .into_iter()
                    .zip(address::networks(way.to));
                for (rules, (from, to)) in rules.iter_mut().zip(ends) {
                    *rules += &format!("rule add from {from} to {to}{table}\n");
                }
                if tables.insert(link) {
                    lines += &route("default", "default", beyond(link), &table);
                }
            }
        }
        let [rules, rules6] = rules;
        router.ip(&(lines + &rules))?;
        match has_ipv6() {
            true => router.ip6(&rules6),
            false => Ok(()),
        }
    }

    fn measure(&self, index: usize, wan: &Wan) -> Result<[Measured; 2], Error> {
        let from = (self.switch(wan.from), address::wan(index, true).v4);
        let to = (self.switch(wan.to), address::wan(index, false).v4);
        Ok([
            probe::measure(wan.forward, from, to)?,
            probe::measure(wan.reverse, to, from)?,
        ])
    }
}

/// A switch's port towards the host with this number.
pub fn port(number: u32) -> String {
    format!("port{number}")
}

/// The interface of a link in both of its routers.
pub fn wan_device(index: usize) -> String {
    format!("wan{index}")
}

fn prepare_router(router: &Namespace) -> Result<(), Error> {
    router.sysctl("net.ipv4.ip_forward", "1")?;
    // Ways there and back may differ, and some distributions drop such packets.
    for scope in ["all", "default"] {
        router.sysctl(&format!("net.ipv4.conf.{scope}.rp_filter"), "0")?;
    }
    if has_ipv6() {
        router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    }
    allow_ipv6(router)
}

/// Addresses skip duplicate detection: no other host can have them.
fn allow_ipv6(node: &Namespace) -> Result<(), Error> {
    if !has_ipv6() {
        return Ok(());
    }
    node.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
    ["all", "default"]
        .iter()
        .try_for_each(|scope| node.sysctl(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "0"))
}

/// Lines of `ip` that give an interface its addresses and bring it up.
fn interface(device: &str, addresses: Addresses, bits: u8) -> String {
    let Addresses { v4, v6 } = addresses;
    let mut lines = format!("link set dev {device} up\naddr add {v4}/{bits} dev {device}\n");
    if has_ipv6() {
        lines += &format!("addr add {v6}/64 dev {device} nodad\n");
    }
    lines
}

/// Lines of `ip` for a route of each family.
fn route(v4: &str, v6: &str, via: Addresses, table: &str) -> String {
    let mut lines = format!("route add {v4} via {}{table}\n", via.v4);
    if has_ipv6() {
        lines += &format!("route add {v6} via {}{table}\n", via.v6);
    }
    lines
}

/// A line of `tc` for a rate and a drop-tail queue.
fn port_shaper(device: &str, rate_bps: u64, queue_bytes: u64) -> String {
    shaper("add", device, rate_bps, queue_bytes, ETHERNET_MTU)
}
