// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One job and its traffic.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trial::Trial;
use crate::{Counts, Traffic};

/// Phase classes of which a record keeps the numbers: those with most bytes. The rest is in
/// the sum alone, so that a record has a bounded size.
const MOST_PHASES: usize = 8;

/// A job, running or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Id of its cgroup.
    pub job: u64,
    /// The cgroup's directory; none where it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// The user who started it.
    pub owner_uid: u32,
    /// Name of the policy that it has, or had at its end.
    pub policy: String,
    /// When it started, seconds since 1970.
    pub started_unix_s: u64,
    /// When it was seen to have ended; none: it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_s: Option<u64>,
    /// Its connections, from its start.
    pub counts: Counts,
    /// Of these, by phase class; empty where there is but class 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<u32, Traffic>,
    /// Share of bursts that is held out, percent; 0: none.
    pub held_out_percent: u8,
    /// Bursts by size class, under the policy and held out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
}

impl Record {
    /// Adds the phases' counts, and keeps the largest of them.
    pub fn add_phases(&mut self, phases: BTreeMap<u32, Traffic>) {
        for traffic in phases.values() {
            self.counts.traffic += *traffic;
        }
        if phases.keys().all(|class| *class == 0) {
            return;
        }
        let mut largest: Vec<_> = phases.into_iter().collect();
        largest.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.bytes));
        largest.truncate(MOST_PHASES);
        self.phases = largest.into_iter().collect();
    }
}
