// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a topology file to a topology: checks beyond its types.

use std::collections::BTreeMap;
use std::path::Path;

use paceline_input::{did_you_mean, nearest, Document, Format, Place, Reader, Reported};

use super::file::{Delay, File, LineRate, Queue, MOST_HOSTS};
use super::routes;
use super::topology::{Cluster, Line, Topology, TopologyError, Wan, Way};

/// Of a congestion control's name (TCP_CA_NAME_MAX, with its final 0).
const LONGEST_CONGESTION: usize = 15;
/// Of a cluster's or a link's name: a host's name has at most 63, with its number.
const LONGEST_NAME: usize = 32;
/// The formats of a file's strings.
const FORMATS: [Format<'static>; 2] = [("node-name", &name), ("congestion", &congestion)];

impl Topology {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`TopologyError`] with all problems: file, line, column, key, and what would be
    /// right.
    pub fn load(path: &Path) -> Result<Self, TopologyError> {
        let text = std::fs::read_to_string(path).map_err(|source| TopologyError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks `text`, the content of `path`.
    ///
    /// # Errors
    /// As [`Topology::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, TopologyError> {
        let document = Document::new(path.display().to_string(), text);
        let file = Reader::default().read(&document, &FORMATS)?;
        Ok(document.check(|place| topology(file, place))?)
    }
}

/// The topology of a file.
fn topology(file: File, place: &Place<'_>) -> Result<Topology, Reported> {
    let clusters = clusters(&file, &place.key("cluster"));
    let wans = wans(&file, &clusters, &place.key("wan"));
    let sysctl = sysctl(&file, &place.key("sysctl"));
    // Ways lead over all of them.
    let wans = wans?;
    let next_hop = routes::shortest(clusters.len(), &wans);
    all_are_reached(&clusters, &next_hop, &place.key("cluster"));
    let ways = ways(&file, &clusters, &wans, &place.key("route"))?;
    Ok(Topology {
        clusters,
        wans,
        next_hop,
        ways,
        congestion: file.congestion,
        sysctl,
    })
}

fn clusters(file: &File, place: &Place<'_>) -> Vec<Cluster> {
    if file.cluster.is_empty() {
        place.wrong("give at least one [[cluster]] with name, hosts and switch_buffer");
    }
    let mut hosts = 0;
    let surplus = file.cluster.iter().position(|cluster| {
        hosts += cluster.hosts;
        hosts > MOST_HOSTS
    });
    if let Some(index) = surplus {
        let problem = format!("all clusters together have more than {MOST_HOSTS}");
        place.item(index).key("hosts").wrong(problem);
    }
    let clusters = file.cluster.iter().map(|cluster| Cluster {
        name: cluster.name.clone(),
        hosts: cluster.hosts,
        edge_rate_bps: cluster.edge_rate.0.bits_per_second(),
        switch_buffer_bytes: cluster.switch_buffer.0.bytes(),
    });
    let clusters: Vec<Cluster> = clusters.collect();
    nodes_are_unique(&clusters, place);
    clusters
}

fn wans(file: &File, clusters: &[Cluster], place: &Place<'_>) -> Result<Vec<Wan>, Reported> {
    let read = file.wan.iter().enumerate().map(|(index, wan)| {
        let place = place.item(index);
        let from = cluster_index(&wan.from, clusters, &place.key("from"));
        let to = cluster_index(&wan.to, clusters, &place.key("to"));
        let (from, to) = (from?, to?);
        if from == to {
            let problem = "a link connects two different clusters";
            return Err(place.key("to").wrong(problem));
        }
        let line = |rate: LineRate, delay: Delay, buffer: Queue| Line {
            rate_bps: rate.0.bits_per_second(),
            one_way_delay_ns: delay.0.micros() * 1000,
            buffer_bytes: buffer.0.bytes(),
        };
        let rate = wan.rate.both();
        let delay = wan.one_way_delay.both();
        let buffer = wan.buffer.both();
        Ok(Wan {
            name: wan
                .name
                .clone()
                .unwrap_or_else(|| format!("{}-{}", wan.from, wan.to)),
            from,
            to,
            forward: line(rate.0, delay.0, buffer.0),
            reverse: line(rate.1, delay.1, buffer.1),
        })
    });
    // All of them are read before the first problem counts.
    let read: Vec<_> = read.collect();
    let wans = read.into_iter().collect::<Result<Vec<_>, _>>()?;
    links_are_unique(&wans, place);
    Ok(wans)
}

/// Names are parts of hosts' names.
fn name(text: &str) -> Result<(), String> {
    let fits = text.len() <= LONGEST_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && text != "localhost";
    fits.then_some(()).ok_or_else(|| format!(
        "must be a lower-case letter, then lower-case letters, digits and \"-\", such as \"near\"; at most {LONGEST_NAME} characters"
    ))
}

/// `lab exec` finds hosts and switches by their names.
fn nodes_are_unique(clusters: &[Cluster], place: &Place<'_>) {
    let mut nodes: BTreeMap<String, &str> = BTreeMap::new();
    for (index, cluster) in clusters.iter().enumerate() {
        let hosts = (0..cluster.hosts).map(|number| cluster.host(number));
        for node in hosts.chain([cluster.name.clone()]) {
            if let Some(other) = nodes.insert(node.clone(), &cluster.name) {
                let problem =
                    format!("\"{node}\" would be a node of this cluster and of \"{other}\"");
                place.item(index).key("name").wrong(problem);
                break;
            }
        }
    }
}

/// Routes name links by their names.
fn links_are_unique(wans: &[Wan], place: &Place<'_>) {
    for (index, wan) in wans.iter().enumerate() {
        let name = &wan.name;
        if wans[..index].iter().any(|other| other.name == *name) {
            place.item(index).key("name").wrong(format!(
                "there is another link \"{name}\": give each link its own name, such as name = \"{name}-2\""
            ));
        }
    }
}

fn cluster_index(name: &str, clusters: &[Cluster], place: &Place<'_>) -> Result<usize, Reported> {
    let known = clusters.iter().map(|cluster| cluster.name.as_str());
    index("cluster", name, known, place)
}

/// Where `name` is among the known ones.
fn index<'a>(
    what: &str,
    name: &str,
    mut known: impl Iterator<Item = &'a str> + Clone,
    place: &Place<'_>,
) -> Result<usize, Reported> {
    let all: Vec<&str> = known.clone().collect();
    known.position(|other| other == name).ok_or_else(|| {
        let meant = did_you_mean(nearest(name, all.iter().copied()));
        let known = if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        };
        place.wrong(format!(
            "there is no {what} \"{name}\"{meant}; there is {known}"
        ))
    })
}

