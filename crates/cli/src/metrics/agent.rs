// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent's page: requests, jobs and their connections.

use std::collections::HashMap;
use std::sync::Arc;

use paceline_agent::service::{Counted, Tally};
use paceline_agent::status::{Connection, Reader, Status};
use paceline_metrics::Page;

/// Makes the agent's pages.
pub struct Agent {
    tally: Arc<Tally>,
    reader: Reader,
    /// The connections at the last page, by their cookies.
    seen: HashMap<u64, Sent>,
    sent: Sent,
}

/// Counters of connections.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    held_acks: u64,
}

impl From<&Connection> for Sent {
    fn from(connection: &Connection) -> Self {
        Self {
            held_acks: connection.held_acks,
        }
    }
}

impl Sent {
    fn add(&mut self, now: Self, before: Self) {
        let grown = |sum: &mut u64, now: u64, before: u64| *sum += now.saturating_sub(before);
        grown(&mut self.held_acks, now.held_acks, before.held_acks);
    }
}

impl Agent {
    /// For the agent of this process.
    pub fn new(tally: Arc<Tally>) -> Self {
        Self {
            tally,
            reader: Reader::beside_agent(),
            seen: HashMap::new(),
            sent: Sent::default(),
        }
    }

    /// The page now.
    pub fn page(&mut self) -> Page {
        self.tally.begin_look();
        let state = self.reader.read().map_err(anyhow::Error::from);
        let (mut page, status) = super::begin(state);
        let counted = match &status {
            Some(status) => self.tally.look(&status.jobs),
            None => self.tally.counted(),
        };
        requests(&mut page, &counted);
        if let Some(status) = &status {
            jobs(&mut page, status);
            self.count(status);
        }
        totals(&mut page, &counted, &self.sent);
        page
    }

    fn count(&mut self, status: &Status) {
        let mut seen = HashMap::new();
        for connection in connections(status) {
            let now = Sent::from(connection);
            let before = self.seen.get(&connection.cookie);
            self.sent.add(now, before.copied().unwrap_or_default());
            seen.insert(connection.cookie, now);
        }
        self.seen = seen;
    }
}

fn connections(status: &Status) -> impl Iterator<Item = &Connection> {
    status.jobs.iter().flat_map(|job| &job.connections)
}

fn requests(page: &mut Page, counted: &Counted) {
    page.counter(
        "agent_jobs_started",
        "Jobs that the agent made, or joined a process to",
        counted.started,
    );
    page.counter(
        "agent_jobs_ended",
        "Jobs that the agent saw end",
        counted.ended,
    );
    page.counters(
        "agent_requests_refused",
        "Requests that the agent refused, by the code of the answer",
        "code",
        counted.refused.clone(),
    );
}

fn jobs(page: &mut Page, status: &Status) {
    let each = |count: fn(&paceline_agent::status::JobStatus) -> usize| {
        status
            .jobs
            .iter()
            .map(move |job| (job.policy.clone(), count(job) as f64))
    };
    page.gauges("jobs", "Jobs now, by policy", "policy", each(|_| 1));
    page.gauges(
        "connections",
        "Connections of jobs now, by policy",
        "policy",
        each(|job| job.connections.len()),
    );
    page.gauges(
        "processes",
        "Processes of jobs now, by policy",
        "policy",
        each(|job| job.processes.len()),
    );
    let open = connections(status).filter(|connection| connection.breaker_open);
    page.gauge(
        "breakers_open",
        "Connections that use the base algorithm alone for now, because their starts lost too much",
        open.count() as f64,
    );
    let earlier: usize = status.jobs.iter().map(|job| job.earlier).sum();
    page.gauge(
        "connections_with_earlier_policy",
        "Connections that did not get what paceline set has changed",
        earlier as f64,
    );
}

fn totals(page: &mut Page, counted: &Counted, sent: &Sent) {
    let all = &counted.connections;
    page.counter(
        "connections_governed",
        "Connections that got a policy",
        all.governed,
    );
    page.counter(
        "connections_refused",
        "Connections left alone because the kernel refused a setting",
        all.refused,
    );
    page.counters(
        "shortages",
        "Times a connection went without something because its job's share was used up",
        "of",
        [
            ("paths".to_owned(), all.paths_full),
            ("turns".to_owned(), all.turns_full),
            ("groups".to_owned(), all.groups_full),
            ("members".to_owned(), all.members_full),
            ("storage".to_owned(), all.no_storage),
        ],
    );
    let traffic = &all.traffic;
    let counters = [
        (
            "acked_bytes",
            "Payload that peers have acknowledged, connections that have ended included",
            traffic.bytes,
        ),
        (
            "sent_segments",
            "Segments with payload that were sent, retransmissions included",
            traffic.segments,
        ),
        (
            "retransmitted_segments",
            "Segments sent again, tail-loss probes included",
            traffic.retransmitted_segments,
        ),
        (
            "retransmission_timeouts",
            "Retransmission timeouts",
            traffic.timeouts,
        ),
        (
            "bursts",
            "Bursts that have ended, from the first transmission until all was acknowledged",
            traffic.bursts,
        ),
        (
            "paced_starts",
            "Bursts that began paced, beyond the initial window",
            traffic.starts,
        ),
        (
            "bad_starts",
            "Paced starts with more loss than the policy allows",
            traffic.bad_starts,
        ),
        (
            "breakers_opened",
            "Times a connection went back to the base algorithm for a while",
            traffic.breakers_opened,
        ),
    ];
    for (name, help, count) in counters {
        page.counter(name, help, count);
    }
    page.counter(
        "held_acks",
        "ACKs that were held back, as seen at scrapes",
        sent.held_acks,
    );
}
