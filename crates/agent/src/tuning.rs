// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of a policy that this kernel, or the job's group, may rule out; and programs attached to an
//! interface for them.

use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};

use paceline_bpf::options;
use paceline_policy::Policy;

use crate::error::{Error, Result};
use crate::kernel_side::{discover::Found, UNKNOWN_RUN};
use crate::options::JobOptions;

/// include/uapi/linux/tcp.h, from 6.15 on.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// TCP_RTO_MAX, which a socket has anyway.
const USUAL_MS: libc::c_int = 120_000;

/// Fails where a job with these options is not possible.
///
/// # Errors
/// [`Error::RtoMaxUnavailable`] and [`Error::FixedInGroup`].
pub(crate) fn check(options: &JobOptions) -> Result<()> {
    let policy = &options.policy;
    let most = policy.rto.as_ref().and_then(|rto| rto.most);
    if most.is_some() && !has_rto_max() {
        return Err(Error::RtoMaxUnavailable {
            policy: policy.name.clone(),
        });
    }
    let fixed = policy.window.as_ref().and_then(|window| window.fixed);
    match (fixed, &options.group) {
        (Some(_), Some(group)) => Err(Error::FixedInGroup {
            policy: policy.name.clone(),
            group: group.clone(),
        }),
        _ => Ok(()),
    }
}

/// Attaches the programs that keep the policy's TCP options out of the job's connections, in the
/// namespace of `process` ([`UNKNOWN_RUN`]: the caller's). After the job's end the next clean-up
/// detaches them.
pub(crate) fn attach_options(found: &Found, id: u64, process: u32, policy: &Policy) -> Result<()> {
    let Some(keys) = &policy.options else {
        return Ok(());
    };
    let jobs = found.map("pl_jobs").ok_or(Error::Incomplete {
        what: "map pl_jobs",
    })?;
    let wanted = options::Wanted {
        job: id,
        interface: &keys.interface,
        without: keys.without(),
    };
    let process = Some(process).filter(|process| *process != UNKNOWN_RUN);
    options::attach(&wanted, process, jobs.as_fd()).map_err(|source| Error::Options {
        policy: policy.name.clone(),
        source,
    })
}

/// Whether a socket of this kernel has a maximum RTO: tried on one that is never used.
pub(crate) fn has_rto_max() -> bool {
    let Ok(socket) = TcpListener::bind(("127.0.0.1", 0)) else {
        return false;
    };
    let usual = USUAL_MS;
    // SAFETY: the option takes one int.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const usual).cast(),
            size_of_val(&usual) as libc::socklen_t,
        )
    };
    result == 0
}
