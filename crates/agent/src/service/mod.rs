// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline agent`: jobs for users who are not root.
//!
//! One thread answers requests for jobs and cleans up after them, another one
//! ([`PageServer`]) hands out phase pages. Nothing is remembered that the kernel does
//! not know: a killed agent's successor finds all jobs again.
//!
//! A request names a policy and nothing else that counts. Who asks is the kernel's
//! word ([`peer`]); the job is made below the asker's own cgroup, and only the asker
//! is moved into it.

mod client;
mod config;
mod notify;
mod peer;
mod request;
mod watch;

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::callers::{Call, Callers};
use crate::cgroup::{Cgroup, Hierarchy};
use crate::error::{Error, Result};
use crate::group::server::GroupServer;
use crate::job::{self, JobOptions};
use crate::kernel_side::discover;
use crate::leftovers;
use crate::making::{self, Place};
use crate::pages::{self, PageServer};
use crate::seat::Seat;
use crate::verdict::Counts;
use request::{About, Answer, Code, Question, Refused, Request, Started};
use watch::Watch;

pub use client::run_by_agent;
pub use config::{Config, DEFAULT_CONFIG};
pub use pages::DIRECTORY;
pub(crate) use peer::Peer;

/// Below the directory: where programs ask for their pages. libpaceline knows the name.
const PAGES_SOCKET: &str = "agent.sock";
/// Below the directory: where jobs are asked for.
const JOBS_SOCKET: &str = "jobs.sock";
/// Below the directory: where groups are looked at and bounded.
pub(crate) const GROUPS_SOCKET: &str = "groups.sock";

/// Jobs of one user at once: a host's worth of jobs of one rank each, and far from
/// PL_MAX_JOBS, so that no user can keep the others from having any.
const MOST_JOBS_PER_USER: usize = 64;

/// An agent, from its start to the signal that ends it.
#[derive(Debug)]
pub struct Service {
    hierarchy: Hierarchy,
    config: Config,
    listener: UnixListener,
    socket: PathBuf,
    signals: SignalFd,
    callers: Callers,
    watch: Watch,
    // Before the pages', whose end takes the directory with it.
    groups: GroupServer,
    pages: PageServer,
}

impl Service {
    /// Takes over the sockets in `directory` and cleans up what ended jobs left. From
    /// then on, SIGTERM and SIGINT are held back for [`Service::run`]. For the main
    /// thread of a program that does nothing else.
    ///
    /// # Errors
    /// [`Error::AgentRunning`]; what stands in the way of any job.
    pub fn start(config: Config, directory: &Path) -> Result<Self> {
        job::require_root("paceline agent")?;
        let hierarchy = Hierarchy::find()?;
        if hierarchy.read_only() {
            return Err(Error::CgroupReadOnly {
                path: hierarchy.mount().to_path_buf(),
            });
        }
        // Before the other thread, which is to have this mask as well.
        let signals = hold_back_signals()?;
        let socket = directory.join(JOBS_SOCKET);
        // Two agents that start at once do so one after the other.
        let lock = hierarchy.lock()?;
        if is_answered(&socket) {
            return Err(Error::AgentRunning { socket });
        }
        leftovers::clean(&hierarchy, &lock)?;
        let pages = PageServer::listen_at(&hierarchy, directory.join(PAGES_SOCKET))?;
        let groups = GroupServer::listen_at(directory.join(GROUPS_SOCKET), config.clone())?;
        let listener = pages::listen(&socket)?;
        drop(lock);
        let mut watch = Watch::default();
        watch.renew(&hierarchy);
        Ok(Self {
            hierarchy,
            config,
            listener,
            socket,
            signals,
            callers: Callers::default(),
            watch,
            pages,
            groups,
        })
    }

