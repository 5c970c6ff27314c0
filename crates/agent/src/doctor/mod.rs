// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Probes this kernel and host for the features that Paceline uses.
//!
//! Kernel versions decide nothing here: each feature is probed.

mod buffers;
mod host;
mod kernel;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::service;

/// The path whose BDP the buffers must hold.
#[derive(Debug, Clone, Copy)]
pub struct PathOptions {
    /// Bits of payload per second.
    pub rate_bits_per_s: u64,
    /// Round-trip time.
    pub rtt: Duration,
}

impl PathOptions {
    /// Bandwidth-delay product in bytes.
    pub fn bdp_bytes(self) -> u64 {
        (u128::from(self.rate_bits_per_s) * self.rtt.as_micros() / 8_000_000)
            .try_into()
            .unwrap_or(u64::MAX)
    }
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The feature is available, or the check is for information.
    Ok,
    /// Paceline runs with fewer features or worse performance.
    Warn,
    /// Paceline cannot run.
    Fail,
}

/// One feature.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// Short fixed name.
    pub name: &'static str,
    /// The result.
    pub level: Level,
    /// The finding.
    pub found: String,
    /// The consequence for Paceline.
    pub meaning: String,
    /// The remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    fn new(name: &'static str, level: Level, found: impl Into<String>, meaning: &str) -> Self {
        Self {
            name,
            level,
            found: found.into(),
            meaning: meaning.to_owned(),
            advice: None,
        }
    }

    fn ok(name: &'static str, found: impl Into<String>, meaning: &str) -> Self {
        Self::new(name, Level::Ok, found, meaning)
    }

    fn warn(name: &'static str, found: impl Into<String>, meaning: &str, advice: &str) -> Self {
        Self::new(name, Level::Warn, found, meaning).advise(advice)
    }

    fn fail(name: &'static str, found: impl Into<String>, meaning: &str, advice: &str) -> Self {
        Self::new(name, Level::Fail, found, meaning).advise(advice)
    }

    /// A check that was not made because it needs root.
    fn unchecked(name: &'static str, meaning: &str) -> Self {
        Self::warn(
            name,
            "not checked: needs root",
            meaning,
            "sudo paceline doctor",
        )
    }

    fn advise(mut self, advice: &str) -> Self {
        self.advice = Some(advice.to_owned());
        self
    }
}

/// All checks.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// No check failed.
    pub can_run: bool,
    /// In the order in which they build on each other.
    pub checks: Vec<Check>,
}

/// Makes every check. It leaves no change behind: it removes everything that a probe registered
/// or created, and the leftovers of ended jobs.
pub fn examine(path: PathOptions) -> Report {
    let root = paceline_bpf::permission::capable();
    let agent = !root && service::is_served(Path::new(service::DIRECTORY));
    let mut checks = vec![host::privileges(root, agent)];
    // First, because the probes below clean up as every command does.
    checks.push(host::leftovers(root));
    checks.extend(kernel::checks(root));
    checks.extend(host::checks(root));
    checks.extend(buffers::checks(root, path));
    Report {
        can_run: checks.iter().all(|check| check.level != Level::Fail),
        checks,
    }
}

/// A sysctl's value, trimmed; none where this kernel does not have it.
fn sysctl(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")))
        .ok()
        .map(|value| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bdp_is_rate_times_rtt() {
        let path = PathOptions {
            rate_bits_per_s: 500_000_000,
            rtt: Duration::from_millis(20),
        };
        assert_eq!(path.bdp_bytes(), 1_250_000);
    }
}
