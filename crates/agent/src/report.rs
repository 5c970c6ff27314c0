// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs and their traffic, as records.

use std::ffi::OsStr;
use std::path::Path;

use paceline_bpf::permission;
use paceline_cgroup::Hierarchy;
use paceline_history::Record;

use crate::error::Result;
use crate::kernel_side::{discover, KernelSide, STATUS_PROGRAM};

/// The record of a job of this host that runs, by its id, its cgroup's directory or the last
/// part of that. For root.
///
/// # Errors
/// Where the kernel side cannot be read.
pub fn running(name: &str) -> Result<Option<Record>> {
    permission::require("paceline report")?;
    let records = live(&Hierarchy::find()?)?;
    Ok(records.into_iter().find(|record| is_named(record, name)))
}

/// The records of the jobs that run, the newest first; none of those of another build.
pub(crate) fn live(hierarchy: &Hierarchy) -> Result<Vec<Record>> {
    let Some(found) = discover::find()?.filter(discover::Found::is_ours) else {
        return Ok(Vec::new());
    };
    let mut jobs = found.jobs()?;
    jobs.sort_by_key(|(_, job)| std::cmp::Reverse(job.started_us));
    let open = match jobs.is_empty() {
        true => Vec::new(),
        false => KernelSide::join(&found, STATUS_PROGRAM)?.connections()?,
    };
    let cgroup = |id| Some(hierarchy.by_id(id)?.path().to_path_buf());
    jobs.iter()
        .map(|(id, job)| found.record(*id, job, cgroup(*id), &open))
        .collect()
}

/// Whether a name means this job: its id, its cgroup's directory or the last part of that.
pub(crate) fn is_named(record: &Record, name: &str) -> bool {
    let cgroup = record.cgroup.as_deref();
    name.parse() == Ok(record.job)
        || cgroup == Some(Path::new(name))
        || cgroup.and_then(Path::file_name) == Some(OsStr::new(name))
}
