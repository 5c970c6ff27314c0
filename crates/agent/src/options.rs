// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of a job, and its entry for the kernel side.

use std::os::fd::RawFd;

use paceline_abi::{name_to_array, pl_job, pl_policy, pl_seat};
use paceline_net::clock::monotonic_us;
use paceline_net::tick;
use paceline_policy::{Base, Policy};

/// The kernel's default for new sockets of this network namespace.
const DEFAULT_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The options of a job, besides its command.
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// The policy of its connections.
    pub policy: Policy,
    /// The group of parallel streams that its connections join, 1 to 31 bytes. Their congestion
    /// control is then wrapped, whatever the policy.
    pub group: Option<String>,
    /// Run the command as this user instead of the caller.
    pub user: Option<String>,
    /// Two pipes by which the command waits in its job before it is executed: it writes its
    /// process number (i32) to the first, and goes on with a byte other than 0 from the second.
    pub wait: Option<(RawFd, RawFd)>,
}

impl JobOptions {
    /// A job with this policy, no group name, as the calling user.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            group: None,
            user: None,
            wait: None,
        }
    }

    /// Whether its connections get Paceline's wrapper of the base algorithm: the policy
    /// needs it, or a group does, whose windows it bounds.
    pub(crate) fn wraps(&self) -> bool {
        let needed = self.policy.wraps() || self.group.is_some();
        needed && self.policy.base != Base::Keep
    }

    /// With the kernel's default algorithm, where a group bounds the windows and the policy
    /// keeps the socket's own.
    pub(crate) fn resolved(mut self) -> Self {
        if self.group.is_none() || self.policy.base != Base::Keep {
            return self;
        }
        let name = std::fs::read_to_string(DEFAULT_CONGESTION).unwrap_or_default();
        match name.trim() {
            "cubic" => self.policy.base = Base::Cubic,
            "reno" => self.policy.base = Base::Reno,
            "bbr" => self.policy.base = Base::Bbr,
            other => tracing::warn!(
                "Paceline can neither read nor bound the windows of this group: it does not wrap {other:?}, the default congestion control of this kernel; use a policy with base = \"cubic\", \"reno\" or \"bbr\""
            ),
        }
        self
    }
}

/// A job's entry for the kernel side.
pub(crate) fn entry(options: &JobOptions, owner: u32, seat: pl_seat) -> pl_job {
    let tick_us = tick::tick_us();
    for raised in options.policy.raised(tick_us) {
        tracing::warn!("policy {}: {raised}", options.policy.name);
    }
    let policy = pl_policy {
        wrap: options.wraps().into(),
        ..options.policy.to_abi(tick_us)
    };
    pl_job {
        policy,
        started_us: monotonic_us(),
        owner_uid: owner,
        seat: seat as u32,
        policy_name: name_to_array(&options.policy.name),
        group: name_to_array(options.group.as_deref().unwrap_or("")),
        ..pl_job::default()
    }
}
