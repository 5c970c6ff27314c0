// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a lab that is up: requested values, measured values, and the traffic
//! so far. `paceline lab list --json` prints it.

use std::net::{Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::launching::LaunchPaths;

/// A whole lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub lab: String,
    /// The process that keeps it.
    pub keeper: u32,
    /// The file that it was made from.
    pub topology: String,
    /// A program that launchers can use instead of ssh: `HOST COMMAND...`.
    pub remote_shell: String,
    /// A file with the names of all hosts, one a line.
    pub host_list: String,
    /// Hosts, cluster by cluster, then switches.
    pub nodes: Vec<Node>,
    /// Queues with a rate: of each host towards its switch, and of each switch towards
    /// each of its hosts.
    pub ports: Vec<Port>,
    /// The links between clusters.
    pub wans: Vec<Wan>,
    /// The links by which each cluster reaches each other one.
    pub routes: Vec<Route>,
    /// Congestion control of connections that set none, as read from connections of every
    /// host in each family; absent where the topology sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Reading<String>>,
    /// Sysctls written on every host, by name.
    pub sysctl: IndexMap<String, Reading<String>>,
}

impl State {
    /// Settings of every host, by name.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &Reading<String>)> {
        let congestion = self.congestion.iter();
        let sysctl = self.sysctl.iter();
        congestion
            .map(|reading| ("congestion", reading))
            .chain(sysctl.map(|(name, reading)| (name.as_str(), reading)))
    }
}

/// The requested value, and the kernel's or measured value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading<T> {
    /// The value in the topology.
    pub asked: T,
    /// None where it could not be read.
    pub read: Option<T>,
}

/// A node, in which a command can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Which of both.
    pub kind: Kind,
    /// Where it belongs to.
    pub cluster: String,
    /// Its address; a switch's is the gateway of its hosts.
    pub ipv4: Ipv4Addr,
    /// None where this kernel has no IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// Inode of its network namespace, as `lsns` shows it.
    pub network_namespace: u64,
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One interface, `eth0`.
    Host,
    /// The bridge `switch` with ports `port0`, ..., and a router to the links `wan0`, ...
    Switch,
}

/// A queue with a rate, in the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The node.
    pub node: String,
    /// Its interface.
    pub device: String,
    /// The node at the other end of the cable.
    pub toward: String,
    /// Bits per second, framing included.
    pub rate_bps: Reading<u64>,
    /// Bytes with Ethernet header.
    pub buffer_bytes: Reading<u64>,
    /// Traffic out of it so far.
    pub traffic: Traffic,
}

/// A link between two clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wan {
    /// Its name.
    pub name: String,
    /// The cluster where forward begins.
    pub from: String,
    /// The other one.
    pub to: String,
    /// Its interface in both clusters' switches.
    pub device: String,
    /// From `from` to `to`.
    pub forward: Line,
    /// Back.
    pub reverse: Line,
    /// Why its measurements are invalid so far; empty if they are valid.
    pub problems: Vec<String>,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Bits per second, framing included; measured when the lab was made. None where
    /// this machine sends more slowly than the line, or a line is too slow (below
    /// 50 kbit/s) or its queue too short for a train of packets.
    pub rate_bps: Reading<u64>,
    /// Seconds; measured when the lab was made.
    pub one_way_delay_s: Reading<f64>,
    /// Bytes with Ethernet header.
    pub buffer_bytes: u64,
    /// Its traffic so far.
    pub traffic: Traffic,
}

/// Traffic through a queue since the lab was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Packets.
    pub carried_packets: u64,
    /// Their bytes, with Ethernet header.
    pub carried_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_packets: u64,
    /// The most that was queued, bytes; none where it is not counted.
    pub peak_queue_bytes: Option<u64>,
    /// 99th percentile of lateness, seconds; none where it is not measured.
    pub late_s: Option<Lateness>,
}

/// How late packets left, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Since the lab was made.
    pub whole: f64,
    /// In the last 5 to 10 s.
    pub recent: f64,
}

/// A way between two clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where it begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Names of the links.
    pub via: Vec<String>,
}

impl State {
    /// The environment of launchers.
    pub fn launch_paths(&self) -> LaunchPaths {
        LaunchPaths {
            shell: self.remote_shell.clone(),
            hosts: self.host_list.clone(),
        }
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Names of all hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let hosts = self.nodes.iter().filter(|node| node.kind == Kind::Host);
        hosts.map(|node| node.name.as_str())
    }

    /// Names of all nodes, for messages.
    pub fn node_names(&self) -> String {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(", ")
    }
}
