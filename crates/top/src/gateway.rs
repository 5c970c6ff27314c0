// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gateway of this host, if one runs: a line for each of its peers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use paceline_gateway::service::{status, Status};
use serde_json::Value;

use paceline_terminal::foreign;

/// Lines at most: the rest of the screen is for jobs.
const MOST: usize = 4;
/// Longest wait for a gateway's answer: one that hangs must not hold up the rest.
const PATIENCE: Duration = Duration::from_secs(1);

/// A gateway's status now; `None`: there is none, or it does not answer.
pub fn look(socket: &Path) -> Option<Status> {
    if !socket.exists() {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, status(socket)).await });
    answer.ok()?.ok()
}

/// Its status and history.
#[derive(Debug, Default)]
pub struct Gateway {
    /// To be shown.
    pub lines: Vec<String>,
    /// Of each peer: bytes of connections sent to it.
    sent: BTreeMap<String, u64>,
    at: Duration,
}

impl Gateway {
    /// Adds a look, `at` after the first one.
    pub fn see(&mut self, at: Duration, status: Option<Status>) {
        let passed_s = at.saturating_sub(self.at).as_secs_f64();
        let before = std::mem::take(&mut self.sent);
        self.at = at;
        self.lines.clear();
        let Some(status) = status else {
            return;
        };
        let name = foreign(&status.name);
        for (peer, seen) in &status.peers {
            let peer_name = foreign(peer);
            let Some(seen) = seen else {
                self.lines
                    .push(format!(" gateway {name}  {peer_name}: not connected"));
                continue;
            };
            let number = |key: &str| seen.get(key).and_then(Value::as_u64).unwrap_or(0);
            let now = number("new_bytes");
            self.sent.insert(peer.clone(), now);
            // A session that began anew counts from 0.
            let sends = before
                .get(peer)
                .filter(|before| passed_s > 0.0 && **before <= now)
                .map(|before| (now - before) as f64 * 8.0 / passed_s);
            let sends = sends.map_or("-".to_owned(), |rate| format!("{:.1}", rate / 1e6));
            let leg = match seen.get("leg").and_then(Value::as_str) {
                Some("tcp") => " by TCP",
                _ => "",
            };
            self.lines.push(format!(
                " gateway {name}  {peer_name}: {} connections{leg}, sends {sends} of {:.1} Mbit/s, \
                 round trip {:.1} ms, heard {} ms ago",
                number("connections"),
                number("rate") as f64 / 1e6,
                number("round_trip_us") as f64 / 1e3,
                number("silent_ms"),
            ));
        }
        if self.lines.len() > MOST {
            let more = self.lines.len() - (MOST - 1);
            self.lines.truncate(MOST - 1);
            self.lines
                .push(format!(" gateway {name}  {more} more peers"));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A gateway with peers; `None`: not connected.
    pub fn status(peers: &[(&str, Option<(u64, &str)>)]) -> Status {
        let peer = |(name, seen): &(&str, Option<(u64, &str)>)| {
            let seen = seen.map(|(bytes, leg)| {
                serde_json::json!({
                    "leg": leg, "connections": 3, "rate": 20_000_000, "round_trip_us": 350_100,
                    "silent_ms": 7, "new_bytes": bytes,
                })
            });
            ((*name).to_owned(), seen)
        };
        Status {
            name: "near".to_owned(),
            realtime: true,
            peers: peers.iter().map(peer).collect(),
            transparent: None,
        }
    }

    #[test]
    fn each_peer_has_a_line_with_what_it_was_sent_since_the_last_look() {
        let mut gateway = Gateway::default();
        let mut look = |second, peers: &[(&str, Option<(u64, &str)>)]| {
            let at = Duration::from_secs(second);
            gateway.see(at, Some(status(peers)));
            gateway.lines.clone()
        };
        assert_eq!(
            look(0, &[("far", Some((1_000_000, "udp"))), ("gone", None)]),
            [
                " gateway near  far: 3 connections, sends - of 20.0 Mbit/s, round trip 350.1 ms, \
                 heard 7 ms ago",
                " gateway near  gone: not connected"
            ]
        );
        let lines = look(2, &[("far", Some((2_500_000, "tcp")))]);
        assert!(
            lines[0].contains("3 connections by TCP, sends 6.0 of 20.0"),
            "{lines:?}"
        );
        let lines = look(3, &[("far", Some((5, "tcp")))]);
        assert!(lines[0].contains("sends - of"), "a new session: {lines:?}");
        let many = ["a", "b", "c", "d", "e", "f"].map(|name| (name, None));
        let lines = look(4, &many);
        assert_eq!(lines.len(), MOST);
        assert_eq!(lines[3], " gateway near  3 more peers");
        gateway.see(Duration::from_secs(5), None);
        assert!(gateway.lines.is_empty());
    }
}
