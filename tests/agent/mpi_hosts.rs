// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI programs of two languages under two MPI libraries, with a rank on each host of
//! two clusters: what `paceline status` says of a rank is what that rank called.
//!
//! The hosts are those of a lab (`paceline lab up`). The programs are
//! `mpi/examples/phases.*`.

#[path = "../common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::lab::Lab;
use common::mpi::{Library, Tools};
use common::{alone, is_root, output, own_cgroup, status};
use serde_json::Value;

/// Two hosts in each cluster, and a link that is not in the way.
const HOSTS: usize = 4;
const TOPOLOGY: &str = r#"
[[cluster]]
name = "near"
hosts = 2
switch_buffer = "1MiB"

[[cluster]]
name = "far"
hosts = 2
switch_buffer = "1MiB"

[[wan]]
from = "near"
to = "far"
rate = "1gbit"
one_way_delay = "0s"
buffer = "1MiB"
"#;

/// What each rank is told to call; different, so that classes can be told apart.
const ALLTOALLS: u64 = 5;
const ALLREDUCES: u64 = 7;
/// From rank to rank: several windows.
const BYTES: u64 = 100_000;
/// The kernel's minimum RTO: a shorter one repeats segments when the hosts' one CPU is
/// late, and a connection that repairs a loss follows its process later.
const POLICY: &str = "pace";

/// After this a run that hangs is ended, so that the test fails instead.
const GIVE_UP_S: &str = "300";

#[test]
fn c_under_open_mpi() {
    try_all_forms(Library::OpenMpi, "mpicc", "phases.c");
}

#[test]
fn fortran_under_open_mpi() {
    try_all_forms(Library::OpenMpi, "mpif90", "phases.f90");
}

#[test]
fn c_under_mpich() {
    try_all_forms(Library::Mpich, "mpicc", "phases.c");
}

#[test]
fn fortran_under_mpich() {
    try_all_forms(Library::Mpich, "mpif90", "phases.f90");
}

fn try_all_forms(library: Library, compiler: &str, source: &str) {
    if !is_root() || !library.is_installed() {
        return;
    }
    let Some(_alone) = alone() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let tools = Tools::build(place.path(), library, compiler, source);
    let lab = Lab::up("mpi", TOPOLOGY);
    for form in [Form::JobPerRank, Form::JobPerLauncher] {
        println!("{library:?}, {source}, {form:?}");
        let mut run = Run::start(library, form, &tools, &lab, place.path());
        let ranks = run.ranks();
        compare(form, &ranks, &status());
    }
}

/// Each rank's process and its connections, against what the rank says it called.
fn compare(form: Form, ranks: &[Rank], status: &Value) {
    let mut jobs = BTreeSet::new();
    for rank in ranks {
        let (job, process) = find(status, rank.process);
        jobs.insert(job["cgroup"].as_str().unwrap());
        let entered: BTreeMap<u64, u64> = process["phases"]["entered"]
            .as_object()
            .expect("the rank's process has phases")
            .iter()
            .map(|(class, count)| (class.parse().unwrap(), count.as_u64().unwrap()))
            .collect();
        println!("rank {}: entered {entered:?}", rank.number);
        let mut counts: Vec<u64> = entered.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [rank.alltoalls, rank.allreduces]);
        assert_eq!(process["phases"]["class"], 0);

        // What a path delivers is kept per class: to some host, for all of them.
        let classes: BTreeSet<u64> = list(job, "paths")
            .map(|path| path["class"].as_u64().unwrap())
            .collect();
        assert!(
            entered.keys().all(|class| classes.contains(class)),
            "{classes:?}"
        );
        compare_connections(rank, job);
    }
    match form {
        Form::JobPerRank => assert_eq!(jobs.len(), ranks.len()),
        Form::JobPerLauncher => assert_eq!(jobs.len(), 1),
    }
}

/// Into each collective and out of it again: a connection cannot switch more often than
/// that, and does it at each one in which it carries something. It carries something in
/// each all-to-all, and in the messages after each. Of a rank's connections one at least
/// is part of all all-reduces: those of one number are done in pairs of ranks.
fn compare_connections(rank: &Rank, job: &Value) {
    let all = 2 * (rank.alltoalls + rank.allreduces);
    // Most switches of a connection to that host, and whether all was sent only once:
    // a connection that repairs a loss follows later.
    let mut peers: BTreeMap<IpAddr, (u64, bool)> = BTreeMap::new();
    for connection in list(job, "connections") {
        let end =
            |which: &str| -> SocketAddr { connection[which].as_str().unwrap().parse().unwrap() };
        let (local, remote) = (end("local"), end("remote"));
        if connection["process"] != rank.process || local.ip() == remote.ip() {
            continue;
        }
        let switches = connection["phase_switches"].as_u64().unwrap();
        let repeated = connection["retransmitted_segs"].as_u64().unwrap();
        println!(
            "rank {}: {local} to {remote}: {switches} switches, {repeated} segments repeated",
            rank.number
        );
        assert_eq!(connection["congestion"], "paceline_cubic");
        assert_eq!(connection["reason"], "none");
        assert!(switches <= all);
        if repeated == 0 {
            assert_eq!(connection["class"], 0);
            assert_eq!(switches % 2, 0);
        }
        let peer = peers.entry(remote.ip()).or_insert((0, true));
        *peer = (peer.0.max(switches), peer.1 && repeated == 0);
    }
    assert_eq!(peers.len(), HOSTS - 1, "{peers:?}");
    for (most, once) in peers.values() {
        assert!(!once || *most >= 2 * rank.alltoalls, "{peers:?}");
    }
    if peers.values().all(|(_, once)| *once) {
        assert!(peers.values().any(|(most, _)| *most == all), "{peers:?}");
    }
}

