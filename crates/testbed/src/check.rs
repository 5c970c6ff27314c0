// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a topology file to a topology: what types cannot say.

use std::collections::BTreeMap;
use std::path::Path;

use paceline_experiment::located::{line_of, Located};
use toml::Spanned;

use super::file::{self, File};
use super::routes;
use super::topology::{Cluster, Line, Topology, TopologyError, Wan, Way};

/// Hosts of a cluster, and of a whole lab: each is three namespaces, two queues and
/// two interfaces, and all share this machine's CPUs.
pub const MOST_HOSTS: u32 = 250;
/// Clusters of a lab: each is a byte of the addresses, and a router.
pub const MOST_CLUSTERS: usize = 32;
/// Links of a lab: each has a thread that real-time priority puts before all others.
pub const MOST_WANS: usize = 32;
/// Of a congestion control's name (TCP_CA_NAME_MAX, with its final 0).
const LONGEST_CONGESTION: usize = 15;
/// Of a cluster's or a link's name: a host's name has at most 63, with its number.
const LONGEST_NAME: usize = 32;
/// Slower than this the one packet that a line always holds is minutes long.
const LEAST_RATE_BPS: u64 = 8_000;
/// Beyond what this machine can carry, and within what the kernel's queues take.
const MOST_RATE_BPS: u64 = 100_000_000_000;
/// A full Ethernet frame: a smaller queue holds nothing.
const LEAST_BUFFER_BYTES: u64 = 1514;
/// Real switches have less, and memory is finite.
const MOST_BUFFER_BYTES: u64 = 1 << 30;
/// Three times the way to the Moon. Packets on their way are kept in memory.
const MOST_DELAY_US: u64 = 4_000_000;

/// The file under examination.
struct Place<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Place<'_> {
    fn wrong<T>(&self, at: &Spanned<T>, key: &str, problem: impl Into<String>) -> Located {
        self.wrong_at(at.span().start, key, problem)
    }

    fn wrong_at(&self, offset: usize, key: &str, problem: impl Into<String>) -> Located {
        Located {
            file: self.path.display().to_string(),
            line: line_of(self.text, offset),
            key: key.to_owned(),
            problem: problem.into(),
        }
    }
}

impl Topology {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`TopologyError`] with the first problem: file, line, key, and what would be
    /// right.
    pub fn load(path: &Path) -> Result<Self, TopologyError> {
        let text = std::fs::read_to_string(path).map_err(|source| TopologyError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks `text`, which `path` is the place of.
    ///
    /// # Errors
    /// As [`Topology::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, TopologyError> {
        let file = toml::from_str(text).map_err(|error| Located::syntax(text, path, &error))?;
        Ok(topology(&file, text, path)?)
    }
}

/// The topology of `file`, which was read from `text`; or its first problem.
pub fn topology(file: &File, text: &str, path: &Path) -> Result<Topology, Located> {
    let place = Place { text, path };
    let clusters = clusters(file, &place)?;
    nodes_are_unique(file, &clusters, &place)?;
    let wans = wans(file, &clusters, &place)?;
    links_are_unique(file, &wans, &place)?;
    let next_hop = routes::shortest(clusters.len(), &wans);
    all_are_reached(file, &next_hop, &place)?;
    let ways = ways(file, &clusters, &wans, &place)?;
    let congestion = congestion(file, &place)?;
    let sysctl = sysctl(file, &place)?;
    Ok(Topology {
        clusters,
        wans,
        next_hop,
        ways,
        congestion,
        sysctl,
    })
}

fn clusters(file: &File, place: &Place) -> Result<Vec<Cluster>, Located> {
    if file.cluster.is_empty() {
        let problem = "give at least one [[cluster]] with name, hosts and switch_buffer";
        return Err(place.wrong_at(0, "cluster", problem));
    }
    if let Some(surplus) = file.cluster.get(MOST_CLUSTERS) {
        let problem = format!("a lab has at most {MOST_CLUSTERS} clusters");
        return Err(place.wrong(surplus, "cluster", problem));
    }
    let mut clusters = Vec::new();
    let mut hosts = 0;
    for cluster in &file.cluster {
        let cluster = cluster.get_ref();
        name(&cluster.name, place)?;
        let count = *cluster.hosts.get_ref();
        if !(1..=MOST_HOSTS).contains(&count) {
            let problem = format!("must be 1 to {MOST_HOSTS}");
            return Err(place.wrong(&cluster.hosts, "hosts", problem));
        }
        hosts += count;
        if hosts > MOST_HOSTS {
            let problem = format!("all clusters together have more than {MOST_HOSTS}");
            return Err(place.wrong(&cluster.hosts, "hosts", problem));
        }
        let edge_rate_bps = cluster.edge_rate.get_ref().bits_per_second();
        let switch_buffer_bytes = cluster.switch_buffer.get_ref().bytes();
        rate(edge_rate_bps).map_err(|p| place.wrong(&cluster.edge_rate, "edge_rate", p))?;
        buffer(switch_buffer_bytes)
            .map_err(|p| place.wrong(&cluster.switch_buffer, "switch_buffer", p))?;
        clusters.push(Cluster {
            name: cluster.name.get_ref().clone(),
            hosts: count,
            edge_rate_bps,
            switch_buffer_bytes,
        });
    }
    Ok(clusters)
}

