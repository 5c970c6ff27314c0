// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cleaning up after jobs that ended without their `paceline run`.
//!
//! A job lives on when its `paceline` is killed: its processes, its cgroup, its entry and its
//! congestion control stay. The next command removes the jobs without a process.

use std::path::PathBuf;

use paceline_abi::pl_seat;
use paceline_bpf::{options, permission};
use paceline_cgroup::{Cgroup, Hierarchy, Lock};
use paceline_history::shortage;

use crate::error::Result;
use crate::kernel_side::{detach_from, discover, Ended};
use crate::{pages, running};

/// The entries that [`clean`] removed, and the live kernel side that it found.
#[derive(Debug, Default)]
pub(crate) struct Cleaned {
    /// Directories of jobs that had no process left.
    pub directories: Vec<PathBuf>,
    /// The jobs that were ended, by the ids of their cgroups, where this build can read them.
    pub ended: Vec<Ended>,
    /// The live kernel side, if jobs are left in it.
    pub found: Option<discover::Found>,
}

/// Removes the leftovers of ended jobs, as every command does that changes or shows jobs.
///
/// # Errors
/// Where the caller may not, or the kernel refuses.
pub fn clean_up() -> Result<()> {
    permission::require("paceline")?;
    let hierarchy = Hierarchy::find()?;
    let lock = hierarchy.lock()?;
    clean(&hierarchy, &lock).map(drop)
}

/// Removes the leftovers of ended jobs, and the kernel side with the last of them.
pub(crate) fn clean(hierarchy: &Hierarchy, lock: &Lock) -> Result<Cleaned> {
    let mut cleaned = clean_for_next(hierarchy, lock)?;
    if let Some(found) = cleaned.found.take_if(|found| found.job_ids().is_empty()) {
        found.retire()?;
    }
    Ok(cleaned)
}

/// The same, but a kernel side of this build stays without a job, for one that comes next.
pub(crate) fn clean_for_next(hierarchy: &Hierarchy, lock: &Lock) -> Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    pages::clean_sockets();
    let found = discover::find()?;

    // Children first: a nested job's directory keeps its parent's.
    for directory in hierarchy.job_directories().into_iter().rev() {
        // Held: its `paceline run` has not read its counts yet.
        if directory.populated() || directory.is_held() {
            continue;
        }
        match remove_job(found.as_ref(), &directory) {
            Ok(ended) => cleaned.ended.extend(ended),
            Err(error) => {
                tracing::warn!("cannot remove the leftovers of an ended job: {error}");
                continue;
            }
        }
        tracing::debug!(
            "removed {}, left by an ended job",
            directory.path().display()
        );
        cleaned.directories.push(directory.path().to_path_buf());
    }

    let Some(found) = found else {
        options::clean(|_| false);
        discover::unregister_strays()?;
        return Ok(cleaned);
    };
    for id in found.job_ids() {
        match end_shared(hierarchy, &found, id) {
            Ok(ended) => cleaned.ended.extend(ended),
            Err(error) => {
                tracing::warn!("cannot remove the leftovers of an ended job: {error}");
            }
        }
        if !hierarchy.exists(id) {
            let ended = found.delete_job(id, None)?;
            let job = ended.as_ref().map(|ended| &ended.job);
            shortage::warn(&format!("the job of cgroup {id}"), job);
            cleaned.ended.extend(ended);
            tracing::debug!("removed the entry of cgroup {id}, which is gone");
        }
    }
    let ids = found.job_ids();
    options::clean(|id| ids.contains(&id));
    if ids.is_empty() && !found.is_ours() {
        found.retire()?;
    } else {
        found.settle()?;
        found.delete_stray_policies()?;
        if let Err(error) = running::finish(hierarchy, &found, lock) {
            tracing::warn!("cannot finish what a killed paceline set began: {error}");
        }
        cleaned.found = Some(found);
    }
    Ok(cleaned)
}

/// Ends a job in a cgroup that is not its own, if none of its `paceline run`s is left.
/// Remaining processes keep their connections' settings; new connections are plain.
fn end_shared(hierarchy: &Hierarchy, found: &discover::Found, id: u64) -> Result<Option<Ended>> {
    // In another PID namespace the numbers are other processes'.
    if !found.is_ours() || !pages::in_first_pid_namespace()? {
        return Ok(None);
    }
    let shared = pl_seat::PL_SEAT_SHARED as u32;
    if found.job(id)?.is_none_or(|job| job.seat != shared) {
        return Ok(None);
    }
    let Some(cgroup) = hierarchy.by_id(id) else {
        return Ok(None);
    };
    if cgroup.populated() && found.has_run(hierarchy, id, &cgroup)? {
        return Ok(None);
    }
    release(found, &cgroup)
}

/// Takes a job's policy off a cgroup that goes on without it. Returns the job.
pub(crate) fn release(found: &discover::Found, cgroup: &Cgroup) -> Result<Option<Ended>> {
    detach_from(cgroup)?;
    let id = cgroup.id()?;
    let ended = found.delete_job(id, Some(cgroup.path()))?;
    let job = ended.as_ref().map(|ended| &ended.job);
    shortage::warn(&cgroup.path().display().to_string(), job);
    Ok(ended)
}

/// Detaches, forgets and removes one job's cgroup. Gone already is success. Returns the job.
pub(crate) fn remove_job(
    found: Option<&discover::Found>,
    cgroup: &Cgroup,
) -> Result<Option<Ended>> {
    if !cgroup.path().exists() {
        return Ok(None);
    }
    // Before the directory goes: sockets that linger keep a removed cgroup and its programs.
    detach_from(cgroup)?;
    let mut ended = None;
    if let Some(found) = found {
        let id = cgroup.id()?;
        ended = found.delete_job(id, Some(cgroup.path()))?;
        let job = ended.as_ref().map(|ended| &ended.job);
        shortage::warn(&cgroup.path().display().to_string(), job);
    }
    cgroup.remove()?;
    Ok(ended)
}

/// The cgroups of a kernel side's jobs, for messages.
pub(crate) fn describe_jobs(hierarchy: &Hierarchy, found: &discover::Found) -> String {
    let paths: Vec<String> = found
        .job_ids()
        .into_iter()
        .map(|id| match hierarchy.by_id(id) {
            Some(cgroup) => cgroup.path().display().to_string(),
            None => format!("cgroup {id}"),
        })
        .collect();
    paths.join(", ")
}
