// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The current state of Paceline: jobs, connections, and the reasons for their state.

mod groups;
mod keys;
mod text;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use paceline_abi::{
    name_text, name_to_array, pl_connection_record, pl_job, pl_path, pl_path_key, pl_phase_page,
    pl_policy, pl_process_key, pl_quick, pl_reason, pl_seat, pl_start_state,
};
use paceline_bpf::permission;
use paceline_cgroup::{Cgroup, Hierarchy, Lock};
use paceline_control::remembered;
use paceline_history::{shortage, Traffic};
use paceline_net::clock::monotonic_us;
use paceline_net::tick;
use serde::Serialize;

pub use groups::GroupStatus;
pub use keys::{without, KeyStatus, Origin};
use text::{changes, why};
pub use text::{milliseconds, rate};

use crate::address::address;
use crate::error::Result;
use crate::kernel_side::counters::{add_open, ByClass};
use crate::kernel_side::policies::JobPolicy;
use crate::kernel_side::{describe_identity, discover, identity, KernelSide};
use crate::leftovers;
use crate::outside;

/// Everything `paceline status` shows.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// This program's ABI version and BPF build.
    pub build: String,
    /// Congestion controls registered now.
    pub congestion_controls: Vec<String>,
    /// Ended jobs' cgroups that this call removed.
    pub cleaned: Vec<PathBuf>,
    /// Running jobs, oldest first.
    pub jobs: Vec<JobStatus>,
    /// Groups of connections, of all jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
}

/// One job.
#[derive(Debug, Clone, Serialize)]
pub struct JobStatus {
    /// Id of its cgroup.
    pub id: u64,
    /// The cgroup's directory; none where this mount does not show it.
    pub cgroup: Option<PathBuf>,
    /// Name of the policy.
    pub policy: String,
    /// `paceline run --group`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Made by `attach`, not by `run`.
    pub attached: bool,
    /// In a scheduler's step or a container: every `paceline run` in it shares the job.
    pub shared: bool,
    /// Since it was made, seconds.
    pub age_s: u64,
    /// The user who started it.
    pub owner_uid: u32,
    /// The policy's changes to each connection, in words.
    pub changes: Vec<String>,
    /// Times that `paceline set` has changed it.
    pub generation: u32,
    /// Each key of its policy, with its origin; empty where a killed command left none.
    pub keys: Vec<KeyStatus>,
    /// Connections that still have an earlier policy: they were out of reach, or the kernel
    /// refused a setting of the new one.
    pub earlier: usize,
    /// Processes, as this PID namespace sees them.
    pub processes: Vec<Process>,
    /// Connections that got the policy so far, ended ones too.
    pub governed: u64,
    /// Connections left alone because the kernel refused a setting.
    pub refused: u64,
    /// Traffic of its connections so far, ended ones too.
    pub traffic: Traffic,
    /// The same by phase class; empty where there is but class 0.
    #[serde(skip_serializing_if = "ByClass::is_empty")]
    pub traffic_by_class: ByClass,
    /// Share of bursts that the laws leave alone (`report.held_out`), percent.
    pub held_out_percent: u8,
    /// Paths that it uses, of what it may have (bpf/accounts.h).
    pub paths_used: u32,
    /// Times a connection had no start-up law, because the job had no path left for it.
    pub paths_full: u64,
    /// Times a message did not wait for its turn, because the job had no turn left.
    pub turns_full: u64,
    /// Times a connection came into no group, because the job had no group left.
    pub groups_full: u64,
    /// Times a connection came into no group, because that could have no more.
    pub members_full: u64,
    /// Connections left alone, because the kernel had no memory for them.
    pub no_storage: u64,
    /// The same in words, and for an attached job sockets that are not reached; empty where
    /// there is nothing to say.
    pub warnings: Vec<String>,
    /// The job's paths.
    pub paths: Vec<Path>,
    /// Its connections now.
    pub connections: Vec<Connection>,
}

/// One process of a job.
#[derive(Debug, Clone, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// The kernel's short name of it.
    pub name: String,
    /// Its phases, if it has entered any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
}

