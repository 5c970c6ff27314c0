// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline agent`: jobs for users without root.
//!
//! One thread answers requests for jobs and cleans up after them, another one ([`PageServer`])
//! hands out phase pages. The state of running jobs is in the kernel: a killed agent's
//! successor finds all jobs again.
//!
//! Of a request only the policy's name counts. The kernel identifies the client (`peer.rs`);
//! the job is made below the client's own cgroup, and only the client is moved into it.

mod client;
mod queue;
mod records;
mod request;
mod setting;
mod step;
mod tally;
mod watch;

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::UnixCredentials;
use paceline_bpf::permission;
use paceline_cgroup::{Cgroup, Hierarchy, Lock, Seat};
use paceline_history::Counts;
use paceline_policy::Policy;
use sd_notify::NotifyState;

use crate::error::{Error, Result};
use crate::group::server::GroupServer;
use crate::job::{self, JobOptions};
use crate::kernel_side::discover;
use crate::leftovers;
use crate::listening::{Handed, Listening, GROUPS_SOCKET, JOBS_SOCKET, PAGES_SOCKET};
use crate::making::{self, Place};
use crate::pages::PageServer;
use crate::peer::{self, Peer};
use paceline_callers::{timeout, Call, Callers};
use queue::Queue;
use request::{About, Answer, Code, Inquiry, Question, Refused, Request, Setting, Started};
use step::Step;
use watch::Watch;

#[doc(hidden)]
pub use crate::config::fuzz as fuzz_config;
pub use crate::config::{schema as config_schema, Config, DEFAULT_CONFIG};
pub use crate::listening::DIRECTORY;
pub use client::{enter_by_agent, records_by_agent, run_by_agent, set_by_agent};
pub use records::MOST_RECORDS;
pub use request::Asked;
pub use step::schema as protocol_schema;
pub use tally::{Connections, Counted, Tally};

/// For the fuzzer: bytes at jobs.sock, from any client.
#[doc(hidden)]
pub fn fuzz_request(bytes: &[u8]) {
    request::fuzz(bytes);
    step::fuzz(bytes);
}

/// Jobs of one user at once: a host's worth of jobs of one rank each, and far from
/// PL_MAX_JOBS, so that no user can keep the others from having any.
const MOST_JOBS_PER_USER: usize = 64;

/// How long the kernel side stays without a job: a launcher starts its next rank, or a script
/// its next command, sooner.
const IDLE: Duration = Duration::from_secs(3);

/// An agent, from its start to the signal that ends it.
#[derive(Debug)]
pub struct Service {
    hierarchy: Hierarchy,
    config: Config,
    socket: Listening,
    signals: SignalFd,
    callers: Callers,
    /// Their requests, until they are answered.
    calls: Queue<Call>,
    watch: Watch,
    tally: Arc<Tally>,
    /// The kernel side since its last job has ended.
    idle: Option<Idle>,
    // Before the pages', whose end takes the directory with it.
    _groups: GroupServer,
    _pages: PageServer,
}

impl Service {
    /// Takes over the sockets in `directory` and cleans up what ended jobs left. From
    /// then on, SIGTERM and SIGINT are held back for [`Service::run`]. For the main
    /// thread of a program that does nothing else.
    ///
    /// # Errors
    /// [`Error::AgentRunning`]; any failure that prevents jobs.
    pub fn start(config: Config, directory: &Path) -> Result<Self> {
        permission::require("paceline agent")?;
        let hierarchy = Hierarchy::find()?;
        if hierarchy.read_only() {
            return Err(paceline_cgroup::Error::CgroupReadOnly {
                path: hierarchy.mount().to_path_buf(),
            }
            .into());
        }
        raise_open_files();
        // Before the other thread, which inherits this mask.
        let signals = hold_back_signals()?;
        let socket = directory.join(JOBS_SOCKET);
        // Two agents that start at once do so one after the other.
        let lock = hierarchy.lock()?;
        let mut handed = Handed::from_environment()?;
        // The manager's own answers also while no agent runs.
        if !handed.has(&socket) && is_answered(&socket) {
            return Err(Error::AgentRunning { socket });
        }
        leftovers::clean(&hierarchy, &lock)?;
        // The first may make the directory, and goes last.
        let pages = handed.or_at(directory.join(PAGES_SOCKET))?;
        let groups = handed.or_at(directory.join(GROUPS_SOCKET))?;
        let socket = handed.or_at(socket)?;
        handed.all_taken()?;
        let pages = PageServer::in_place_of_a_former(&hierarchy, pages)?;
        let groups = GroupServer::at(groups, config.clone())?;
        drop(lock);
        let mut watch = Watch::default();
        watch.renew(&hierarchy);
        Ok(Self {
            hierarchy,
            config,
            socket,
            signals,
            callers: Callers::default(),
            calls: Queue::default(),
            watch,
            tally: Arc::new(Tally::new(records::history())),
            idle: None,
            _groups: groups,
            _pages: pages,
        })
    }

