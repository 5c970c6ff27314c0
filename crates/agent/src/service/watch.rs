// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detects the end of a job: of its last process, or, in a shared cgroup, of its last
//! `paceline run`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::poll::{PollFd, PollFlags};
use paceline_abi::pl_seat;
use paceline_cgroup::{Cgroup, Hierarchy};

use crate::error::Result;
use crate::kernel_side::discover;
use crate::supervise::pidfd;

/// The jobs of this host, of all users.
#[derive(Debug, Default)]
pub(super) struct Watch {
    jobs: Vec<Watched>,
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Watched {
    cgroup: Cgroup,
    events: File,
}

/// A `paceline run` of a job in a shared cgroup.
#[derive(Debug)]
struct Run {
    job: u64,
    process: u32,
    lives: OwnedFd,
}

impl Watch {
    /// Watches the jobs that exist now, and no others.
    pub fn renew(&mut self, hierarchy: &Hierarchy) {
        self.jobs.clear();
        self.runs.clear();
        for cgroup in hierarchy.job_directories() {
            self.add(cgroup);
        }
        if let Err(error) = self.find_shared(hierarchy) {
            tracing::warn!("cannot detect the end of some jobs: {error}");
        }
    }

    fn find_shared(&mut self, hierarchy: &Hierarchy) -> Result<()> {
        let Some(found) = discover::find()?.filter(discover::Found::is_ours) else {
            return Ok(());
        };
        for (id, job) in found.jobs()? {
            if job.seat == pl_seat::PL_SEAT_SHARED as u32 {
                hierarchy.by_id(id).into_iter().for_each(|at| self.add(at));
            }
        }
        for run in found.runs()? {
            // One that has ended since is not missed: its cgroup reports the end.
            if let Ok(lives) = pidfd(run.process) {
                self.runs.push(Run {
                    job: run.job,
                    process: run.process,
                    lives,
                });
            }
        }
        Ok(())
    }

    /// One more.
    pub fn add(&mut self, cgroup: Cgroup) {
        match cgroup.open_events() {
            Ok(events) => self.jobs.push(Watched { cgroup, events }),
            // Gone already, then.
            Err(error) => tracing::debug!("{error}"),
        }
    }

    /// One more `paceline run` of a job in a shared cgroup.
    pub fn add_run(&mut self, cgroup: Cgroup, process: u32, lives: OwnedFd) {
        let Ok(job) = cgroup.id() else {
            return;
        };
        if !self.jobs.iter().any(|other| other.cgroup == cgroup) {
            self.add(cgroup);
        }
        self.runs.push(Run {
            job,
            process,
            lives,
        });
    }

    /// The descriptors to poll.
    pub fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        let jobs = self.jobs.iter();
        let runs = self.runs.iter();
        jobs.map(|job| PollFd::new(job.events.as_fd(), PollFlags::POLLPRI))
            .chain(runs.map(|run| PollFd::new(run.lives.as_fd(), PollFlags::POLLIN)))
    }

    /// Whether one of those that changed, in the order of [`Watch::sources`], has no
    /// process left, or no `paceline run`.
    pub fn any_ended(&mut self, changed: &[bool]) -> bool {
        let mut ended = false;
        for (job, changed) in self.jobs.iter().zip(changed) {
            // A change is reported until the file is read at this descriptor.
            if *changed && job.events.read_at(&mut [0; 256], 0).is_err() {
                ended = true;
            }
            ended |= *changed && !job.cgroup.populated();
        }
        let mut changed = changed.get(self.jobs.len()..).unwrap_or_default().iter();
        let mut gone = Vec::new();
        let mut at = 0;
        while at < self.runs.len() {
            match changed.next() {
                Some(true) => gone.push(self.runs.remove(at)),
                _ => at += 1,
            }
        }
        ended | self.forget(&gone)
    }

    /// Whether one of these was the last of its job, as far as is known here.
    fn forget(&self, gone: &[Run]) -> bool {
        if gone.is_empty() {
            return false;
        }
        let last = |run: &&Run| !self.runs.iter().any(|other| other.job == run.job);
        if gone.iter().any(|run| last(&run)) {
            return true;
        }
        let forgotten = discover::find().and_then(|found| match found {
            Some(found) if found.is_ours() => gone
                .iter()
                .try_for_each(|run| found.delete_run(run.job, run.process)),
            _ => Ok(()),
        });
        if let Err(error) = forgotten {
            tracing::info!("{error}");
        }
        false
    }
}
