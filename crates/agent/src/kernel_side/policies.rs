// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy that a job has now (`pl_policies`): for the programs, and as text.
//!
//! One update of the map replaces all of it, so that a killed command leaves the old policy
//! or the new one. Each connection notes the generation of its policy; `applied` is the one
//! that all connections in reach were given.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use paceline_abi::{as_bytes, from_bytes, pl_job, pl_job_policy, pl_policy, PL_POLICY_TEXT};
use paceline_cgroup::Lock;
use paceline_policy::Policy;
use serde::{Deserialize, Serialize};

use super::discover::Found;
use crate::error::{Error, Result};

/// An update takes memory that the kernel refills from an interrupt.
const ATTEMPTS: u32 = 20;
const RETRY: Duration = Duration::from_millis(1);

/// Where a whole policy is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A preset.
    Preset,
    /// A file.
    File,
    /// `paceline set KEY=VALUE`: of single keys.
    Set,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preset => "preset",
            Self::File => "file",
            Self::Set => "set",
        })
    }
}

/// A policy as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Whole {
    toml: String,
    origin: Origin,
    /// CLOCK_MONOTONIC.
    since_us: u64,
}

/// The content of `pl_job_policy.text`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    started: Whole,
    now: Whole,
    /// Keys that `paceline set` has set or left out since, and when.
    set: BTreeMap<String, u64>,
}

/// A job's policy, and where each key is from.
#[derive(Debug, Clone)]
pub(crate) struct JobPolicy {
    abi: pl_job_policy,
    text: Text,
}

impl Whole {
    /// Without the description: it serves the choice of a policy, and there is no room for it.
    fn new(policy: &Policy, since_us: u64) -> Self {
        let origin = match Policy::preset(&policy.name) {
            Some(preset) if preset == *policy => Origin::Preset,
            _ => Origin::File,
        };
        let policy = Policy {
            description: String::new(),
            ..policy.clone()
        };
        Self {
            toml: policy.to_toml(),
            origin,
            since_us,
        }
    }

    fn policy(&self) -> Result<Policy> {
        Ok(Policy::parse(&self.toml, "the job's policy")?)
    }
}

impl JobPolicy {
    /// Of a job that begins.
    pub fn begin(policy: &Policy, job: &pl_job) -> Result<Self> {
        let whole = Whole::new(policy, job.started_us);
        let text = Text {
            started: whole.clone(),
            now: whole,
            set: BTreeMap::new(),
        };
        let abi = pl_job_policy {
            policy: job.policy,
            since_us: job.started_us,
            ..pl_job_policy::default()
        };
        Self { abi, text }.written()
    }

    /// With the text for the kernel.
    fn written(mut self) -> Result<Self> {
        let text = serde_json::to_vec(&self.text).expect("strings and numbers always serialize");
        if text.len() > PL_POLICY_TEXT as usize {
            return Err(Error::Incomplete {
                what: "room for this policy",
            });
        }
        self.abi.text_bytes = text.len() as u32;
        self.abi.text = [0; PL_POLICY_TEXT as usize];
        for (to, from) in self.abi.text.iter_mut().zip(text) {
            *to = from as _;
        }
        Ok(self)
    }

    fn read(bytes: &[u8]) -> Result<Self> {
        let abi: pl_job_policy = from_bytes(bytes)?;
        let text: Vec<u8> = abi.text.iter().map(|byte| *byte as u8).collect();
        let text = text.get(..abi.text_bytes as usize).unwrap_or_default();
        let text = serde_json::from_slice(text).map_err(|error| {
            Error::system("cannot read the job's policy", std::io::Error::from(error))
        })?;
        Ok(Self { abi, text })
    }

    /// The next policy, and its form for the programs.
    pub fn then(&self, next: Next, policy: &Policy, abi: pl_policy, now_us: u64) -> Result<Self> {
        let mut text = self.text.clone();
        match next {
            Next::Keys(keys) => {
                let set = keys.into_iter().map(|key| (key, now_us));
                text.set.extend(set);
                text.now.toml = Whole::new(policy, now_us).toml;
            }
            Next::Whole => {
                text.now = Whole::new(policy, now_us);
                text.set.clear();
            }
            Next::Started => {
                text.now = text.started.clone();
                text.set.clear();
            }
        }
        let abi = pl_job_policy {
            policy: abi,
            since_us: now_us,
            generation: self.abi.generation.wrapping_add(1),
            had_rto_min: self.abi.had_rto_min | u32::from(self.abi.policy.rto_min_us != 0),
            ..self.abi
        };
        Self { abi, text }.written()
    }

    /// For the programs.
    pub fn abi(&self) -> &pl_policy {
        &self.abi.policy
    }

    /// The policy now.
    pub fn policy(&self) -> Result<Policy> {
        self.text.now.policy()
    }

    /// The policy that the job began with.
    pub fn started(&self) -> Result<Policy> {
        self.text.started.policy()
    }

    /// Whether the job's processes may have phases, although it began with none.
    pub fn has_had_phases(&self) -> bool {
        self.abi.generation != 0
    }

    /// One more with each change.
    pub fn generation(&self) -> u32 {
        self.abi.generation
    }

    /// Keys that `paceline set` has set or left out.
    pub fn keys_set(&self) -> impl Iterator<Item = &str> {
        self.text.set.keys().map(String::as_str)
    }

    /// A key's origin and its time (CLOCK_MONOTONIC).
    pub fn origin(&self, key: &str) -> (Origin, u64) {
        match self.text.set.get(key) {
            Some(since_us) => (Origin::Set, *since_us),
            None => (self.text.now.origin, self.text.now.since_us),
        }
    }
}

