// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The running connections of a cgroup, and a policy that has changed under them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use nix::sched::{setns, CloneFlags};
use paceline_abi::{from_bytes, pl_changed_record};
use paceline_cgroup::{Cgroup, Hierarchy, Lock};

use crate::error::{Error, Result};
use crate::kernel_side::discover::Found;
use crate::kernel_side::policies::JobPolicy;
use crate::kernel_side::{detach_unasked, KernelSide};
use crate::point::point;

/// The iterator by which connections get the policy that their job has now.
pub(crate) const CHANGE_PROGRAM: &str = "pl_change";

/// Output of an iterator over the sockets of a cgroup's processes.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub bytes: Vec<u8>,
    /// Network namespaces that were looked through.
    pub namespaces: usize,
    /// Those that were not: which, and why.
    pub unreachable: Vec<String>,
}

/// The result of a policy for a job's connections.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Connections that have it now.
    pub connections: usize,
    /// Connections that keep their former one: the kernel refused, with this errno.
    pub refused: Vec<i32>,
    pub unreachable: Vec<String>,
}

/// Runs an iterator over TCP sockets once in each network namespace that the
/// cgroup's processes live in: it sees only the sockets of the namespace in
/// which it is started.
pub(crate) fn in_each_namespace(side: &KernelSide, program: &str, cgroup: &Cgroup) -> Walked {
    let mut walked = Walked::default();
    let mut namespaces = BTreeMap::new();
    for pid in cgroup.processes() {
        // A process that ends meanwhile has no connections left to change.
        let Ok(file) = File::open(format!("/proc/{pid}/ns/net")) else {
            continue;
        };
        if let Ok(metadata) = file.metadata() {
            namespaces
                .entry((metadata.dev(), metadata.ino()))
                .or_insert(file);
        }
    }
    for ((_, inode), namespace) in namespaces {
        // A thread of its own: the caller stays in its namespace.
        let result = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&namespace, CloneFlags::CLONE_NEWNET)
                        .map_err(|errno| Error::system("cannot enter it", errno.into()))?;
                    side.iterate(program)
                })
                .join()
                .expect("the thread does not panic")
        });
        match result {
            Ok(bytes) => {
                walked.namespaces += 1;
                walked.bytes.extend(bytes);
            }
            Err(error) => walked
                .unreachable
                .push(format!("network namespace {inode}: {error}")),
        }
    }
    walked
}

/// Gives a job's connections the policy that it has now, and notes that they have it: until
/// then each command does this again ([`finish`]).
///
/// `side` has [`CHANGE_PROGRAM`] loaded.
pub(crate) fn give(
    lock: &Lock,
    found: &Found,
    side: &KernelSide,
    id: u64,
    cgroup: &Cgroup,
) -> Result<Given> {
    side.set_subject(lock, id)?;
    let walked = in_each_namespace(side, CHANGE_PROGRAM, cgroup);
    let mut given = Given {
        unreachable: walked.unreachable,
        ..Given::default()
    };
    let policy = found.policy(id)?;
    let generation = policy.as_ref().map_or(0, JobPolicy::generation);
    for record in walked.bytes.chunks(size_of::<pl_changed_record>()) {
        let record: pl_changed_record = from_bytes(record)?;
        match record.error {
            0 if record.generation == generation => given.connections += 1,
            0 => {}
            error => given.refused.push(error.saturating_neg()),
        }
    }
    if let Some(policy) = policy {
        detach_unasked(cgroup, &policy.policy()?)?;
    }
    point("given");
    found.note_applied(lock, id)?;
    Ok(given)
}

/// Completes the work of a killed `paceline set`.
pub(crate) fn finish(hierarchy: &Hierarchy, found: &Found, lock: &Lock) -> Result<()> {
    for id in found.half_set()? {
        let Some(cgroup) = hierarchy.by_id(id) else {
            continue;
        };
        let side = KernelSide::join(found, CHANGE_PROGRAM)?;
        let given = give(lock, found, &side, id, &cgroup)?;
        tracing::info!(
            "a killed command had changed the policy of {}: {} connections have it now",
            cgroup.path().display(),
            given.connections
        );
    }
    Ok(())
}
