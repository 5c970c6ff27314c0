// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of a running agent: requests, and the results of this host's jobs.
//!
//! The kernel side counts per job and forgets a job with its end. Here the counts go on: those
//! of a job are added as they are seen, and once more when the agent sees it end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_history::{Counts, History, Record, Traffic};

use crate::kernel_side::Ended;
use crate::status::JobStatus;

/// Connections of jobs, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// Got a policy.
    pub governed: u64,
    /// Were left alone, because the kernel refused a setting.
    pub refused: u64,
    /// Had no start-up law, because their job had no path left for them.
    pub paths_full: u64,
    /// Messages that did not wait for their turn, because the job had no turn left.
    pub turns_full: u64,
    /// Came into no group, because the job had no group left.
    pub groups_full: u64,
    /// Came into no group, because that could have no more.
    pub members_full: u64,
    /// Were left alone, because the kernel had no memory for them.
    pub no_storage: u64,
    /// Their traffic.
    pub traffic: Traffic,
}

/// The counts since the agent has started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// Jobs that it made, or joined a process to.
    pub started: u64,
    /// Jobs that it saw end.
    pub ended: u64,
    /// Requests that it refused, by their code.
    pub refused: BTreeMap<String, u64>,
    /// Of all jobs of this host that it has seen.
    pub connections: Connections,
}

/// Shared by the agent and the readers of the counts.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counted: Counted,
    /// The jobs at the last look, with their counts.
    seen: HashMap<u64, Connections>,
    /// During a look: jobs that have ended since, which the look may still show.
    looking: Option<HashSet<u64>>,
    /// Those that have ended.
    history: History,
}

