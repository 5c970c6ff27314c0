// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Topology files from outside: what is wrong is named with file, line and key, routes
//! lead where they should, and nothing that can be written makes the reader panic.

use std::path::Path;

use paceline_testbed::routes::shortest;
use paceline_testbed::topology::{Line, Topology, Wan, Way};
use proptest::prelude::*;

const GOOD: &str = r#"[[cluster]]
name = "near"
hosts = 4
edge_rate = "1gbit"
switch_buffer = "256KiB"

[[cluster]]
name = "far"
hosts = 2
switch_buffer = "64KiB"

[[cluster]]
name = "moon"
hosts = 1
switch_buffer = "64KiB"

[[wan]]
from = "near"
to = "far"
rate = { forward = "500mbit", reverse = "100mbit" }
one_way_delay = "10ms"
buffer = "128KiB"

[[wan]]
name = "backup"
from = "far"
to = "near"
rate = "50mbit"
one_way_delay = { forward = "20ms", reverse = "30ms" }
buffer = { forward = "64KiB", reverse = "32KiB" }

[[wan]]
from = "far"
to = "moon"
rate = "10mbit"
one_way_delay = "1.3s"
buffer = "1MiB"

[[route]]
from = "near"
to = "moon"
via = ["backup", "far-moon"]
one_way = true

[sysctl]
"net.ipv4.tcp_sack" = 1
"net.ipv4.tcp_rmem" = "4096 131072 1048576"
"#;

fn parse(text: &str) -> Result<Topology, String> {
    Topology::parse(text, Path::new("lab.toml")).map_err(|error| error.to_string())
}

/// The message for the good file with `from` replaced by `to`.
fn message(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).expect_err(to)
}

#[test]
fn a_file_becomes_the_network_that_one_expects() {
    let topology = parse(GOOD).expect("valid");
    let hosts: Vec<String> = topology.hosts().map(|(name, ..)| name).collect();
    assert_eq!(
        hosts,
        ["near0", "near1", "near2", "near3", "far0", "far1", "moon0"]
    );
    assert_eq!(topology.clusters[0].edge_rate_bps, 1_000_000_000);
    assert_eq!(topology.clusters[1].edge_rate_bps, 1_000_000_000);
    assert_eq!(topology.clusters[1].switch_buffer_bytes, 65_536);
    let names: Vec<&str> = topology.wans.iter().map(|wan| wan.name.as_str()).collect();
    assert_eq!(names, ["near-far", "backup", "far-moon"]);
    let first = &topology.wans[0];
    assert_eq!(
        (first.forward.rate_bps, first.reverse.rate_bps),
        (500_000_000, 100_000_000)
    );
    let backup = &topology.wans[1];
    assert_eq!((backup.from, backup.to), (1, 0));
    assert_eq!(backup.reverse.one_way_delay_ns, 30_000_000);
    assert_eq!(
        (backup.forward.buffer_bytes, backup.reverse.buffer_bytes),
        (65_536, 32_768)
    );
    // The first link of those that are as good, but for the pair that asks for another,
    // and only in the direction that it asks for.
    assert_eq!(topology.path(0, 1), [0]);
    assert_eq!(topology.path(1, 0), [0]);
    assert_eq!(topology.path(0, 2), [1, 2]);
    assert_eq!(topology.path(2, 0), [2, 0]);
    assert_eq!(topology.path(1, 1), [0usize; 0]);
    let both = parse(&GOOD.replace("one_way = true\n", "")).expect("valid");
    assert_eq!(both.path(2, 0), [2, 1]);
    assert_eq!(
        topology.sysctl,
        [
            ("net.ipv4.tcp_sack".to_owned(), "1".to_owned()),
            (
                "net.ipv4.tcp_rmem".to_owned(),
                "4096 131072 1048576".to_owned()
            ),
        ]
    );
}

