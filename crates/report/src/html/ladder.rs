// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time-sequence ladders, as Figures 9 and 10 of ligon-1999: time runs down, the sender is the
//! left rail and the receiver the right one. A segment is a line from the left to the right, an
//! ACK one back. Packets are seen beside the sender; at the other rail they are drawn one
//! propagation later, or earlier.
//!
//! A delayed ACK takes hundreds of times as long as a round trip of a local network: silences
//! are cut, with a word on their length, so that segments and ACKs are distinct.

use maud::Markup;

use crate::series::{Report, Series};

use super::panels;
use super::svg::{colors, positive, Anchor, Canvas, Style, FAINT, INK};

/// Parts whose name begins so are ladders, with these lines.
pub const PART: &str = "ladder";
/// Line of the segments with data: y is the number of the byte after its last one.
pub const DATA: &str = "data";
/// Line of the ACKs: y is the number of the byte that the receiver waits for.
pub const ACK: &str = "ACK";

/// Packets of a panel: more are not distinguishable.
const MOST_PACKETS: usize = 24;
const PANEL: f64 = 150.0;
/// For the ACKs of one panel and the times of the next one.
const BETWEEN: f64 = 110.0;
/// For the ACKs of the last panel.
const RIGHT: f64 = 60.0;
const LEFT: f64 = 68.0;
const TOP: f64 = 44.0;
const HEIGHT: f64 = 520.0;
const BOTTOM: f64 = 16.0;
/// Height of a label.
const LABEL: f64 = 11.0;
/// The rest of a silence before and after its cut, in one-way delays: the packets arrive.
const KEPT: f64 = 2.0;
/// Length that a cut is drawn with, in one-way delays.
const CUT: f64 = 4.0;

/// A packet of a ladder.
#[derive(Debug, Clone, Copy)]
struct Packet {
    at_ms: f64,
    back: bool,
    number: f64,
}

/// The time of a panel without its silences.
struct Time {
    /// Begin and end of each that is cut, milliseconds.
    cuts: Vec<(f64, f64)>,
    /// The rest of a silence on each side of its cut.
    kept_ms: f64,
    /// The drawn length of a cut.
    cut_ms: f64,
}

impl Time {
    fn of(packets: &[Packet], delay_ms: f64) -> Self {
        let (kept_ms, cut_ms) = (KEPT * delay_ms, CUT * delay_ms);
        let silences = packets
            .windows(2)
            .map(|pair| (pair[0].at_ms + kept_ms, pair[1].at_ms - kept_ms));
        Self {
            // Without a delay nothing is long.
            cuts: silences
                .filter(|(from, to)| cut_ms > 0.0 && to - from > cut_ms)
                .collect(),
            kept_ms,
            cut_ms,
        }
    }

    /// A moment, less the cuts before it.
    fn drawn(&self, ms: f64) -> f64 {
        let before = self.cuts.iter().filter(|(_, to)| *to <= ms);
        let left_out: f64 = before.map(|(from, to)| to - from - self.cut_ms).sum();
        ms - left_out
    }
}

/// Whether a part is one.
pub fn is(part: &str) -> bool {
    part.split('/').next() == Some(PART)
}

