// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Another policy for a running job, and its connections.
//!
//! 1. The whole policy that results is checked as a file is checked.
//! 2. One update of a map makes it the job's: new connections have it from then on. A command
//!    that is killed before has changed nothing.
//! 3. An iterator gives it to the connections that run. If the command is killed meanwhile,
//!    `status` counts those that still have an earlier one, and the next command goes on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use paceline_abi::{name_text, pl_job, pl_seat};
use paceline_bpf::permission;
use paceline_cgroup::{Hierarchy, Lock};
use paceline_net::clock::monotonic_us;
use paceline_policy::change::{follows, Assignment};
use paceline_policy::Policy;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kernel_side::discover::Found;
use crate::kernel_side::policies::Next;
use crate::kernel_side::KernelSide;
use crate::leftovers;
use crate::options::{entry, JobOptions};
use crate::point::point;
use crate::running::{self, CHANGE_PROGRAM};
use crate::tuning;

/// A job as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobName {
    /// The id of its cgroup, as `status --json` has it.
    Id(u64),
    /// The cgroup: its directory, or its path as in /proc/PID/cgroup.
    Cgroup(PathBuf),
}

impl FromStr for JobName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.parse() {
            Ok(id) => Self::Id(id),
            Err(_) => Self::Cgroup(text.into()),
        })
    }
}

impl JobName {
    /// The id of the job's cgroup; the job need not exist.
    ///
    /// # Errors
    /// Where the path is no cgroup.
    pub fn id(&self) -> Result<u64> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Cgroup(path) => Ok(Hierarchy::find()?.named(path)?.id()?),
        }
    }
}

/// The change.
#[derive(Debug, Clone)]
pub enum Change {
    /// Other values of some keys.
    Keys(Vec<Assignment>),
    /// Another policy.
    Policy(Box<Policy>),
    /// Back to the policy that the job began with.
    Reset,
}

/// The changes by [`set`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Id of the job's cgroup.
    pub job: u64,
    /// The cgroup's directory; none where this mount does not show it.
    pub cgroup: Option<PathBuf>,
    /// Name of the policy now.
    pub policy: String,
    /// One more with each change.
    pub generation: u32,
    /// Keys that have another value; none: nothing was changed.
    pub keys: Vec<KeyChange>,
    /// Running connections that have the policy now.
    pub connections: usize,
    /// Running connections that keep their former policy, because the kernel refused a
    /// setting: how many by errno.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub refused: BTreeMap<i32, usize>,
    /// Network namespaces whose connections were not reached, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unreachable: Vec<String>,
}

/// A key that has another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// As `ack.delay`.
    pub key: String,
    /// As in a policy file; none: as the kernel does.
    pub was: Option<String>,
    /// The same of its value now.
    pub is: Option<String>,
    /// Whether the connections that run have it, too.
    pub running: bool,
}

/// Changes the policy of a job and of its running connections. For root.
///
/// # Errors
/// [`Error::NoSuchJob`]; [`Error::Policy`] with all problems; failures of the kernel side. On
/// error nothing is changed.
pub fn set(job: &JobName, change: &Change) -> Result<Report> {
    permission::require("paceline set")?;
    let hierarchy = Hierarchy::find()?;
    let id = job.id()?;
    let lock = hierarchy.lock()?;
    let cleaned = leftovers::clean(&hierarchy, &lock)?;
    let no_job = || Error::NoSuchJob {
        job: id.to_string(),
    };
    let found = cleaned.found.ok_or_else(no_job)?;
    found.require_ours(|| leftovers::describe_jobs(&hierarchy, &found))?;
    let job = found.job(id)?.ok_or_else(no_job)?;
    set_found(&hierarchy, &lock, found, (id, &job), change)
}

/// The same for a user's own job, which the agent does in the user's place. The caller has
/// checked that the user may have this change.
pub(crate) fn set_own(
    hierarchy: &Hierarchy,
    user: u32,
    id: u64,
    change: &Change,
) -> Result<Report> {
    let lock = hierarchy.lock()?;
    let cleaned = leftovers::clean_for_next(hierarchy, &lock)?;
    // The error hides whether another user has such a job.
    let no_job = || Error::NoSuchJob {
        job: id.to_string(),
    };
    let found = cleaned.found.filter(Found::is_ours).ok_or_else(no_job)?;
    let job = found.job(id)?.ok_or_else(no_job)?;
    let attached = job.seat == pl_seat::PL_SEAT_ATTACHED as u32;
    if job.owner_uid != user || attached {
        return Err(no_job());
    }
    set_found(hierarchy, &lock, found, (id, &job), change)
}

