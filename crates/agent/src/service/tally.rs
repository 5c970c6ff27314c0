// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the agent counts while it runs: requests, and what became of the jobs of this host.
//!
//! The kernel side counts per job and forgets a job with its end. Here the counts go on: those
//! of a job are added as they are seen, and once more when the agent sees it end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_abi::pl_job;

use crate::status::JobStatus;
use crate::verdict::Counts;

/// Ended jobs whose counts can still be asked for: those of the last moments, for a scheduler
/// whose step has just ended.
const MOST_ENDED: usize = 1024;

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

/// Shared by the agent and whoever shows the counts.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counted: Counted,
    /// The jobs that were there at the last look, and what they had counted.
    seen: HashMap<u64, Connections>,
    /// While somebody looks: jobs that have ended since, which the look may still show.
    looking: Option<HashSet<u64>>,
    /// Those that ended last, the newest at the end.
    ended: VecDeque<(u64, Counts)>,
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the status is read that [`Tally::look`] is told of. One thread does both.
    pub fn begin_look(&self) {
        self.lock().looking = Some(HashSet::new());
    }

    /// Adds what the jobs have counted since the last look, and returns all counts.
    pub fn look(&self, jobs: &[JobStatus]) -> Counted {
        let mut inner = self.lock();
        let ended = inner.looking.take().unwrap_or_default();
        let mut seen = HashMap::new();
        for job in jobs.iter().filter(|job| !ended.contains(&job.id)) {
            let now = Connections::from(job);
            let before = inner.seen.get(&job.id).copied().unwrap_or_default();
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

    pub(super) fn ended(&self, jobs: &[(u64, pl_job)]) {
        let mut inner = self.lock();
        for (id, job) in jobs {
            let before = inner.seen.remove(id).unwrap_or_default();
            inner
                .counted
                .connections
                .add(Connections::from(job), before);
            inner.counted.ended += 1;
            if let Some(looking) = &mut inner.looking {
                looking.insert(*id);
            }
            if inner.ended.len() == MOST_ENDED {
                inner.ended.pop_front();
            }
            inner.ended.push_back((*id, Counts::from(job)));
        }
    }

    /// The counts of a job that has ended a short while ago.
    pub(super) fn of_ended(&self, job: u64) -> Option<Counts> {
        let inner = self.lock();
        let found = inner.ended.iter().rev().find(|(id, _)| *id == job);
        found.map(|(_, counts)| *counts)
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
        }
    }
}

impl From<&pl_job> for Connections {
    fn from(job: &pl_job) -> Self {
        Self {
            governed: job.connections,
            refused: job.refused,
            paths_full: job.full.paths,
            turns_full: job.full.turns,
            groups_full: job.full.groups,
            members_full: job.full.members,
            no_storage: job.full.storage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(connections: u64) -> pl_job {
        pl_job {
            connections,
            ..Default::default()
        }
    }

    #[test]
    fn what_an_ended_job_had_is_counted_once() {
        let tally = Tally::default();
        tally
            .0
            .lock()
            .unwrap()
            .seen
            .insert(7, Connections::from(&job(3)));
        tally.ended(&[(7, job(5)), (8, job(10))]);
        let counted = tally.counted();
        // The look that has seen 3 of them has counted these.
        assert_eq!(counted.connections.governed, 2 + 10);
        assert_eq!(counted.ended, 2);
        assert_eq!(tally.of_ended(8).map(|counts| counts.governed), Some(10));
        assert_eq!(tally.of_ended(9), None);
    }

    #[test]
    fn a_look_counts_no_job_that_has_ended_meanwhile() {
        let tally = Tally::default();
        tally.begin_look();
        tally.ended(&[(7, job(5))]);
        let inner = tally.0.lock().unwrap();
        assert!(inner
            .looking
            .as_ref()
            .is_some_and(|ended| ended.contains(&7)));
        assert_eq!(inner.counted.connections.governed, 5);
    }

    #[test]
    fn ended_jobs_are_remembered_in_bounds() {
        let tally = Tally::default();
        for id in 0..10 * MOST_ENDED as u64 {
            tally.ended(&[(id, job(1))]);
        }
        assert_eq!(tally.0.lock().unwrap().ended.len(), MOST_ENDED);
        assert!(tally.of_ended(0).is_none());
        // Nobody looks: nothing is kept for a look.
        assert!(tally.0.lock().unwrap().looking.is_none());
    }
}