/// The ladders of a part, a panel for each variant, all to the same scale. `None` if there
/// is no packet.
pub fn figure(report: &Report, part: &str) -> Option<Markup> {
    let delay_ms = report.results.link.one_way_delay_s.asked.max(0.0) * 1e3;
    let panels: Vec<(&str, Vec<Packet>, Time)> = panels::panels(report, part)
        .iter()
        .map(|lines| (lines[0].variant.as_str(), packets(lines)))
        .map(|(variant, packets)| {
            let time = Time::of(&packets, delay_ms);
            (variant, packets, time)
        })
        .filter(|(_, packets, _)| !packets.is_empty())
        .collect();
    if panels.is_empty() {
        return None;
    }
    let ends = panels.iter().filter_map(|(_, packets, time)| {
        let last = packets.last()?;
        Some(time.drawn(last.at_ms))
    });
    let end_ms = positive(ends.fold(0.0, f64::max) + delay_ms);
    let colors = colors(
        &report.results,
        report.series.iter().map(|series| series.variant.clone()),
    );
    let mut canvas = Canvas::new(LEFT + panels.len() as f64 * (PANEL + BETWEEN) - BETWEEN + RIGHT);
    let words = "time since the first segment (ms)";
    let middle = (12.0, TOP + HEIGHT / 2.0);
    canvas.text(middle, Anchor::Middle, INK, 11.0, Style::Turned, words);
    for (index, (variant, packets, time)) in panels.iter().enumerate() {
        let left = LEFT + index as f64 * (PANEL + BETWEEN);
        let color = colors.get(*variant).copied().unwrap_or(INK);
        let name = (left + PANEL / 2.0, TOP - 26.0);
        canvas.text(name, Anchor::Middle, INK, 12.0, Style::Weight(650), variant);
        let y = |ms: f64| TOP + (time.drawn(ms) / end_ms).clamp(0.0, 1.0) * HEIGHT;
        rails(&mut canvas, time, left, &y);
        for packet in packets {
            let there_ms = match packet.back {
                false => packet.at_ms + delay_ms,
                true => packet.at_ms - delay_ms,
            };
            let (from, to) = ((left, y(packet.at_ms)), (left + PANEL, y(there_ms)));
            let dash = if packet.back { "4 3" } else { "" };
            canvas.line(from, to, if packet.back { FAINT } else { color }, 1.3, dash);
        }
        let all = packets.iter();
        let times = all.map(|packet| (y(packet.at_ms), format!("{:.2}", packet.at_ms)));
        labels(&mut canvas, (left - 6.0, Anchor::End), times);
        let acks = packets.iter().filter(|packet| packet.back);
        let acks =
            acks.map(|packet| (y(packet.at_ms - delay_ms), format!("ACK {}", packet.number)));
        labels(&mut canvas, (left + PANEL + 5.0, Anchor::Start), acks);
    }
    let title = format!("{part}: segments and ACKs between sender and receiver over time");
    Some(canvas.finish(TOP + HEIGHT + BOTTOM, &title))
}

/// Sender and receiver, with gaps where silences are cut.
fn rails(canvas: &mut Canvas, time: &Time, left: f64, y: &impl Fn(f64) -> f64) {
    let right = left + PANEL;
    for (x, end) in [(left, "sender"), (right, "receiver")] {
        let at = (x, TOP - 9.0);
        canvas.text(at, Anchor::Middle, FAINT, 10.5, Style::Plain, end);
        let mut from = TOP;
        for (begin, end) in &time.cuts {
            canvas.line((x, from), (x, y(*begin)), FAINT, 1.4, "");
            canvas.line((x, y(*begin)), (x, y(*end)), FAINT, 1.4, "1 4");
            from = y(*end);
        }
        canvas.line((x, from), (x, TOP + HEIGHT), FAINT, 1.4, "");
    }
    for (begin, end) in &time.cuts {
        let at = (left + PANEL / 2.0, (y(*begin) + y(*end)) / 2.0 + 3.0);
        let words = format!("{:.1} ms", end - begin + 2.0 * time.kept_ms);
        canvas.text(at, Anchor::Middle, INK, 9.5, Style::Tabular, &words);
    }
}

/// Words beside a rail, where there is room for them.
fn labels(
    canvas: &mut Canvas,
    (x, anchor): (f64, Anchor),
    words: impl Iterator<Item = (f64, String)>,
) {
    let mut free_from = f64::NEG_INFINITY;
    for (y, words) in words {
        if y >= free_from {
            free_from = y + LABEL;
            let at = (x, y + 3.0);
            canvas.text(at, anchor, FAINT, 9.5, Style::Tabular, &words);
        }
    }
}

/// The first packets of a panel's lines, in the order of their times.
fn packets(lines: &[&Series]) -> Vec<Packet> {
    let of_line = |line: &&Series| {
        let back = line.line == ACK;
        let points = line.points.iter();
        points
            .map(move |&(at_ms, number)| Packet {
                at_ms,
                back,
                number,
            })
            .collect::<Vec<_>>()
    };
    let mut packets: Vec<Packet> = lines
        .iter()
        .filter(|line| [DATA, ACK].contains(&line.line.as_str()))
        .flat_map(of_line)
        .collect();
    packets.sort_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
    packets.truncate(MOST_PACKETS);
    packets
}