    /// Its counts, for others to show.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Serves until SIGTERM or SIGINT. Jobs that run then go on.
    ///
    /// # Errors
    /// Where it cannot wait for requests.
    pub fn run(mut self) -> Result<()> {
        if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
            tracing::warn!("cannot notify the service manager: {error}");
        }
        tracing::info!("serving jobs at {}", self.socket.path().display());
        loop {
            let mut sources = vec![
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            ];
            sources.extend(self.watch.sources());
            sources.extend(self.callers.sources());
            match poll(&mut sources, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(Error::system("cannot wait for requests", errno.into()));
                }
            }
            let changed: Vec<bool> = sources[2..]
                .iter()
                .map(|source| source.any().unwrap_or(false))
                .collect();
            if let Ok(Some(_)) = self.signals.read_signal() {
                if self.idle.is_some() {
                    self.clean(leftovers::clean);
                }
                return Ok(());
            }
            if self.watch.any_ended(&changed) {
                self.clean(leftovers::clean_for_next);
            } else if self.idle.as_ref().is_some_and(Idle::is_over) {
                self.clean(leftovers::clean);
            }
            let config = &self.config;
            self.callers
                .accept(self.socket.listener(), |stream, credentials| {
                    admit(config, stream, credentials)
                });
            for call in self.callers.ready(request::LONGEST, request::is_complete) {
                if self.calls.push(call.credentials.uid(), call).is_err() {
                    tracing::info!("too many waiting calls of one user: one is closed");
                }
            }
            // Only one, so that new callers get their turn.
            if let Some(call) = self.calls.next() {
                self.answer(call);
            }
        }
    }

    /// The time of the next check, even if no descriptor is ready.
    fn timeout(&self) -> PollTimeout {
        if !self.calls.is_empty() {
            return PollTimeout::ZERO;
        }
        let idle = self.idle.as_ref().map(Idle::left);
        let both = self.callers.patience().into_iter().chain(idle);
        timeout(both.min())
    }

    /// Consecutive jobs reuse the loaded programs, if `clean` leaves them.
    fn clean(&mut self, clean: fn(&Hierarchy, &Lock) -> Result<leftovers::Cleaned>) {
        self.idle = None;
        let cleaned = self
            .hierarchy
            .lock()
            .map_err(Error::from)
            .and_then(|lock| clean(&self.hierarchy, &lock));
        match cleaned {
            Ok(cleaned) => {
                self.tally.ended(cleaned.ended);
                let found = cleaned.found.filter(|found| found.job_ids().is_empty());
                self.idle = found.map(Idle::new);
            }
            Err(error) => tracing::warn!("a job has ended, but its cleanup failed: {error}"),
        }
        self.watch.renew(&self.hierarchy);
    }

    fn answer(&mut self, call: Call) {
        let user = call.credentials.uid();
        let started = match (Step::read(&call.request), Question::read(&call.request)) {
            (Some(step), _) => step.and_then(|step| self.step(&call, step)),
            (_, Some(question)) => self.look(&call, &question).map(Answer::Connections),
            _ if Setting::read(&call.request).is_some() => self.set(&call),
            _ if Inquiry::read(&call.request).is_some() => self.records(&call),
            _ => self.start_job(&call).map(Answer::Started),
        };
        let answer = match started {
            Ok(Answer::Started(started)) => {
                tracing::info!("job of user {user} in {}", started.cgroup.display());
                self.tally.started();
                Answer::Started(started)
            }
            Ok(Answer::Attached(attached)) => {
                tracing::info!("step in {}", attached.cgroup.display());
                self.tally.started();
                Answer::Attached(attached)
            }
            Ok(answer) => answer,
            Err(refused) => {
                self.tally.refused(refused.code.to_string());
                tracing::info!("refused a request of user {user}: {}", refused.message);
                Answer::Refused(refused)
            }
        };
        let mut stream = call.stream;
        // Into an empty buffer, which has room for it.
        if let Err(error) = stream.write_all(&answer.to_line()) {
            tracing::info!("cannot send the answer to user {user}: {error}");
        }
    }

    /// Answers about the client's job, if the client owns it.
    fn look(&self, call: &Call, question: &Question) -> Result<Counts, Refused> {
        let About::Connections = question.about;
        let peer = Peer::of(&call.stream, &call.credentials)?;
        let found = discover::find()?.filter(discover::Found::is_ours);
        // Also in a child cgroup that a program has made.
        let own = peer.cgroup(&self.hierarchy)?;
        let above = own.path().ancestors();
        for path in above.take_while(|path| path.starts_with(self.hierarchy.mount())) {
            let id = Cgroup::at(path.to_path_buf()).id()?;
            match found.as_ref().map_or(Ok(None), |found| found.job(id))? {
                Some(job) if job.owner_uid == peer.user => {
                    let counts = found.as_ref().map(|found| found.counts(id, &job));
                    return Ok(counts.transpose()?.unwrap_or_default());
                }
                Some(_) => break,
                None => {}
            }
        }
        let what = "the requesting process is in no job of its own".to_owned();
        Err(Refused::new(Code::Peer, what))
    }

    /// The policy that the administrator lists by this name.
    fn listed(&self, name: &str) -> Result<&Policy, Refused> {
        self.config.policy(name).ok_or_else(|| {
            let names = self.config.policy_names();
            let what = format!("policy {name} is not allowed: use one of {names}");
            Refused::new(Code::Policy, what)
        })
    }

    fn start_job(&mut self, call: &Call) -> Result<Started, Refused> {
        let peer = Peer::of(&call.stream, &call.credentials)?;
        let request = Request::read(&call.request)?;
        let policy = self.listed(&request.policy)?;
        let options = JobOptions {
            policy: policy.clone(),
            group: request.group,
            user: None,
            wait: None,
        };
        let own = peer.cgroup(&self.hierarchy)?;
        let place = Place {
            seat: Seat::of(&self.hierarchy, own.clone()),
            process: peer.process,
            owner: peer.user,
            most: Some(MOST_JOBS_PER_USER),
        };
        let (made, ()) = making::make(&self.hierarchy, &place, &options, |cgroup| match cgroup {
            Some(cgroup) => peer.move_into(cgroup, &own),
            None => peer.check(),
        })?;
        self.idle = None;
        let cgroup = made.cgroup.path().to_path_buf();
        match made.shared {
            true => self
                .watch
                .add_run(made.cgroup, peer.process, peer.into_pidfd()),
            false => self.watch.add(made.cgroup),
        }
        Ok(Started {
            cgroup,
            phases: job::has_phases(&options.policy),
            shared: made.shared,
        })
    }
}