    /// Serves until SIGTERM or SIGINT. Jobs that run then go on.
    ///
    /// # Errors
    /// Where it cannot wait for requests.
    pub fn run(mut self) -> Result<()> {
        notify::ready();
        tracing::info!("serving jobs at {}", self.socket.display());
        loop {
            let mut sources = vec![
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            ];
            sources.extend(self.watch.sources());
            sources.extend(self.callers.sources());
            match poll(&mut sources, self.callers.timeout()) {
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
                return Ok(());
            }
            if self.watch.any_ended(&changed) {
                self.clean();
            }
            self.callers.accept(&self.listener);
            for call in self.callers.ready(request::LONGEST, request::is_complete) {
                self.answer(call);
            }
        }
    }

    fn clean(&mut self) {
        let cleaned = self
            .hierarchy
            .lock()
            .and_then(|lock| leftovers::clean(&self.hierarchy, &lock));
        if let Err(error) = cleaned {
            tracing::warn!("a job has ended but is not cleaned up yet: {error}");
        }
        self.watch.renew(&self.hierarchy);
    }

    fn answer(&mut self, call: Call) {
        let user = call.who.uid();
        let started = match Question::read(&call.said) {
            Some(question) => self.look(&call, &question).map(Answer::Connections),
            None => self.start_job(&call).map(Answer::Started),
        };
        let answer = match started {
            Ok(Answer::Started(started)) => {
                tracing::info!("job of user {user} in {}", started.cgroup.display());
                Answer::Started(started)
            }
            Ok(answer) => answer,
            Err(refused) => {
                tracing::info!("user {user} gets no job: {}", refused.message);
                Answer::Refused(refused)
            }
        };
        let mut stream = call.stream;
        // Into an empty buffer, which has room for it.
        if let Err(error) = stream.write_all(&answer.to_line()) {
            tracing::info!("user {user} does not hear the answer: {error}");
        }
    }

    /// Answers about the job that the asker is in, if it is the asker's.
    fn look(&self, call: &Call, question: &Question) -> Result<Counts, Refused> {
        let About::Connections = question.about;
        let peer = Peer::of(&call.stream, &call.who)?;
        let found = discover::find()?.filter(discover::Found::is_ours);
        // In a part of a job's cgroup that a program has made, too.
        let own = peer.cgroup(&self.hierarchy)?;
        let above = own.path().ancestors();
        for path in above.take_while(|path| path.starts_with(self.hierarchy.mount())) {
            let id = Cgroup::at(path.to_path_buf()).id()?;
            match found.as_ref().map_or(Ok(None), |found| found.job(id))? {
                Some(job) if job.owner_uid == peer.user => return Ok(Counts::from(&job)),
                Some(_) => break,
                None => {}
            }
        }
        let what = "the asker is in no job of its own".to_owned();
        Err(Refused::new(Code::Peer, what))
    }

    fn start_job(&mut self, call: &Call) -> Result<Started, Refused> {
        let peer = Peer::of(&call.stream, &call.who)?;
        if peer.user != 0 && !peer.groups.iter().any(|group| self.config.admits(*group)) {
            return Err(Refused::new(
                Code::Group,
                format!(
                    "user {} is in none of the groups that may run jobs: {}",
                    peer.user,
                    self.config.group_names()
                ),
            ));
        }
        let request = Request::read(&call.said)?;
        let Some(policy) = self.config.policy(&request.policy) else {
            return Err(Refused::new(
                Code::Policy,
                format!(
                    "policy {} is not one of those allowed: {}",
                    request.policy,
                    self.config.policy_names()
                ),
            ));
        };
        let options = JobOptions {
            policy: policy.clone(),
            group: request.group,
            user: None,
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

impl Drop for Service {
    fn drop(&mut self) {
        // Before the pages' socket, which takes the directory with it.
        if let Err(error) = pages::remove(&self.socket) {
            tracing::warn!("cannot remove {}: {error}", self.socket.display());
        }
        for socket in [self.pages.socket(), self.groups.socket()] {
            tracing::debug!("{} goes too", socket.display());
        }
    }
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
