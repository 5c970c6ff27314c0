// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A group's rounds, without I/O or clock: pending reports, received reports, resulting
//! windows.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::algorithm::{lease, Algorithm, Choice, Limits, Stream, StreamId};
use crate::local::{Cap, StreamSample};
use crate::reach::Reach;
use crate::status::{ClientStatus, GroupStatus, History, Progress, RoundRecord};

/// A client that was late in so many rounds is not waited for until it is in time again.
const LATE_ROUNDS: u32 = 3;
/// How long a round waits for reports, as a share of the period, and its bounds.
const WAIT_SHARE: u32 = 2;
const WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A client of the group.
#[derive(Debug)]
pub(crate) struct Member {
    pub host: String,
    pub streams: Vec<Stream>,
    reach: Reach,
    /// When it last reported.
    pub last_report: Duration,
    /// The last round that it reported in.
    reported: u64,
    waited: bool,
    late_in_a_row: u32,
    pub late: u64,
}

/// The windows of one client at the end of a round.
#[derive(Debug)]
pub(crate) struct Orders {
    pub client: u32,
    pub caps: Vec<Cap>,
}

/// A report that no honest client sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub &'static str);

pub(crate) struct Group {
    pub choice: Choice,
    algorithm: Box<dyn Algorithm>,
    fixed_period: Option<Duration>,
    pub members: BTreeMap<u32, Member>,
    pub round: u64,
    begun: Option<Duration>,
    pub history: History,
}

impl Group {
    pub fn new(choice: Choice, fixed_period: Option<Duration>) -> Self {
        Self {
            algorithm: choice.start(),
            choice,
            fixed_period,
            members: BTreeMap::new(),
            round: 0,
            begun: None,
            history: History::default(),
        }
    }

    /// Another algorithm, in its initial state.
    pub fn set(&mut self, choice: Choice) {
        self.algorithm = choice.start();
        self.choice = choice;
    }

    pub fn beliefs(&self) -> Vec<String> {
        self.algorithm.beliefs()
    }

    pub fn join(&mut self, client: u32, host: String, now: Duration) {
        let member = Member {
            host,
            streams: Vec::new(),
            reach: Reach::default(),
            last_report: now,
            // Polls that were sent before it came are not for it.
            reported: self.round,
            waited: false,
            late_in_a_row: 0,
            late: 0,
        };
        self.members.insert(client, member);
    }

    pub fn streams(&self) -> usize {
        self.members.values().map(|m| m.streams.len()).sum()
    }

    pub fn period(&self) -> Duration {
        self.fixed_period
            .unwrap_or_else(|| self.choice.period_of(&*self.algorithm))
    }

    pub fn lease(&self) -> Duration {
        lease(self.period())
    }

    /// Begins a round: returns its number, and the deadline of reports.
    pub fn begin(&mut self, now: Duration) -> (u64, Duration) {
        self.round += 1;
        self.begun = Some(now);
        for member in self.members.values_mut() {
            member.waited = member.late_in_a_row < LATE_ROUNDS;
        }
        let wait = (self.period() / WAIT_SHARE).clamp(WAIT.0, WAIT.1);
        (self.round, now + wait)
    }

    /// A round is under way, and no report is pending.
    pub fn complete(&self) -> bool {
        self.begun.is_some() && !self.members.values().any(|member| member.waited)
    }

    /// Takes a report, also a late one: it is better than an older one.
    pub fn report(
        &mut self,
        client: u32,
        round: u64,
        taken_us: u64,
        samples: Vec<StreamSample>,
        now: Duration,
    ) -> Result<(), Violation> {
        let current = self.round;
        let Some(member) = self.members.get_mut(&client) else {
            return Err(Violation("not a member of the group"));
        };
        if round > current {
            return Err(Violation("a report for a round that has not begun"));
        }
        if round <= member.reported {
            return Err(Violation("a second report for a round"));
        }
        member.reported = round;
        member.last_report = now;
        if round == current && self.begun.is_some() {
            member.waited = false;
            member.late_in_a_row = 0;
        }
        let taken = Duration::from_micros(taken_us);
        member.streams.clear();
        member
            .streams
            .extend(samples.into_iter().map(|sample| Stream {
                id: StreamId {
                    client,
                    cookie: sample.cookie,
                },
                taken,
                sample,
            }));
        // One stream, one window. The choice of two samples affects only this client.
        member.streams.sort_by_key(|stream| stream.id.cookie);
        member.streams.dedup_by_key(|stream| stream.id.cookie);
        let samples = member.streams.iter().map(|stream| &stream.sample);
        member.reach.look(taken, samples);
        Ok(())
    }

