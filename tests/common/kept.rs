// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job beside the tests' own that keeps the kernel side loaded, in guests.
//!
//! A guest's verifier takes 5 s of its clock, and 10 s of a CPU, for the programs, and each
//! test's first job would load them again. Where tests look at all jobs, this one is none.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::alone::{self, is_kept, Alone, KEEPER};
use super::{paceline, Peer};

/// Set where the tests have the kernel to themselves and do not ask when it is unloaded.
pub const KEPT: &str = "PACELINE_TEST_KEPT";

/// Ends with this process, at the end of its input.
static JOB: Mutex<Option<Peer>> = Mutex::new(None);

/// This test's turn, as `alone::alone`, and the job is there, where the environment asks for it.
pub fn alone() -> Option<Alone> {
    let turn = alone::alone()?;
    if std::env::var_os(KEPT).is_some() {
        keep();
    }
    Some(turn)
}

/// Starts it, once.
fn keep() {
    let mut job = JOB.lock().unwrap_or_else(PoisonError::into_inner);
    if job.is_some() {
        return;
    }
    let mut command = paceline();
    let program = std::env::current_exe().expect("this program");
    command.args(["run", "--policy", "lfn", "--"]).arg(program);
    let mut peer = Peer::spawn(command);
    peer.ask("pid");
    *KEEPER.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer.process.id());
    *job = Some(peer);
}

/// Takes it out of what `paceline status --json` says.
pub fn leave_out(status: &mut Value) {
    let others = |job: &Value| {
        !job["cgroup"]
            .as_str()
            .is_some_and(|cgroup| is_kept(cgroup.as_ref()))
    };
    if let Some(jobs) = status["jobs"].as_array_mut() {
        jobs.retain(others);
    }
}
