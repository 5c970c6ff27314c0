// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup of a job: a child of its caller's cgroup, or, where that may have no child, the
//! cgroup that a scheduler or a container runtime created.
//!
//! Slurm (proctrack/cgroup with cgroup/v2) looks for the processes of a task in the task's
//! own `cgroup.procs` alone. A cgroup below it hides them from `scancel` and
//! `scontrol listpids`, and keeps the step's cgroup from being removed: the job hangs in
//! completing. So no cgroup is made there; the step's gets the policy as a whole.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::error::Error;
use crate::hierarchy::{Cgroup, Hierarchy};

/// The cgroup of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seat {
    /// In a cgroup that is made for it below this one.
    Below(Cgroup),
    /// In this cgroup, with all its processes; its creator also removes it.
    Shared(Cgroup),
}

impl Seat {
    /// For a process whose cgroup is `own`.
    pub fn of(hierarchy: &Hierarchy, own: Cgroup) -> Self {
        if let Some(step) = slurm_step(own.path()) {
            return Self::Shared(Cgroup::at(step));
        }
        if hierarchy.read_only() {
            return Self::undivided(own);
        }
        Self::Below(own)
    }

    /// For a process in a cgroup that cannot have a child: all of it, unless that is the
    /// whole host.
    pub fn undivided(own: Cgroup) -> Self {
        match own.is_hosts() {
            true => Self::Below(own),
            false => Self::Shared(own),
        }
    }
}

/// Whether a cgroup may have no child, by the system's error: it is read-only, or has as
/// many as `cgroup.max.descendants` allows.
pub fn is_undividable(error: &Error) -> bool {
    match error {
        Error::CgroupReadOnly { .. } => true,
        Error::System { source, .. } => source.kind() == io::ErrorKind::WouldBlock,
        _ => false,
    }
}

/// `.../job_N/step_X/user` of a path at or below `.../job_N/step_X/user/task_N`: the step's
/// tasks, without the step's slurmstepd, whose connections belong to no job.
fn slurm_step(path: &Path) -> Option<PathBuf> {
    let names: Vec<&str> = path
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str().unwrap_or_default(),
            _ => "",
        })
        .collect();
    let numbered = |name: &str, kind: &str| {
        let number = name.strip_prefix(kind).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let at = names.windows(4).position(|names| {
        numbered(names[0], "job_")
            && names[1].starts_with("step_")
            && names[2] == "user"
            && names[3].starts_with("task_")
    })?;
    Some(path.components().take(at + 3).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(path: &str) -> Option<String> {
        slurm_step(Path::new(path)).map(|step| step.display().to_string())
    }

    #[test]
    fn a_slurm_step_is_known_by_its_path() {
        let scope = "/sys/fs/cgroup/system.slice/slurmstepd.scope";
        for (task, user) in [
            ("job_7/step_0/user/task_3", "job_7/step_0/user"),
            ("job_7/step_batch/user/task_0", "job_7/step_batch/user"),
            (
                "job_7/step_extern/user/task_special",
                "job_7/step_extern/user",
            ),
            // A program that has divided its own task.
            ("job_7/step_0/user/task_3/mine", "job_7/step_0/user"),
        ] {
            assert_eq!(
                step(&format!("{scope}/{task}")),
                Some(format!("{scope}/{user}"))
            );
        }
        // Nodes of one host, and newer versions, have other names above.
        assert_eq!(
            step("/cg/node1_slurmstepd.scope/job_12/step_4/user/task_0"),
            Some("/cg/node1_slurmstepd.scope/job_12/step_4/user".to_owned())
        );
    }

    #[test]
    fn similar_paths_are_no_step_of_slurm() {
        for path in [
            "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope",
            "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/slurm",
            "/sys/fs/cgroup/job_x/step_0/user/task_0",
            "/sys/fs/cgroup/job_/step_0/user/task_0",
            "/sys/fs/cgroup/job_7/step_0/user",
        ] {
            assert_eq!(step(path), None, "{path}");
        }
    }
}
