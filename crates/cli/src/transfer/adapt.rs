// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfer as a job: its connections under a policy, and in a group.
//!
//! The command moves into a cgroup of its own before it makes a connection. The kernel side is
//! loaded while it sends already; connections that exist are adopted then.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::Args;
use paceline_agent::attach::{attach, Reach};
use paceline_agent::cgroup::{Cgroup, Hierarchy};
use paceline_agent::job::{self, JobOptions};
use paceline_agent::{clean_up, group, service};
use paceline_policy::Policy;

/// Longest wait for the agent's answer before the first connection: later connections are in its
/// job. An agent that has another job already answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// At the end, ssh may need so many pauses to leave the cgroup.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Adaptation of the data connections.
#[derive(Args, Debug)]
pub struct AdaptArgs {
    /// Put the connections under this policy: a preset (see paceline policy list) or a TOML file.
    /// Needs root, or the agent
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// Group of parallel streams that they join (docs/parallel-streams.md) [default: mover-ID]
    #[arg(long, value_name = "NAME", requires = "policy")]
    group: Option<String>,
    /// Without root: directory of the agent's sockets
    #[arg(long, value_name = "DIR", default_value = service::DIRECTORY, requires = "policy")]
    agent: PathBuf,
}

/// A transfer's job, until it is dropped.
pub struct Adapted {
    /// This process's own cgroup, and the one that it came from; none if the agent made the job.
    moved: Option<(Cgroup, Cgroup)>,
    /// The load that runs meanwhile.
    loading: Option<std::thread::JoinHandle<()>>,
}

impl AdaptArgs {
    /// The same for another host that sends: options for its shell.
    ///
    /// # Errors
    /// A policy or a group that is none. A policy's file is read at the other host.
    pub fn elsewhere(&self, id: &str) -> Result<Option<String>> {
        let Some(policy) = &self.policy else {
            return Ok(None);
        };
        // No characters that are special to a shell.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
        if policy.starts_with('-') || policy.is_empty() || !policy.chars().all(is_plain) {
            bail!(
                "--policy {policy:?}: another host sends: expected a preset, or the path of a file \
                 at that host, of letters, digits, '.', '_', '-' and '/'"
            );
        }
        if !policy.contains('/') && !policy.contains('.') {
            Policy::load(policy)?;
        }
        let group = self.group.clone().unwrap_or_else(|| format!("mover-{id}"));
        group::check_name(&group)?;
        if group.starts_with('-') || !group.chars().all(is_plain) {
            bail!(
                "--group {group:?}: another host sends: expected letters, digits, '.', '_' and '-'"
            );
        }
        Ok(Some(format!("--policy {policy} --group {group}")))
    }

    /// A standing receiver sends nothing.
    ///
    /// # Errors
    /// A policy was given.
    pub fn refuse(&self) -> Result<()> {
        match self.policy {
            None => Ok(()),
            Some(_) => {
                bail!("--policy: it is the sending side that adapts; give it to paceline send")
            }
        }
    }

    /// Begins. A transfer goes on without adaptation if there can be none: one line says so.
    ///
    /// # Errors
    /// An invalid policy or group.
    pub fn begin(&self, id: &str) -> Result<Option<Adapted>> {
        let Some(name) = &self.policy else {
            return Ok(None);
        };
        let group = self.group.clone().unwrap_or_else(|| format!("mover-{id}"));
        group::check_name(&group)?;
        let begun = match job::capable() {
            true => own_job(Policy::load(name)?, group),
            false => agents_job(&self.agent, name, group),
        };
        Ok(match begun {
            Ok(adapted) => Some(adapted),
            Err(error) => {
                not_adapted(&error);
                None
            }
        })
    }
}

fn not_adapted(error: &anyhow::Error) {
    tracing::warn!("sent without --policy: {error:#}");
}

fn own_job(policy: Policy, group: String) -> Result<Adapted> {
    let hierarchy = Hierarchy::find()?;
    let before = hierarchy.own()?;
    let process = std::process::id();
    let cgroup = {
        // An empty cgroup of a job is a leftover to everybody else.
        let _lock = hierarchy.lock()?;
        let cgroup = before.create_job(process)?;
        if let Err(error) = cgroup.add(process) {
            let _ = cgroup.remove();
            return Err(error.into());
        }
        cgroup
    };
    let path = cgroup.path().to_owned();
    let loading = std::thread::spawn(move || {
        let options = JobOptions {
            policy,
            group: Some(group),
            user: None,
            wait: None,
        };
        match attach(&path, &options, Reach::Cgroup) {
            Ok(changed) => tracing::info!(
                "policy {}: {} connections existed",
                options.policy.name,
                changed.connections
            ),
            Err(error) => not_adapted(&error.into()),
        }
    });
    Ok(Adapted {
        moved: Some((cgroup, before)),
        loading: Some(loading),
    })
}

fn agents_job(directory: &Path, policy: &str, group: String) -> Result<Adapted> {
    let (sender, answer) = mpsc::channel();
    let (directory, policy) = (directory.to_owned(), policy.to_owned());
    let loading = std::thread::spawn(move || {
        let entered = service::enter_by_agent(&directory, &policy, Some(group));
        if let Err(mpsc::SendError(Err(error))) = sender.send(entered) {
            not_adapted(&error.into()); // it came late
        }
    });
    match answer.recv_timeout(PATIENCE) {
        Ok(entered) => entered.map(drop).context("the agent made no job")?,
        Err(_) => {
            tracing::info!("the agent is busy: connections that exist by then stay as they are")
        }
    }
    Ok(Adapted {
        moved: None,
        loading: Some(loading),
    })
}

impl Drop for Adapted {
    fn drop(&mut self) {
        let Some((cgroup, before)) = self.moved.take() else {
            return; // the agent sees this process end
        };
        if let Some(loading) = self.loading.take() {
            let _ = loading.join();
        }
        let left = before.add(std::process::id());
        for _ in 0..TRIES {
            if !cgroup.populated() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        if let Err(error) = left
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(clean_up()?))
        {
            // The next command that changes or shows jobs does it.
            tracing::info!("the transfer's job is left for the next command: {error:#}");
        }
    }
}
