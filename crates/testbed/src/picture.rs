// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The topology as a drawing: clusters as boxes with a dot for each host, and the links
//! between them with the requested and the measured values.

use std::f64::consts::TAU;

use maud::Markup;
use paceline_report::html::svg::{Anchor, Canvas, Style, FAINT, INK};
use paceline_report::quantity::{alone, precise};

use super::state::{Kind, Line, Port, State, Wan};

/// Colours of the links, in turn: of the palette of Okabe and Ito.
const LINKS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#b8578f", "#5b4bb3"];
const BOX_WIDTH: f64 = 220.0;
/// A box without its hosts.
const BOX_HEIGHT: f64 = 74.0;
const DOTS_IN_ROW: usize = 16;
const DOT_PITCH: f64 = 12.5;
const LEAST_WIDTH: f64 = 980.0;
const MARGIN: f64 = 24.0;
/// Between links of the same two clusters.
const PARALLEL_PITCH: f64 = 96.0;
/// Of a letter of 12 pixels, on average and rather more.
const LETTER_WIDTH: f64 = 6.6;
const LINE_HEIGHT: f64 = 15.0;

/// One cluster, as it is drawn.
struct Drawn<'a> {
    name: &'a str,
    hosts: Vec<&'a str>,
    port: Option<&'a Port>,
    /// Of the box's middle.
    at: (f64, f64),
    height: f64,
}

/// The drawing, as SVG.
pub fn draw(state: &State) -> Markup {
    let mut clusters = clusters(state);
    let tallest = clusters
        .iter()
        .map(|cluster| cluster.height)
        .fold(0.0, f64::max);
    let (width, height) = place(&mut clusters, tallest);
    let mut canvas = Canvas::new(width);
    for (index, wan) in state.wans.iter().enumerate() {
        let find = |name: &str| clusters.iter().find(|cluster| cluster.name == name);
        if let (Some(from), Some(to)) = (find(&wan.from), find(&wan.to)) {
            let sideways = PARALLEL_PITCH * place_among_parallels(state, index);
            link(
                &mut canvas,
                wan,
                LINKS[index % LINKS.len()],
                (from.at, to.at),
                sideways,
            );
        }
    }
    for cluster in &clusters {
        draw_cluster(&mut canvas, cluster);
    }
    canvas.finish(height, &format!("Topology of the lab {}", state.lab))
}

fn clusters(state: &State) -> Vec<Drawn<'_>> {
    let switches = state.nodes.iter().filter(|node| node.kind == Kind::Switch);
    switches
        .map(|switch| {
            let nodes = state.nodes.iter();
            let hosts: Vec<&str> = nodes
                .filter(|node| node.kind == Kind::Host && node.cluster == switch.cluster)
                .map(|node| node.name.as_str())
                .collect();
            let rows = hosts.len().div_ceil(DOTS_IN_ROW) as f64;
            Drawn {
                name: &switch.cluster,
                port: state.ports.iter().find(|port| port.node == switch.name),
                height: BOX_HEIGHT + rows * DOT_PITCH,
                hosts,
                at: (0.0, 0.0),
            }
        })
        .collect()
}

/// Gives each cluster its place; returns the size of the whole. Two stand side by side,
/// more on an ellipse.
fn place(clusters: &mut [Drawn<'_>], tallest: f64) -> (f64, f64) {
    let count = clusters.len();
    let around = count as f64 * (BOX_WIDTH + 3.0 * MARGIN) / TAU;
    let width = LEAST_WIDTH.max(2.0 * around + BOX_WIDTH + 2.0 * MARGIN);
    let up = match count {
        0..=2 => 60.0,
        _ => (around * 0.6).max(tallest + PARALLEL_PITCH),
    };
    let height = 2.0 * (up + tallest / 2.0 + MARGIN);
    let across = (width - BOX_WIDTH) / 2.0 - MARGIN;
    let middle = (width / 2.0, height / 2.0);
    for (index, cluster) in clusters.iter_mut().enumerate() {
        // The first is on the left.
        let angle = TAU / 2.0 + TAU * index as f64 / count as f64;
        cluster.at = match count {
            1 => middle,
            _ => (middle.0 + across * angle.cos(), middle.1 + up * angle.sin()),
        };
    }
    (width, height)
}

/// How far a link is beside the middle of those that join the same two clusters.
fn place_among_parallels(state: &State, index: usize) -> f64 {
    let own = &state.wans[index];
    let same = |other: &Wan| {
        (&other.from, &other.to) == (&own.from, &own.to)
            || (&other.from, &other.to) == (&own.to, &own.from)
    };
    let before = state.wans[..index].iter().filter(|wan| same(wan)).count();
    let all = state.wans.iter().filter(|wan| same(wan)).count();
    before as f64 - (all as f64 - 1.0) / 2.0
}

fn link(
    canvas: &mut Canvas,
    wan: &Wan,
    color: &str,
    (from, to): ((f64, f64), (f64, f64)),
    sideways: f64,
) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    // The same side, whichever way round the link was written.
    let turn = if (dx, dy) < (0.0, 0.0) { -1.0 } else { 1.0 };
    let (ax, ay) = (
        -dy / length * sideways * turn,
        dx / length * sideways * turn,
    );
    let middle = ((from.0 + to.0) / 2.0 + ax, (from.1 + to.1) / 2.0 + ay);
    canvas.line(from, middle, color, 2.5, "");
    canvas.line(middle, to, color, 2.5, "");
    label(canvas, wan, color, middle);
}

