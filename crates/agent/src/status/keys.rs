// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a job's policy: each with its value, its origin and since when.

use paceline_abi::{pl_connection_record, pl_reason};
use serde::Serialize;

use crate::error::Result;
use crate::kernel_side::policies::JobPolicy;
pub use crate::kernel_side::policies::Origin;

/// A key of a job's policy.
#[derive(Debug, Clone, Serialize)]
pub struct KeyStatus {
    /// As `ack.delay`.
    pub key: String,
    /// As in a policy file; null: `paceline set` has left the key out.
    pub value: Option<String>,
    /// `preset`, `file` or `set`.
    pub origin: Origin,
    /// Since it has this value, seconds.
    pub age_s: u64,
}

pub(super) fn of(policy: Option<&JobPolicy>, now_us: u64) -> Result<Vec<KeyStatus>> {
    let Some(policy) = policy else {
        return Ok(Vec::new());
    };
    let settings = policy.policy()?.settings();
    let has = |key: &str| settings.iter().any(|(known, _)| known == key);
    let left_out: Vec<&str> = policy.keys_set().filter(|key| !has(key)).collect();
    let status = |key: &str, value: Option<&String>| {
        let (origin, since_us) = policy.origin(key);
        KeyStatus {
            key: key.to_owned(),
            value: value.cloned(),
            origin,
            age_s: now_us.saturating_sub(since_us) / 1_000_000,
        }
    };
    let present = settings.iter().map(|(key, value)| status(key, Some(value)));
    Ok(present
        .chain(left_out.into_iter().map(|key| status(key, None)))
        .collect())
}

/// The behaviour where a policy lacks a key.
pub fn without(key: &str) -> &'static str {
    match key {
        "socket.nodelay" => "the program's",
        "window.fixed" | "window.again" | "rto.jitter" => "none",
        _ if key.starts_with("startup.") || key.starts_with("spacing.") => "none",
        _ => "the kernel's",
    }
}

/// Connections of a job that are under its policy, but under an earlier one.
pub(super) fn earlier(connections: &[pl_connection_record], job: u64, generation: u32) -> usize {
    let none = pl_reason::PL_REASON_NONE as u8;
    connections
        .iter()
        .filter(|record| record.job == job && record.reason == none)
        .filter(|record| record.generation != generation)
        .count()
}