fn all_are_reached(clusters: &[Cluster], next_hop: &[Vec<Option<usize>>], place: &Place<'_>) {
    for to in 1..next_hop.len() {
        if next_hop[0][to].is_none() {
            let (from, name) = (&clusters[0].name, &clusters[to].name);
            let problem = format!("no [[wan]] leads from {from} to {name}");
            place.item(to).key("name").wrong(problem);
        }
    }
}

/// The requested values of each direction.
fn ways(
    file: &File,
    clusters: &[Cluster],
    wans: &[Wan],
    place: &Place<'_>,
) -> Result<Vec<Way>, Reported> {
    let mut ways: Vec<Way> = Vec::new();
    for (number, route) in file.route.iter().enumerate() {
        let place = place.item(number);
        let from = cluster_index(&route.from, clusters, &place.key("from"));
        let to = cluster_index(&route.to, clusters, &place.key("to"));
        let known = wans.iter().map(|wan| wan.name.as_str());
        let via = place.key("via");
        let links = route.via.links().iter();
        let links = links.map(|name| index("link", name, known.clone(), &via));
        let links = links.collect::<Result<Vec<_>, _>>();
        let (Ok(from), Ok(to), Ok(links)) = (from, to, links) else {
            continue;
        };
        let way = Way { from, to, links };
        if from == to || way.steps(wans).is_none() {
            let (begin, end) = (&route.from, &route.to);
            via.wrong(format!("these links do not lead from {begin} to {end}"));
            continue;
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
                place.key("from").wrong(format!(
                    "there is another [[route]] from {from} to {to}; one_way = true is for one direction"
                ));
            }
            ways.push(way);
        }
    }
    Ok(ways)
}

/// Only the build of the lab shows whether this machine has it.
fn congestion(text: &str) -> Result<(), String> {
    let fits = (1..=LONGEST_CONGESTION).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let right = "must be the name of a congestion control, such as \"cubic\"";
    fits.then_some(()).ok_or_else(|| right.to_owned())
}

/// Names and values as they are written below /proc/sys.
fn sysctl(file: &File, place: &Place<'_>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (key, value) in &file.sysctl {
        let place = place.key(key);
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
            let problem =
                "must be a sysctl of a network namespace, such as \"net.ipv4.tcp_sack\" = 1";
            place.wrong_key(problem);
            continue;
        }
        let text = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(yes) => u8::from(*yes).to_string(),
            _ => {
                place.wrong("must be a number or a string");
                continue;
            }
        };
        if text.is_empty()
            || text.len() > 1000
            || text.contains(|c: char| c.is_control() && c != '\t')
        {
            place.wrong("must be one line");
        }
        all.push((key.clone(), text));
    }
    all
}