fn wans(file: &File, clusters: &[Cluster], place: &Place) -> Result<Vec<Wan>, Located> {
    if let Some(surplus) = file.wan.get(MOST_WANS) {
        let problem = format!("a lab has at most {MOST_WANS} links");
        return Err(place.wrong(surplus, "wan", problem));
    }
    let mut wans = Vec::new();
    for wan in &file.wan {
        let wan = wan.get_ref();
        let from = cluster_index(&wan.from, "from", clusters, place)?;
        let to = cluster_index(&wan.to, "to", clusters, place)?;
        if from == to {
            return Err(place.wrong(&wan.to, "to", "a link joins two different clusters"));
        }
        if let Some(given) = &wan.name {
            name(given, place)?;
        }
        let (forward, reverse) = lines(wan, place)?;
        wans.push(Wan {
            name: wan.name.as_ref().map_or_else(
                || format!("{}-{}", wan.from.get_ref(), wan.to.get_ref()),
                |given| given.get_ref().clone(),
            ),
            from,
            to,
            forward,
            reverse,
        });
    }
    Ok(wans)
}

/// The two directions of a link.
fn lines(wan: &file::Wan, place: &Place) -> Result<(Line, Line), Located> {
    let (rates, delays, buffers) = (
        wan.rate.get_ref(),
        wan.one_way_delay.get_ref(),
        wan.buffer.get_ref(),
    );
    let line = |bps: u64, delay_us: u64, bytes: u64| {
        rate(bps).map_err(|problem| place.wrong(&wan.rate, "rate", problem))?;
        buffer(bytes).map_err(|problem| place.wrong(&wan.buffer, "buffer", problem))?;
        if delay_us > MOST_DELAY_US {
            let problem = format!("must be 0s to {}s", MOST_DELAY_US / 1_000_000);
            return Err(place.wrong(&wan.one_way_delay, "one_way_delay", problem));
        }
        Ok(Line {
            rate_bps: bps,
            one_way_delay_ns: delay_us * 1000,
            buffer_bytes: bytes,
        })
    };
    let forward = line(
        rates.forward.bits_per_second(),
        delays.forward.micros(),
        buffers.forward.bytes(),
    )?;
    let reverse = line(
        rates.reverse.bits_per_second(),
        delays.reverse.micros(),
        buffers.reverse.bytes(),
    )?;
    Ok((forward, reverse))
}

fn rate(bps: u64) -> Result<(), String> {
    if (LEAST_RATE_BPS..=MOST_RATE_BPS).contains(&bps) {
        return Ok(());
    }
    Err("must be \"8kbit\" to \"100gbit\"".to_owned())
}

fn buffer(bytes: u64) -> Result<(), String> {
    if (LEAST_BUFFER_BYTES..=MOST_BUFFER_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(format!(
        "must be \"{LEAST_BUFFER_BYTES}B\", one full frame, to \"1GiB\""
    ))
}

/// Names are parts of hosts' names.
fn name(name: &Spanned<String>, place: &Place) -> Result<(), Located> {
    let text = name.get_ref();
    let fits = text.len() <= LONGEST_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && text != "localhost";
    if fits {
        return Ok(());
    }
    let problem = format!(
        "must be a letter, then letters, digits and \"-\", all small, as in \"near\"; at most {LONGEST_NAME}"
    );
    Err(place.wrong(name, "name", problem))
}

/// `lab exec` knows hosts and switches by their names.
fn nodes_are_unique(file: &File, clusters: &[Cluster], place: &Place) -> Result<(), Located> {
    let mut nodes: BTreeMap<String, &str> = BTreeMap::new();
    for (cluster, written) in clusters.iter().zip(&file.cluster) {
        let hosts = (0..cluster.hosts).map(|number| cluster.host(number));
        for node in hosts.chain([cluster.name.clone()]) {
            if let Some(other) = nodes.insert(node.clone(), &cluster.name) {
                let problem =
                    format!("\"{node}\" would be a node of this cluster and of \"{other}\"");
                return Err(place.wrong(&written.get_ref().name, "name", problem));
            }
        }
    }
    Ok(())
}

/// Routes know links by their names.
fn links_are_unique(file: &File, wans: &[Wan], place: &Place) -> Result<(), Located> {
    for (at, (wan, written)) in wans.iter().zip(&file.wan).enumerate() {
        if wans[..at].iter().any(|other| other.name == wan.name) {
            let problem = format!(
                "there is another link \"{}\": give each a name of its own, as name = \"{}-2\"",
                wan.name, wan.name
            );
            return Err(match &written.get_ref().name {
                Some(name) => place.wrong(name, "name", problem),
                None => place.wrong(written, "name", problem),
            });
        }
    }
    Ok(())
}

fn cluster_index(
    name: &Spanned<String>,
    key: &str,
    clusters: &[Cluster],
    place: &Place,
) -> Result<usize, Located> {
    let known = clusters.iter().map(|cluster| cluster.name.as_str());
    index(name.get_ref(), known).map_err(|known| {
        let problem = format!(
            "there is no cluster \"{}\"; there is {known}",
            name.get_ref()
        );
        place.wrong(name, key, problem)
    })
}

/// Where `name` is among the known ones, or all of these for a message.
fn index<'a>(
    name: &str,
    mut known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, String> {
    let all = known.clone();
    known
        .position(|other| other == name)
        .ok_or_else(|| match all.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "none".to_owned(),
            all => all,
        })
}

