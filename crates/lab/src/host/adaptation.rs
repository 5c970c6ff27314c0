// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Paceline job in which the senders' sockets are made, where the variant has a
//! policy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use paceline_agent::job::{self, JobOptions};
use paceline_experiment::plan::{Adaptation, PolicySource};
use paceline_net::connection::Congestion;
use paceline_net::Doing;
use paceline_policy::Policy;

use crate::CaseError;

/// The group name of jobs with coordinated streams.
pub const GROUP: &str = "lab";

/// The policy of the senders' jobs, if they have one.
fn policy(adaptation: &Adaptation) -> Result<Option<Policy>, CaseError> {
    let policy = match &adaptation.policy {
        None => return Ok(None),
        Some(PolicySource::Preset(name)) => Policy::load(name),
        Some(PolicySource::Text { file, text }) => Policy::parse(text, file),
    };
    policy.map(Some).map_err(|error| CaseError::Policy {
        message: error.to_string(),
    })
}

/// Whether the adaptation's jobs follow the phases of their programs.
pub fn has_phases(adaptation: &Adaptation) -> Result<bool, CaseError> {
    Ok(policy(adaptation)?.is_some_and(|policy| job::has_phases(&policy)))
}

/// The congestion control that the senders' connections are to have.
pub fn congestion(adaptation: &Adaptation) -> Result<Congestion, CaseError> {
    let of_policy = policy(adaptation)?.and_then(|policy| match policy.wraps() {
        true => policy.base.congestion_control(),
        false => policy.base.kernel_name(),
    });
    let asked = adaptation.congestion.clone();
    Ok(Congestion {
        expected: of_policy.map(str::to_owned).or_else(|| asked.clone()),
        asked,
    })
}

/// A Paceline job for as long as it is needed. The path state of the start-up law is kept per
/// host within it, so one job can serve several sender hosts.
pub struct Job {
    job: Option<job::Job>,
    /// Keeps the job's cgroup populated: an empty one is a leftover to the agent.
    holder: Child,
    /// The job's, and this process's former one.
    cgroups: [PathBuf; 2],
}

impl Job {
    /// A job with the adaptation's policy; `None` if it has no policy.
    pub fn start(adaptation: &Adaptation) -> Result<Option<Arc<Self>>, CaseError> {
        let Some(policy) = policy(adaptation)? else {
            return Ok(None);
        };
        let mut options = JobOptions::new(policy);
        options.group = adaptation.coordinate.as_ref().map(|_| GROUP.to_owned());
        let home = own_cgroup()?;
        // ip reads commands until its input ends, which is when this process drops
        // its end of the pipe, however it dies.
        let mut command = Command::new("ip");
        command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let (job, holder) = job::Job::start(&options, &mut command).map_err(agent)?;
        let cgroups = [job.path().to_owned(), home];
        Ok(Some(Arc::new(Job {
            job: Some(job),
            holder,
            cgroups,
        })))
    }

    /// The job's cgroup directory.
    pub fn cgroup(&self) -> &Path {
        &self.cgroups[0]
    }

    /// Runs `work` with this process in the job's cgroup, if there is a job: the
    /// sockets that `work` makes belong to it. Moving a process takes long, so do
    /// it once for many sockets.
    pub fn inside<T>(
        job: Option<&Arc<Self>>,
        work: impl FnOnce() -> Result<T, CaseError>,
    ) -> Result<T, CaseError> {
        let Some(job) = job else { return work() };
        move_to(&job.cgroups[0])?;
        let result = work();
        move_to(&job.cgroups[1])?;
        result
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // The next job's start removes a remainder.
        drop(self.holder.wait());
        drop(self.job.take().map(job::Job::end));
    }
}

fn agent(error: impl std::fmt::Display) -> CaseError {
    CaseError::Policy {
        message: error.to_string(),
    }
}

/// This process's cgroup directory in the unified hierarchy.
fn own_cgroup() -> Result<PathBuf, CaseError> {
    let hierarchy = paceline_agent::cgroup::Hierarchy::find().map_err(agent)?;
    Ok(hierarchy.own().map_err(agent)?.path().to_owned())
}

fn move_to(cgroup: &Path) -> Result<(), CaseError> {
    let path = cgroup.join("cgroup.procs");
    // 0 means the writing process, all of its threads.
    Ok(fs::write(&path, "0").doing(format!("moving this process into {}", path.display()))?)
}