impl Tally {
    /// With the records of ended jobs.
    pub(super) fn new(history: History) -> Self {
        Self(Mutex::new(Inner {
            history,
            ..Inner::default()
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Precedes the read of the status for [`Tally::look`]. One thread does both.
    pub fn begin_look(&self) {
        self.lock().looking = Some(HashSet::new());
    }

    /// Adds the jobs' counts since the last look, and returns all counts.
    pub fn look(&self, jobs: &[JobStatus]) -> Counted {
        let mut inner = self.lock();
        let ended = inner.looking.take().unwrap_or_default();
        let mut seen = HashMap::new();
        for job in jobs.iter().filter(|job| !ended.contains(&job.id)) {
            let before = inner.seen.get(&job.id).copied().unwrap_or_default();
            let now = Connections::from(job).at_least(before);
            inner.counted.connections.add(now, before);
            seen.insert(job.id, now);
        }
        inner.seen = seen;
        inner.counted.clone()
    }

    /// The counts without a look at the jobs.
    pub fn counted(&self) -> Counted {
        self.lock().counted.clone()
    }

    pub(super) fn started(&self) {
        self.lock().counted.started += 1;
    }

    pub(super) fn refused(&self, code: String) {
        *self.lock().counted.refused.entry(code).or_default() += 1;
    }

    pub(super) fn ended(&self, jobs: Vec<Ended>) {
        let mut inner = self.lock();
        for ended in jobs {
            let id = ended.record.job;
            let before = inner.seen.remove(&id).unwrap_or_default();
            inner
                .counted
                .connections
                .add(Connections::from(&ended), before);
            inner.counted.ended += 1;
            if let Some(looking) = &mut inner.looking {
                looking.insert(id);
            }
            if let Err(error) = inner.history.push(ended.record) {
                tracing::warn!("cannot write the history of ended jobs: {error}");
            }
        }
    }

    /// The counts of a job that has ended a short while ago.
    pub(super) fn of_ended(&self, job: u64) -> Option<Counts> {
        self.lock().history.of(0, job).map(|record| record.counts)
    }

    /// The ended jobs that a user may see, the newest first.
    pub(super) fn history(&self, user: u32) -> Vec<Record> {
        self.lock().history.all_of(user).cloned().collect()
    }
}

impl Connections {
    fn add(&mut self, now: Self, before: Self) {
        let grown = |sum: &mut u64, now: u64, before: u64| *sum += now.saturating_sub(before);
        grown(&mut self.governed, now.governed, before.governed);
        grown(&mut self.refused, now.refused, before.refused);
        grown(&mut self.paths_full, now.paths_full, before.paths_full);
        grown(&mut self.turns_full, now.turns_full, before.turns_full);
        grown(&mut self.groups_full, now.groups_full, before.groups_full);
        grown(
            &mut self.members_full,
            now.members_full,
            before.members_full,
        );
        grown(&mut self.no_storage, now.no_storage, before.no_storage);
        self.traffic += now.traffic.since(before.traffic);
    }

    /// Not less traffic than before: what a connection adds up while it is looked at is seen
    /// once at least, but not at each look.
    fn at_least(self, before: Self) -> Self {
        Self {
            traffic: self.traffic.at_least(before.traffic),
            ..self
        }
    }
}

impl From<&JobStatus> for Connections {
    fn from(job: &JobStatus) -> Self {
        Self {
            governed: job.governed,
            refused: job.refused,
            paths_full: job.paths_full,
            turns_full: job.turns_full,
            groups_full: job.groups_full,
            members_full: job.members_full,
            no_storage: job.no_storage,
            traffic: job.traffic,
        }
    }
}

impl From<&Ended> for Connections {
    fn from(Ended { job, record }: &Ended) -> Self {
        Self {
            governed: job.connections,
            refused: job.refused,
            paths_full: job.full.paths,
            turns_full: job.full.turns,
            groups_full: job.full.groups,
            members_full: job.full.members,
            no_storage: job.full.storage,
            traffic: record.counts.traffic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(id: u64, connections: u64, bytes: u64) -> Ended {
        let job = paceline_abi::pl_job {
            connections,
            ..Default::default()
        };
        let mut record = Record {
            job: id,
            cgroup: None,
            owner_uid: 1000,
            policy: "lfn".to_owned(),
            started_unix_s: 1,
            ended_unix_s: Some(2),
            counts: Counts::from(&job),
            phases: BTreeMap::new(),
            held_out_percent: 0,
            trials: Vec::new(),
        };
        record.counts.traffic.bytes = bytes;
        Ended { job, record }
    }

    #[test]
    fn counts_of_an_ended_job_are_added_once() {
        let tally = Tally::default();
        let before = Connections::from(&ended(7, 3, 100));
        tally.0.lock().unwrap().seen.insert(7, before);
        tally.ended(vec![ended(7, 5, 150), ended(8, 10, 1)]);
        let counted = tally.counted();
        // The look that has seen 3 of them has counted these.
        assert_eq!(counted.connections.governed, 2 + 10);
        assert_eq!(counted.connections.traffic.bytes, 50 + 1);
        assert_eq!(counted.ended, 2);
        assert_eq!(tally.of_ended(8).map(|counts| counts.governed), Some(10));
        assert_eq!(tally.of_ended(9), None);
        assert_eq!(tally.history(1000).len(), 2);
        assert_eq!(tally.history(1001).len(), 0);
    }

    #[test]
    fn a_look_counts_no_job_that_has_ended_meanwhile() {
        let tally = Tally::default();
        tally.begin_look();
        tally.ended(vec![ended(7, 5, 0)]);
        let inner = tally.0.lock().unwrap();
        assert!(inner
            .looking
            .as_ref()
            .is_some_and(|ended| ended.contains(&7)));
        assert_eq!(inner.counted.connections.governed, 5);
    }

    #[test]
    fn late_samples_are_not_counted_twice() {
        let before = Connections::from(&ended(7, 1, 100));
        let dip = Connections::from(&ended(7, 1, 60)).at_least(before);
        let mut sum = Connections::default();
        sum.add(dip, before);
        sum.add(Connections::from(&ended(7, 1, 110)), dip);
        assert_eq!(sum.traffic.bytes, 10);
    }
}
