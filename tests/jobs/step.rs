// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline run` in a scheduler's step: a tree of cgroups with the names that Slurm gives
//! them. tests/slurm does the same with Slurm itself.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::agent::{Agent, NEVER, OTHER_USER, USER};
use crate::common::{
    alone, connect, is_root, jobs, own_cgroup, paceline, status, Net, Peer, SERVER4,
};
use libbpf_rs::query::ProgInfoIter;

/// `job_7/step_0` with tasks, below the test's own cgroup.
struct Step(PathBuf);

impl Step {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pltest-{}-{number}", std::process::id());
        let step = Step(own_cgroup().join(name));
        fs::create_dir_all(step.user()).unwrap();
        step
    }

    fn user(&self) -> PathBuf {
        self.0.join("job_7/step_0/user")
    }

    fn task(&self, number: usize) -> PathBuf {
        self.user().join(format!("task_{number}"))
    }

    /// Makes `command` start in a task's cgroup.
    fn enter(&self, number: usize, command: &mut Command) {
        fs::create_dir_all(self.task(number)).unwrap();
        let procs = File::options()
            .write(true)
            .open(self.task(number).join("cgroup.procs"))
            .unwrap();
        // SAFETY: one system call on a descriptor that the closure owns.
        unsafe {
            command.pre_exec(move || {
                match libc::write(procs.as_raw_fd(), b"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
    }

    /// As Slurm does: the tasks' cgroups from below, none of which may have a child.
    fn remove(&self) {
        for task in fs::read_dir(self.user()).unwrap().flatten() {
            if task.path().is_dir() {
                remove(&task.path());
            }
        }
        for above in ["job_7/step_0/user", "job_7/step_0", "job_7", ""] {
            remove(&self.0.join(above));
        }
    }
}

/// Waits for the processes in it, and for nothing else.
fn remove(cgroup: &Path) {
    let start = std::time::Instant::now();
    while let Err(error) = fs::remove_dir(cgroup) {
        let busy = error.raw_os_error() == Some(libc::EBUSY);
        assert!(busy && start.elapsed() < NEVER, "{cgroup:?}: {error}");
        std::thread::yield_now();
    }
}

/// The kernel's programs of this name.
fn programs(name: &str) -> usize {
    ProgInfoIter::default()
        .filter(|program| program.name == name)
        .count()
}

fn cgroup_of(process: &str) -> PathBuf {
    let text = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    PathBuf::from(own.unwrap())
}

/// `cat` under `paceline run`, until its input ends.
struct Rank {
    process: Child,
    input: ChildStdin,
}

impl Rank {
    fn begin(mut command: Command) -> Self {
        let mut process = command
            .arg("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = process.stdin.take().unwrap();
        input.write_all(b"x").unwrap();
        Self { process, input }
    }

    /// Until it runs, and so its job.
    fn wait_for_start(&mut self) {
        let output = self.process.stdout.as_mut().unwrap();
        output.read_exact(&mut [0]).expect("it starts");
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.process.wait().unwrap().success());
    }
}

fn run(arguments: &[&str]) -> Command {
    let mut command = paceline();
    command.arg("run").args(arguments).arg("--");
    command
}

#[test]
fn the_ranks_of_a_step_share_one_job_and_stay_where_slurm_put_them() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let (net, step) = (Net::new(), Step::new());
    let mut peers: Vec<Peer> = (0..2)
        .map(|task| {
            let mut command = run(&[]);
            command.arg(std::env::current_exe().unwrap());
            net.enter(0, &mut command);
            step.enter(task, &mut command);
            Peer::spawn(command)
        })
        .collect();
    let mut server = net.peer(1);
    for (task, peer) in peers.iter_mut().enumerate() {
        assert_eq!(connect(peer, &mut server, SERVER4).0, "paceline_cubic");
        let inside = cgroup_of(&peer.ask("pid"));
        assert!(inside.ends_with(format!("step_0/user/task_{task}")));
    }
    let name = step.0.file_name().unwrap().to_str().unwrap().to_owned();
    let shown = jobs(&status(), &name);
    let [job] = &shown[..] else {
        panic!("one job: {shown:?}");
    };
    assert_eq!(job["cgroup"], step.user().to_str().unwrap());
    assert_eq!(job["shared"], true);
    assert_eq!(job["connections"].as_array().unwrap().len(), 2);

    // The job outlives the first and not the last.
    let last = peers.pop().unwrap();
    last.end();
    assert_eq!(jobs(&status(), &name).len(), 1);
    peers.pop().unwrap().end();
    assert!(jobs(&status(), &name).is_empty());
    step.remove();
    server.end();
}

#[test]
fn one_step_has_one_policy_at_a_time() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let step = Step::new();
    let with = |task, arguments: &[&str]| {
        let mut command = run(arguments);
        step.enter(task, &mut command);
        command
    };
    let mut first = Rank::begin(with(0, &["--policy", "pace"]));
    first.wait_for_start();
    for other in [
        &["--policy", "lfn"][..],
        &["--policy", "pace", "--group", "bulk"],
    ] {
        let output = with(1, other).arg("true").output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("already has policy pace"), "{message}");
        assert!(message.contains("step_0/user"), "{message}");
    }
    let same = with(1, &["--policy", "pace"])
        .args(["sh", "-c", "exit 7"])
        .status();
    assert_eq!(same.unwrap().code(), Some(7));
    first.end();
    // Another one may have it then, though the step goes on.
    let mut next = Rank::begin(with(1, &["--policy", "lfn"]));
    next.wait_for_start();
    next.end();
    step.remove();
}

