// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows of jobs, connections and groups, and their order.

use std::cmp::Ordering;
use std::net::SocketAddr;

use paceline_agent::status::{
    milliseconds, rate, without, Connection, JobStatus, KeyStatus, Origin,
};

use super::seen::{Seen, SeenGroup};
use paceline_terminal::{age, foreign};

/// The value of a policy's key; of one that was left out, the behaviour without it.
pub fn value(key: &KeyStatus) -> String {
    match &key.value {
        Some(value) => foreign(value),
        None => without(&key.key).to_owned(),
    }
}

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Jobs,
    Connections,
    Groups,
}

/// A column.
#[derive(Debug)]
pub struct Column {
    pub title: &'static str,
    /// Characters; 0: the room that the others leave. Those columns are of text, the others
    /// of numbers, which end at its right.
    pub width: u16,
}

const fn column(title: &'static str, width: u16) -> Column {
    Column { title, width }
}

// Each of these fits into 80 characters with 16 or more for the name.
const JOBS: [Column; 9] = [
    column("JOB", 0),
    column("POLICY", 10),
    column("UID", 6),
    column("AGE", 10),
    column("PROC", 5),
    column("CONN", 5),
    column("RETR", 7),
    column("BREAKER", 7),
    column("BIT/S", 7),
];
const CONNECTIONS: [Column; 9] = [
    column("PEER", 0),
    column("CONTROL", 14),
    column("INFL", 5),
    column("CWND", 5),
    column("WIND", 5),
    column("SRTT MS", 7),
    column("BIT/S", 7),
    column("RETR", 5),
    column("CHANGES AND REASONS", 0),
];
const GROUPS: [Column; 9] = [
    column("GROUP", 0),
    column("UID", 6),
    column("STREAMS", 7),
    column("LEAST", 6),
    column("MOST", 6),
    column("TOTAL", 7),
    column("SLOWEST", 9),
    column("FASTEST", 9),
    column("RATIO", 6),
];

impl Pane {
    pub const ALL: [Pane; 3] = [Pane::Jobs, Pane::Connections, Pane::Groups];

    pub fn columns(self) -> &'static [Column] {
        match self {
            Pane::Jobs => &JOBS,
            Pane::Connections => &CONNECTIONS,
            Pane::Groups => &GROUPS,
        }
    }

    /// The column by which it is sorted at first: the oldest job, the fastest connection,
    /// the group with the most in flight.
    pub fn first_sort(self) -> usize {
        match self {
            Pane::Jobs => 3,
            Pane::Connections => 6,
            Pane::Groups => 5,
        }
    }

    /// Its rows, sorted by a column.
    pub fn rows(self, seen: &Seen, sort: usize) -> Vec<Row> {
        let mut rows: Vec<Row> = match self {
            Pane::Jobs => seen.jobs.iter().map(|one| job(seen, one)).collect(),
            Pane::Connections => seen
                .connections()
                .map(|(job, one)| connection(seen, job, one))
                .collect(),
            Pane::Groups => seen
                .groups
                .iter()
                .map(|((uid, name), one)| group(seen, *uid, name, one))
                .collect(),
        };
        // The same order each time, where the column does not say.
        rows.sort_by(|a, b| {
            let order = a.cells[sort].order.compare(&b.cells[sort].order);
            order.then_with(|| a.cells[0].order.compare(&b.cells[0].order))
        });
        rows
    }
}

/// One job, connection or group.
#[derive(Debug)]
pub struct Row {
    /// Its key, unique while it exists.
    pub key: String,
    pub cells: Vec<Cell>,
    /// Details beyond its cells, in lines.
    pub details: Vec<String>,
}

impl Row {
    /// The group that it is the row of.
    pub fn group<'a>(&self, seen: &'a Seen) -> Option<&'a SeenGroup> {
        let mut groups = seen.groups.iter();
        let found = groups.find(|((uid, name), _)| self.key == group_key(*uid, name));
        found.map(|(_, group)| group)
    }
}

fn group_key(uid: u32, name: &str) -> String {
    format!("{uid} {name}")
}

#[derive(Debug)]
pub struct Cell {
    pub text: String,
    order: Order,
}

#[derive(Debug)]
enum Order {
    Text(String),
    Peer(SocketAddr),
    /// The largest first.
    Number(f64),
}

impl Order {
    fn compare(&self, other: &Order) -> Ordering {
        match (self, other) {
            (Order::Text(a), Order::Text(b)) => a.cmp(b),
            (Order::Peer(a), Order::Peer(b)) => a.cmp(b),
            (Order::Number(a), Order::Number(b)) => b.total_cmp(a),
            // A column is of one kind.
            _ => Ordering::Equal,
        }
    }
}