/// The text on a link, on white: its name, and two lines for each direction that is
/// different.
fn label(canvas: &mut Canvas, wan: &Wan, color: &str, middle: (f64, f64)) {
    let mut lines = Vec::new();
    if different(&wan.forward, &wan.reverse) {
        for (from, to, line) in [
            (&wan.from, &wan.to, &wan.forward),
            (&wan.to, &wan.from, &wan.reverse),
        ] {
            lines.push((INK, format!("{from} to {to}: {}", asked(line))));
            lines.push((FAINT, read(line)));
        }
    } else {
        lines.push((INK, asked(&wan.forward)));
        lines.push((FAINT, read(&wan.forward)));
    }
    let texts = lines.iter().map(|(_, text)| text).chain([&wan.name]);
    let letters = texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let size = (
        letters as f64 * LETTER_WIDTH + 12.0,
        (lines.len() + 1) as f64 * LINE_HEIGHT + 8.0,
    );
    let corner = (middle.0 - size.0 / 2.0, middle.1 - size.1 / 2.0);
    canvas.rounded(corner, size, "#fff", &wan.name);
    let at = |row: usize| (middle.0, corner.1 + 2.0 + LINE_HEIGHT * (row + 1) as f64);
    canvas.text(
        at(0),
        Anchor::Middle,
        color,
        13.0,
        Style::Weight(600),
        &wan.name,
    );
    for (row, (ink, text)) in (1..).zip(&lines) {
        canvas.text(at(row), Anchor::Middle, ink, 12.0, Style::Plain, text);
    }
}

fn different(forward: &Line, reverse: &Line) -> bool {
    forward.rate_bps.asked != reverse.rate_bps.asked
        || forward.one_way_delay_s.asked.to_bits() != reverse.one_way_delay_s.asked.to_bits()
        || forward.buffer_bytes != reverse.buffer_bytes
}

fn asked(line: &Line) -> String {
    format!(
        "{}, {}, {}",
        alone("_bps", line.rate_bps.asked as f64),
        alone("_s", line.one_way_delay_s.asked),
        alone("_bytes", line.buffer_bytes as f64)
    )
}

fn read(line: &Line) -> String {
    let or_unread = |text: Option<String>| text.unwrap_or_else(|| "not reported".to_owned());
    format!(
        "read back: {}, {}",
        or_unread(line.rate_bps.read.map(|rate| precise("_bps", rate as f64))),
        or_unread(line.one_way_delay_s.read.map(|delay| precise("_s", delay)))
    )
}

fn draw_cluster(canvas: &mut Canvas, cluster: &Drawn<'_>) {
    let left = cluster.at.0 - BOX_WIDTH / 2.0;
    let top = cluster.at.1 - cluster.height / 2.0;
    canvas.rounded((left, top), (BOX_WIDTH, cluster.height), INK, cluster.name);
    let count = match cluster.hosts.len() {
        1 => "1 host".to_owned(),
        many => format!("{many} hosts"),
    };
    let at = |x: f64, y: f64| (left + x, top + y);
    canvas.text(
        at(12.0, 22.0),
        Anchor::Start,
        INK,
        15.0,
        Style::Weight(600),
        cluster.name,
    );
    canvas.text(
        at(BOX_WIDTH - 12.0, 22.0),
        Anchor::End,
        FAINT,
        12.0,
        Style::Plain,
        &count,
    );
    if let Some(port) = cluster.port {
        let show = |rate: u64, buffer: u64| {
            let rate = alone("_bps", rate as f64);
            format!("{rate}, {}", alone("_bytes", buffer as f64))
        };
        let asked = show(port.rate_bps.asked, port.buffer_bytes.asked) + " a port";
        let read = match (port.rate_bps.read, port.buffer_bytes.read) {
            (Some(rate), Some(buffer)) => format!("read back: {}", show(rate, buffer)),
            _ => "read back: not reported".to_owned(),
        };
        canvas.text(
            at(12.0, 41.0),
            Anchor::Start,
            INK,
            12.0,
            Style::Plain,
            &asked,
        );
        canvas.text(
            at(12.0, 56.0),
            Anchor::Start,
            FAINT,
            12.0,
            Style::Plain,
            &read,
        );
    }
    for (index, host) in cluster.hosts.iter().enumerate() {
        let (row, column) = (index / DOTS_IN_ROW, index % DOTS_IN_ROW);
        let dot = at(
            16.0 + DOT_PITCH * column as f64,
            BOX_HEIGHT - 4.0 + DOT_PITCH * row as f64,
        );
        canvas.circle(dot, 4.5, LINKS[0], host);
    }
}
