// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last snapshot, and the values that need more than one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use paceline_agent::status::{Connection, GroupStatus, JobStatus, Status};

use super::history::{History, Point};

/// Groups without a stream that are still shown: those that ended last.
const MOST_ENDED: usize = 16;

/// The state so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// When the last look was, since the first.
    pub at: Duration,
    /// Running jobs, oldest first.
    pub jobs: Vec<JobStatus>,
    /// By the owner's number and the name; ended ones too.
    pub groups: BTreeMap<(u32, String), SeenGroup>,
    /// By the socket's cookie, which is never another's while the host runs.
    connections: HashMap<u64, SeenConnection>,
}

/// A group, and the inflight of its streams.
#[derive(Debug, Default)]
pub struct SeenGroup {
    /// As it was when it last had a stream.
    pub last: Option<GroupStatus>,
    /// When that was.
    pub at: Duration,
    /// Since it was first seen.
    pub history: History,
}

#[derive(Debug)]
struct SeenConnection {
    acked_bytes: u64,
    /// Bits per second, between the last two looks.
    rate: Option<f64>,
}

impl Seen {
    /// Adds a look, `at` after the first one.
    pub fn add(&mut self, at: Duration, status: Status) {
        let passed_s = at.saturating_sub(self.at).as_secs_f64();
        let former = std::mem::take(&mut self.connections);
        self.at = at;
        self.connections = status
            .jobs
            .iter()
            .flat_map(|job| &job.connections)
            .map(|connection| {
                let rate = former
                    .get(&connection.cookie)
                    .filter(|_| passed_s > 0.0)
                    .map(|former| {
                        let bytes = connection.acked_bytes.saturating_sub(former.acked_bytes);
                        bytes as f64 * 8.0 / passed_s
                    });
                let acked_bytes = connection.acked_bytes;
                (connection.cookie, SeenConnection { acked_bytes, rate })
            })
            .collect();
        self.jobs = status.jobs;
        self.add_groups(at, status.groups);
    }

    fn add_groups(&mut self, at: Duration, groups: Vec<GroupStatus>) {
        for group in groups {
            let key = (group.owner_uid, group.name.clone());
            let seen = self.groups.entry(key).or_default();
            seen.last = Some(group);
            seen.at = at;
        }
        for group in self.groups.values_mut() {
            let is_there = group.at == at;
            let last = group.last.as_ref().filter(|_| is_there);
            group.history.push(Point {
                at_s: at.as_secs_f64(),
                least_segs: last.map_or(0, |last| last.inflight_least_segs),
                most_segs: last.map_or(0, |last| last.inflight_most_segs),
                total_segs: last.map_or(0, |last| last.inflight_total_segs),
            });
        }
        let mut ended: Vec<_> = self
            .groups
            .iter()
            .filter(|(_, group)| group.at != at)
            .map(|(key, group)| (group.at, key.clone()))
            .collect();
        ended.sort();
        let excess = ended.len().saturating_sub(MOST_ENDED);
        for (_, key) in &ended[..excess] {
            self.groups.remove(key);
        }
    }

    /// Rate acknowledged by the peer between the last two snapshots, payload in bits per
    /// second. None for a connection that only the last one saw.
    pub fn rate(&self, connection: &Connection) -> Option<f64> {
        self.connections.get(&connection.cookie)?.rate
    }

    /// Connections of all jobs.
    pub fn connections(&self) -> impl Iterator<Item = (&JobStatus, &Connection)> {
        let jobs = self.jobs.iter();
        jobs.flat_map(|job| {
            let connections = job.connections.iter();
            connections.map(move |connection| (job, connection))
        })
    }
}

#[cfg(test)]
pub mod tests {
    use paceline_agent::status::{KeyStatus, Origin};

    use super::*;

    /// A connection to 10.0.0.`number`.
    pub fn connection(number: u8, acked_bytes: u64) -> Connection {
        Connection {
            local: "10.0.0.1:40000".parse().unwrap(),
            remote: format!("10.0.0.{number}:5001").parse().unwrap(),
            netns: 1,
            cookie: number.into(),
            state: "established",
            congestion: "paceline_cubic".to_owned(),
            why: "3 paced starts, the last at 20.0 Mbit/s, minimum RTO 12 ms".to_owned(),
            reason: "none",
            errno: 0,
            start: "idle",
            breaker_open: false,
            breaker_opened: 0,
            starts: 3,
            bad_starts: 0,
            start_rate_bits_per_s: 20_000_000,
            cwnd_segs: 40,
            ssthresh_segs: 30,
            inflight_segs: 10 + u32::from(number),
            mss: 1448,
            srtt_us: 40_250,
            rttvar_us: 100,
            min_rtt_us: 40_000,
            rto_us: 240_000,
            rto_min_us: 12_000,
            retransmitted_segs: number.into(),
            acked_bytes,
            process: 7,
            group: Some("bulk".to_owned()),
            uwnd_segs: None,
            even_streams: 0,
            spacing_bits_per_s: 0,
            quick: "none",
            quick_acks: 0,
            held_acks: 0,
            class: 0,
            phase_switches: 0,
        }
    }

