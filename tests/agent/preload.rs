// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which programs of a job load the MPI shim, and that none is the worse for it: under
//! the default policy, as a user runs it.

#[path = "../common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::mpi::{self, Library};
use common::{alone, is_root, jobs, status};

/// Open MPI's launcher in a test: as root, with more ranks than CPUs, on one host.
fn settings(command: &mut Command) -> &mut Command {
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_btl", "self,vader")
        .env("OMPI_MCA_pml", "ob1")
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        .env_remove("LD_PRELOAD")
        .env_remove("ASAN_OPTIONS")
}

#[test]
fn only_launchers_and_requests_load_the_shim_and_every_program_runs() {
    if !is_root() || !Library::OpenMpi.is_installed() {
        return;
    }
    let Some(_alone) = alone() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let paceline = mpi::install(place.path());
    // While a job lives, the others start at once.
    let mut first = Command::new(&paceline)
        .args(["run", "--", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    for compiler in [&["gcc", "-fsanitize=address"][..], &["musl-gcc"]] {
        let Some(program) = build(compiler, place.path()) else {
            continue;
        };
        let run = |arguments: &[&str]| {
            let output = settings(&mut Command::new(&paceline))
                .arg("run")
                .args(arguments)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{compiler:?} {arguments:?}: {output:?}"
            );
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let script = format!("cd / && exec mpirun.openmpi -np 1 {program}");
        for (arguments, loaded) in [
            (&["--", &program][..], false),
            (&["--", "sh", "-c", &program], false),
            (&["--preload", "--", &program], true),
            (&["--", "mpirun.openmpi", "-np", "1", &program], true),
            (
                &["--", "env", "A=b", "mpirun.openmpi", "-np", "1", &program],
                true,
            ),
            (&["--", "sh", "-c", &script], true),
            (&["--no-preload", "--", "sh", "-c", &script], false),
        ] {
            let expected = match loaded {
                true => "with the shim",
                false => "without the shim",
            };
            assert_eq!(run(arguments), expected, "{compiler:?} {arguments:?}");
        }
    }
    drop(first.stdin.take());
    first.wait().unwrap();
}

fn build(compiler: &[&str], place: &Path) -> Option<String> {
    let is_ci = std::env::var("CI").as_deref() == Ok("true");
    if Command::new(compiler[0]).arg("--version").output().is_err() {
        assert!(!is_ci, "in CI there must be {}", compiler[0]);
        println!("skipped: {} is not installed", compiler[0]);
        return None;
    }
    let program = place.join(format!("foreign-{}", compiler[0]));
    mpi::succeed(
        Command::new(compiler[0])
            .args(&compiler[1..])
            .arg("-o")
            .arg(&program)
            .arg(mpi::directory().join("test/foreign.c")),
    );
    Some(program.into_os_string().into_string().unwrap())
}

/// Says its number, and waits for the end of its input, so that it can be looked at. The
/// launcher hands input to rank 0 alone; the others wait for that.
const MPI4PY: &str = r#"
import array, os, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
for i in range(5):
    got = array.array("i", [-1] * comm.size)
    comm.Alltoall(array.array("i", [comm.rank] * comm.size), got)
    assert list(got) == list(range(comm.size))
for i in range(7):
    one = array.array("i", [0])
    comm.Allreduce(array.array("i", [1]), one)
    assert one[0] == comm.size
os.write(1, b"%d\n" % os.getpid())
if comm.rank == 0:
    sys.stdin.read()
comm.Barrier()
"#;

#[test]
fn collectives_of_mpi4pys_wheel_are_phases() {
    followed(Library::OpenMpi);
}

#[test]
fn collectives_of_mpi4py_with_large_counts_are_phases() {
    // Built against a library of MPI-4, it calls MPI_Alltoall_c.
    followed(Library::Mpich);
}

fn followed(library: Library) {
    const RANKS: usize = 2;
    if !is_root() || !library.is_installed() {
        return;
    }
    let Some(modules) = mpi::mpi4py(library) else {
        return;
    };
    let Some(_alone) = alone() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let paceline = mpi::install(place.path());
    for off in [false, true] {
        let mut command = Command::new(&paceline);
        settings(&mut command)
            .env("PYTHONPATH", &modules)
            .args(["run", "--"])
            .arg(format!("mpirun.{}", library.name()))
            .args(["-np", &RANKS.to_string(), "python3", "-c", MPI4PY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if off {
            command.env("PACELINE_MPI", "off");
        }
        let mut run = command.spawn().unwrap();
        let mut stdout = BufReader::new(run.stdout.take().unwrap()).lines();
        let ranks: Vec<u64> = (0..RANKS)
            .map(|_| {
                let line = stdout.next().expect("a rank's number").unwrap();
                line.parse().unwrap()
            })
            .collect();
        let shown = jobs(&status(), &format!("paceline.{}.", run.id()));
        let [job] = &shown[..] else {
            panic!("one job: {shown:?}");
        };
        for rank in ranks {
            let counts = entered(job, rank);
            println!("{library:?}, off: {off}, process {rank}: entered {counts:?}");
            assert_eq!(counts, if off { vec![] } else { vec![5, 7] });
        }
        drop(run.stdin.take());
        assert!(run.wait().unwrap().success());
    }
}

/// How often the process entered each of its classes, the least number first.
fn entered(job: &serde_json::Value, process: u64) -> Vec<u64> {
    let processes = job["processes"].as_array().unwrap();
    let process = processes
        .iter()
        .find(|it| it["pid"] == process)
        .unwrap_or_else(|| panic!("process {process}: {processes:?}"));
    let mut counts: Vec<u64> = process["phases"]["entered"]
        .as_object()
        .map(|entered| entered.values().map(|it| it.as_u64().unwrap()).collect())
        .unwrap_or_default();
    counts.sort_unstable();
    counts
}
