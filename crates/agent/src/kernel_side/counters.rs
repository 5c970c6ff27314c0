// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of the programs, per job and CPU (bpf/counters.h).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use libbpf_rs::{MapCore, MapFlags};
use paceline_abi::{
    from_bytes, name_text, pl_connection_record, pl_counters, pl_counters_key, pl_job, pl_trial,
    pl_trial_key, Plain,
};
use paceline_history::{trial, Counts, Record, Traffic, Trial};
use paceline_net::clock::monotonic_us;

use super::discover::Found;
use super::policies::JobPolicy;
use crate::error::{Error, Result};

const COUNTERS: &str = "pl_counters";
const TRIALS: &str = "pl_trials";

/// Traffic of a job's connections, by phase class.
pub type ByClass = BTreeMap<u32, Traffic>;

impl Found {
    /// Traffic of a job's connections, by phase class; of those that still send, up to
    /// their last burst.
    pub fn traffic(&self, job: u64) -> Result<ByClass> {
        let mut by_class = ByClass::new();
        self.each(
            COUNTERS,
            job,
            |key: &pl_counters_key, value: &pl_counters| {
                *by_class.entry(key.class).or_default() += Traffic::from(value);
            },
        )?;
        Ok(by_class)
    }

    fn trials(&self, job: u64) -> Result<Vec<Trial>> {
        let mut counted = Vec::new();
        self.each(TRIALS, job, |key: &pl_trial_key, value: &pl_trial| {
            counted.push((key.size, key.held, *value));
        })?;
        Ok(trial::trials(counted))
    }

    /// The counts of a job for its last line.
    pub fn counts(&self, id: u64, job: &pl_job) -> Result<Counts> {
        let mut counts = Counts::from(job);
        for traffic in self.traffic(id)?.values() {
            counts.traffic += *traffic;
        }
        Ok(counts)
    }

    /// A job with all its counts; `open`: connections whose counts are not added up yet.
    pub fn record(
        &self,
        id: u64,
        job: &pl_job,
        cgroup: Option<PathBuf>,
        open: &[pl_connection_record],
    ) -> Result<Record> {
        let policy = self.policy(id)?;
        let abi = policy.as_ref().map_or(job.policy, |policy| *policy.abi());
        let name = policy.as_ref().map(JobPolicy::policy).transpose()?;
        let age_s = monotonic_us().saturating_sub(job.started_us) / 1_000_000;
        let mut record = Record {
            job: id,
            cgroup,
            owner_uid: job.owner_uid,
            policy: name.map_or_else(|| name_text(&job.policy_name), |policy| policy.name),
            started_unix_s: unix_s().saturating_sub(age_s),
            ended_unix_s: None,
            counts: Counts::from(job),
            phases: BTreeMap::new(),
            held_out_percent: abi.held_out_percent,
            trials: self.trials(id)?,
        };
        let mut by_class = self.traffic(id)?;
        add_open(&mut by_class, id, open);
        record.add_phases(by_class);
        Ok(record)
    }

    /// Deletes a job's counters.
    pub(super) fn delete_counters(&self, job: u64) -> Result<()> {
        self.delete_all_of(COUNTERS, job)?;
        self.delete_all_of(TRIALS, job)
    }

    /// Deletes counters that sockets made for a job that ended in the same moment.
    pub fn delete_stray_counters(&self) -> Result<()> {
        let ids = self.job_ids();
        for name in [COUNTERS, TRIALS] {
            let map = self.map_of(name)?;
            let keys: Vec<Vec<u8>> = map.keys().collect();
            for key in keys {
                let job = key.first_chunk().map(|id| u64::from_ne_bytes(*id));
                if job.is_none_or(|job| !ids.contains(&job)) {
                    // Already gone: success.
                    let _ = map.delete(&key);
                }
            }
        }
        Ok(())
    }

    /// Each CPU's value of each entry of a job.
    fn each<K: Plain, V: Plain>(
        &self,
        name: &'static str,
        job: u64,
        mut see: impl FnMut(&K, &V),
    ) -> Result<()> {
        let map = self.map_of(name)?;
        for key in map.keys().filter(|key| key.starts_with(&job.to_ne_bytes())) {
            let values = map
                .lookup_percpu(&key, MapFlags::ANY)
                .map_err(|error| Error::bpf("cannot read what a job counted", error))?;
            let key = from_bytes(&key)?;
            for value in values.unwrap_or_default() {
                see(&key, &from_bytes(&value)?);
            }
        }
        Ok(())
    }
}

/// Adds the counts that a job's connections have not added up yet.
pub(crate) fn add_open(by_class: &mut ByClass, job: u64, connections: &[pl_connection_record]) {
    let open = |record: &&pl_connection_record| record.job == job && record.new_segs != 0;
    for record in connections.iter().filter(open) {
        *by_class.entry(record.phase & 0xff).or_default() += Traffic {
            bytes: record.new_bytes,
            segments: record.new_segs.into(),
            retransmitted_segments: record.new_retransmitted_segs.into(),
            ..Traffic::default()
        };
    }
}

/// Now, in seconds since 1970.
pub(crate) fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