fn text(text: impl AsRef<str>) -> Cell {
    let text = foreign(text.as_ref());
    let order = Order::Text(text.clone());
    Cell { text, order }
}

fn number(text: impl Into<String>, value: f64) -> Cell {
    let order = Order::Number(value);
    let text = text.into();
    Cell { text, order }
}

fn count(value: impl Into<u64>) -> Cell {
    let value = value.into();
    number(value.to_string(), value as f64)
}

/// Those that are not known yet last.
fn speed(rate: Option<f64>) -> Cell {
    match rate {
        None => number("-", -1.0),
        Some(rate) => number(short(rate), rate),
    }
}

/// At most seven characters: `487.2M`.
fn short(value: f64) -> String {
    match value {
        ..1e3 => format!("{value:.0}"),
        ..1e6 => format!("{:.1}k", value / 1e3),
        ..1e9 => format!("{:.1}M", value / 1e6),
        ..1e12 => format!("{:.2}G", value / 1e9),
        _ => format!("{:.2}T", value / 1e12),
    }
}

/// The keys by origin and age, those of `paceline set` first: the last ones may find no room.
fn keys(job: &JobStatus) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let is_set = |key: &&KeyStatus| key.origin == Origin::Set;
    let set = job.keys.iter().filter(is_set);
    for key in set.chain(job.keys.iter().filter(|key| !is_set(key))) {
        let origin = format!("{} {} ago", key.origin, age(key.age_s));
        let words = format!("{}={}", key.key, value(key));
        match groups.iter_mut().find(|(known, _)| *known == origin) {
            Some((_, keys)) => keys.push(words),
            None => groups.push((origin, vec![words])),
        }
    }
    let line = |(origin, keys): (String, Vec<String>)| format!("{origin}: {}", keys.join(", "));
    groups.into_iter().map(line).collect()
}

fn job(seen: &Seen, job: &JobStatus) -> Row {
    let connections = &job.connections;
    let retransmitted: u64 = connections
        .iter()
        .map(|connection| u64::from(connection.retransmitted_segs))
        .sum();
    let open = connections.iter().filter(|one| one.breaker_open).count();
    let opened: u64 = connections
        .iter()
        .map(|connection| u64::from(connection.breaker_opened))
        .sum();
    let rates = connections
        .iter()
        .filter_map(|connection| seen.rate(connection));
    let place = match &job.cgroup {
        Some(path) => path.display().to_string(),
        None => format!("cgroup {} (not visible from here)", job.id),
    };
    let short_place = place.rsplit('/').next().unwrap_or_default();
    let changes = match job.changes.is_empty() {
        true => "no changes".to_owned(),
        false => foreign(&job.changes.join("; ")),
    };
    // Changes and problems first: the last lines may find no room.
    let mut details = vec![
        foreign(&place),
        format!(
            "{} connections under the policy so far, {} refused by the kernel; breakers opened {opened} times",
            job.governed, job.refused
        ),
    ];
    details.extend(
        job.warnings
            .iter()
            .map(|warning| format!("warning: {}", foreign(warning))),
    );
    if job.earlier != 0 {
        let earlier = job.earlier;
        details.push(format!(
            "connections that still have an earlier policy: {earlier}"
        ));
    }
    details.push(format!("changes to each connection: {changes}"));
    details.extend(keys(job));
    Row {
        key: job.id.to_string(),
        cells: vec![
            text(job.group.as_deref().unwrap_or(short_place)),
            text(&job.policy),
            count(job.owner_uid),
            number(age(job.age_s), job.age_s as f64),
            count(job.processes.len() as u64),
            count(connections.len() as u64),
            count(retransmitted),
            number(format!("{open} open"), open as f64),
            speed(rates.reduce(|a, b| a + b)),
        ],
        details,
    }
}

