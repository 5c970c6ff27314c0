// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `live` backend: this machine's kernel, network namespaces as hosts and
//! the user-space emulator as the bottleneck. Needs root.
//!
//! Nothing outside the namespaces it makes is changed, and these belong to
//! descriptors of this process: they are gone when it is, even by `kill -9`.
//!
//! The clock is real and so is the noise. Variants take turns, so that other load on the
//! machine affects all alike, and a run with a late link is reported as invalid.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use paceline_experiment::hash::hash_of;
use paceline_experiment::plan::{Means, Plan};
use paceline_experiment::record::Record;

use crate::network::bottleneck;
use crate::workload;
use crate::CaseError;

/// Why a live run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Namespaces, packet sockets and real-time priority are root's.
    #[error("the live backend needs root: sudo paceline lab run … --backend live (--backend virtual needs no root)")]
    NotRoot,
    /// A case failed.
    #[error("{shard}: {source}")]
    Case {
        /// Which one.
        shard: String,
        /// Why.
        source: CaseError,
    },
    /// This program's identity is unknown, so saved runs cannot be matched to it.
    #[error("cannot read this program, /proc/self/exe: {0}")]
    Program(io::Error),
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
}

/// The order in which `plans` run in a round, from 0: each round begins with another one.
pub fn turns(plans: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..plans).map(move |turn| (turn + round as usize) % plans)
}

/// Runs a plan once. `progress` gets the steps done; `stop` ends the run early.
///
/// # Errors
/// [`LiveError::Interrupted`] after `stop`; else the first thing that failed.
pub fn run(
    plan: &Plan,
    progress: &dyn Fn(u64),
    stop: &AtomicBool,
) -> Result<Vec<Record>, LiveError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LiveError::NotRoot);
    }
    let mut records = vec![Record::Begin {
        kernel: kernel_release(),
    }];
    let mut sink = |record: &Record| {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Record::Progress { done } = record {
            progress(*done);
            return Ok(());
        }
        records.push(record.clone());
        Ok(())
    };
    let means = plan.topology.bottleneck.unwrap_or(Means::Emulator);
    let outcome = workload::run(plan, &*bottleneck(means), &mut sink);
    if stop.load(Ordering::Relaxed) {
        return Err(LiveError::Interrupted);
    }
    match outcome {
        Ok(()) => Ok(records),
        Err(source) => Err(LiveError::Case {
            shard: plan.shard_name(),
            source,
        }),
    }
}

/// A hash of all that goes into a run on this machine, but for the plan.
///
/// # Errors
/// If this program cannot be read.
pub fn inputs() -> Result<u64, LiveError> {
    let program = std::fs::read("/proc/self/exe").map_err(LiveError::Program)?;
    Ok(hash_of(&[kernel_release().as_bytes(), &program]))
}

/// Release of the kernel that runs.
pub(crate) fn kernel_release() -> String {
    // uname(2) fails on no Linux.
    nix::sys::utsname::uname().map_or_else(
        |_| String::new(),
        |names| names.release().to_string_lossy().into_owned(),
    )
}