    fn key(key: &str, value: &str, origin: Origin) -> KeyStatus {
        KeyStatus {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            origin,
            age_s: 61,
        }
    }

    pub fn job(connections: Vec<Connection>) -> JobStatus {
        JobStatus {
            id: 17,
            cgroup: Some("/sys/fs/cgroup/user/paceline.99.0".into()),
            policy: "lfn".to_owned(),
            group: Some("bulk".to_owned()),
            attached: false,
            shared: false,
            age_s: 75,
            owner_uid: 1000,
            changes: vec!["minimum RTO 8 ms".to_owned()],
            generation: 1,
            keys: vec![
                key("base", "cubic", Origin::Preset),
                key("rto.least", "tick", Origin::Preset),
                key("ack.delay", "12ms", Origin::Set),
            ],
            earlier: 2,
            processes: Vec::new(),
            governed: 5,
            refused: 0,
            traffic: Default::default(),
            traffic_by_class: Default::default(),
            held_out_percent: 0,
            paths_used: 0,
            paths_full: 0,
            turns_full: 0,
            groups_full: 0,
            members_full: 0,
            no_storage: 0,
            warnings: Vec::new(),
            paths: Vec::new(),
            connections,
        }
    }

    pub fn group(name: &str, inflight: (u32, u32, u64)) -> GroupStatus {
        GroupStatus {
            name: name.to_owned(),
            owner_uid: 1000,
            streams: 3,
            bounded: 1,
            inflight_least_segs: inflight.0,
            inflight_most_segs: inflight.1,
            inflight_total_segs: inflight.2,
            acked_least_bytes: 2_000_000,
            acked_most_bytes: 5_000_000,
        }
    }

    pub fn status(jobs: Vec<JobStatus>, groups: Vec<GroupStatus>) -> Status {
        Status {
            build: String::new(),
            congestion_controls: Vec::new(),
            cleaned: Vec::new(),
            jobs,
            groups,
        }
    }

    #[test]
    fn a_rate_is_of_the_last_interval_and_of_the_connection_alone() {
        let mut seen = Seen::default();
        let look = |seen: &mut Seen, ms, connections| {
            let jobs = vec![job(connections)];
            seen.add(Duration::from_millis(ms), status(jobs, Vec::new()));
        };
        look(&mut seen, 0, vec![connection(2, 1_000_000)]);
        assert_eq!(seen.rate(&connection(2, 0)), None);
        look(&mut seen, 500, vec![connection(2, 1_500_000)]);
        assert_eq!(seen.rate(&connection(2, 0)), Some(8e6));
        // The next interval is twice as long, and another connection comes.
        look(
            &mut seen,
            1500,
            vec![connection(2, 1_500_000), connection(3, 9)],
        );
        assert_eq!(seen.rate(&connection(2, 0)), Some(0.0));
        assert_eq!(seen.rate(&connection(3, 0)), None);
        look(&mut seen, 2500, vec![connection(3, 9)]);
        assert_eq!(seen.rate(&connection(2, 0)), None, "it is gone");
    }

    #[test]
    fn a_group_that_ended_keeps_its_history_and_the_last_of_many_stay() {
        let mut seen = Seen::default();
        let groups = |names: std::ops::Range<u32>| {
            let groups = names.map(|name| group(&name.to_string(), (1, 5, 9)));
            status(Vec::new(), groups.collect())
        };
        for second in 0..100 {
            let now = groups(second..second + 2);
            seen.add(Duration::from_secs(second.into()), now);
        }
        assert_eq!(seen.groups.len(), 2 + MOST_ENDED);
        let ended = &seen.groups[&(1000, "98".to_owned())];
        assert!(ended.at < seen.at);
        let points = ended.history.points();
        let totals: Vec<u64> = points.iter().map(|point| point.total_segs).collect();
        assert_eq!(totals, [9, 9, 0], "nothing is in flight once it ended");
    }
}
