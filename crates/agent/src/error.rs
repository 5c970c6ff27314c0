// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors between a policy and a running job.

use std::io;
use std::path::{Path, PathBuf};

use paceline_bpf::permission::NotPermitted;
use paceline_bpf::refusal;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every failure of the agent. Each message names the error, its place, and the right form
/// where that is known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process has neither root nor the capabilities to load BPF programs.
    #[error(transparent)]
    NotPermitted(#[from] NotPermitted),

    /// The cgroup v2 hierarchy, or the lock over all jobs.
    #[error(transparent)]
    Cgroup(#[from] paceline_cgroup::Error),

    /// The process lacks the privileges, and no agent runs.
    #[error(
        "paceline run needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN together: sudo paceline ...; or a running agent (paceline agent), and no process listens at {}",
        socket.display()
    )]
    NoAgent {
        /// The agent's socket.
        socket: PathBuf,
    },

    /// The same of `paceline set`.
    #[error(
        "paceline set needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN together: sudo paceline ...; or, for a job of your own, a running agent (paceline agent), and no process listens at {}",
        socket.display()
    )]
    NoAgentToSet {
        /// The agent's socket.
        socket: PathBuf,
    },

    /// The agent refused a request.
    #[error("the agent at {} refuses: {message} ({code})", socket.display())]
    AgentRefused {
        /// Where it listens.
        socket: PathBuf,
        /// One of the service's codes.
        code: String,
        /// The agent's message.
        message: String,
    },

    /// Another agent uses the same socket.
    #[error("another agent listens at {}: stop it first, or give this one its own --directory", socket.display())]
    AgentRunning {
        /// Where.
        socket: PathBuf,
    },

    /// A service manager's socket that is none of the agent's.
    #[error("the service manager passes the socket {}, which is none of the agent's: jobs.sock, agent.sock and groups.sock in its --directory", path.display())]
    StrangeSocket {
        /// Where.
        path: PathBuf,
    },

    /// The agent's configuration.
    #[error(transparent)]
    Configuration(#[from] paceline_input::Problems),

    /// A given policy, or the result of a change.
    #[error(transparent)]
    Policy(#[from] paceline_policy::PolicyError),

    /// `set` for a job that is not there.
    #[error("no job {job}: paceline status lists the jobs by their cgroups, --json also by id")]
    NoSuchJob {
        /// As given, or its id.
        job: String,
    },

    /// A group that the kernel side could not name.
    #[error(
        "{name:?} is not a valid group name: write 1 to {longest} bytes without control characters"
    )]
    GroupName {
        /// As given.
        name: String,
        /// Bytes at most.
        longest: usize,
    },

    /// Contradictory bounds of a window.
    #[error("cannot bound the windows: {why}")]
    Bounds {
        /// The reason.
        why: String,
    },

    /// The requesting process has ended.
    #[error("process {process}, which requested the job, has ended")]
    PeerGone {
        /// Its number.
        process: u32,
    },

    /// The requesting process is in a namespace that the agent cannot see.
    #[error("the agent cannot see {what}: run paceline in the agent's own namespaces")]
    PeerOutside {
        /// The missing part.
        what: &'static str,
    },

    /// A user has reached the limit of jobs per user.
    #[error(
        "this user already has {limit} jobs, which is the limit per user: wait until one ends"
    )]
    TooManyJobsOfUser {
        /// The limit.
        limit: usize,
    },

    /// PIDs in this namespace differ from those that the kernel side sees.
    #[error("phases need the initial PID namespace: run paceline on the host, not in a container")]
    OtherPidNamespace,

    /// `attach` on the cgroup of all processes.
    #[error(
        "{} is the cgroup of all processes of this host: attach to the service's own cgroup, or confirm with --whole-host",
        path.display()
    )]
    WholeHost {
        /// The hierarchy's mount point.
        path: PathBuf,
    },

    /// `attach` on a cgroup that is a job already.
    #[error("{} already has policy {policy}: detach it first: paceline detach --cgroup {}", path.display(), path.display())]
    AlreadyAttached {
        /// The cgroup.
        path: PathBuf,
        /// Name of the policy it has.
        policy: String,
    },

    /// `run` in a step or container whose cgroup has another policy, or another group.
    #[error(
        "{} already has policy {policy}{}, and all jobs in it share one policy on this host: use the same policy, a step of its own (srun), or wait until the other job ends", path.display(), if group.is_empty() { String::new() } else { format!(" and group {group}") }
    )]
    SharedWithOther {
        /// The cgroup.
        path: PathBuf,
        /// Name of the policy it has.
        policy: String,
        /// Name of the group; empty if none.
        group: String,
    },

    /// `detach` on a cgroup that has no policy, or on a job of `run`.
    #[error("{} was not attached with paceline attach{}", path.display(), if *run { " (it is a job of paceline run and ends with it)" } else { "" })]
    NotAttached {
        /// The cgroup.
        path: PathBuf,
        /// It belongs to `paceline run`.
        run: bool,
    },

    /// PL_MAX_JOBS jobs exist.
    #[error("{limit} jobs already run on this host, which is the limit: wait until one ends")]
    TooManyJobs {
        /// The limit.
        limit: u32,
    },

    /// Another version of Paceline has live jobs.
    #[error(
        "running jobs use the kernel side of another Paceline build ({found}; this is {ours}): {jobs}. Wait until they end, detach attached ones (paceline detach), or use the paceline that started them"
    )]
    OtherBuild {
        /// Identity found in the kernel.
        found: String,
        /// Our own.
        ours: String,
        /// The jobs' cgroups.
        jobs: String,
    },

    /// The policy's base is an algorithm that cannot be wrapped on this kernel.
    #[error("policy {policy} has base {base}, which Paceline cannot wrap on this kernel: {why}")]
    BaseUnavailable {
        /// Name of the policy.
        policy: String,
        /// cubic, reno or bbr.
        base: &'static str,
        /// The reason, with a remedy.
        why: String,
    },

    /// The policy limits the RTO above, and the kernel has no such option.
    #[error("policy {policy} has rto.most, and sockets of this kernel have no maximum RTO (TCP_RTO_MAX_MS): boot Linux 6.15 or later, or leave rto.most out")]
    RtoMaxUnavailable {
        /// Name of the policy.
        policy: String,
    },

    /// A group bounds windows, and the policy fixes them.
    #[error("policy {policy} fixes the window (window.fixed), which group {group} is to bound: leave one of the two out")]
    FixedInGroup {
        /// Name of the policy.
        policy: String,
        /// The group.
        group: String,
    },

    /// libbpf or the verifier refused.
    #[error("{action}: {source}{}", refusal::hint(source))]
    Bpf {
        /// The action that failed.
        action: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },

    /// The kernel side's records have another length than ours.
    #[error(transparent)]
    WrongLength(#[from] paceline_abi::WrongLength),

    /// A file or system call failed.
    #[error("{action}: {source}")]
    System {
        /// The action that failed, with the path.
        action: String,
        /// The system's error.
        source: io::Error,
    },

    /// TCP options cannot be kept out of the job's connections.
    #[error("policy {policy}, [options]: {source}")]
    Options {
        /// Its name.
        policy: String,
        /// Why not.
        source: paceline_bpf::options::Error,
    },

    /// A job has its filters from its start to its end.
    #[error("[options] of a running job cannot be changed, only those of a new job: keep the table as the job's policy {policy} has it (paceline status shows it), or start another job")]
    OptionsFixed {
        /// Name of the policy that the job has.
        policy: String,
    },

    /// The command could not be executed.
    #[error("{}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// No such user.
    #[error("no user named {name} on this host")]
    NoSuchUser {
        /// As given.
        name: String,
    },

    /// The embedded object lacks a part: a defect of the build.
    #[error("the embedded BPF object has no {what}")]
    Incomplete {
        /// Name of the missing map or program.
        what: &'static str,
    },
}

impl Error {
    /// Whether the host denies bpf(2), or has nothing left for it, whatever is loaded.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Error::Bpf { source, .. } if !refusal::hint(source).is_empty())
    }

    /// An I/O error with the action that failed.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Error::System {
            action: action.into(),
            source,
        }
    }

    /// An I/O error on a path.
    pub(crate) fn path(verb: &str, path: &Path, source: io::Error) -> Self {
        Error::system(format!("cannot {verb} {}", path.display()), source)
    }

    /// A libbpf error with the action that failed.
    pub(crate) fn bpf(action: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Error::Bpf {
            action: action.into(),
            source,
        }
    }
}
