// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol of schedulers' plugins, at the same socket: a policy for a step's processes
//! before they run, and the counts of the job when they have ended.
//!
//! It has a version of its own, because a plugin is built against its scheduler and outlives
//! builds of Paceline: a version, once published, keeps its meaning. One line of JSON in each
//! direction; `docs/schemas/agent-protocol.json`.
//!
//! Only root may ask. The plugin names the user of a process; the agent's configuration limits
//! that user, as for `paceline run`.

use paceline_cgroup::Seat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{is_complete, line, Answer, Attached, Code, Refused, Reported};
use super::{Service, MOST_JOBS_PER_USER};
use crate::error::Error;
use crate::job;
use crate::kernel_side::discover;
use crate::listening::PAGES_SOCKET;
use crate::making::{self, Place};
use crate::options::JobOptions;
use crate::peer::{self, Peer};
use crate::supervise::pidfd;
use paceline_callers::Call;

/// The version that this agent speaks.
const PROTOCOL: u32 = 1;

/// A request of a scheduler's plugin.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "method", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Step {
    /// Puts the step of a process under a policy, before the process runs its program. The plugin
    /// sends it for each process of the step: the first one starts the job, the others join it, and
    /// the job ends with the last one.
    AttachStep {
        /// Version of the protocol: 1
        protocol: u32,
        /// The process, as the agent's PID namespace numbers it. It is in the step's cgroup
        process: u32,
        /// The policy, as listed in agent.toml
        policy: String,
        /// User who owns the job
        owner: u32,
        /// Groups of that user; one of them must be in agent.toml
        groups: Vec<u32>,
    },
    /// Returns the counts of a job that runs, or that ended a short while ago.
    Report {
        /// Version of the protocol: 1
        protocol: u32,
        /// Number of the job, from the answer to `attach-step`
        job: u64,
    },
}

/// The protocol's JSON schema.
pub fn schema() -> serde_json::Value {
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "for its schema")]
    struct Protocol {
        /// A request of root to the agent's socket jobs.sock: one line of JSON
        request: Step,
        /// The agent's answer: one line of JSON
        answer: PluginAnswer,
    }
    #[derive(JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[allow(dead_code, reason = "for its schema")]
    enum PluginAnswer {
        /// The step of the process is under the policy
        Attached(Attached),
        /// The counts of a step's job
        Reported(Reported),
        /// Nothing was changed; the process may run without the policy
        Refused(Refused),
    }
    let mut schema = schemars::schema_for!(Protocol).to_value();
    for request in schema["$defs"]["Step"]["oneOf"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        request["properties"]["method"]["description"] = "The operation".into();
    }
    schema["title"] = "The agent's protocol for plugins of schedulers, version 1".into();
    schema
}

impl Step {
    /// The request, if the line is meant as one: it has a version of this protocol.
    pub fn read(bytes: &[u8]) -> Option<Result<Self, Refused>> {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let protocol = value.get("protocol")?.as_u64();
        if protocol != Some(u64::from(PROTOCOL)) {
            let what = format!(
                "this agent speaks version {PROTOCOL} of the plugins' protocol: install the plugin and the agent of one release"
            );
            return Some(Err(Refused::new(Code::Version, what)));
        }
        if !is_complete(bytes) {
            let what = "a request is one line".to_owned();
            return Some(Err(Refused::new(Code::Malformed, what)));
        }
        let read = serde_json::from_value(value).map_err(|error| {
            let what = format!("not a valid request of a plugin: {error}");
            Refused::new(Code::Malformed, what)
        });
        Some(read)
    }
}

impl Service {
    /// Answers a plugin.
    pub(super) fn step(&mut self, call: &Call, step: Step) -> Result<Answer, Refused> {
        if call.credentials.uid() != 0 {
            let what = "only root may ask for others: a plugin runs in the scheduler's daemon";
            return Err(Refused::new(Code::NotRoot, what.to_owned()));
        }
        // The client must be alive: others may hold its socket.
        Peer::of(&call.stream, &call.credentials)?;
        match step {
            Step::AttachStep { .. } => self.attach_step(step).map(Answer::Attached),
            Step::Report { job, .. } => self.report(job).map(Answer::Reported),
        }
    }