/// The phases of one process.
#[derive(Debug, Clone, Serialize)]
pub struct Phases {
    /// Class that it is in now; 0 is point-to-point.
    pub class: u32,
    /// How often it has entered each class, those it never did left out.
    pub entered: BTreeMap<u32, u64>,
}

/// A job's state of the path to one destination, in one phase.
#[derive(Debug, Clone, Serialize)]
pub struct Path {
    /// The destination.
    pub peer: IpAddr,
    /// Cookie of the network namespace.
    pub netns: u64,
    /// Phase class that it was learned in; 0 is point-to-point.
    pub class: u32,
    /// The rate that would guide a start now, payload in bits per second: the path's delivery
    /// rate, forgotten after two half-lives as in the law; 0: not known, or forgotten.
    pub rate_bits_per_s: u64,
    /// Minimum RTT of any connection, microseconds; 0: none yet.
    pub min_rtt_us: u32,
    /// Connections that are in a burst now and divide the rate.
    pub active: u32,
    /// Good starts that it takes until the path is trusted again; 0: it is.
    pub wary_starts: u32,
    /// Whether long flows of others fill the path.
    pub contended: bool,
    /// Time over which messages that the initial window holds are spread, microseconds;
    /// 0: they are not.
    pub spread_us: u16,
    /// Time between the segments of longer messages on a local network, microseconds; 0: their
    /// window decides.
    pub gap_us: u32,
}

/// One connection.
#[derive(Debug, Clone, Serialize)]
pub struct Connection {
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// Cookie of the network namespace.
    pub netns: u64,
    /// The kernel's socket cookie.
    pub cookie: u64,
    /// TCP state.
    pub state: &'static str,
    /// Congestion control in use.
    pub congestion: String,
    /// The changes to it, and the reasons, in words.
    pub why: String,
    /// `none`, `loopback`, `mptcp` or `refused`.
    pub reason: &'static str,
    /// errno of a refused setting, 0 if none.
    pub errno: i32,
    /// Start-up law: `idle`, `paced`, `measured` or `base`.
    pub start: &'static str,
    /// The breaker is open: the base algorithm alone for now.
    pub breaker_open: bool,
    /// Times the breaker has opened.
    pub breaker_opened: u32,
    /// Paced starts so far.
    pub starts: u32,
    /// Of these, with more loss than the policy allows.
    pub bad_starts: u32,
    /// This connection's share at its last paced start, payload in bits per
    /// second.
    pub start_rate_bits_per_s: u64,
    /// Congestion window, segments.
    pub cwnd_segs: u32,
    /// Slow-start threshold, segments.
    pub ssthresh_segs: u32,
    /// In flight, segments.
    pub inflight_segs: u32,
    /// Maximum segment size, bytes.
    pub mss: u32,
    /// Smoothed RTT, microseconds.
    pub srtt_us: u32,
    /// RTT variation, microseconds.
    pub rttvar_us: u32,
    /// Minimum RTT of the kernel's window, microseconds.
    pub min_rtt_us: u32,
    /// Retransmission timeout, microseconds.
    pub rto_us: u64,
    /// Minimum RTO, microseconds.
    #[serde(rename = "rto_least_us")]
    pub rto_min_us: u64,
    /// Segments retransmitted, tail-loss probes included.
    pub retransmitted_segs: u32,
    /// Payload that the peer has acknowledged so far.
    pub acked_bytes: u64,
    /// Process that made the socket, or its listener; 0: not known. Its phases are
    /// the connection's.
    pub process: u32,
    /// The group of parallel streams that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The effective cwnd, where a bound makes it differ from `cwnd_segs`, segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uwnd_segs: Option<u32>,
    /// Connections that share one window, itself included (`streams.even`); 0: it is alone.
    pub even_streams: u32,
    /// Rate at which its packets are spaced now, payload in bits per second; 0: they are
    /// not.
    pub spacing_bits_per_s: u64,
    /// Whether each segment is acknowledged at once: `none` (not asked for), `on`, or `ecn`
    /// (not possible, because ECN was negotiated).
    pub quick: &'static str,
    /// ACKs without data that it sent since then.
    pub quick_acks: u32,
    /// ACKs that were held back.
    pub held_acks: u64,
    /// Phase class that the connection's parameters are of.
    pub class: u32,
    /// Times it went over to another phase's parameters.
    pub phase_switches: u32,
}

