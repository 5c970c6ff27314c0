// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library's own way to a job, as programs use it that start several.

#[path = "../common/alone.rs"]
mod alone;

use std::process::{Command, Stdio};

use alone::alone;
use paceline_agent::job::{Job, JobOptions};
use paceline_agent::{clean_up, status, Error};
use paceline_policy::Policy;

#[test]
fn a_job_is_seen_while_it_runs_and_gone_afterwards() {
    let Some(_alone) = alone() else {
        return;
    };
    let mut options = JobOptions::new(Policy::preset("lfn").unwrap());
    options.group = Some("a test".to_owned());
    let (job, mut child) = Job::start(&options, Command::new("cat").stdin(Stdio::piped())).unwrap();
    let path = job.path().to_path_buf();

    let status = status::status().unwrap();
    let shown = status
        .jobs
        .iter()
        .find(|shown| shown.cgroup.as_deref() == Some(path.as_path()))
        .expect("status shows the job");
    assert_eq!(shown.policy, "lfn");
    assert_eq!(shown.group.as_deref(), Some("a test"));
    assert!(shown
        .processes
        .iter()
        .any(|process| process.pid == child.id() as i32));
    assert!(shown
        .changes
        .iter()
        .any(|change| change.contains("minimum RTO")));
    assert!(status
        .congestion_controls
        .contains(&"paceline_cubic".to_owned()));

    // What keeps other tests from running beside it.
    let alive = alone::job_alive().expect("a job is alive");
    assert_eq!(alive, path.display().to_string());

    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(job.end().unwrap());
    assert!(!path.exists());
}

/// Another command's clean-up took a job away between the end of its last process and the moment
/// when its `paceline run` read its counts: the closing line was lost.
#[test]
fn a_job_without_a_process_stays_until_its_owner_ends_it() {
    let Some(_alone) = alone() else {
        return;
    };
    let options = JobOptions::new(Policy::preset("lfn").unwrap());
    let start = || {
        let (job, mut child) = Job::start(&options, &mut Command::new("true")).unwrap();
        assert!(child.wait().unwrap().success());
        let path = job.path().to_path_buf();
        // The last process leaves its cgroup a moment after its parent can reap it.
        while job.cgroup().populated() {
            std::thread::yield_now();
        }
        clean_up().unwrap();
        assert!(path.exists(), "cleaned away under its owner");
        (job, path)
    };
    let (job, path) = start();
    assert!(job.end().unwrap());
    assert!(!path.exists());

    // The owner was killed.
    let (job, path) = start();
    drop(job);
    clean_up().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_command_that_cannot_start_leaves_no_job() {
    let Some(_alone) = alone() else {
        return;
    };
    let options = JobOptions::new(Policy::preset("pace").unwrap());
    let error = Job::start(&options, &mut Command::new("/no/such/program")).unwrap_err();
    assert!(matches!(error, Error::Spawn { .. }), "{error}");
    let ours = format!("paceline.{}.", std::process::id());
    let left = status::status().unwrap().jobs;
    let is_left = |job: &status::JobStatus| {
        let path = job.cgroup.as_ref().map(|path| path.to_string_lossy());
        job.policy == "pace" && path.is_some_and(|path| path.contains(&ours))
    };
    assert!(!left.iter().any(is_left), "{left:?}");
}
