// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts of all connections of a job, by destination, and as text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use paceline_agent::status::rate;
use paceline_terminal::foreign;
use serde::Serialize;

use crate::judge::{Limit, Verdict};

/// Destinations in the text; --json has them all.
const MOST_DESTINATIONS: usize = 20;

/// A connection and its limit.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// Congestion control.
    pub congestion: String,
    /// The parts of the job's policy that are not in effect, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_in_effect: Option<String>,
    /// Its limit, and the evidence.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// All connections to one host.
#[derive(Debug, Clone, Serialize)]
pub struct Destination {
    /// The host.
    pub peer: IpAddr,
    /// Payload acknowledged, all together, bits per second.
    pub sent_bits_per_s: u64,
    /// Payload received, all together, bits per second.
    pub received_bits_per_s: u64,
    /// Its connections, those that can be helped first.
    pub connections: Vec<Judged>,
}

/// All of a job.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Id of the job's cgroup.
    pub job: u64,
    /// The cgroup's directory, where it is known.
    pub cgroup: Option<PathBuf>,
    /// Name of its policy.
    pub policy: String,
    /// Between the first look and the last one.
    pub seconds: f64,
    /// Number of looks.
    pub looks: usize,
    /// Those with a connection that can be helped first.
    pub destinations: Vec<Destination>,
    /// Connections that were not there all the time, and are not judged.
    pub passing: usize,
    /// Remarks about the job as a whole.
    pub notes: Vec<String>,
}

/// Connections by their destination, the worst first.
pub fn by_destination(connections: Vec<Judged>) -> Vec<Destination> {
    let mut by_peer: BTreeMap<IpAddr, Vec<Judged>> = BTreeMap::new();
    for connection in connections {
        let peer = connection.remote.ip();
        by_peer.entry(peer).or_default().push(connection);
    }
    let of = |(peer, mut connections): (IpAddr, Vec<Judged>)| {
        connections.sort_by(worse);
        let sum = |of: fn(&Verdict) -> u64| connections.iter().map(|one| of(&one.verdict)).sum();
        Destination {
            peer,
            sent_bits_per_s: sum(|verdict| verdict.sent_bits_per_s),
            received_bits_per_s: sum(|verdict| verdict.received_bits_per_s),
            connections,
        }
    };
    let mut destinations: Vec<Destination> = by_peer.into_iter().map(of).collect();
    destinations.sort_by(|one, other| worse(&one.connections[0], &other.connections[0]));
    destinations
}

/// Order of the report: by limit, then by its extent.
fn worse(one: &Judged, other: &Judged) -> std::cmp::Ordering {
    let limits = one.verdict.limit.cmp(&other.verdict.limit);
    limits.then_with(|| weight(&other.verdict).total_cmp(&weight(&one.verdict)))
}

fn weight(verdict: &Verdict) -> f64 {
    match verdict.limit {
        Limit::ReceiveWindow => verdict.shares.receive_window,
        Limit::SendBuffer => verdict.shares.send_buffer,
        Limit::Loss => verdict.retransmitted_segs.into(),
        _ => (verdict.sent_bits_per_s + verdict.received_bits_per_s) as f64,
    }
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let place = match &self.cgroup {
            Some(path) => foreign(&path.display().to_string()),
            None => "cgroup not visible from here".to_owned(),
        };
        let count = |of: &Destination| of.connections.len();
        let _ = writeln!(
            text,
            "job {} ({place}), policy {}: {} connections, {} looks in {:.1} s",
            self.job,
            foreign(&self.policy),
            self.destinations.iter().map(count).sum::<usize>(),
            self.looks,
            self.seconds,
        );
        for destination in self.destinations.iter().take(MOST_DESTINATIONS) {
            destination.write(&mut text);
        }
        if let Some(more) = self.destinations.len().checked_sub(MOST_DESTINATIONS + 1) {
            let _ = writeln!(
                text,
                "and {} more destinations: --json has them all",
                more + 1
            );
        }
        if self.passing > 0 {
            let _ = writeln!(
                text,
                "not judged: {} connections that were not there all the time",
                self.passing
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", foreign(note));
        }
        text
    }
}

impl Destination {
    /// One paragraph for each kind of limit, with the connection that shows it best.
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n{}: {} sent, {} received",
            self.peer,
            rate(self.sent_bits_per_s),
            rate(self.received_bits_per_s)
        );
        let mut kinds: Vec<(Limit, Option<&str>)> = Vec::new();
        for connection in &self.connections {
            let kind = connection.kind();
            if kinds.contains(&kind) {
                continue;
            }
            kinds.push(kind);
            let alike = self.connections.iter().filter(|one| one.kind() == kind);
            let verdict = &connection.verdict;
            let _ = writeln!(text, "  {} x {}", alike.count(), verdict.limit.name());
            let _ = writeln!(
                text,
                "    {} to {}: {}",
                connection.local, connection.remote, verdict.evidence
            );
            if let Some(remedy) = &verdict.remedy {
                let _ = writeln!(text, "    -> {remedy}");
            }
            if let Some(lacks) = &connection.not_in_effect {
                let _ = writeln!(text, "    policy: {}", foreign(lacks));
            }
        }
    }
}

impl Judged {
    fn kind(&self) -> (Limit, Option<&str>) {
        (self.verdict.limit, self.not_in_effect.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Shares;

    fn judged(peer: u8, limit: Limit, receive_window: f64) -> Judged {
        Judged {
            local: ([10, 0, 0, 1], 4000).into(),
            remote: ([10, 0, 0, peer], 5000).into(),
            congestion: "cubic".to_owned(),
            not_in_effect: None,
            verdict: Verdict {
                limit,
                shares: Shares {
                    busy: 1.0,
                    receive_window,
                    send_buffer: 0.0,
                },
                sent_bits_per_s: 1_000_000,
                received_bits_per_s: 0,
                retransmitted_segs: 0,
                timeouts: 0,
                evidence: format!("{:.0} %", receive_window * 100.0),
                remedy: None,
            },
        }
    }

    fn report(connections: Vec<Judged>) -> Report {
        Report {
            job: 4711,
            cgroup: None,
            policy: "lfn".to_owned(),
            seconds: 1.0,
            looks: 11,
            destinations: by_destination(connections),
            passing: 0,
            notes: Vec::new(),
        }
    }

    #[test]
    fn limits_with_a_remedy_come_first_and_equal_ones_are_merged() {
        let report = report(vec![
            judged(2, Limit::Network, 0.0),
            judged(3, Limit::Idle, 0.0),
            judged(3, Limit::ReceiveWindow, 0.7),
            judged(3, Limit::ReceiveWindow, 0.9),
        ]);
        let peers: Vec<String> = report
            .destinations
            .iter()
            .map(|destination| destination.peer.to_string())
            .collect();
        assert_eq!(peers, ["10.0.0.3", "10.0.0.2"]);
        let text = report.text();
        assert!(text.contains("4 connections"), "{text}");
        assert!(text.contains("2 x the receiver's window\n"), "{text}");
        assert!(
            text.contains(": 90 %") && !text.contains(": 70 %"),
            "{text}"
        );
        assert!(text.contains("3.0 Mbit/s sent"), "{text}");
    }

    #[test]
    fn the_list_is_bounded() {
        let many = (0..30).map(|peer| judged(peer, Limit::Network, 0.0));
        let text = report(many.collect()).text();
        assert_eq!(text.matches("x the network").count(), MOST_DESTINATIONS);
        assert!(text.contains("and 10 more destinations"), "{text}");
    }
}