/// Reads the state of all jobs of this host repeatedly: its programs stay loaded between two
/// calls.
#[derive(Debug)]
pub struct Reader {
    command: &'static str,
    side: Option<KernelSide>,
    cleans: bool,
}

impl Reader {
    /// For a command by this name, which errors give.
    pub fn new(command: &'static str) -> Self {
        Self {
            command,
            side: None,
            cleans: true,
        }
    }

    /// For the agent, which cleans up itself when a job ends, and keeps the kernel side for
    /// the next one.
    pub fn beside_agent() -> Self {
        Self {
            cleans: false,
            ..Self::new("paceline agent")
        }
    }

    /// The state now, after cleaning up ended jobs.
    ///
    /// # Errors
    /// Without root [`crate::Error::NotPermitted`]; as the hierarchy, the kernel side and
    /// its iterators fail; a kernel side of another build with running jobs is
    /// [`crate::Error::OtherBuild`].
    pub fn read(&mut self) -> Result<Status> {
        let live = self.side.take().filter(KernelSide::is_live);
        let (status, side) = read(self.command, live, self.cleans)?;
        self.side = side;
        Ok(status)
    }
}

/// The state once, as `paceline status` shows it.
///
/// # Errors
/// As [`Reader::read`].
pub fn status() -> Result<Status> {
    Reader::new("paceline status").read()
}

/// The state, and the kernel side that it was read from: `live`, if that is one.
fn read(
    command: &'static str,
    live: Option<KernelSide>,
    cleans: bool,
) -> Result<(Status, Option<KernelSide>)> {
    permission::require(command)?;
    let hierarchy = Hierarchy::find()?;
    let lock = hierarchy.lock()?;
    let cleaned = match cleans {
        true => leftovers::clean(&hierarchy, &lock)?,
        false => leftovers::Cleaned {
            found: discover::find()?,
            ..Default::default()
        },
    };
    let mut status = Status {
        build: describe_identity(identity()),
        congestion_controls: Vec::new(),
        cleaned: cleaned.directories,
        jobs: Vec::new(),
        groups: Vec::new(),
    };
    let Some(found) = cleaned.found else {
        return Ok((status, None));
    };
    found.require_ours(|| leftovers::describe_jobs(&hierarchy, &found))?;
    status.congestion_controls = found.congestion();
    let side = match live {
        Some(side) => side,
        None => KernelSide::join_to_read(&found)?,
    };
    let connections = side.connections()?;
    let paths = side.paths()?;
    status.groups = groups::of(&side.streams()?);
    let pages = found.pages()?;
    let now = monotonic_us();
    let mut jobs = side.jobs()?;
    jobs.sort_by_key(|(_, job)| job.started_us);
    for (id, mut job) in jobs {
        let (traffic, traffic_by_class) = traffic_of(&found, id, &connections)?;
        let cgroup = hierarchy.by_id(id);
        let policy = found.policy(id)?;
        let generation = policy.as_ref().map_or(0, JobPolicy::generation);
        // The policy now, which may differ from the first one.
        if let Some(policy) = &policy {
            job.policy = *policy.abi();
            job.policy_name = name_to_array(&policy.policy()?.name);
        }
        status.jobs.push(JobStatus {
            id,
            policy: name_text(&job.policy_name),
            group: Some(name_text(&job.group)).filter(|group| !group.is_empty()),
            attached: job.seat == pl_seat::PL_SEAT_ATTACHED as u32,
            shared: job.seat == pl_seat::PL_SEAT_SHARED as u32,
            age_s: now.saturating_sub(job.started_us) / 1_000_000,
            owner_uid: job.owner_uid,
            changes: changes(&job),
            generation,
            keys: keys::of(policy.as_ref(), now)?,
            earlier: keys::earlier(&connections, id, generation),
            processes: cgroup
                .as_ref()
                .map(|cgroup| processes(cgroup, id, &pages))
                .unwrap_or_default(),
            cgroup: cgroup.map(|cgroup| cgroup.path().to_path_buf()),
            governed: job.connections,
            refused: job.refused,
            traffic,
            traffic_by_class,
            held_out_percent: job.policy.held_out_percent,
            paths_used: job.used.paths,
            paths_full: job.full.paths,
            turns_full: job.full.turns,
            groups_full: job.full.groups,
            members_full: job.full.members,
            no_storage: job.full.storage,
            warnings: warnings(&hierarchy, &side, &lock, id, &job)?,
            paths: paths
                .iter()
                .filter(|(key, _)| key.job == id)
                .map(|(key, path)| path_of(key, path, &job.policy, now))
                .collect(),
            connections: connections
                .iter()
                .filter(|record| record.job == id)
                .map(|record| connection(record, &job.policy))
                .collect(),
        });
    }
    Ok((status, Some(side)))
}