#[test]
fn a_killed_run_ends_its_job_though_the_step_goes_on() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let step = Step::new();
    let name = step.0.file_name().unwrap().to_str().unwrap().to_owned();
    let mut other = Command::new("cat");
    step.enter(0, &mut other);
    let mut other = other.stdin(Stdio::piped()).spawn().unwrap();
    let mut command = run(&[]);
    step.enter(0, &mut command);
    let mut rank = Rank::begin(command);
    rank.wait_for_start();
    assert_eq!(jobs(&status(), &name).len(), 1);
    rank.process.kill().unwrap();
    rank.process.wait().unwrap();
    assert!(jobs(&status(), &name).is_empty());
    assert_eq!(programs("pl_connection"), 0);
    drop(rank.input);
    drop(other.stdin.take());
    other.wait().unwrap();
    step.remove();
}

#[test]
fn a_step_of_many_ranks_is_one_job_of_its_user() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    const RANKS: usize = 128;
    let (step, agent) = (Step::new(), Agent::start());
    let name = step.0.file_name().unwrap().to_str().unwrap().to_owned();
    let mut ranks: Vec<Rank> = (0..RANKS)
        .map(|task| {
            let mut command = agent.run(USER, None, &["--"]);
            step.enter(task, &mut command);
            Rank::begin(command)
        })
        .collect();
    ranks.iter_mut().for_each(Rank::wait_for_start);
    // Loaded once, and attached once.
    assert_eq!(programs("pl_connection"), 1);
    let shown = jobs(&status(), &name);
    let [job] = &shown[..] else {
        panic!("one job: {shown:?}");
    };
    assert_eq!(job["owner_uid"], USER);
    // The command and its `paceline run`.
    assert_eq!(job["processes"].as_array().unwrap().len(), 2 * RANKS);
    ranks.into_iter().for_each(Rank::end);
    // The agent ends it, not the next command: it takes no processes away with it.
    let gone = || programs("pl_connection") == 0;
    crate::common::agent::until("the end of the step's job", gone);
    step.remove();
}

#[test]
fn a_step_ends_under_the_agent_whatever_is_killed() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let (step, mut agent) = (Step::new(), Agent::start());
    let begin = |agent: &Agent, task| {
        let mut command = agent.run(USER, None, &["--"]);
        step.enter(task, &mut command);
        let mut rank = Rank::begin(command);
        rank.wait_for_start();
        rank
    };
    let (first, mut second) = (begin(&agent, 0), begin(&agent, 1));
    // Its successor knows of both.
    agent.kill();
    agent.restart();
    first.end();
    assert_eq!(programs("pl_connection"), 1);
    let third = begin(&agent, 2);
    second.process.kill().unwrap();
    second.process.wait().unwrap();
    assert_eq!(programs("pl_connection"), 1);
    third.end();
    drop(second.input);
    let gone = || programs("pl_connection") == 0;
    crate::common::agent::until("the end of the step's job", gone);
    step.remove();
}

#[test]
fn a_job_beside_another_loads_nothing() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let agent = Agent::start();
    let mut first = Rank::begin(agent.run(USER, None, &["--"]));
    first.wait_for_start();
    let carried = [
        "pl_connection",
        "pl_maker",
        "pl_set_option",
        "pl_get_option",
    ];
    let loaded = || carried.map(programs);
    assert_eq!(loaded(), [1; 4]);
    let mut second = Rank::begin(agent.run(OTHER_USER, None, &["--"]));
    second.wait_for_start();
    let mut third = Rank::begin(run(&["--policy", "pace"]));
    third.wait_for_start();
    assert_eq!(loaded(), [1; 4]);
    // Nothing that only other commands need.
    assert_eq!(programs("pl_adopt") + programs("pl_status"), 0);
    // The programs outlive the job that they were loaded for.
    first.end();
    third.end();
    let mut fourth = Rank::begin(agent.run(USER, None, &["--"]));
    fourth.wait_for_start();
    assert_eq!(loaded(), [1; 4]);
    second.end();
    fourth.end();
}
