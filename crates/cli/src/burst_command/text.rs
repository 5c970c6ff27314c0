// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of `paceline burst`, as text and as JSON.

use std::collections::VecDeque;
use std::fmt::Write;

use paceline_burst::{Direction, Kind, Options, Window};
use paceline_input::units::Time;
use paceline_report::burstiness::{Moments, Scales};
use serde_json::{json, Value};

use crate::output;

/// Length of "the last minute", nanoseconds.
const MINUTE_NS: u64 = 60_000_000_000;
/// Windows of the picture.
const PICTURE: usize = 60;
/// A scale of fewer windows is not shown to people: its variance says nothing yet.
const LEAST_SHOWN: u64 = 8;

/// The settings of the count.
pub struct Setting {
    interface: String,
    direction: Direction,
    filter: String,
    window_ns: u64,
    whole_packets: bool,
    kind: Kind,
}

impl Setting {
    pub fn new(options: &Options, kind: Kind) -> Self {
        Setting {
            interface: options.interface.name().to_owned(),
            direction: options.direction,
            filter: options.filter.text().to_owned(),
            window_ns: options.window_ns,
            whole_packets: options.whole_packets,
            kind,
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "kind": "start",
            "dev": self.interface,
            "direction": match self.direction {
                Direction::In => "in",
                Direction::Out => "out",
                Direction::Both => "both",
            },
            "filter": self.filter,
            "window_ns": self.window_ns,
            "counts": if self.whole_packets { "packets" } else { "segments" },
            "hook": self.kind.to_string(),
            "clock": "CLOCK_MONOTONIC",
        })
    }

    pub fn text(&self) -> String {
        let direction = match self.direction {
            Direction::In => "received",
            Direction::Out => "sent",
            Direction::Both => "received and sent",
        };
        let filter = match self.filter.as_str() {
            "" => "all packets",
            filter => filter,
        };
        format!(
            "{}, {direction}: {filter}, windows of {} ({})",
            self.interface,
            time(self.window_ns),
            self.kind
        )
    }
}

fn time(ns: u64) -> Time {
    Time::from_micros(ns / 1_000)
}

/// All windows so far.
pub struct History {
    window_ns: u64,
    /// Up to a minute of them; `None` is a missing one.
    recent: VecDeque<Option<u64>>,
    scales: Scales,
    windows: u64,
    lost: u64,
    packets: u64,
    bytes: u64,
    end_ns: u64,
}

impl History {
    pub fn new(window_ns: u64) -> Self {
        History {
            window_ns,
            recent: VecDeque::new(),
            scales: Scales::default(),
            windows: 0,
            lost: 0,
            packets: 0,
            bytes: 0,
            end_ns: 0,
        }
    }

    pub fn add(&mut self, window: &Window) {
        let packets = window.counts.map(|counts| counts.packets);
        self.windows += 1;
        self.end_ns = window.start_ns + self.window_ns;
        if self.recent.len() as u64 >= (MINUTE_NS / self.window_ns).max(1) {
            self.recent.pop_front();
        }
        self.recent.push_back(packets);
        match window.counts {
            Some(counts) => {
                self.scales.add(counts.packets);
                self.packets += counts.packets;
                self.bytes += counts.bytes;
            }
            None => {
                self.scales.gap();
                self.lost += 1;
            }
        }
    }