    fn attach_step(&mut self, step: Step) -> Result<Attached, Refused> {
        let Step::AttachStep {
            process,
            policy,
            owner,
            groups,
            ..
        } = step
        else {
            unreachable!("asked by its name");
        };
        if owner != 0 && !groups.iter().any(|group| self.config.admits(*group)) {
            let names = self.config.group_names();
            let what = format!("user {owner} is in none of the groups that may run jobs: {names}");
            return Err(Refused::new(Code::Group, what));
        }
        let options = JobOptions {
            policy: self.listed(&policy)?.clone(),
            group: None,
            user: None,
            wait: None,
        };
        // First: the pidfd stays this process's, whatever gets its number later.
        let lives = pidfd(process).map_err(|_| Error::PeerGone { process })?;
        let own = self.hierarchy.of_process(process)?;
        peer::check(process, &lives)?;
        let cgroup = match Seat::of(&self.hierarchy, own) {
            Seat::Shared(cgroup) => cgroup,
            // Processes outside the step would come under the policy.
            Seat::Below(cgroup) => {
                let what = format!(
                    "process {process} is in {}, which is no step's cgroup: Slurm makes one with ProctrackType=proctrack/cgroup and CgroupPlugin=cgroup/v2",
                    cgroup.path().display()
                );
                return Err(Refused::new(Code::Peer, what));
            }
        };
        let place = Place {
            seat: Seat::Shared(cgroup),
            process,
            owner,
            most: Some(MOST_JOBS_PER_USER),
        };
        let (made, ()) = making::make(&self.hierarchy, &place, &options, |_| Ok(()))?;
        self.idle = None;
        let attached = Attached {
            job: made.cgroup.id()?,
            cgroup: made.cgroup.path().to_path_buf(),
            pages: job::has_phases(&options.policy)
                .then(|| self.socket.path().with_file_name(PAGES_SOCKET)),
        };
        self.watch.add_run(made.cgroup, process, lives);
        Ok(attached)
    }

    fn report(&self, job: u64) -> Result<Reported, Refused> {
        let found = discover::find()?.filter(discover::Found::is_ours);
        let there = match found {
            Some(found) => found.job(job)?.map(|there| (found, there)),
            None => None,
        };
        let counts = there.map(|(found, there)| found.counts(job, &there));
        let counts = counts.transpose()?.or_else(|| self.tally.of_ended(job));
        let counts = counts.ok_or_else(|| {
            let what = format!("there is no job {job}, and none that has ended a short while ago");
            Refused::new(Code::Job, what)
        })?;
        Ok(Reported {
            text: counts.summary(),
            traffic: counts.traffic.summary(),
            counts,
        })
    }
}

/// For the fuzzer.
pub(super) fn fuzz(bytes: &[u8]) {
    if let Some(Ok(step)) = Step::read(bytes) {
        let again = Step::read(&line(&step));
        assert!(matches!(again, Some(Ok(other)) if other == step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Result<Step, Code>> {
        Step::read(text.as_bytes()).map(|read| read.map_err(|refused| refused.code))
    }

    #[test]
    fn a_request_of_the_plugin_differs_from_others() {
        let text = "{\"protocol\":1,\"method\":\"attach-step\",\"process\":7,\"policy\":\"lfn\",\"owner\":1000,\"groups\":[4]}\n";
        let step = read(text).expect("a plugin's").expect("valid");
        assert!(matches!(&step, Step::AttachStep { process: 7, .. }));
        let report = read("{\"protocol\":1,\"method\":\"report\",\"job\":9}\n");
        assert_eq!(
            report,
            Some(Ok(Step::Report {
                protocol: 1,
                job: 9
            }))
        );
        assert_eq!(read("{\"abi\":1,\"policy\":\"lfn\"}\n"), None);
        assert_eq!(read("nonsense\n"), None);
    }

    #[test]
    fn another_version_is_refused_before_its_fields_are_read() {
        for text in [
            "{\"protocol\":2,\"method\":\"fly\"}\n",
            "{\"protocol\":\"1\"}\n",
            "{\"protocol\":-1}\n",
        ] {
            assert_eq!(read(text), Some(Err(Code::Version)), "{text}");
        }
        for text in [
            "{\"protocol\":1}\n",
            "{\"protocol\":1,\"method\":\"fly\"}\n",
            "{\"protocol\":1,\"method\":\"report\",\"job\":9,\"more\":1}\n",
            // Cut at the limit.
            "{\"protocol\":1,\"method\":\"report\",\"job\":9}",
        ] {
            assert_eq!(read(text), Some(Err(Code::Malformed)), "{text}");
        }
    }
}
