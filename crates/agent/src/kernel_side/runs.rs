// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `paceline run` processes of a job in a shared cgroup (`pl_runs`).
//!
//! Kept in the kernel, like all that must outlive a killed command or agent. A number that
//! was given to another process counts only if that is in the job's cgroup, too.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags};
use paceline_abi::{as_bytes, from_bytes, pl_process_key};
use paceline_cgroup::{Cgroup, Hierarchy};

use super::discover::Found;
use crate::error::{Error, Result};

/// Stands for `paceline run`s in other PID namespaces, whose numbers say nothing here.
pub(crate) const UNKNOWN: u32 = 0;

impl Found {
    /// Notes a `paceline run` of a job. Under the lock of all changes.
    pub fn put_run(&self, job: u64, process: u32, now_us: u64) -> Result<()> {
        self.map_of("pl_runs")?
            .update(
                as_bytes(&key(job, process)),
                &now_us.to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(|error| Error::bpf("cannot register a process of the job", error))
    }

    /// Forgets one. Gone already is success.
    pub fn delete_run(&self, job: u64, process: u32) -> Result<()> {
        match self.map_of("pl_runs")?.delete(as_bytes(&key(job, process))) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::bpf("cannot unregister a process of the job", error))
            }
            _ => Ok(()),
        }
    }

    /// All of them, of all jobs.
    pub fn runs(&self) -> Result<Vec<pl_process_key>> {
        self.map_of("pl_runs")?
            .keys()
            .map(|key| Ok(from_bytes(&key)?))
            .collect()
    }

    /// Whether a job's cgroup has such a process still; forgets those that are seen to have
    /// ended. The first that lives is enough: a step may have hundreds.
    pub fn has_run(&self, hierarchy: &Hierarchy, job: u64, cgroup: &Cgroup) -> Result<bool> {
        for bytes in self.map_of("pl_runs")?.keys() {
            let run: pl_process_key = from_bytes(&bytes)?;
            if run.job != job {
                continue;
            }
            if is_inside(hierarchy, run.process, cgroup.path()) {
                return Ok(true);
            }
            self.delete_run(job, run.process)?;
        }
        Ok(false)
    }
}

fn is_inside(hierarchy: &Hierarchy, process: u32, cgroup: &Path) -> bool {
    process == UNKNOWN
        || hierarchy
            .of_process(process)
            .is_ok_and(|its| its.path().starts_with(cgroup))
}

pub(super) fn key(job: u64, process: u32) -> pl_process_key {
    pl_process_key {
        job,
        process,
        reserved: 0,
    }
}