    /// Missing ones included.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// The missing ones.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn last_minute(&self) -> Scales {
        let mut scales = Scales::default();
        for packets in &self.recent {
            match packets {
                Some(packets) => scales.add(*packets),
                None => scales.gap(),
            }
        }
        scales
    }

    pub fn put_json(&self, line: &mut Value) {
        line["end_ns"] = json!(self.end_ns);
        line["lost_windows"] = json!(self.lost);
        line["packets"] = json!(self.packets);
        line["bytes"] = json!(self.bytes);
        line["since_start"] = scales_json(&self.scales, self.window_ns);
        line["last_minute"] = scales_json(&self.last_minute(), self.window_ns);
    }

    pub fn text(&self) -> String {
        if self.windows == 0 {
            return "no whole window yet\n".to_owned();
        }
        let mut rows = vec![
            ["", "windows", "packets each", "c.o.v.", "Poisson", "ratio"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let minute = self.last_minute();
        rows.push(row("since the start", self.scales.base()));
        rows.push(row("last minute", minute.base()));
        let mut text = output::table("  ", &rows);
        let _ = writeln!(
            text,
            "  {} packets, {} bytes{}",
            self.packets,
            self.bytes,
            match self.lost {
                0 => String::new(),
                lost => format!("; {lost} windows are missing"),
            }
        );
        let scales: Vec<Vec<String>> = self
            .scales
            .iter()
            .filter(|(times, moments)| *times == 1 || moments.count() >= LEAST_SHOWN)
            .map(|(times, moments)| {
                vec![
                    time(self.window_ns.saturating_mul(times)).to_string(),
                    number(moments.index_of_dispersion()),
                    number(moments.coefficient_of_variation()),
                ]
            })
            .collect();
        if !scales.is_empty() {
            let heading = ["windows of", "variance/mean", "c.o.v."].map(str::to_owned);
            let rows: Vec<_> = std::iter::once(heading.to_vec()).chain(scales).collect();
            text.push_str(&output::table("  ", &rows));
        }
        let _ = writeln!(text, "  {}", self.picture());
        text
    }

    /// The latest windows' packets as bars, the greatest of them the full height.
    fn picture(&self) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let first = self.recent.len().saturating_sub(PICTURE);
        let latest = || self.recent.iter().skip(first);
        let most = latest().flatten().copied().max().unwrap_or(0).max(1);
        latest()
            .map(|packets| match packets {
                None => '?',
                Some(0) => ' ',
                Some(packets) => BARS[((*packets - 1) * 8 / most).min(7) as usize],
            })
            .collect()
    }
}

fn row(name: &str, moments: Moments) -> Vec<String> {
    vec![
        name.to_owned(),
        moments.count().to_string(),
        format!("{:.1}", moments.mean()),
        number(moments.coefficient_of_variation()),
        number(moments.poisson_reference()),
        number(moments.ratio_to_poisson()),
    ]
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}

fn scales_json(scales: &Scales, window_ns: u64) -> Value {
    let base = scales.base();
    let dispersion: Vec<Value> = scales
        .iter()
        .map(|(times, moments)| {
            json!({
                "window_ns": window_ns.saturating_mul(times),
                "windows": moments.count(),
                "index": moments.index_of_dispersion(),
                "cov": moments.coefficient_of_variation(),
            })
        })
        .collect();
    json!({
        "windows": base.count(),
        "mean_packets": base.mean(),
        "cov": base.coefficient_of_variation(),
        "poisson_cov": base.poisson_reference(),
        "ratio": base.ratio_to_poisson(),
        "dispersion": dispersion,
    })
}

#[cfg(test)]
mod tests {
    use paceline_burst::Counts;

    use super::*;

    fn history(window_ns: u64, packets: &[Option<u64>]) -> History {
        let mut history = History::new(window_ns);
        for (at, packets) in packets.iter().enumerate() {
            history.add(&Window {
                start_ns: at as u64 * window_ns,
                counts: packets.map(|packets| Counts {
                    packets,
                    bytes: packets * 100,
                }),
            });
        }
        history
    }

    #[test]
    fn the_last_minute_forgets_and_the_whole_does_not() {
        let second = 1_000_000_000;
        let mut packets = vec![Some(1000); 40];
        packets.extend([Some(10); 60]);
        let mut line = json!({});
        history(second, &packets).put_json(&mut line);
        assert_eq!(line["last_minute"]["windows"], 60);
        assert_eq!(line["last_minute"]["cov"], 0.0);
        assert_eq!(line["since_start"]["windows"], 100);
        assert!(line["since_start"]["cov"].as_f64().unwrap() > 1.0);
        assert_eq!(line["packets"], 40_600);
        assert_eq!(line["end_ns"], 100 * second);
    }

    #[test]
    fn undefined_statistics_are_null_or_a_dash() {
        let mut line = json!({});
        history(1_000_000, &[Some(0), Some(0)]).put_json(&mut line);
        assert_eq!(line["since_start"]["ratio"], Value::Null);
        let text = history(1_000_000, &[Some(0), None]).text();
        assert!(text.contains("1 windows are missing") && text.contains(" -"));
        assert!(History::new(1).text().contains("no whole window"));
    }

    #[test]
    fn the_picture_shows_the_latest_windows() {
        let picture = history(1, &[Some(0), Some(1), None, Some(8)]).picture();
        assert_eq!(picture, " ▁?█");
    }
}