fn set_found(
    hierarchy: &Hierarchy,
    lock: &Lock,
    found: Found,
    (id, job): (u64, &pl_job),
    change: &Change,
) -> Result<Report> {
    // It is written before the job.
    let was = found.policy(id)?.ok_or_else(|| Error::NoSuchJob {
        job: id.to_string(),
    })?;
    let former = was.policy()?;
    let policy = match change {
        Change::Keys(assignments) => former.with(assignments)?,
        Change::Policy(policy) => Policy::clone(policy),
        Change::Reset => was.started()?,
    };
    let options = JobOptions {
        policy,
        group: Some(name_text(&job.group)).filter(|group| !group.is_empty()),
        user: None,
        wait: None,
    }
    .resolved();
    tuning::check(&options)?;
    if former.options != options.policy.options {
        return Err(Error::OptionsFixed {
            policy: former.name,
        });
    }
    let abi = entry(&options, job.owner_uid, pl_seat::PL_SEAT_OWN).policy;
    let cgroup = hierarchy.by_id(id);
    let mut report = Report {
        job: id,
        cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
        policy: options.policy.name.clone(),
        generation: was.generation(),
        keys: differences(&former, &options.policy),
        connections: 0,
        refused: BTreeMap::new(),
        unreachable: Vec::new(),
    };
    if report.keys.is_empty() && former.name == options.policy.name {
        return Ok(report);
    }
    let next = match change {
        // With those that follow from them, as the defaults of a table that was not there.
        Change::Keys(_) => {
            let keys = report.keys.iter().map(|change| change.key.clone());
            Next::Keys(keys.collect())
        }
        Change::Policy(_) => Next::Whole,
        Change::Reset => Next::Started,
    };
    let is = was.then(next, &options.policy, abi, monotonic_us())?;
    report.generation = is.generation();
    // All that may fail comes before the change.
    let found = KernelSide::ensure(lock, Some(found), &options)?;
    let side = KernelSide::join(&found, CHANGE_PROGRAM)?;
    if let Some(cgroup) = &cgroup {
        // A killed command may leave the programs that hold ACKs back: without the key they do
        // nothing.
        found.attach_to(cgroup, &options.policy)?;
    }
    point("checked");
    found.put_policy(lock, id, &is)?;
    point("written");
    let Some(cgroup) = cgroup else {
        report.unreachable.push(format!(
            "the job's processes: this mount of the hierarchy does not show cgroup {id}"
        ));
        return Ok(report);
    };
    let given = running::give(lock, &found, &side, id, &cgroup)?;
    report.connections = given.connections;
    for errno in given.refused {
        *report.refused.entry(errno).or_default() += 1;
    }
    report.unreachable = given.unreachable;
    Ok(report)
}

/// In the order of a file, those that are gone last.
fn differences(was: &Policy, is: &Policy) -> Vec<KeyChange> {
    let (former, new) = (was, is);
    let (was, is) = (was.settings(), is.settings());
    let value = |settings: &[(String, String)], key: &str| {
        let found = settings.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.clone())
    };
    let gone = was.iter().filter(|(key, _)| value(&is, key).is_none());
    is.iter()
        .chain(gone)
        .map(|(key, _)| (key, value(&was, key), value(&is, key)))
        .filter(|(_, was, is)| was != is)
        .map(|(key, was, is)| KeyChange {
            key: key.clone(),
            running: follows(key, former, new),
            was,
            is,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_shows_its_effect_on_running_connections() {
        let was = Policy::parse(
            "name = \"a\"\n[ack]\ndelay = \"40ms\"\n[rto]\nleast = \"8ms\"\n",
            "a",
        )
        .unwrap();
        let set: Vec<Assignment> = ["ack.delay=12ms", "rto=", "window.initial=20"]
            .map(|text| text.parse().unwrap())
            .into();
        let lines: Vec<String> = differences(&was, &was.with(&set).unwrap())
            .into_iter()
            .map(|change| {
                format!(
                    "{} {:?} {:?} {}",
                    change.key, change.was, change.is, change.running
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                "ack.delay Some(\"40ms\") Some(\"12ms\") true",
                "window.initial None Some(\"20\") false",
                "rto.least Some(\"8ms\") None false",
                "rto.backoff Some(\"exponential\") None true",
            ]
        );
    }

    #[test]
    fn a_number_is_an_id_and_all_else_a_path() {
        assert_eq!("4711".parse(), Ok(JobName::Id(4711)));
        assert_eq!("/a/1".parse(), Ok(JobName::Cgroup("/a/1".into())));
    }
}
