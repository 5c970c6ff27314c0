// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labs as text.

use std::collections::BTreeMap;

use paceline_report::quantity::{alone, precise};
use paceline_testbed::state::{Kind, Line, Port, Reading, State, Traffic};

use crate::output::table;

/// The text of `lab up`.
pub fn summary(state: &State) -> String {
    let first = state.hosts().next().unwrap_or_default();
    let mut text = format!("lab {} is up: {}\n", state.lab, counts(state));
    text += &format!("  sudo paceline lab exec {first} -- CMD\n");
    text += &format!(
        "  sudo paceline lab mpirun -np {} -- PROG\n",
        state.hosts().count()
    );
    text += &format!("  sudo paceline lab down {}\n", state.lab);
    for problem in problems(state) {
        text += &format!("warning: {problem}\n");
    }
    text
}

/// The text of `lab list`.
pub fn list(states: &[State]) -> String {
    if states.is_empty() {
        return "no lab is up\n".to_owned();
    }
    let heading = ["LAB", "KEEPER", "WHAT", "TOPOLOGY"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    for state in states {
        rows.push(vec![
            state.lab.clone(),
            state.keeper.to_string(),
            counts(state),
            state.topology.clone(),
        ]);
    }
    table("", &rows)
}

/// The text of `lab show`.
pub fn details(state: &State) -> String {
    let mut text = format!(
        "lab {}: {}, kept by process {}\nfrom {}\n",
        state.lab,
        counts(state),
        state.keeper,
        state.topology
    );
    text += "\nLinks, requested / measured when the lab was built\n";
    let mut rows = Vec::new();
    for wan in &state.wans {
        for (from, to, line) in [
            (&wan.from, &wan.to, &wan.forward),
            (&wan.to, &wan.from, &wan.reverse),
        ] {
            let mut row = vec![wan.name.clone(), format!("{from} to {to}")];
            row.extend(line_cells(line));
            rows.push(row);
        }
    }
    text += &none_or_table(
        rows,
        &["NAME", "DIRECTION", "RATE", "ONE WAY", "BUFFER", "SO FAR"],
    );

    text += "\nKernel queues, requested / read back\n";
    let mut rows = Vec::new();
    // A cluster's ports are all the same, or should be.
    let mut seen: BTreeMap<String, Vec<&Port>> = BTreeMap::new();
    for port in &state.ports {
        seen.entry(port_settings(state, port))
            .or_default()
            .push(port);
    }
    for ports in seen.values() {
        let (first, last) = (ports[0], ports[ports.len() - 1]);
        let which = match ports.len() {
            1 => format!("{} {}", first.node, first.device),
            _ => format!(
                "{} {} ... {} {}",
                first.node, first.device, last.node, last.device
            ),
        };
        let mut all = Traffic::default();
        for port in ports {
            all.carried_packets += port.traffic.carried_packets;
            all.carried_bytes += port.traffic.carried_bytes;
            all.dropped_packets += port.traffic.dropped_packets;
        }
        rows.push(vec![
            which,
            rate(first.rate_bps),
            bytes(first.buffer_bytes),
            traffic(all),
        ]);
    }
    text += &none_or_table(rows, &["PORTS", "RATE", "BUFFER", "SO FAR"]);

    text += "\nRoutes\n";
    let routes = state.routes.iter().map(|route| {
        vec![
            format!("{} to {}", route.from, route.to),
            route.via.join(", "),
        ]
    });
    text += &none_or_table(routes.collect(), &["WAY", "LINKS"]);

    if state.settings().next().is_some() {
        text += "\nSettings of each host, requested / read back\n";
        let settings = state.settings().map(|(key, reading)| {
            let read = reading.read.as_deref().unwrap_or("?");
            vec![key.to_owned(), format!("{} / {read}", reading.asked)]
        });
        text += &none_or_table(settings.collect(), &["NAME", "VALUE"]);
    }

    text += "\nNodes\n";
    let nodes = state.nodes.iter().map(|node| {
        let ipv6 = node.ipv6.map(|address| address.to_string());
        vec![
            node.name.clone(),
            match node.kind {
                Kind::Host => "host".to_owned(),
                Kind::Switch => "switch".to_owned(),
            },
            node.ipv4.to_string(),
            ipv6.unwrap_or_default(),
        ]
    });
    text += &none_or_table(nodes.collect(), &["NAME", "KIND", "IPV4", "IPV6"]);
    for problem in problems(state) {
        text += &format!("\nwarning: {problem}\n");
    }
    text
}

fn counts(state: &State) -> String {
    let switches = state.nodes.len() - state.hosts().count();
    let count = |number: usize, one: &str| match number {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    };
    format!(
        "{}, {}, {}",
        count(switches, "cluster"),
        count(state.hosts().count(), "host"),
        count(state.wans.len(), "link")
    )
}

fn problems(state: &State) -> impl Iterator<Item = String> + '_ {
    state.wans.iter().flat_map(|wan| {
        let problems = wan.problems.iter();
        problems.map(move |problem| format!("link {}: {problem}", wan.name))
    })
}

fn none_or_table(rows: Vec<Vec<String>>, heading: &[&str]) -> String {
    if rows.is_empty() {
        return "  none\n".to_owned();
    }
    let mut all = vec![heading.iter().map(|cell| (*cell).to_owned()).collect()];
    all.extend(rows);
    table("  ", &all)
}

/// A key of ports with equal settings, which are shown together.
fn port_settings(state: &State, port: &Port) -> String {
    let node = state.node(&port.node);
    let place = node.map(|node| (node.cluster.clone(), node.kind == Kind::Switch));
    format!("{place:?} {:?} {:?}", port.rate_bps, port.buffer_bytes)
}

fn line_cells(line: &Line) -> [String; 4] {
    let delay = line.one_way_delay_s;
    let delay_read = delay.read.map_or_else(unknown, |read| precise("_s", read));
    let peak = line.traffic.peak_queue_bytes.unwrap_or_default();
    let late = line.traffic.late_s.map_or_else(String::new, |late| {
        format!(
            ", 99th percentile of lateness {:.0} us in the last seconds, {:.0} us since lab up",
            late.recent * 1e6,
            late.whole * 1e6
        )
    });
    [
        rate(line.rate_bps),
        format!("{} / {delay_read}", alone("_s", delay.asked)),
        alone("_bytes", line.buffer_bytes as f64),
        format!(
            "{}, at most {} queued{late}",
            traffic(line.traffic),
            alone("_bytes", peak as f64)
        ),
    ]
}

fn rate(reading: Reading<u64>) -> String {
    let read = reading.read.map_or_else(unknown, |read| {
        // A configured value is exact, a measured one is not.
        let show = if read == reading.asked {
            alone
        } else {
            precise
        };
        show("_bps", read as f64)
    });
    format!("{} / {read}", alone("_bps", reading.asked as f64))
}

fn bytes(reading: Reading<u64>) -> String {
    let read = reading
        .read
        .map_or_else(unknown, |read| alone("_bytes", read as f64));
    format!("{} / {read}", alone("_bytes", reading.asked as f64))
}

fn traffic(traffic: Traffic) -> String {
    format!(
        "{} in {} packets, {} dropped",
        alone("_bytes", traffic.carried_bytes as f64),
        traffic.carried_packets,
        traffic.dropped_packets
    )
}

fn unknown() -> String {
    "unknown".to_owned()
}