/// Checks a caller before its request is read: the agent does not wait for users who may run no
/// job. Returns the refusal, if any.
fn admit(
    config: &Config,
    stream: &UnixStream,
    credentials: &UnixCredentials,
) -> Result<(), Vec<u8>> {
    let groups = peer::groups_of(stream, credentials).unwrap_or_default();
    if credentials.uid() == 0 || groups.iter().any(|group| config.admits(*group)) {
        return Ok(());
    }
    let message = format!(
        "user {} is in none of the groups that may run jobs: {}",
        credentials.uid(),
        config.group_names()
    );
    tracing::info!("{message}");
    Err(Answer::Refused(Refused::new(Code::Group, message)).to_line())
}

/// A kernel side without a job, kept loaded for the next one.
#[derive(Debug)]
struct Idle {
    until: Instant,
    _found: discover::Found,
}

impl Idle {
    fn new(found: discover::Found) -> Self {
        Self {
            until: Instant::now() + IDLE,
            _found: found,
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// Raises the limit of open files: each caller and each process with a page takes one.
fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(errno) = raised {
        tracing::info!("cannot raise the limit of open files: {errno}");
    }
}

/// Whether an agent answers in this directory.
pub fn is_served(directory: &Path) -> bool {
    is_answered(&directory.join(JOBS_SOCKET))
}

/// Whether an agent listens there; the socket of a killed one refuses.
fn is_answered(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

fn hold_back_signals() -> Result<SignalFd> {
    let set: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    set.thread_block()
        .map_err(|errno| Error::system("cannot hold back signals", errno.into()))?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(|errno| Error::system("cannot make a signalfd", errno.into()))
}