/// A job's traffic, in all and by class.
fn traffic_of(
    found: &discover::Found,
    id: u64,
    connections: &[pl_connection_record],
) -> Result<(Traffic, ByClass)> {
    let mut by_class = found.traffic(id)?;
    add_open(&mut by_class, id, connections);
    let mut all = Traffic::default();
    for traffic in by_class.values() {
        all += *traffic;
    }
    if by_class.keys().all(|class| *class == 0) {
        by_class.clear();
    }
    Ok((all, by_class))
}

/// Features that the job lacks; of an attached one also sockets out of its reach.
fn warnings(
    hierarchy: &Hierarchy,
    side: &KernelSide,
    lock: &Lock,
    id: u64,
    job: &pl_job,
) -> Result<Vec<String>> {
    let mut warnings = shortage::warnings(&job.full);
    if job.seat == pl_seat::PL_SEAT_ATTACHED as u32 {
        warnings.extend(outside::warnings(hierarchy, &side.outside(lock, id)?));
    }
    Ok(warnings)
}

fn processes(cgroup: &Cgroup, job: u64, pages: &[(pl_process_key, pl_phase_page)]) -> Vec<Process> {
    let phases_of = |pid: i32| {
        pages
            .iter()
            .find(|(key, _)| key.job == job && i64::from(key.process) == i64::from(pid))
            .map(|(_, page)| phases(page))
    };
    cgroup
        .processes()
        .into_iter()
        .map(|pid| Process {
            pid,
            name: std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .unwrap_or_default()
                .trim_end()
                .to_owned(),
            phases: phases_of(pid),
        })
        .collect()
}

fn phases(page: &pl_phase_page) -> Phases {
    Phases {
        class: class_of(page.phase),
        entered: (0..)
            .zip(page.entered)
            .filter(|(_, times)| *times != 0)
            .collect(),
    }
}

/// The class of a phase: its low byte (bpf/control/phases.h).
fn class_of(phase: u32) -> u32 {
    phase & 0xff
}

fn path_of(key: &pl_path_key, path: &pl_path, policy: &pl_policy, now_us: u64) -> Path {
    // A path may be confirmed during the read, later than `now_us`.
    let rate = remembered(path, policy, now_us.max(path.confirmed_us));
    Path {
        peer: address(&key.address),
        netns: key.netns,
        class: class_of(key.phase),
        rate_bits_per_s: rate.saturating_mul(8),
        min_rtt_us: path.min_rtt_us,
        active: path.active,
        wary_starts: u32::from(path.wary),
        contended: path.contended != 0,
        spread_us: path.spread_us,
        gap_us: path.gap_us,
    }
}