#[test]
fn errors_name_file_line_and_key() {
    let cases = [
        ("hosts = 4", "hosts = 0", 3, "cluster.hosts", "1 to 250"),
        ("hosts = 4", "hosts = 249", 9, "cluster.hosts", "together"),
        ("hosts = 4", "hosts = \"4\"", 3, "cluster.hosts", "a whole number"),
        ("hosts = 4", "host = 4", 3, "cluster.host", "did you mean \"hosts\""),
        ("\"1gbit\"", "1000", 4, "cluster.edge_rate", "500mbit"),
        ("\"1gbit\"", "\"1Gbps\"", 4, "cluster.edge_rate", "1gbit"),
        ("\"1gbit\"", "\"1bit\"", 4, "cluster.edge_rate", "8kbit"),
        ("\"256KiB\"", "\"1KB\"", 5, "cluster.switch_buffer", "1514B"),
        ("switch_buffer = \"256KiB\"\n", "", 1, "cluster.switch_buffer", "missing"),
        ("\"near\"", "\"Near\"", 2, "cluster.name", "lower-case"),
        ("\"near\"", "\"far\"", 8, "cluster.name", "\"far0\""),
        ("\"moon\"", "\"far1\"", 13, "cluster.name", "\"far1\""),
        ("to = \"far\"", "to = \"mars\"", 19, "wan.to", "near, far, moon"),
        ("to = \"far\"", "to = \"near\"", 19, "wan.to", "different"),
        ("\"500mbit\"", "500", 20, "wan.rate.forward", "500mbit"),
        ("forward = \"500mbit\", ", "", 20, "wan.rate.forward", "missing"),
        ("\"10ms\"", "10", 21, "wan.one_way_delay", "10ms"),
        ("\"1.3s\"", "\"5s\"", 36, "wan.one_way_delay", "4s"),
        ("\"128KiB\"", "\"2GiB\"", 22, "wan.buffer", "1GiB"),
        ("name = \"backup\"\nfrom = \"far\"\nto = \"near\"", "from = \"near\"\nto = \"far\"", 24, "wan.name", "near-far-2"),
        ("from = \"far\"\nto = \"moon\"", "from = \"near\"\nto = \"far\"\nname=\"x\"", 13, "cluster.name", "near to moon"),
        ("via = [\"backup\", \"far-moon\"]", "via = \"nothing\"", 42, "route.via", "near-far, backup, far-moon"),
        ("via = [\"backup\", \"far-moon\"]", "via = \"backup\"", 42, "route.via", "do not lead from near to moon"),
        ("via = [\"backup\", \"far-moon\"]", "via = [\"backup\", \"near-far\", \"near-far\", \"far-moon\"]", 42, "route.via", "do not lead from"),
        ("via = [\"backup\", \"far-moon\"]", "via = []", 42, "route.via", "do not lead from"),
        ("one_way = true", "one_way = true\n[[route]]\nfrom = \"moon\"\nto = \"near\"\nvia = [\"far-moon\", \"near-far\"]", 45, "route.from", "another [[route]] from near to moon"),
        ("\"net.ipv4.tcp_sack\"", "net.ipv4.tcp_sack", 46, "sysctl.net", "\"net.ipv4.tcp_sack\" = 1"),
        ("\"net.ipv4.tcp_sack\"", "\"kernel.hostname\"", 46, "sysctl.kernel.hostname", "network namespace"),
        ("\"net.ipv4.tcp_sack\"", "\"net.../kernel\"", 46, "sysctl.\"net.../kernel\"", "network namespace"),
        ("tcp_sack\" = 1", "tcp_sack\" = [1]", 46, "sysctl.net.ipv4.tcp_sack", "number or a string"),
        ("[sysctl]", "[sysctls]", 45, "sysctls", "did you mean \"sysctl\""),
    ];
    for (from, to, line, key, right) in cases {
        let message = message(from, to);
        let (place, key) = (format!("lab.toml:{line}:"), format!(": {key}: "));
        let is_reported =
            |line: &str| line.starts_with(&place) && line.contains(&key) && line.contains(right);
        assert!(message.lines().any(is_reported), "{to}: {message}");
    }
    let nothing = parse("").expect_err("nothing");
    assert!(
        nothing.starts_with("lab.toml:1:1: cluster: give at least one"),
        "{nothing}"
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = GOOD
        .replace("\"10ms\"", "10")
        .replace("hosts = 2", "hosts = 0")
        .replace(
            "one_way_delay = \"1.3s\"",
            "one_way_delay = { forward = \"5s\", reverse = \"1s\" }",
        );
    let shape = parse(&text).expect_err("three values");
    assert_eq!(shape.lines().count(), 3, "{shape}");
    assert!(
        shape.contains("wan.one_way_delay.forward: 5s is out of range: up to 4s"),
        "{shape}"
    );
    let text = GOOD
        .replacen("to = \"far\"", "to = \"faraway\"", 1)
        .replacen("to = \"moon\"", "to = \"mooon\"", 1)
        .replace("\"net.ipv4.tcp_sack\"", "\"kernel.hostname\"");
    let sense = parse(&text).expect_err("two links and a setting");
    assert_eq!(sense.lines().count(), 3, "{sense}");
    assert!(sense.contains("did you mean \"moon\"?"), "{sense}");
}

#[test]
fn the_topologies_of_this_repository_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/topologies");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("topologies").flatten() {
        Topology::load(&entry.path()).unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn a_topology_survives_the_way_to_its_keeper() {
    let topology = parse(GOOD).expect("valid");
    let text = serde_json::to_string(&topology).expect("a topology is JSON");
    assert_eq!(
        serde_json::from_str::<Topology>(&text).expect("and back"),
        topology
    );
}

fn wan(from: usize, to: usize) -> Wan {
    let line = Line {
        rate_bps: 1_000_000,
        one_way_delay_ns: 0,
        buffer_bytes: 10_000,
    };
    Wan {
        name: String::new(),
        from,
        to,
        forward: line,
        reverse: line,
    }
}

/// Links between up to eight clusters.
fn networks() -> impl Strategy<Value = (usize, Vec<Wan>)> {
    (1usize..9).prop_flat_map(|clusters| {
        let link = (0..clusters, 0..clusters)
            .prop_filter("between two", |(from, to)| from != to)
            .prop_map(|(from, to)| wan(from, to));
        let links = if clusters == 1 {
            Just(Vec::new()).boxed()
        } else {
            prop::collection::vec(link, 0..16).boxed()
        };
        (Just(clusters), links)
    })
}

/// The least number of links between two clusters, by trying all ways.
fn least(wans: &[Wan], from: usize, to: usize, budget: usize) -> Option<usize> {
    if from == to {
        return Some(0);
    }
    if budget == 0 {
        return None;
    }
    wans.iter()
        .filter_map(|wan| wan.across(from))
        .filter_map(|beyond| least(wans, beyond, to, budget - 1))
        .min()
        .map(|links| links + 1)
}

/// A character, or something that topologies are made of.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "[[cluster]]\n",
        "[[wan]]\n",
        "[[route]]\n",
        "[sysctl]\n",
        "name = ",
        "hosts = ",
        "switch_buffer = ",
        "edge_rate = ",
        "from = ",
        "to = ",
        "via = ",
        "rate = ",
        "one_way_delay = ",
        "buffer = ",
        "\"near\"\n",
        "\"far\"\n",
        "3\n",
        "4294967295\n",
        "-1\n",
        "\"64KiB\"\n",
        "\"1gbit\"\n",
        "\"10ms\"\n",
        "{ forward = ",
        ", reverse = ",
        " }\n",
        "[\"near-far\"]\n",
        "\"net.ipv4.tcp_sack\" = 1\n",
        "\n",
        "\u{e9}",
        "\"\"\"",
    ];
    prop_oneof![
        8 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

proptest! {
    #[test]
    fn routes_are_the_shortest_there_are((clusters, wans) in networks()) {
        let wans: Vec<Wan> = wans.into_iter().take(6).collect();
        let next_hop = shortest(clusters, &wans);
        let pairs = (0..clusters).flat_map(|from| (0..clusters).map(move |to| (from, to)));
        for (from, to) in pairs {
            let mut at = from;
            let mut links = 0;
            while let Some(link) = next_hop[at][to] {
                at = wans[link].across(at).expect("the link is there");
                links += 1;
                prop_assert!(links <= clusters, "a circle");
            }
            let reached = (at == to).then_some(links);
            prop_assert_eq!(reached, least(&wans, from, to, clusters));
        }
    }

    #[test]
    fn the_steps_of_a_way_lead_to_its_end((clusters, wans) in networks(), links in prop::collection::vec(0usize..16, 0..6), from in 0usize..8, to in 0usize..8) {
        prop_assume!(from < clusters && to < clusters && !wans.is_empty());
        let links: Vec<usize> = links.into_iter().map(|link| link % wans.len()).collect();
        let way = Way { from, to, links: links.clone() };
        if let Some(steps) = way.steps(&wans) {
            let mut at = from;
            for (step, link) in steps.iter().zip(&links) {
                prop_assert_eq!(*step, (at, *link));
                at = wans[*link].across(at).expect("the link is there");
            }
            prop_assert_eq!(at, to);
            prop_assert_eq!(steps.len(), links.len());
        }
    }

    #[test]
    fn no_file_makes_the_reader_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        if let Err(message) = parse(&text) {
            for line in message.lines() {
                prop_assert!(line.starts_with("lab.toml:"), "{}", message);
            }
        }
    }

    /// Near the good file: one line of it is gone, twice there, or another one.
    #[test]
    fn no_change_of_a_line_makes_the_reader_panic(
        at in 0usize..50, kind in 0..3, other in piece()
    ) {
        let mut lines: Vec<&str> = GOOD.lines().collect();
        let at = at % lines.len();
        match kind {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at]),
            _ => lines[at] = &other,
        }
        if let Err(message) = parse(&lines.join("\n")) {
            prop_assert!(message.starts_with("lab.toml:"), "{}", message);
        }
    }
}