fn all_are_reached(
    file: &File,
    next_hop: &[Vec<Option<usize>>],
    place: &Place,
) -> Result<(), Located> {
    let first = &file.cluster[0].get_ref().name;
    match (1..next_hop.len()).find(|&to| next_hop[0][to].is_none()) {
        None => Ok(()),
        Some(to) => {
            let name = &file.cluster[to].get_ref().name;
            let (from, to) = (first.get_ref(), name.get_ref());
            let problem = format!("no [[wan]] leads from {from} to {to}");
            Err(place.wrong(name, "name", problem))
        }
    }
}

/// What is asked for, each direction by itself.
fn ways(
    file: &File,
    clusters: &[Cluster],
    wans: &[Wan],
    place: &Place,
) -> Result<Vec<Way>, Located> {
    let mut ways: Vec<Way> = Vec::new();
    for route in &file.route {
        let route = route.get_ref();
        let from = cluster_index(&route.from, "from", clusters, place)?;
        let to = cluster_index(&route.to, "to", clusters, place)?;
        let mut links = Vec::new();
        for name in &route.via.get_ref().0 {
            let known = wans.iter().map(|wan| wan.name.as_str());
            links.push(index(name, known).map_err(|known| {
                let problem = format!("there is no link \"{name}\"; there is {known}");
                place.wrong(&route.via, "via", problem)
            })?);
        }
        let way = Way { from, to, links };
        let (begin, end) = (route.from.get_ref(), route.to.get_ref());
        if from == to || way.steps(wans).is_none() {
            let problem = format!("these links are no way from {begin} to {end}");
            return Err(place.wrong(&route.via, "via", problem));
        }
        let back = Way {
            from: to,
            to: from,
            links: way.links.iter().rev().copied().collect(),
        };
        let both = [Some(way), (!route.one_way).then_some(back)];
        for way in both.into_iter().flatten() {
            let same = |other: &Way| (other.from, other.to) == (way.from, way.to);
            if ways.iter().any(same) {
                let (from, to) = (&clusters[way.from].name, &clusters[way.to].name);
                let problem = format!(
                    "there is another [[route]] from {from} to {to}; one_way = true is for one direction"
                );
                return Err(place.wrong(&route.from, "from", problem));
            }
            ways.push(way);
        }
    }
    Ok(ways)
}

/// Whether this machine has it, only who builds the lab can say.
fn congestion(file: &File, place: &Place) -> Result<Option<String>, Located> {
    let Some(name) = &file.congestion else {
        return Ok(None);
    };
    let text = name.get_ref();
    let fits = (1..=LONGEST_CONGESTION).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if fits {
        return Ok(Some(text.clone()));
    }
    let problem = "must be the name of a congestion control, as \"cubic\"";
    Err(place.wrong(name, "congestion", problem))
}

/// Names and values as they are written below /proc/sys.
fn sysctl(file: &File, place: &Place) -> Result<Vec<(String, String)>, Located> {
    let mut all = Vec::new();
    for (key, value) in &file.sysctl {
        let parts: Vec<&str> = key.split('.').collect();
        let fits = parts.len() > 1
            && parts[0] == "net"
            && parts.iter().all(|part| {
                !part.is_empty()
                    && part
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
            });
        if !fits {
            let problem = "only settings of a network namespace, as \"net.ipv4.tcp_sack\" = 1";
            return Err(place.wrong(value, key, problem));
        }
        let text = match value.get_ref() {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(yes) => u8::from(*yes).to_string(),
            _ => return Err(place.wrong(value, key, "must be a number or a text")),
        };
        if text.is_empty()
            || text.len() > 1000
            || text.contains(|c: char| c.is_control() && c != '\t')
        {
            return Err(place.wrong(value, key, "must be one line"));
        }
        all.push((key.clone(), text));
    }
    Ok(all)
}
