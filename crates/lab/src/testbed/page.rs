// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lab as a page: one file that opens offline, loads nothing and runs no script.

use paceline_report::html::document;
use paceline_report::html::svg::escape;
use paceline_report::quantity::{alone, precise};

use super::picture;
use super::state::{Line, Port, Reading, State};

/// The whole page.
#[must_use]
pub fn page(state: &State) -> String {
    let title = escape(&state.lab);
    let mut body = format!(
        "<header>\n<p class=\"kind\">Paceline \u{b7} a lab on this machine</p>\n<h1>{title}</h1>\n\
         <p class=\"faint\">from <code>{}</code></p>\n</header>\n",
        escape(&state.topology)
    );
    body += &problems(state);
    body += &format!(
        "<section>\n<h2>Topology</h2>\n<figure>\n{}<figcaption>Boxes are clusters, a dot is a \
         host; of each switch port towards a host, the rate and the drop-tail queue. Lines are \
         links: rate, one-way delay, queue; below it what was measured when the lab was made. \
         </figcaption>\n</figure>\n</section>\n",
        picture::draw(state)
    );
    body += &links(state);
    body += &ports(state);
    body += &routes(state);
    body += &settings(state);
    body += &nodes(state);
    document(&title, &body)
}

fn problems(state: &State) -> String {
    let problems: Vec<String> = state
        .wans
        .iter()
        .flat_map(|wan| {
            let of = |problem| format!("<p>{}: {}</p>\n", escape(&wan.name), escape(problem));
            wan.problems.iter().map(move |problem| of(problem))
        })
        .collect();
    match problems.is_empty() {
        true => String::new(),
        false => format!(
            "<div class=\"alert\" role=\"alert\">\n{}</div>\n",
            problems.concat()
        ),
    }
}

/// A table; in the columns after the first `texts`, numbers. Cells are markup.
fn table(title: &str, heading: &[&str], texts: usize, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let class = |column: usize| {
        if column < texts {
            ""
        } else {
            " class=\"number\""
        }
    };
    let line = |tag: &str, cells: &[String]| {
        let cells = cells.iter().enumerate();
        let cells = cells.map(|(at, cell)| format!("<{tag}{}>{cell}</{tag}>", class(at)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let heading: Vec<String> = heading.iter().map(|text| (*text).to_owned()).collect();
    let rows: String = rows.iter().map(|row| line("td", row)).collect();
    format!(
        "<section>\n<h2>{title}</h2>\n<div class=\"wide\"><table>\n<thead>{}</thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n</section>\n",
        line("th", &heading)
    )
}

fn links(state: &State) -> String {
    let row = |name: &str, from: &str, to: &str, line: &Line| {
        let delay = line.one_way_delay_s;
        let traffic = &line.traffic;
        vec![
            escape(name),
            format!("{} to {}", escape(from), escape(to)),
            alone("_bps", line.rate_bps.asked as f64),
            told(line.rate_bps.read.map(|rate| precise("_bps", rate as f64))),
            alone("_s", delay.asked),
            told(delay.read.map(|delay| precise("_s", delay))),
            alone("_bytes", line.buffer_bytes as f64),
            told(
                traffic
                    .peak_queue_bytes
                    .map(|peak| alone("_bytes", peak as f64)),
            ),
            alone("_bytes", traffic.carried_bytes as f64),
            traffic.dropped_packets.to_string(),
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

fn ports(state: &State) -> String {
    let row = |port: &Port| {
        let rate = |rate: u64| alone("_bps", rate as f64);
        let bytes = |bytes: u64| alone("_bytes", bytes as f64);
        vec![
            format!(
                "{} <code>{}</code>",
                escape(&port.node),
                escape(&port.device)
            ),
            escape(&port.toward),
            rate(port.rate_bps.asked),
            told(port.rate_bps.read.map(rate)),
            bytes(port.buffer_bytes.asked),
            told(port.buffer_bytes.read.map(bytes)),
            bytes(port.traffic.carried_bytes),
            port.traffic.dropped_packets.to_string(),
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

fn routes(state: &State) -> String {
    let rows = state.routes.iter().map(|route| {
        let via: Vec<String> = route.via.iter().map(|name| escape(name)).collect();
        vec![escape(&route.from), escape(&route.to), via.join(", ")]
    });
    table("Routes", &["from", "to", "links"], 3, rows.collect())
}

fn settings(state: &State) -> String {
    let rows = state.settings().map(|(key, Reading { asked, read })| {
        vec![
            format!("<code>{}</code>", escape(key)),
            escape(asked),
            told(read.as_deref().map(escape)),
        ]
    });
    let heading = ["setting", "asked", "read back"];
    table("Settings of each host", &heading, 3, rows.collect())
}

fn nodes(state: &State) -> String {
    let rows = state.nodes.iter().map(|node| {
        vec![
            escape(&node.name),
            escape(&node.cluster),
            node.ipv4.to_string(),
            node.ipv6
                .map(|address| address.to_string())
                .unwrap_or_default(),
        ]
    });
    table(
        "Nodes",
        &["name", "cluster", "IPv4", "IPv6"],
        4,
        rows.collect(),
    )
}

fn told(text: Option<String>) -> String {
    text.unwrap_or_else(|| "not told".to_owned())
}
