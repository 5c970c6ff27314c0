// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A topology that was read and checked: the input of a lab's build.

use std::path::PathBuf;

use paceline_input::Problems;
use serde::{Deserialize, Serialize};

/// Why a topology file was refused.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// It could not be read.
    #[error("cannot read the topology {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// A network of clusters. Every index in it is that of an element which is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// In the order of the file; at least one.
    pub clusters: Vec<Cluster>,
    /// In the order of the file.
    pub wans: Vec<Wan>,
    /// `next_hop[at][to]` is the link by which the cluster `at` reaches `to`, unless
    /// `ways` has another one; none from a cluster to itself.
    pub next_hop: Vec<Vec<Option<usize>>>,
    /// Requested ways, at most one from a cluster to another.
    pub ways: Vec<Way>,
    /// Congestion control of connections that set none; absent: the machine's default.
    #[serde(default)]
    pub congestion: Option<String>,
    /// Names with dots, and values, to be written on every host.
    pub sysctl: Vec<(String, String)>,
}

/// Hosts around a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Also that of its switch, as a node.
    pub name: String,
    /// 1 to [`crate::file::MOST_HOSTS`].
    pub hosts: u32,
    /// Each host's link, bits per second, framing included.
    pub edge_rate_bps: u64,
    /// Queue of each port of the switch towards a host, bytes with Ethernet header.
    pub switch_buffer_bytes: u64,
}

/// A link between two clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wan {
    /// Its name.
    pub name: String,
    /// Index of the cluster where forward begins.
    pub from: usize,
    /// Index of the other one.
    pub to: usize,
    /// From `from` to `to`.
    pub forward: Line,
    /// Back.
    pub reverse: Line,
}

impl Wan {
    /// The cluster at its other end, if `cluster` is at one.
    pub fn across(&self, cluster: usize) -> Option<usize> {
        match cluster {
            at if at == self.from => Some(self.to),
            at if at == self.to => Some(self.from),
            _ => None,
        }
    }
}

/// A requested way: the links from one cluster to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Index of the cluster where it begins.
    pub from: usize,
    /// Index of the cluster where it ends.
    pub to: usize,
    /// Indices of the links, in their order.
    pub links: Vec<usize>,
}

impl Way {
    /// The clusters on it but the last, each with the link that leads on. None if the
    /// links do not lead from its begin to its end, or meet a cluster twice.
    pub fn steps(&self, wans: &[Wan]) -> Option<Vec<(usize, usize)>> {
        let mut steps: Vec<(usize, usize)> = Vec::new();
        let mut at = self.from;
        for &link in &self.links {
            if at == self.to || steps.iter().any(|(seen, _)| *seen == at) {
                return None;
            }
            steps.push((at, link));
            at = wans[link].across(at)?;
        }
        (at == self.to).then_some(steps)
    }
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Bits per second, framing included.
    pub rate_bps: u64,
    /// Propagation, nanoseconds.
    pub one_way_delay_ns: u64,
    /// Drop-tail queue in front of it, bytes with Ethernet header.
    pub buffer_bytes: u64,
}

impl Topology {
    /// The links by which packets go from one cluster to another, in their order.
    pub fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let asked = self
            .ways
            .iter()
            .find(|way| (way.from, way.to) == (from, to));
        if let Some(way) = asked {
            return way.links.clone();
        }
        let mut at = from;
        std::iter::from_fn(|| {
            let link = self.next_hop[at][to]?;
            at = self.wans[link].across(at)?;
            Some(link)
        })
        .collect()
    }

    /// Names of all hosts, cluster by cluster, with the index of the cluster and the
    /// number in it.
    pub fn hosts(&self) -> impl Iterator<Item = (String, usize, u32)> + '_ {
        self.clusters.iter().enumerate().flat_map(|(at, cluster)| {
            (0..cluster.hosts).map(move |number| (cluster.host(number), at, number))
        })
    }
}

impl Cluster {
    /// Name of its host with this number.
    pub fn host(&self, number: u32) -> String {
        format!("{}{number}", self.name)
    }
}