/// How a policy follows another.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    /// These keys have other values.
    Keys(Vec<String>),
    /// Another policy.
    Whole,
    /// The policy that the job began with.
    Started,
}

impl Found {
    /// A job's policy; none where an older command was killed before it wrote one.
    pub fn policy(&self, id: u64) -> Result<Option<JobPolicy>> {
        self.map_of("pl_policies")?
            .lookup(&id.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::bpf("cannot read the job's policy", error))?
            .as_deref()
            .map(JobPolicy::read)
            .transpose()
    }

    /// Writes it; from now on new connections get it.
    pub fn put_policy(&self, _lock: &Lock, id: u64, policy: &JobPolicy) -> Result<()> {
        let map = self.map_of("pl_policies")?;
        let mut attempts = 0;
        loop {
            match map.update(&id.to_ne_bytes(), as_bytes(&policy.abi), MapFlags::ANY) {
                Ok(()) => return Ok(()),
                Err(error)
                    if error.kind() == libbpf_rs::ErrorKind::OutOfMemory && attempts < ATTEMPTS =>
                {
                    attempts += 1;
                    std::thread::sleep(RETRY);
                }
                Err(error) if error.kind() == libbpf_rs::ErrorKind::TooBig => {
                    return Err(Error::TooManyJobs {
                        limit: paceline_abi::PL_MAX_JOBS,
                    });
                }
                Err(error) => return Err(Error::bpf("cannot write the job's policy", error)),
            }
        }
    }

    /// Notes that the connections in reach were given it.
    pub fn note_applied(&self, lock: &Lock, id: u64) -> Result<()> {
        let Some(mut policy) = self.policy(id)? else {
            return Ok(());
        };
        policy.abi.applied = policy.abi.generation;
        self.put_policy(lock, id, &policy)
    }

    /// Jobs whose connections were not all given their policy, because a command was killed.
    pub fn half_set(&self) -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        if !self.is_ours() {
            return Ok(ids);
        }
        for id in self.job_ids() {
            if let Some(policy) = self.policy(id)? {
                if policy.abi.applied != policy.abi.generation {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }

    /// Forgets one. Gone already is success.
    pub fn delete_policy(&self, id: u64) -> Result<()> {
        match self.map_of("pl_policies")?.delete(&id.to_ne_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::bpf("cannot delete the job's policy", error))
            }
            _ => Ok(()),
        }
    }

    /// Forgets those of jobs that are not there: a command was killed before it made the job.
    pub fn delete_stray_policies(&self) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let jobs = self.job_ids();
        let keys: Vec<Vec<u8>> = self.map_of("pl_policies")?.keys().collect();
        for key in keys {
            let id = key.try_into().map_or(0, u64::from_ne_bytes);
            if !jobs.contains(&id) {
                self.delete_policy(id)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key, at its longest.
    const LONGEST: &str = "
name = \"a-name-of-31-characters-a-name-\"
base = \"cubic\"
[startup]
target = \"delivery-rate\"
initial_rate = \"999999999999bit\"
half_life = \"86399999999us\"
phases = false
breaker = { loss = \"99.9%\", starts = 1000, hold = \"86399999999us\" }
[rto]
least = \"99999us\"
jitter = \"99999us\"
backoff = \"exponential\"
most = \"119999999us\"
[ack]
delay = \"199999us\"
every = 64
[window]
initial = 1000
[socket]
nodelay = false
[spacing]
clustered = false
line_rate = \"999999999999bit\"
gap = \"1023B\"
[report]
held_out = \"50%\"
";

    #[test]
    fn the_longest_policy_with_all_keys_set_has_room() {
        let policy = Policy::parse(LONGEST, "longest").unwrap();
        let job = pl_job {
            started_us: u64::MAX,
            ..pl_job::default()
        };
        let begun = JobPolicy::begin(&policy, &job).unwrap();
        let keys = policy.settings().into_iter().map(|(key, _)| key).collect();
        let set = begun
            .then(Next::Keys(keys), &policy, pl_policy::default(), u64::MAX)
            .unwrap();
        assert_eq!(set.generation(), 1);
        let read = JobPolicy::read(as_bytes(&set.abi)).unwrap();
        assert_eq!(read.text, set.text);
        assert_eq!(read.origin("rto.least"), (Origin::Set, u64::MAX));
        // Twice as many keys would still have room.
        assert!(
            set.abi.text_bytes * 3 / 2 < PL_POLICY_TEXT,
            "{}",
            set.abi.text_bytes
        );
        assert_eq!(read.policy().unwrap().to_toml(), policy.to_toml());
    }

    #[test]
    fn a_reset_is_what_the_job_began_with_and_since_then() {
        let lfn = Policy::preset("lfn").unwrap();
        let job = pl_job {
            started_us: 7,
            ..pl_job::default()
        };
        let abi = pl_policy::default();
        let begun = JobPolicy::begin(&lfn, &job).unwrap();
        assert_eq!(begun.origin("rto.least"), (Origin::Preset, 7));
        let pace = Policy::preset("pace").unwrap();
        let other = begun.then(Next::Whole, &pace, abi, 9).unwrap();
        assert_eq!(other.origin("startup.target"), (Origin::Preset, 9));
        let set = other
            .then(Next::Keys(vec!["ack.delay".to_owned()]), &pace, abi, 11)
            .unwrap();
        assert_eq!(set.origin("ack.delay"), (Origin::Set, 11));
        let back = set.then(Next::Started, &lfn, abi, 13).unwrap();
        assert_eq!(back.origin("ack.delay"), (Origin::Preset, 7));
        assert_eq!(back.generation(), 3);
    }
}
