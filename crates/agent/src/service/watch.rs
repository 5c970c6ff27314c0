// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Noticing that a job's last process has ended.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use nix::poll::{PollFd, PollFlags};

use crate::cgroup::{Cgroup, Hierarchy};

/// The jobs of this host, whoever started them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    jobs: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    cgroup: Cgroup,
    events: File,
}

impl Watch {
    /// Watches the jobs that exist now, and no others.
    pub fn renew(&mut self, hierarchy: &Hierarchy) {
        self.jobs.clear();
        for cgroup in hierarchy.job_directories() {
            self.add(cgroup);
        }
    }

    /// One more.
    pub fn add(&mut self, cgroup: Cgroup) {
        match cgroup.open_events() {
            Ok(events) => self.jobs.push(Watched { cgroup, events }),
            // Gone already, then.
            Err(error) => tracing::debug!("{error}"),
        }
    }

    /// What to poll for.
    pub fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.jobs
            .iter()
            .map(|job| PollFd::new(job.events.as_fd(), PollFlags::POLLPRI))
    }

    /// Whether one of those that changed, in the order of [`Watch::sources`], has no
    /// process left.
    pub fn any_ended(&self, changed: &[bool]) -> bool {
        let mut ended = false;
        for (job, changed) in self.jobs.iter().zip(changed) {
            // A change is reported until the file is read at this descriptor.
            if *changed && job.events.read_at(&mut [0; 256], 0).is_err() {
                ended = true;
            }
            ended |= *changed && !job.cgroup.populated();
        }
        ended
    }
}
