// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test's turn with the host's kernel side, which is one for all of the host.
//!
//! Tests with jobs look at the kernel side as a whole, and some wait until it is gone. So
//! one of them runs at a time, of all checkouts on this host, and none while somebody
//! else's job is alive: such a job, and what its owner sees of it, is left as it is.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use paceline_agent::{status, Error};

/// Below a directory of root's: nobody else can hold the tests up.
const LOCK: &str = "/run/paceline-tests.lock";
/// The last job of a test that ended just now may still be on its way out so long. In CI,
/// where no other job is alive for longer than that, it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_IN_CI: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Held while the test runs.
pub struct Alone {
    _process: MutexGuard<'static, Option<String>>,
    _host: Flock<File>,
}

/// Whether a test that needs root can run. In CI it must.
pub fn is_root() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(!is_ci(), "in CI the tests that need root must run");
    println!("skipped: needs root");
    false
}

fn is_ci() -> bool {
    std::env::var("CI").as_deref() == Ok("true")
}

/// This test's turn, as root, with no job of anybody else's alive. `None`: it says that it
/// is skipped, and why; in CI it fails.
pub fn alone() -> Option<Alone> {
    // The foreign job that was found last: it is not waited for again.
    static FOREIGN: Mutex<Option<String>> = Mutex::new(None);
    if !is_root() {
        return None;
    }
    let mut process = FOREIGN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(LOCK)
        .expect("root may write to /run");
    let host = Flock::lock(file, FlockArg::LockExclusive).expect("a lock");
    let patience = if is_ci() { PATIENCE_IN_CI } else { PATIENCE };
    let begun = Instant::now();
    let job = loop {
        let Some(job) = job_alive() else {
            *process = None;
            return Some(Alone {
                _process: process,
                _host: host,
            });
        };
        if begun.elapsed() > patience || process.as_ref() == Some(&job) {
            break job;
        }
        std::thread::sleep(PAUSE);
    };
    assert!(
        !is_ci(),
        "another job of Paceline is alive on this host: {job}; in CI this test must run"
    );
    println!("skipped: another job of Paceline is alive on this host: {job}");
    *process = Some(job);
    None
}

/// The process that keeps a job beside the tests' own (kept.rs).
pub static KEEPER: Mutex<Option<u32>> = Mutex::new(None);

/// Whether this is the cgroup of that job.
pub fn is_kept(cgroup: &Path) -> bool {
    let keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let name = keeper.map(|process| format!("paceline.{process}."));
    name.is_some_and(|name| cgroup.to_string_lossy().contains(&name))
}

/// The cgroup of a job that is alive, of whichever build, but for the kept one.
pub fn job_alive() -> Option<String> {
    match status::status() {
        Ok(status) => {
            let mut jobs = status.jobs.iter();
            let job = jobs.find(|job| !job.cgroup.as_deref().is_some_and(is_kept));
            job.map(|job| match &job.cgroup {
                Some(cgroup) => cgroup.display().to_string(),
                None => format!("cgroup {}", job.id),
            })
        }
        Err(Error::OtherBuild { jobs, .. }) => Some(jobs),
        Err(error) => panic!("{error}"),
    }
}
