// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy for a cgroup that exists already, and its connections.

use std::path::{Path, PathBuf};

use paceline_abi::{name_text, pl_seat};
use paceline_bpf::permission;
use paceline_cgroup::{Cgroup, Hierarchy};
use paceline_history::shortage;
use paceline_launch::identity;

use crate::error::{Error, Result};
use crate::group;
use crate::kernel_side::policies::JobPolicy;
use crate::kernel_side::{detach_from, KernelSide, OUTSIDE_PROGRAM, UNKNOWN_RUN};
use crate::options::{entry, JobOptions};
use crate::running::{in_each_namespace, Walked};
use crate::{leftovers, outside, tuning};

/// The iterator by which existing connections come under a policy.
const ADOPT_PROGRAM: &str = "pl_adopt";
/// The program that restores their former settings.
const RELEASE_PROGRAM: &str = "pl_release";

/// The result of [`attach`] or [`detach`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The cgroup's directory.
    pub cgroup: PathBuf,
    /// Existing connections that came under the policy, or went back.
    pub connections: usize,
    /// Network namespaces of the cgroup's processes that were looked through.
    pub namespaces: usize,
    /// Existing connections that were not reached: where, and why.
    pub unreachable: Vec<String>,
    /// Sockets of its processes in other cgroups, each with a remedy: the policy reaches neither
    /// them nor the connections that they accept.
    pub outside: Vec<String>,
}

/// How far [`attach`] may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not to the cgroup that holds all processes.
    Cgroup,
    /// To that, too.
    WholeHost,
}

/// Puts an existing cgroup's connections under a policy: those it has, and
/// those it will make. `options.user` has no meaning here.
///
/// # Errors
/// [`paceline_cgroup::Error::NotACgroup`], [`Error::WholeHost`], [`Error::AlreadyAttached`], and
/// failures of the kernel side. On error nothing is changed.
pub fn attach(path: &Path, options: &JobOptions, reach: Reach) -> Result<Changed> {
    permission::require("paceline attach")?;
    if let Some(name) = &options.group {
        group::check_name(name)?;
    }
    tuning::check(options)?;
    let options = &options.clone().resolved();
    let hierarchy = Hierarchy::find()?;
    let cgroup = hierarchy.named(path)?;
    if reach == Reach::Cgroup && cgroup.path() == hierarchy.mount() {
        return Err(Error::WholeHost {
            path: cgroup.path().to_path_buf(),
        });
    }
    let id = cgroup.id()?;
    let lock = hierarchy.lock()?;
    let cleaned = leftovers::clean(&hierarchy, &lock)?;
    if let Some(found) = &cleaned.found {
        found.require_ours(|| leftovers::describe_jobs(&hierarchy, found))?;
        if let Some(job) = found.job(id)? {
            return Err(Error::AlreadyAttached {
                path: cgroup.path().to_path_buf(),
                policy: name_text(&job.policy_name),
            });
        }
    }
    let attached = KernelSide::ensure(&lock, cleaned.found, options).and_then(|found| {
        let seat = pl_seat::PL_SEAT_ATTACHED;
        let job = entry(options, identity::owner(), seat);
        found.put_policy(&lock, id, &JobPolicy::begin(&options.policy, &job)?)?;
        found.put_job(&lock, id, &job)?;
        tuning::attach_options(&found, id, UNKNOWN_RUN, &options.policy)?;
        found.attach_to(&cgroup, &options.policy)?;
        let side = KernelSide::join(&found, ADOPT_PROGRAM)?;
        side.set_subject(&lock, id)?;
        let changed = changed(&cgroup, &in_each_namespace(&side, ADOPT_PROGRAM, &cgroup));
        let side = KernelSide::join(&found, OUTSIDE_PROGRAM)?;
        Ok(Changed {
            outside: outside::warnings(&hierarchy, &side.outside(&lock, id)?),
            ..changed
        })
    });
    if attached.is_err() {
        if let Some(found) = crate::kernel_side::discover::find()? {
            detach_from(&cgroup)?;
            found.delete_job(id, None)?;
        }
        leftovers::clean(&hierarchy, &lock)?;
    }
    attached
}

/// Detaches the policy from a cgroup and restores the former settings of its connections.
///
/// # Errors
/// [`Error::NotAttached`] where `attach` did not put it there. A policy of another build is
/// detached too, but existing connections keep its settings.
pub fn detach(path: &Path) -> Result<Changed> {
    permission::require("paceline detach")?;
    let hierarchy = Hierarchy::find()?;
    let cgroup = hierarchy.named(path)?;
    let id = cgroup.id()?;
    let lock = hierarchy.lock()?;
    let cleaned = leftovers::clean(&hierarchy, &lock)?;
    let not_attached = |run| Error::NotAttached {
        path: cgroup.path().to_path_buf(),
        run,
    };
    let found = cleaned.found.ok_or_else(|| not_attached(false))?;
    if !found.job_ids().contains(&id) {
        return Err(not_attached(false));
    }
    if !found.is_ours() {
        // Its records cannot be read, but its jobs can be ended: the way out of
        // an upgrade while a service is attached.
        if cgroup.is_job() {
            return Err(not_attached(true));
        }
        detach_from(&cgroup)?;
        found.delete_job(id, None)?;
        drop(found);
        leftovers::clean(&hierarchy, &lock)?;
        return Ok(Changed {
            cgroup: cgroup.path().to_path_buf(),
            connections: 0,
            namespaces: 0,
            unreachable: vec![
                "another Paceline build applied its policy to them; they keep it until they close"
                    .to_owned(),
            ],
            outside: Vec::new(),
        });
    }
    let job = found.job(id)?.ok_or_else(|| not_attached(false))?;
    if job.seat != pl_seat::PL_SEAT_ATTACHED as u32 {
        return Err(not_attached(true));
    }
    let side = KernelSide::join(&found, RELEASE_PROGRAM)?;
    // New connections first, then those that exist.
    detach_from(&cgroup)?;
    side.set_subject(&lock, id)?;
    let changed = changed(&cgroup, &in_each_namespace(&side, RELEASE_PROGRAM, &cgroup));
    let ended = found.delete_job(id, Some(cgroup.path()))?;
    let job = ended.as_ref().map(|ended| &ended.job);
    shortage::warn(&cgroup.path().display().to_string(), job);
    drop(found);
    leftovers::clean(&hierarchy, &lock)?;
    Ok(changed)
}

/// The programs write one byte per connection that they change.
fn changed(cgroup: &Cgroup, walked: &Walked) -> Changed {
    Changed {
        cgroup: cgroup.path().to_path_buf(),
        connections: walked.bytes.len(),
        namespaces: walked.namespaces,
        unreachable: walked.unreachable.clone(),
        outside: Vec::new(),
    }
}
