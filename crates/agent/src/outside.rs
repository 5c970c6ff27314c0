// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets of a job's processes that do not belong to the job's cgroup.
//!
//! A socket belongs forever to the cgroup in which it was created, wherever its process moves
//! later, and so do the connections that a listener accepts: a daemon that was moved after it
//! had begun to listen, or that was handed its listener (socket activation), keeps all its
//! connections out of the cgroup that it is in.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use paceline_abi::pl_outside_record;
use paceline_cgroup::Hierarchy;

use crate::address::address;

/// TCP_LISTEN of include/net/tcp_states.h.
const LISTEN: u32 = 10;

/// Each listener in words, and the connections of each process in one sentence.
pub(crate) fn warnings(hierarchy: &Hierarchy, records: &[pl_outside_record]) -> Vec<String> {
    let mut listeners = BTreeMap::<(u32, u64), Vec<SocketAddr>>::new();
    let mut connections = BTreeMap::<(u32, u64), usize>::new();
    for record in records {
        let key = (record.process, record.cgroup);
        if record.tcp_state == LISTEN {
            let at = SocketAddr::new(address(&record.local), record.local_port);
            let all = listeners.entry(key).or_default();
            if !all.contains(&at) {
                all.push(at);
            }
        } else {
            *connections.entry(key).or_default() += 1;
        }
    }
    let place = |id| match hierarchy.by_id(id) {
        Some(cgroup) => cgroup.path().display().to_string(),
        None => format!("cgroup {id}"),
    };
    let listeners = listeners.into_iter().map(|((process, cgroup), mut at)| {
        at.sort();
        let at: Vec<String> = at.iter().map(SocketAddr::to_string).collect();
        format!(
            "process {process} ({}) listens at {} with a socket of {}: the policy does not apply to connections that it accepts; attach to that cgroup, or restart the service inside this one",
            name(process),
            at.join(", "),
            place(cgroup)
        )
    });
    let connections = connections.into_iter().map(|((process, cgroup), count)| {
        format!(
            "process {process} ({}) has {count} connections of {}, which do not get the policy",
            name(process),
            place(cgroup)
        )
    });
    listeners.chain(connections).collect()
}

fn name(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