fn list<'a>(job: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    job[name].as_array().expect("a list").iter()
}

/// A process and its job.
fn find(status: &Value, pid: u64) -> (&Value, &Value) {
    list(status, "jobs")
        .find_map(|job| {
            list(job, "processes")
                .find(|process| process["pid"] == pid)
                .map(|process| (job, process))
        })
        .expect("the rank's process is in a job")
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// `paceline lab mpirun ... -- paceline run -- ./prog`
    JobPerRank,
    /// `paceline run -- paceline lab mpirun ... -- ./prog`
    JobPerLauncher,
}

/// What a rank says of itself.
#[derive(Debug)]
struct Rank {
    number: u64,
    process: u64,
    alltoalls: u64,
    allreduces: u64,
}

impl Rank {
    /// `rank 0 of 4, process 1234: 5 all-to-alls, 7 all-reduces, 36 messages`
    fn parse(line: &str) -> Self {
        let numbers: Vec<u64> = line
            .split(|character: char| !character.is_ascii_digit())
            .filter_map(|digits| digits.parse().ok())
            .collect();
        let [number, _, process, alltoalls, allreduces, _] = numbers[..] else {
            panic!("unexpected: {line:?}");
        };
        Rank {
            number,
            process,
            alltoalls,
            allreduces,
        }
    }
}

/// A run of the program, whose ranks wait at their end for a file that never comes. They
/// are killed, because how they end is the libraries' affair: Debian's MPICH 4.0, over
/// UCX's TCP, now and then hangs in MPI_Finalize, and Open MPI 4.1 on a busy machine may
/// take a rank's end for an improper one.
struct Run {
    launcher: Child,
    output: BufReader<ChildStdout>,
    errors: PathBuf,
    /// Holds all processes of the run, on all hosts, and their jobs.
    cgroup: PathBuf,
}

impl Run {
    fn start(library: Library, form: Form, tools: &Tools, lab: &Lab, place: &Path) -> Self {
        let cgroup = own_cgroup().join(&lab.name);
        std::fs::create_dir(&cgroup).unwrap();
        let errors = place.join("errors");

        let itself = tools.paceline.display().to_string();
        let job = [&itself, "run", "--policy", POLICY, "--"];
        let ranks = HOSTS.to_string();
        let launcher = [
            &itself,
            "lab",
            "mpirun",
            "--lab",
            &lab.name,
            "--mpi",
            library.name(),
            "-np",
            &ranks,
            "--",
        ];
        let program = [
            tools.program.display().to_string(),
            ALLTOALLS.to_string(),
            BYTES.to_string(),
            ALLREDUCES.to_string(),
            place.join("never").display().to_string(),
        ];
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", GIVE_UP_S]);
        match form {
            Form::JobPerRank => command.args(launcher).args(job),
            Form::JobPerLauncher => command.args(job).args(launcher),
        };
        let processes = CString::new(cgroup.join("cgroup.procs").into_os_string().into_vec());
        let processes = processes.unwrap();
        // SAFETY: system calls only, with a string that was made before the fork.
        unsafe {
            command.pre_exec(move || {
                let file = libc::open(processes.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                match libc::write(file, c"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let mut launcher = command
            .args(program)
            .env_remove("SUDO_UID")
            .env("TMPDIR", place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        Run {
            output: BufReader::new(launcher.stdout.take().unwrap()),
            launcher,
            errors,
            cgroup,
        }
    }

    /// Waits until all ranks have said what they called.
    fn ranks(&mut self) -> Vec<Rank> {
        let lines = self.output.by_ref().lines().map(Result::unwrap);
        let ranks: Vec<Rank> = lines
            .filter(|line| line.starts_with("rank "))
            .take(HOSTS)
            .map(|line| Rank::parse(&line))
            .collect();
        assert_eq!(
            ranks.len(),
            HOSTS,
            "{}",
            std::fs::read_to_string(&self.errors).unwrap()
        );
        for rank in &ranks {
            assert_eq!((rank.alltoalls, rank.allreduces), (ALLTOALLS, ALLREDUCES));
        }
        ranks
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = std::fs::write(self.cgroup.join("cgroup.kill"), "1");
        let _ = self.launcher.wait();
        // The jobs' cgroups are in it: they go with the first command after their end.
        for _ in 0..600 {
            let _ = output(&["status"]);
            if std::fs::remove_dir(&self.cgroup).is_ok() {
                return;
            }
        }
        eprintln!("stays: {}", self.cgroup.display());
    }
}