fn connection(record: &pl_connection_record, policy: &pl_policy) -> Connection {
    let tick_us = tick::tick().as_micros() as u64;
    Connection {
        local: SocketAddr::new(address(&record.local), record.local_port),
        remote: SocketAddr::new(address(&record.remote), record.remote_port),
        netns: record.netns,
        cookie: record.cookie,
        state: tcp_state(record.tcp_state),
        congestion: name_text(&record.congestion),
        why: why(record, policy),
        reason: reason(record.reason),
        errno: record.error.saturating_neg(),
        start: start_state(record.start_state),
        breaker_open: record.breaker_open != 0,
        breaker_opened: record.breaker_opened,
        starts: record.starts,
        bad_starts: record.bad_starts,
        start_rate_bits_per_s: record.start_rate_bps.saturating_mul(8),
        cwnd_segs: record.cwnd_segs,
        ssthresh_segs: record.ssthresh_segs,
        inflight_segs: record.inflight_segs,
        mss: record.mss,
        srtt_us: record.srtt_us,
        rttvar_us: record.rttvar_us,
        min_rtt_us: record.min_rtt_us,
        rto_us: u64::from(record.rto_ticks) * tick_us,
        rto_min_us: u64::from(record.rto_min_ticks) * tick_us,
        retransmitted_segs: record.retransmitted_segs,
        acked_bytes: record.acked_bytes,
        process: record.process,
        group: Some(name_text(&record.group)).filter(|group| !group.is_empty()),
        uwnd_segs: Some(record.uwnd_segs).filter(|segs| *segs != 0),
        even_streams: record.even_streams,
        spacing_bits_per_s: record.spacing_bps.saturating_mul(8),
        quick: quick(record.quick),
        quick_acks: record.quick_acks,
        held_acks: record.held_acks,
        class: class_of(record.phase),
        phase_switches: record.phase_switches,
    }
}

fn quick(value: u32) -> &'static str {
    match value {
        quick if quick == pl_quick::PL_QUICK_ON as u32 => "on",
        quick if quick == pl_quick::PL_QUICK_ECN as u32 => "ecn",
        _ => "none",
    }
}

fn reason(value: u8) -> &'static str {
    match u32::from(value) {
        reason if reason == pl_reason::PL_REASON_LOOPBACK as u32 => "loopback",
        reason if reason == pl_reason::PL_REASON_MPTCP as u32 => "mptcp",
        reason if reason == pl_reason::PL_REASON_REFUSED as u32 => "refused",
        _ => "none",
    }
}

fn start_state(value: u8) -> &'static str {
    match u32::from(value) {
        state if state == pl_start_state::PL_START_PACED as u32 => "paced",
        state if state == pl_start_state::PL_START_MEASURED as u32 => "measured",
        state if state == pl_start_state::PL_START_BASE as u32 => "base",
        _ => "idle",
    }
}

/// include/net/tcp_states.h.
fn tcp_state(value: u8) -> &'static str {
    const NAMES: [&str; 13] = [
        "unknown",
        "established",
        "syn-sent",
        "syn-recv",
        "fin-wait-1",
        "fin-wait-2",
        "time-wait",
        "closed",
        "close-wait",
        "last-ack",
        "listen",
        "closing",
        "new-syn-recv",
    ];
    NAMES.get(usize::from(value)).copied().unwrap_or(NAMES[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> pl_connection_record {
        pl_connection_record {
            local: [0, 0, 0xffffu32.to_be(), u32::from_ne_bytes([10, 0, 0, 1])],
            remote: [u32::from_ne_bytes([0xfd, 0, 0, 0]), 0, 0, 2u32.to_be()],
            local_port: 40_000,
            remote_port: 80,
            tcp_state: 1,
            ..Default::default()
        }
    }

    #[test]
    fn addresses_read_as_people_write_them() {
        let shown = connection(&record(), &pl_policy::default());
        assert_eq!(shown.local.to_string(), "10.0.0.1:40000");
        assert_eq!(shown.remote.to_string(), "[fd00::2]:80");
        assert_eq!(shown.state, "established");
    }

    #[test]
    fn a_refused_setting_names_the_errno() {
        let mut record = record();
        record.reason = pl_reason::PL_REASON_REFUSED as u8;
        record.error = -libc::EINVAL;
        let shown = connection(&record, &pl_policy::default());
        assert_eq!(shown.errno, libc::EINVAL);
        assert!(shown.why.contains("Invalid argument"), "{}", shown.why);
    }
}
