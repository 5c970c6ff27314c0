// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline doctor --job`: the limit of each connection of a job now, with evidence and remedy.
//!
//! The job's connections are looked at several times by sock_diag ([`sockets`]), whose counters
//! give the time that each of them waited, and the cause ([`mod@judge`]).

#![forbid(unsafe_code)]

mod info;
mod job;
pub mod judge;
mod report;
pub mod sockets;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use job::Job;
use judge::{judge, Look};
pub use report::{Destination, Judged, Report};
use sockets::Socket;

/// Bounds of the time: less is below the kernel's clock tick of these counters, and more is not
/// the current state.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(600);
/// Looks between the first one and the last one: their number is enough to tell whether data
/// waits mostly or by chance.
const STEPS: u32 = 10;

/// Looks at the running job `name` (id, directory of its cgroup, or the last part of that) for
/// `time`, 100 ms to 10 min. `agent`: directory of the agent's sockets, for users without root.
///
/// # Errors
/// An unknown job, a time out of range, or a kernel that cannot list sockets.
pub fn examine(name: &str, agent: &Path, time: Duration) -> Result<Report> {
    if !(LEAST..=MOST).contains(&time) {
        bail!("--for {time:?}: expected 100ms to 10min");
    }
    let job = Job::find(name, agent)?;
    let mut seen: HashMap<u64, (Socket, Option<String>, Vec<Look>)> = HashMap::new();
    let begin = Instant::now();
    for step in 0..=STEPS {
        let next = begin + time * step / STEPS;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let at = begin.elapsed();
        for (socket, lacks) in job.connections()? {
            let look = Look {
                at,
                unread: socket.unread,
                queued: socket.queued,
                send_buffer: socket.send_buffer,
                info: socket.info,
            };
            let entry = seen.entry(socket.cookie);
            let (_, _, looks) = entry.or_insert_with(|| (socket, lacks, Vec::new()));
            looks.push(look);
        }
    }
    let looks = STEPS as usize + 1;
    let (all_the_time, passing): (Vec<_>, Vec<_>) = seen
        .into_values()
        .partition(|(_, _, seen)| seen.len() == looks);
    let judged = all_the_time
        .into_iter()
        .filter_map(|(socket, lacks, looks)| {
            Some(Judged {
                local: socket.local,
                remote: socket.remote,
                congestion: socket.congestion,
                not_in_effect: lacks,
                verdict: judge(&looks)?,
            })
        });
    Ok(Report {
        job: job.id,
        cgroup: job.cgroup,
        policy: job.policy,
        seconds: begin.elapsed().as_secs_f64(),
        looks,
        destinations: report::by_destination(judged.collect()),
        passing: passing.len(),
        notes: job.notes,
    })
}
