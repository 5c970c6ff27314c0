// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job: a command in its own cgroup, whose sockets get one policy.

use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use paceline_bpf::permission;
pub use paceline_bpf::permission::capable;
use paceline_cgroup::{Cgroup, Hierarchy, Hold, Seat};
use paceline_history::verdict::{self, Counts};
use paceline_launch::identity::{owner, Identity};
use paceline_launch::start::Start;
use paceline_policy::Policy;

use crate::error::{Error, Result};
use crate::kernel_side::{discover, UNKNOWN_RUN};
use crate::leftovers;
use crate::making::{make, Place};
use crate::pages::{self, PageServer, SOCKET_VARIABLE};
use crate::supervise::{Outcome, Signals};

pub use crate::options::JobOptions;

/// A running job. It is there, with its counts, until this ends it. Dropping this changes
/// nothing: the job and its adaptation go on, and a later command cleans up when its last process
/// has ended.
#[derive(Debug)]
pub struct Job {
    hierarchy: Hierarchy,
    cgroup: Cgroup,
    shared: bool,
    hold: Option<Hold>,
}

impl Job {
    /// Makes the job's cgroup below the caller's own and starts `command` in
    /// it. Returns once the command has been executed.
    ///
    /// # Errors
    /// [`Error::Spawn`] where the command cannot be executed; other errors where the job
    /// cannot be made. Nothing is left behind in either case.
    pub fn start(options: &JobOptions, command: &mut Command) -> Result<(Job, Child)> {
        permission::require("paceline run")?;
        let hierarchy = Hierarchy::find()?;
        let user = options.user.as_deref().map(identity_of).transpose()?;
        let place = Place {
            seat: Seat::of(&hierarchy, hierarchy.own()?),
            process: own_number()?,
            // The owner of the sockets.
            owner: user.as_ref().map_or_else(owner, |user| user.uid),
            most: None,
        };
        let (made, (hold, child)) = make(&hierarchy, &place, options, |cgroup| {
            let child = spawn_inside(cgroup, user, options.wait, command)?;
            Ok((cgroup.and_then(Cgroup::hold), child))
        })?;
        let job = Job {
            hierarchy,
            cgroup: made.cgroup,
            shared: made.shared,
            hold,
        };
        Ok((job, child))
    }

    /// The job's cgroup directory.
    pub fn path(&self) -> &Path {
        self.cgroup.path()
    }

    /// The job's cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Whether its cgroup is a scheduler's step or a container, with one job for all of it.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The calling process's page in this job, whose connections it makes; `None`
    /// where the policy has no phases.
    pub fn page(&self) -> Result<Option<OwnedFd>> {
        match discover::find()?.filter(discover::Found::is_ours) {
            Some(found) => found.page(self.cgroup.id()?, std::process::id()),
            None => Ok(None),
        }
    }

    /// The counts of its connections, while the job exists.
    fn counts(&self) -> Option<Counts> {
        let found = discover::find().ok()?.filter(discover::Found::is_ours)?;
        let id = self.cgroup.id().ok()?;
        let job = found.job(id).ok()??;
        found.counts(id, &job).ok()
    }

    /// Ends the job if no process is left in it, or, in a cgroup that it shares, no
    /// other `paceline run`: detaches, forgets, removes, and takes the kernel side away
    /// with the last job. Returns whether the job ended; a job with processes in the
    /// background goes on.
    pub fn end(self) -> Result<bool> {
        let lock = self.hierarchy.lock()?;
        drop(self.hold);
        if !self.shared {
            leftovers::clean(&self.hierarchy, &lock)?;
            return Ok(!self.cgroup.path().exists());
        }
        let id = self.cgroup.id()?;
        if let Some(found) = discover::find()?.filter(discover::Found::is_ours) {
            found.delete_run(id, own_number()?)?;
            if found.has_run(&self.hierarchy, id, &self.cgroup)? {
                return Ok(false);
            }
        }
        leftovers::clean(&self.hierarchy, &lock)?;
        Ok(true)
    }
}

/// The user with this name.
fn identity_of(name: &str) -> Result<Identity> {
    let found = Identity::of(name)
        .map_err(|error| Error::system(format!("cannot look up user {name}"), error))?;
    found.ok_or_else(|| Error::NoSuchUser {
        name: name.to_owned(),
    })
}

/// This process by the number that the kernel side has for it, if there is one.
fn own_number() -> Result<u32> {
    Ok(match pages::in_first_pid_namespace()? {
        true => std::process::id(),
        false => UNKNOWN_RUN,
    })
}

/// Runs `command` as a job and waits for it, passing on the signals that this
/// process gets. For the main thread of a program that does nothing else.
///
/// # Errors
/// As [`Job::start`]. A failure to clean up afterwards is logged, not returned:
/// the command's own outcome counts, and the next command cleans.
pub fn run_in_job(options: &JobOptions, command: &mut Command) -> Result<Outcome> {
    let signals = Signals::take()?;
    signals.give_back_in(command);
    // Before the command: its processes may ask as soon as they run.
    let pages = serve_pages(options)?;
    if let Some(pages) = &pages {
        command.env(SOCKET_VARIABLE, pages.socket());
    }
    let (job, child) = Job::start(options, command)?;
    tracing::info!(
        "{}",
        notice(&options.policy.name, job.path(), job.is_shared())
    );
    let outcome = signals.wait(child)?;
    let path = job.path().to_path_buf();
    let counts = job.counts();
    match job.end() {
        Ok(true) => verdict::log(counts, &options.policy.name, command),
        Ok(false) => tracing::info!(
            "the job continues in {}: some of its processes still run, and keep its policy",
            path.display()
        ),
        Err(error) => tracing::warn!("the job has ended, but its cleanup failed: {error}"),
    }
    Ok(outcome)
}

/// The message for the user who started the job.
pub(crate) fn notice(policy: &str, cgroup: &Path, shared: bool) -> String {
    let cgroup = cgroup.display();
    match shared {
        true => format!("policy {policy} for all processes of {cgroup}, which a scheduler or a container runtime created: a child cgroup would hide the program from it"),
        false => format!("policy {policy} for cgroup {cgroup}"),
    }
}

/// Serves pages where the policy has phases. After a failure the job runs without phases.
fn serve_pages(options: &JobOptions) -> Result<Option<PageServer>> {
    if !has_phases(&options.policy) || !capable() {
        return Ok(None);
    }
    match PageServer::start(&Hierarchy::find()?) {
        Ok(server) => Ok(Some(server)),
        Err(error) => {
            tracing::info!("cannot detect the job's phases: {error}");
            Ok(None)
        }
    }
}

/// Whether a job with this policy follows its program's phases.
pub fn has_phases(policy: &Policy) -> bool {
    policy
        .startup
        .as_ref()
        .is_some_and(|startup| startup.phases)
}

/// Starts `command`, in `cgroup` if it is given, else where the caller is.
fn spawn_inside(
    cgroup: Option<&Cgroup>,
    user: Option<Identity>,
    wait: Option<(RawFd, RawFd)>,
    command: &mut Command,
) -> Result<Child> {
    let procs = cgroup.map(Cgroup::open_procs).transpose()?;
    let procs = procs.map(OwnedFd::from);
    let start = Start { procs, user, wait };
    start.spawn(command).map_err(|source| {
        if let (Some(cgroup), Some(libc::EOPNOTSUPP)) = (cgroup, source.raw_os_error()) {
            return Error::path("move the command into", cgroup.path(), source);
        }
        Error::Spawn {
            program: PathBuf::from(command.get_program()),
            source,
        }
    })
}
