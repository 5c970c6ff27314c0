// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The line at the end of a job: its traffic, or that its policy had no effect.
//!
//! The latter is the line of a job whose processes a launcher has started elsewhere, with any
//! name of the launcher and in any script: `paceline_launch::launcher` only guesses.

use std::process::Command;

use paceline_abi::pl_job;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::traffic::counted;
use crate::Traffic;

/// Target of the line's log event, which is shown unless the user asks for quiet.
pub const TARGET: &str = "paceline_end";

/// Connections of a job, from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Connections that got the policy.
    pub governed: u64,
    /// Connections left unchanged because the kernel refused a setting.
    pub refused: u64,
    /// Connections left unchanged because both ends are on this host.
    pub loopback: u64,
    /// Connections left unchanged because they use Multipath TCP.
    pub mptcp: u64,
    /// Traffic of the connections that got the policy
    #[serde(default)]
    pub traffic: Traffic,
}

impl From<&pl_job> for Counts {
    fn from(job: &pl_job) -> Self {
        Self {
            governed: job.connections,
            refused: job.refused,
            loopback: job.loopback,
            mptcp: job.mptcp,
            traffic: Traffic::default(),
        }
    }
}

impl Counts {
    /// The result of the connections, in one line, without details.
    pub fn summary(self) -> String {
        let connections = |count: u64| match count {
            1 => "1 connection".to_owned(),
            _ => format!("{count} connections"),
        };
        let mut text = format!("{} got the policy", connections(self.governed));
        for (count, why) in [
            (self.refused, "the kernel refused a setting"),
            (self.loopback, "within this host"),
            (self.mptcp, "Multipath TCP"),
        ] {
            if count > 0 {
                text += &format!("; {count} left alone: {why}");
            }
        }
        text
    }
}

/// Variables in which launchers give each rank its number.
const RANKS: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];

/// Logs the job's result in one line. Without `counts` there is none.
pub fn log(counts: Option<Counts>, policy: &str, command: &Command) {
    let Some(counts) = counts else {
        return;
    };
    // A job within this one has had the connections.
    let mut arguments = std::iter::once(command.get_program()).chain(command.get_args());
    if arguments.any(|word| word.to_string_lossy().ends_with("paceline")) {
        return;
    }
    // Of many ranks that are jobs of their own, one speaks.
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok());
    if rank.is_some_and(|rank| rank != "0") {
        return;
    }
    match message_for(counts, policy) {
        Some(message) => tracing::warn!("{message}"),
        None => tracing::info!(target: TARGET, "{}", sum(&counts)),
    }
}

fn sum(counts: &Counts) -> String {
    format!(
        "{}, {}",
        counted(counts.governed, "connection"),
        counts.traffic.summary()
    )
}

fn message_for(counts: Counts, policy: &str) -> Option<String> {
    let Counts {
        governed,
        refused,
        loopback,
        mptcp,
        ..
    } = counts;
    if governed > 0 {
        return None;
    }
    let reason = if refused > 0 {
        format!("the kernel refused a setting of the policy on {refused}: see paceline doctor")
    } else if loopback + mptcp > 0 {
        let mut kinds = Vec::new();
        if loopback > 0 {
            kinds.push(format!("{loopback} within this host"));
        }
        if mptcp > 0 {
            kinds.push(format!("{mptcp} of Multipath TCP"));
        }
        format!(
            "it had {}, which Paceline does not change. {}",
            kinds.join(" and "),
            elsewhere(policy)
        )
    } else {
        format!("it had no TCP connection at all. {}", elsewhere(policy))
    };
    Some(format!(
        "no connection of the job to another host got the policy {policy}: {reason}"
    ))
}

fn elsewhere(policy: &str) -> String {
    format!(
        "If a daemon started its processes (srun, ssh, mpirun on other hosts, a container), put paceline after the launcher: LAUNCHER [OPTIONS] paceline run --policy {policy} -- ./prog"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_had_the_policy_gets_no_message() {
        let counts = Counts {
            governed: 1,
            refused: 2,
            loopback: 3,
            mptcp: 4,
            traffic: Traffic::default(),
        };
        assert_eq!(message_for(counts, "lfn"), None);
        assert_eq!(sum(&counts), "1 connection, nothing sent, 0 RTOs");
    }

    #[test]
    fn the_counts_are_one_line() {
        let mut counts = Counts::default();
        assert_eq!(counts.summary(), "0 connections got the policy");
        counts.governed = 1;
        counts.loopback = 3;
        assert_eq!(
            counts.summary(),
            "1 connection got the policy; 3 left alone: within this host"
        );
    }

    #[test]
    fn the_reason_is_the_likely_one_on_one_line() {
        let of = |refused, loopback, mptcp| {
            let counts = Counts {
                governed: 0,
                refused,
                loopback,
                mptcp,
                traffic: Traffic::default(),
            };
            let message = message_for(counts, "lfn").unwrap();
            assert!(!message.contains('\n'));
            message
        };
        assert!(of(0, 0, 0).contains("no TCP connection at all"));
        assert!(of(0, 0, 0).contains("paceline run --policy lfn -- ./prog"));
        assert!(of(0, 3, 0).contains("3 within this host, which"));
        assert!(of(0, 3, 1).contains("3 within this host and 1 of Multipath TCP"));
        assert!(of(2, 3, 1).contains("refused a setting of the policy on 2"));
        assert!(!of(2, 0, 0).contains("LAUNCHER"));
    }
}