fn connection(seen: &Seen, job: &JobStatus, connection: &Connection) -> Row {
    let one = connection;
    let group = one
        .group
        .as_ref()
        .map(|group| format!(", group {}", foreign(group)));
    Row {
        key: one.cookie.to_string(),
        cells: vec![
            Cell {
                text: one.remote.to_string(),
                order: Order::Peer(one.remote),
            },
            text(&one.congestion),
            count(one.inflight_segs),
            count(one.cwnd_segs),
            count(one.uwnd_segs.unwrap_or(one.cwnd_segs)),
            number(
                format!("{:.1}", f64::from(one.srtt_us) / 1e3),
                one.srtt_us.into(),
            ),
            speed(seen.rate(one)),
            count(one.retransmitted_segs),
            text(&one.why),
        ],
        details: vec![
            format!(
                "{} to {}, {}, policy {}{}",
                one.local,
                one.remote,
                one.state,
                foreign(&job.policy),
                group.unwrap_or_default()
            ),
            one.why.clone(),
            format!(
                "RTO {}, minimum RTT {}, ssthresh {}, pacing rate of the last start {}",
                milliseconds(one.rto_us),
                milliseconds(one.min_rtt_us.into()),
                match one.ssthresh_segs {
                    0x7fff_ffff => "none".to_owned(),
                    segs => segs.to_string(),
                },
                rate(one.start_rate_bits_per_s)
            ),
        ],
    }
}

fn group(seen: &Seen, uid: u32, name: &str, group: &SeenGroup) -> Row {
    let ended = group.at != seen.at;
    let mut cells = vec![text(name), count(uid)];
    let mut details = Vec::new();
    if let Some(last) = &group.last {
        let ratio = last.acked_most_bytes as f64 / last.acked_least_bytes as f64;
        let now = |value: u64| count(if ended { 0 } else { value });
        let bytes = |bytes: u64| number(format!("{}B", short(bytes as f64)), bytes as f64);
        cells.extend([
            now(last.streams as u64),
            now(last.inflight_least_segs.into()),
            now(last.inflight_most_segs.into()),
            now(last.inflight_total_segs),
            bytes(last.acked_least_bytes),
            bytes(last.acked_most_bytes),
            match ratio.is_finite() {
                true => number(format!("{ratio:.2}"), ratio),
                false => number("-", f64::INFINITY),
            },
        ]);
        details.push(match ended {
            true => format!("{}: ended", foreign(name)),
            false => format!(
                "{}: {} of {} bounded",
                foreign(name),
                last.bounded,
                last.streams
            ),
        });
    }
    Row {
        key: group_key(uid, name),
        cells,
        details,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::seen::tests as example;
    use super::*;

    fn seen() -> Seen {
        let mut seen = Seen::default();
        for (second, bytes) in [(0, 0), (1, 1_000_000)] {
            let connections = vec![
                example::connection(10, bytes),
                example::connection(9, 3 * bytes),
                example::connection(2, 2 * bytes),
            ];
            let groups = vec![example::group("bulk", (12, 20, 51))];
            let status = example::status(vec![example::job(connections)], groups);
            seen.add(Duration::from_secs(second), status);
        }
        seen
    }

    fn names(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.cells[0].text.as_str()).collect()
    }

    #[test]
    fn every_row_has_a_cell_for_each_column_and_can_be_sorted_by_it() {
        for pane in Pane::ALL {
            for sort in 0..pane.columns().len() {
                let rows = pane.rows(&seen(), sort);
                assert!(!rows.is_empty());
                assert!(rows
                    .iter()
                    .all(|row| row.cells.len() == pane.columns().len()));
            }
        }
    }

    #[test]
    fn the_fastest_are_first_and_peers_go_by_their_address() {
        let rows = Pane::Connections.rows(&seen(), Pane::Connections.first_sort());
        assert_eq!(
            names(&rows),
            ["10.0.0.9:5001", "10.0.0.2:5001", "10.0.0.10:5001"]
        );
        assert_eq!(rows[0].cells[6].text, "24.0M");
        let rows = Pane::Connections.rows(&seen(), 0);
        assert_eq!(
            names(&rows),
            ["10.0.0.2:5001", "10.0.0.9:5001", "10.0.0.10:5001"]
        );
    }

    #[test]
    fn a_job_sums_its_connections_and_a_group_has_its_ratio() {
        let cells = |pane: Pane| {
            let rows = pane.rows(&seen(), 0);
            let cells = rows[0].cells.iter().map(|cell| cell.text.clone());
            cells.collect::<Vec<_>>()
        };
        assert_eq!(
            cells(Pane::Jobs),
            ["bulk", "lfn", "1000", "1 min", "0", "3", "21", "0 open", "48.0M"]
        );
        assert_eq!(
            cells(Pane::Groups),
            ["bulk", "1000", "3", "12", "20", "51", "2.0MB", "5.0MB", "2.50"]
        );
    }

    #[test]
    fn numbers_fit_their_columns() {
        for value in [0.0, 999.0, 999_949.0, 999_949_999.0, 999e9, 12e12] {
            assert!(short(value).len() <= 7, "{}", short(value));
        }
    }
}