    /// Ends a round with the reports so far. Returns each client's windows.
    pub fn finish(&mut self, now: Duration) -> Vec<Orders> {
        let begun = self.begun.take().unwrap_or(now);
        let mut reported = 0;
        for member in self.members.values_mut() {
            reported += usize::from(member.reported == self.round);
            if std::mem::take(&mut member.waited) {
                member.late += 1;
                member.late_in_a_row += 1;
            }
        }
        let mut streams = Vec::with_capacity(self.streams());
        for member in self.members.values() {
            streams.extend(member.streams.iter().cloned());
        }
        let limits = self.algorithm.round(now, &streams);
        debug_assert_eq!(limits.len(), streams.len());
        let record = self.record(begun, reported, &streams, &limits);
        self.history.add(record);
        let mut limits = limits.into_iter();
        let mut orders = Vec::with_capacity(self.members.len());
        for (client, member) in &self.members {
            let caps = member
                .streams
                .iter()
                .zip(&mut limits)
                .map(|(stream, limits)| {
                    let cap = Cap {
                        cookie: stream.id.cookie,
                        min_segs: limits.min_segs,
                        max_segs: limits.max_segs,
                    };
                    member.reach.hold(&stream.sample, cap)
                })
                .collect();
            orders.push(Orders {
                client: *client,
                caps,
            });
        }
        orders
    }

    /// The round that ends with these windows.
    fn record(
        &self,
        begun: Duration,
        reported: usize,
        streams: &[Stream],
        limits: &[Limits],
    ) -> RoundRecord {
        let inflight = || streams.iter().map(|s| s.sample.inflight_segs);
        let total: u64 = inflight().map(u64::from).sum();
        let (min, max) = (inflight().min().unwrap_or(0), inflight().max().unwrap_or(0));
        let mean = total as f64 / streams.len().max(1) as f64;
        let far = |stream: &&Stream| {
            let acked = stream.sample.acked_bytes as f64;
            match stream.sample.total_bytes {
                0 => acked,
                total => acked / total as f64,
            }
        };
        let progress = |stream: &Stream| Progress {
            host: self
                .members
                .get(&stream.id.client)
                .map(|member| member.host.clone())
                .unwrap_or_default(),
            cookie: stream.id.cookie,
            acked_bytes: stream.sample.acked_bytes,
            total_bytes: stream.sample.total_bytes,
        };
        let compare = |a: &&Stream, b: &&Stream| far(a).total_cmp(&far(b));
        RoundRecord {
            round: self.round,
            time_s: begun.as_secs_f64(),
            algorithm: self.choice.to_string(),
            clients: self.members.len(),
            reported,
            streams: streams.len(),
            inflight_min: min,
            inflight_max: max,
            inflight_mean: mean,
            inflight_total: total,
            inflight_spread: match total {
                0 => 0.0,
                _ => f64::from(max - min) / mean,
            },
            limit_total: limits.iter().map(|l| u64::from(l.max_segs)).sum(),
            acked_bytes: streams.iter().map(|s| s.sample.acked_bytes).sum(),
            retransmitted_segs: streams.iter().map(|s| s.sample.retransmitted_segs).sum(),
            recovering: streams.iter().filter(|s| s.sample.recovering).count(),
            fastest: streams.iter().max_by(compare).map(progress),
            slowest: streams.iter().min_by(compare).map(progress),
        }
    }

    /// Its entry in `status`; `history`: with all of its last rounds.
    pub fn status(&self, name: &str, now: Duration, history: bool) -> GroupStatus {
        GroupStatus {
            group: name.to_owned(),
            algorithm: self.choice.to_string(),
            beliefs: self.beliefs(),
            period_s: self.period().as_secs_f64(),
            lease_s: self.lease().as_secs_f64(),
            latency: self.history.latency(),
            clients: self
                .members
                .values()
                .map(|member| ClientStatus {
                    host: member.host.clone(),
                    streams: member.streams.len(),
                    silent_s: now.saturating_sub(member.last_report).as_secs_f64(),
                    late: member.late,
                })
                .collect(),
            last: self.history.last().cloned(),
            history: match history {
                true => self.history.records().cloned().collect(),
                false => Vec::new(),
            },
        }
    }

    /// Clients that have not reported for so long.
    pub fn silent(&self, now: Duration, timeout: Duration) -> Vec<u32> {
        self.members
            .iter()
            .filter(|(_, member)| now.saturating_sub(member.last_report) > timeout)
            .map(|(client, _)| *client)
            .collect()
    }
}
