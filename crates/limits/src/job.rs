// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The examined job: its sockets, and their network namespaces.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Result};
use paceline_agent::status::{Connection, JobStatus, Reader};
use paceline_agent::{job, service, Error};
use paceline_net::{Doing, Namespace};

use crate::sockets::{sockets, Socket};

/// A running job.
#[derive(Debug)]
pub struct Job {
    /// Id of its cgroup.
    pub id: u64,
    /// The cgroup's directory, where it is known.
    pub cgroup: Option<PathBuf>,
    /// Name of its policy.
    pub policy: String,
    /// Remarks about the job as a whole.
    pub notes: Vec<String>,
    owned: Owned,
    /// Those of its processes; none: the caller's own alone.
    namespaces: Vec<Namespace>,
}

/// Which sockets are the job's.
#[derive(Debug)]
enum Owned {
    /// By cookie, as the kernel side knows them, each with the parts of the policy that are not in
    /// effect.
    Cookies(HashMap<u64, Option<String>>),
    /// By the cgroup that they were made in.
    Cgroups(HashSet<u64>),
}

impl Job {
    /// The running job by this name: its id, its cgroup's directory or the last part of that. Root
    /// reads the kernel side; others ask the agent of `agent` for their own jobs.
    ///
    /// # Errors
    /// Where there is none, or it cannot be examined.
    pub fn find(name: &str, agent: &Path) -> Result<Self> {
        match job::capable() {
            true => Self::of_all(name),
            false => Self::of_user(name, agent),
        }
    }

    fn of_all(name: &str) -> Result<Self> {
        let status = Reader::new("paceline doctor --job").read()?;
        let found = status.jobs.into_iter().find(|job| is_named(job, name));
        let Some(job) = found else {
            bail!("there is no running job {name}: paceline status lists them");
        };
        let mut notes = job.warnings.clone();
        if job.earlier > 0 {
            notes.push(format!(
                "{} connections still have an earlier policy",
                job.earlier
            ));
        }
        let mut namespaces = BTreeMap::new();
        for process in &job.processes {
            // A process that has ended meanwhile has no namespace any more.
            let Ok(file) = File::open(format!("/proc/{}/ns/net", process.pid)) else {
                continue;
            };
            let number = file.metadata()?.ino();
            let name = format!("process {}", process.pid);
            namespaces
                .entry(number)
                .or_insert_with(|| Namespace::from_descriptor(&name, file.into()));
        }
        let lacks = |connection: &Connection| (connection.cookie, not_in_effect(connection));
        Ok(Self {
            id: job.id,
            cgroup: job.cgroup,
            policy: job.policy,
            notes,
            owned: Owned::Cookies(job.connections.iter().map(lacks).collect()),
            namespaces: namespaces.into_values().collect(),
        })
    }

    fn of_user(name: &str, agent: &Path) -> Result<Self> {
        let records =
            service::records_by_agent(agent, Some(name)).map_err(|error| match error {
                Error::NoAgent { socket } => anyhow!(
                    "without root, an agent finds a user's jobs, and there is none at {}",
                    socket.display()
                ),
                error => error.into(),
            })?;
        let Some(record) = records.into_iter().next() else {
            bail!("you have no running job {name}: paceline report lists yours");
        };
        if record.ended_unix_s.is_some() {
            bail!("job {name} has ended: paceline report {name} shows what its connections did");
        }
        let Some(cgroup) = record.cgroup else {
            bail!("the cgroup of job {name} is not visible from here");
        };
        let mut notes = vec![
            "without root, what of the policy is not in effect is not seen: sudo paceline doctor --job".to_owned(),
        ];
        let mut cgroups = HashSet::new();
        let mut elsewhere = 0;
        walk(&cgroup, &mut cgroups, &mut elsewhere);
        if elsewhere > 0 {
            notes.push(format!(
                "{elsewhere} processes in other network namespaces: their connections are seen by root alone"
            ));
        }
        Ok(Self {
            id: record.job,
            cgroup: Some(cgroup),
            policy: record.policy,
            notes,
            owned: Owned::Cgroups(cgroups),
            namespaces: Vec::new(),
        })
    }

    /// Its connections now, each with the parts of the policy that are not in effect.
    ///
    /// # Errors
    /// Where the kernel cannot list sockets.
    pub fn connections(&self) -> Result<Vec<(Socket, Option<String>)>> {
        let asked = || sockets().doing("asking the kernel for TCP sockets (module tcp_diag)");
        let all = match self.namespaces.is_empty() {
            true => asked()?,
            false => {
                let mut all = Vec::new();
                for namespace in &self.namespaces {
                    all.extend(namespace.enter(asked)?);
                }
                all
            }
        };
        let ours = all.into_iter().filter_map(|socket| match &self.owned {
            Owned::Cookies(cookies) => {
                let lacks = cookies.get(&socket.cookie)?.clone();
                Some((socket, lacks))
            }
            Owned::Cgroups(cgroups) => cgroups.contains(&socket.cgroup).then_some((socket, None)),
        });
        Ok(ours.collect())
    }
}

fn is_named(job: &JobStatus, name: &str) -> bool {
    let cgroup = job.cgroup.as_deref();
    name.parse() == Ok(job.id)
        || cgroup == Some(Path::new(name))
        || cgroup.and_then(Path::file_name) == Some(OsStr::new(name))
}

/// The parts of the policy that are not in effect on a connection, in the words of `status`.
fn not_in_effect(connection: &Connection) -> Option<String> {
    let is_left_alone = connection.reason != "none";
    let is_partly = connection.breaker_open || connection.quick == "ecn";
    (is_left_alone || is_partly).then(|| connection.why.clone())
}

/// Ids of a cgroup and of those below it, and how many of their processes have another network
/// namespace than this one. A cgroup's id is its inode.
fn walk(directory: &Path, cgroups: &mut HashSet<u64>, elsewhere: &mut usize) {
    let Ok(metadata) = directory.metadata() else {
        return;
    };
    cgroups.insert(metadata.ino());
    let here = fs::read_link("/proc/self/ns/net").ok();
    let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let others = processes.lines().filter(|pid| {
        let theirs = fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        theirs.is_some() && theirs != here
    });
    *elsewhere += others.count();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), cgroups, elsewhere);
        }
    }
}
