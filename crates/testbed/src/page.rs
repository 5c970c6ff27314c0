// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lab as a page: one file that opens offline, loads nothing and runs no script.

use maud::{html, Markup};
use paceline_report::html::document;
use paceline_report::quantity::{alone, precise};

use super::picture;
use super::state::{Line, Port, Reading, State};

/// The whole page.
#[must_use]
pub fn page(state: &State) -> String {
    let body = html! {
        header {
            p.kind { "Paceline \u{b7} a lab on this machine" }
            h1 { (state.lab) }
            p.faint { "from " code { (state.topology) } }
        }
        (problems(state))
        section {
            h2 { "Topology" }
            figure {
                (picture::draw(state))
                figcaption {
                    "Boxes are clusters, a dot is a host; of each switch port towards a host, \
                     the rate and the drop-tail queue. Lines are links: rate, one-way delay, \
                     queue; below it what was measured when the lab was made."
                }
            }
        }
        (links(state))
        (ports(state))
        (routes(state))
        (settings(state))
        (nodes(state))
    };
    document(&state.lab, &body)
}

fn problems(state: &State) -> Markup {
    let of_links = state.wans.iter();
    let problems: Vec<(&str, &str)> = of_links
        .flat_map(|wan| wan.problems.iter().map(|problem| (&*wan.name, &**problem)))
        .collect();
    html! {
        @if !problems.is_empty() {
            div.alert role="alert" {
                @for (link, problem) in problems { p { (link) ": " (problem) } }
            }
        }
    }
}

/// A table; in the columns after the first `texts`, numbers. Nothing if it has no row.
fn table(title: &str, heading: &[&str], texts: usize, rows: Vec<Vec<Markup>>) -> Markup {
    let class = |column: usize| (column >= texts).then_some("number");
    html! {
        @if !rows.is_empty() {
            section {
                h2 { (title) }
                div.wide { table {
                    thead { tr {
                        @for (at, text) in heading.iter().enumerate() {
                            th class=[class(at)] { (text) }
                        }
                    } }
                    tbody { @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                td class=[class(at)] { (cell) }
                            }
                        }
                    } }
                } }
            }
        }
    }
}

/// A cell that holds a text.
fn cell(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// A cell that holds a value of the machine, if there is one.
fn or_unread(text: Option<String>) -> Markup {
    cell(text.as_deref().unwrap_or("not reported"))
}

fn links(state: &State) -> Markup {
    let row = |name: &str, from: &str, to: &str, line: &Line| {
        let delay = line.one_way_delay_s;
        let traffic = &line.traffic;
        let peak = traffic.peak_queue_bytes;
        vec![
            cell(name),
            html! { (from) " to " (to) },
            cell(alone("_bps", line.rate_bps.asked as f64)),
            or_unread(line.rate_bps.read.map(|rate| precise("_bps", rate as f64))),
            cell(alone("_s", delay.asked)),
            or_unread(delay.read.map(|delay| precise("_s", delay))),
            cell(alone("_bytes", line.buffer_bytes as f64)),
            or_unread(peak.map(|peak| alone("_bytes", peak as f64))),
            cell(alone("_bytes", traffic.carried_bytes as f64)),
            cell(traffic.dropped_packets.to_string()),
        ]
    };
    let rows = state.wans.iter().flat_map(|wan| {
        [
            row(&wan.name, &wan.from, &wan.to, &wan.forward),
            row(&wan.name, &wan.to, &wan.from, &wan.reverse),
        ]
    });
    let heading = [
        "link",
        "direction",
        "rate asked",
        "read back",
        "one way asked",
        "read back",
        "queue",
        "most queued",
        "carried",
        "dropped",
    ];
    table("Links", &heading, 2, rows.collect())
}

fn ports(state: &State) -> Markup {
    let row = |port: &Port| {
        let rate = |rate: u64| alone("_bps", rate as f64);
        let bytes = |bytes: u64| alone("_bytes", bytes as f64);
        vec![
            html! { (port.node) " " code { (port.device) } },
            cell(&port.toward),
            cell(rate(port.rate_bps.asked)),
            or_unread(port.rate_bps.read.map(rate)),
            cell(bytes(port.buffer_bytes.asked)),
            or_unread(port.buffer_bytes.read.map(bytes)),
            cell(bytes(port.traffic.carried_bytes)),
            cell(port.traffic.dropped_packets.to_string()),
        ]
    };
    let heading = [
        "port",
        "towards",
        "rate asked",
        "read back",
        "queue asked",
        "read back",
        "carried",
        "dropped",
    ];
    table(
        "Queues of the kernel",
        &heading,
        2,
        state.ports.iter().map(row).collect(),
    )
}

fn routes(state: &State) -> Markup {
    let rows = state.routes.iter().map(|route| {
        vec![
            cell(&route.from),
            cell(&route.to),
            cell(route.via.join(", ")),
        ]
    });
    table("Routes", &["from", "to", "links"], 3, rows.collect())
}

fn settings(state: &State) -> Markup {
    let rows = state.settings().map(|(key, Reading { asked, read })| {
        vec![
            html! { code { (key) } },
            cell(asked),
            or_unread(read.clone()),
        ]
    });
    let heading = ["setting", "asked", "read back"];
    table("Settings of each host", &heading, 3, rows.collect())
}

fn nodes(state: &State) -> Markup {
    let rows = state.nodes.iter().map(|node| {
        let ipv6 = node.ipv6.map(|address| address.to_string());
        vec![
            cell(&node.name),
            cell(&node.cluster),
            cell(node.ipv4.to_string()),
            cell(ipv6.unwrap_or_default()),
        ]
    });
    table(
        "Nodes",
        &["name", "cluster", "IPv4", "IPv6"],
        4,
        rows.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::state::{Kind, Node, Route, Traffic, Wan};
    use super::*;

    #[test]
    fn text_of_a_topology_is_escaped_everywhere() {
        let hostile = "<script>alert(1)</script>&\"'".to_owned();
        let name = || hostile.clone();
        let line = || Line {
            rate_bps: Reading {
                asked: 1_000_000,
                read: None,
            },
            one_way_delay_s: Reading {
                asked: 0.01,
                read: None,
            },
            buffer_bytes: 65_536,
            traffic: Traffic::default(),
        };
        let node = |kind| Node {
            name: name(),
            kind,
            cluster: name(),
            ipv4: [10, 0, 0, 1].into(),
            ipv6: None,
            network_namespace: 1,
        };
        let setting = || Reading {
            asked: name(),
            read: Some(name()),
        };
        let state = State {
            lab: name(),
            keeper: 1,
            topology: name(),
            remote_shell: name(),
            host_list: name(),
            nodes: vec![node(Kind::Host), node(Kind::Switch)],
            ports: vec![Port {
                node: name(),
                device: name(),
                toward: name(),
                rate_bps: Reading {
                    asked: 1_000_000,
                    read: None,
                },
                buffer_bytes: Reading {
                    asked: 1500,
                    read: None,
                },
                traffic: Traffic::default(),
            }],
            wans: vec![Wan {
                name: name(),
                from: name(),
                to: name(),
                device: name(),
                forward: line(),
                reverse: line(),
                problems: vec![name()],
            }],
            routes: vec![Route {
                from: name(),
                to: name(),
                via: vec![name()],
            }],
            congestion: Some(setting()),
            sysctl: [(name(), setting())].into(),
        };
        let page = page(&state);
        assert!(!page.contains("<script"), "{page}");
        let text = "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;'";
        for place in [
            format!("<title>{text}</title>"),
            format!("<h1>{text}</h1>"),
            format!("<code>{text}</code>"),
            format!("<p>{text}: {text}</p>"),
            format!("<td>{text} to {text}</td>"),
            format!("<td>{text} <code>{text}</code></td>"),
            format!("<td>{text}</td>"),
            // The box of a cluster, a host's dot and a link's name.
            format!(">{text}</text>"),
            format!(
                "r=\"4.5\" fill=\"#0072b2\" stroke=\"#fff\" stroke-width=\"1.5\"><title>{text}"
            ),
        ] {
            assert!(page.contains(&place), "{place} is not in {page}");
        }
    }
}
