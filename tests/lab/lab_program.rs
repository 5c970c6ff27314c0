// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[program]]`: a real program, MPI's or a server and its client, as the workload of an experiment, live and in a guest,
//! seen from outside: by `paceline status` while it runs, by its results, and by what it leaves.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::mpi::{Library, Tools};
use common::{alone, is_root, jobs, status};
use serde_json::Value;

/// Collectives of each rank of `mpi/examples/phases.c`.
const ALLTOALLS: u64 = 5;
const ALLREDUCES: u64 = 7;
/// In a guest: seconds, within which somebody looks at their phases.
const MANY_ALLREDUCES: u64 = 150;
const RANKS: usize = 4;

const NETWORK: &str = r#"
title = "A real program"
description = "Collectives and messages."

[link]
rate = "100mbit"
one_way_delay = "2ms"
buffer = "256KiB"
clusters = [2, 2]
"#;
const PACELINE: &str = "[variant.paceline]\npolicy = \"lfn\"\n";
const CUBIC: &str = "[variant.cubic]\ncongestion = \"cubic\"\n";

/// A program and the directories of its runs.
struct Place {
    directory: tempfile::TempDir,
    tools: Tools,
}

impl Place {
    /// None where this machine cannot run it.
    fn new() -> Option<Self> {
        if !is_root() || !Library::OpenMpi.is_installed() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let tools = Tools::build(directory.path(), Library::OpenMpi, "mpicc", "phases.c");
        fs::create_dir(directory.path().join("tmp")).unwrap();
        fs::create_dir(directory.path().join("input")).unwrap();
        fs::write(directory.path().join("input/says"), "Answer=42\n").unwrap();
        Some(Place { directory, tools })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The program, which ends when the file `go` is there.
    fn program(&self) -> String {
        format!(
            "[[program]]\ncommand = [{:?}, \"{ALLTOALLS}\", \"50000\", \"{ALLREDUCES}\", {:?}]\n",
            self.tools.program,
            self.path("go")
        )
    }

    /// `lab run` of the network, a program with its keys, and variants.
    fn command(&self, program: &str, variants: &str) -> Command {
        let file = self.path("experiment.toml");
        fs::write(&file, format!("{NETWORK}\n{program}\n{variants}")).unwrap();
        let mut command = Command::new(&self.tools.paceline);
        command
            .env_remove("SUDO_UID")
            .env("TMPDIR", self.path("tmp"))
            .args(["lab", "run", "--quick", "--out"])
            .args([self.path("out"), file])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, program: &str, variants: &str) -> Child {
        let mut command = self.command(program, variants);
        command.args(["--backend", "live"]).spawn().unwrap()
    }

    /// What a run that fails says.
    fn error(&self, program: &str) -> String {
        finish(self.start(program, CUBIC)).1
    }

    fn results(&self) -> Value {
        let text = fs::read(self.path("out/results.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn assert_nothing_is_left(&self, of: u32) {
        let left = || fs::read_dir(self.path("tmp")).unwrap().count();
        wait_until("files and processes go", || {
            left() == 0 && inside(of).is_empty()
        });
    }
}

/// Exit status and standard error.
fn finish(run: Child) -> (Option<i32>, String) {
    let output = run.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), errors)
}

/// Processes on the hosts of this `lab run`.
fn inside(lab_run: u32) -> Vec<u32> {
    let mark = format!("paceline-lab:run-{lab_run}:");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"));
            mounts.is_ok_and(|mounts| mounts.contains(&mark))
        })
        .collect()
}

/// Ranks among them, by their name.
fn ranks(lab_run: u32) -> usize {
    let named = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "phases")
    };
    inside(lab_run).iter().filter(|pid| named(pid)).count()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The classes' counts of each process that has entered any.
fn entered(job: &Value) -> Vec<Vec<u64>> {
    let processes = job["processes"].as_array().unwrap().iter();
    let counts = processes.filter_map(|process| process["phases"]["entered"].as_object());
    counts
        .map(|classes| {
            let mut counts: Vec<u64> = classes.values().filter_map(Value::as_u64).collect();
            counts.sort_unstable();
            counts
        })
        .collect()
}

#[test]
fn a_program_runs_under_each_variant_and_its_phases_are_seen() {
    let Some(place) = Place::new() else { return };
    let Some(_alone) = alone() else {
        return;
    };
    // Both are found: a line of a file that the program was given, and what it prints.
    let given =
        "directory = \"input\"\nresult = { file = \"says\", values = { Answer = \"Answer\" } }";
    let printed = place
        .program()
        .replace("[[program]]", "[[program]]\nname = \"printed\"")
        + "result = { values = { all-reduces = \"([0-9]+) all-reduces\" } }\n";
    let programs = format!("{}{given}\n{printed}", place.program());
    // The first variant waits until it has been looked at.
    let run = place.start(&programs, &format!("{PACELINE}{CUBIC}"));
    let of = run.id();
    let all = vec![vec![ALLTOALLS, ALLREDUCES]; RANKS];
    let mut seen = Value::Null;
    for _ in 0..2400 {
        seen = status();
        if jobs(&seen, &format!("paceline.{of}."))
            .iter()
            .any(|job| entered(job) == all)
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::write(place.path("go"), "").unwrap();
    let (code, errors) = finish(run);
    // Invalid, where this machine was too busy, is not what is asked here.
    assert!(matches!(code, Some(0 | 3)), "{errors}");

    let own = jobs(&seen, &format!("paceline.{of}."));
    assert_eq!(entered(&own[0]), all, "{errors}");
    let connections = own[0]["connections"].as_array().unwrap();
    let hosts: BTreeSet<_> = connections
        .iter()
        .filter(|connection| connection["congestion"] == "paceline_cubic")
        .map(|connection| connection["netns"].as_u64())
        .collect();
    assert_eq!(
        hosts.len(),
        RANKS,
        "each host has connections of the variant"
    );

    let results = place.results();
    for variant in ["paceline", "cubic"] {
        let metrics = &results["variants"][variant];
        for metric in ["time_s/phases", "time_s/printed"] {
            assert!(
                metrics[metric]["median"].as_f64().unwrap() > 0.0,
                "{metric}"
            );
        }
        assert_eq!(metrics["speed/phases/Answer"]["median"], 42.0);
        let reduces = metrics["speed/printed/all-reduces"]["median"].as_f64();
        assert_eq!(reduces, Some(ALLREDUCES as f64));
    }
    let counted =
        |variant: &str, metric: &str| results["variants"][variant][metric]["median"].as_f64();
    assert!(counted("paceline", "connections/phases") >= Some(RANKS as f64));
    assert_eq!(counted("cubic", "connections/phases"), None);
    place.assert_nothing_is_left(of);
}

const SERVER: &str = "[[program]]\nname = \"files\"\ndirectory = \"input\"\nport = 8000\n\
    server = [\"python3\", \"-m\", \"http.server\", \"8000\"]\n";
/// Asks for a file of the directory, and says what is in there.
const CLIENT: &str = "command = [\"python3\", \"-c\", \"import urllib.request as u; \
    print(u.urlopen('http://near0:8000/says').read().decode())\"]\n";
const ANSWER: &str = "result = { times = { answer = \"Answer\" } }\n";

#[test]
fn a_server_has_the_policy_and_its_client_prints_the_results() {
    let Some(place) = Place::new() else { return };
    let Some(_alone) = alone() else {
        return;
    };
    let programs = format!("{SERVER}{CLIENT}{ANSWER}");
    let run = place.start(&programs, &format!("{PACELINE}{CUBIC}"));
    let of = run.id();
    let (code, errors) = finish(run);
    assert!(matches!(code, Some(0 | 3)), "{errors}");
    let results = place.results();
    for variant in ["paceline", "cubic"] {
        let metrics = results["variants"][variant].as_object().unwrap();
        assert_eq!(metrics["time_s/files/answer"]["median"], 42.0);
        assert!(
            !metrics.contains_key("time_s/files"),
            "that is its client's"
        );
    }
    // The one that the client made: none of the looks whether it listens.
    let connections = &results["variants"]["paceline"]["connections/files"]["median"];
    assert_eq!(connections.as_f64(), Some(1.0));
    place.assert_nothing_is_left(of);

    let failing = SERVER.replace("\"-m\", \"http.server\", \"8000\"", "\"-c\", \"exit(7)\"");
    let failed = place.error(&format!("{failing}{CLIENT}{ANSWER}"));
    assert!(
        failed.contains("[[program]] files: python3 ended with exit status 7"),
        "{failed}"
    );
    let silent = SERVER.replace("port = 8000", "port = 8001\ntimeout = \"2s\"");
    let late = place.error(&format!("{silent}{CLIENT}{ANSWER}"));
    assert!(
        late.contains("did not listen on port 8001 within its timeout of 2 s"),
        "{late}"
    );
    let none = place.error(&format!(
        "{SERVER}{}{ANSWER}",
        CLIENT.replace("/says", "/none")
    ));
    assert!(none.contains("ended with exit status 1"), "{none}");
    assert!(none.contains("404"), "its last words: {none}");
}

#[test]
fn each_failure_is_one_error() {
    let Some(place) = Place::new() else { return };
    let Some(_alone) = alone() else {
        return;
    };

    // The file `go` is not there yet.
    let late = place.error(&(place.program() + "timeout = \"3s\"\n"));
    assert!(
        late.contains("[[program]] phases: it did not end within its timeout of 3 s"),
        "{late}"
    );
    assert!(late.contains("5 all-to-alls"), "its last words: {late}");

    fs::write(place.path("go"), "").unwrap();
    let result = "result = { values = { Mops = \"Mop/s total *= *([0-9.]+)\" } }\n";
    let none = place.error(&(place.program() + result));
    assert!(
        none.contains("[[program]] phases: Mops: no value by"),
        "{none}"
    );
    assert!(none.contains("in standard output"), "{none}");
    let result = "result = { file = \"none.txt\", values = { Mops = \"Mops\" } }\n";
    let none = place.error(&(place.program() + result));
    assert!(
        none.contains("[[program]] phases: cannot read none.txt"),
        "{none}"
    );

    let failing = format!(
        "[[program]]\nname = \"failing\"\ncommand = [{:?}]\n",
        place.tools.program
    );
    let failed = place.error(&failing);
    assert!(failed.contains("[[program]] failing: mpirun"), "{failed}");
    assert!(failed.contains("ended with exit status"), "{failed}");
    assert!(failed.contains("usage: phases"), "{failed}");
    let left = fs::read_dir(place.path("tmp")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_guest_runs_the_same_program_and_twice_with_the_same_results() {
    let Some(place) = Place::new() else { return };
    // Its file `go` is one that it is given.
    let program = format!(
        "[virtual]\nshift = -2\n[[program]]\ndirectory = \"input\"\n\
         command = [{:?}, \"{ALLTOALLS}\", \"50000\", \"{MANY_ALLREDUCES}\", \"says\"]\n\
         result = {{ values = {{ all-reduces = \"([0-9]+) all-reduces\" }} }}\n",
        place.tools.program
    );
    let run = |variants: &str| {
        let mut command = place.command(&program, variants);
        let (code, errors) = finish(command.args(["--backend", "virtual"]).spawn().unwrap());
        // Invalid, where the start of so short a program is most of the run.
        assert!(matches!(code, Some(0 | 3)), "{errors}");
        place.results()
    };
    let results = run(&format!("{PACELINE}{CUBIC}"));
    let median = |variant: &str, metric: &str| {
        let metric = &results["variants"][variant][metric];
        metric["median"]
            .as_f64()
            .unwrap_or_else(|| panic!("{variant} {metric}"))
    };
    for variant in ["paceline", "cubic"] {
        assert_eq!(
            median(variant, "speed/phases/all-reduces"),
            MANY_ALLREDUCES as f64
        );
    }
    assert!(median("paceline", "connections/phases") >= RANKS as f64);
    assert!(
        median("paceline", "phases/phases") > 0.0,
        "the shim is there"
    );
    let again = run(CUBIC);
    assert_eq!(again["variants"]["cubic"], results["variants"]["cubic"]);
    assert_eq!(fs::read_dir(place.path("tmp")).unwrap().count(), 0);
}

#[test]
fn what_no_guest_can_run_is_told_before_one_starts() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("experiment.toml");
    let refused = |program: &str, problem: &str| {
        fs::write(&file, format!("{NETWORK}\n[[program]]\n{program}\n{CUBIC}")).unwrap();
        let run = common::output(&["lab", "run", file.to_str().unwrap()]);
        let errors = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{errors}");
        assert!(errors.contains(problem), "{errors}");
    };
    let missing = "[[program]] no-such-program: cannot start no-such-program";
    refused("command = [\"no-such-program\"]", missing);
    let hostname = "command = [\"hostname\"]";
    let polls = "[[program]] hostname: MPICH's ranks poll";
    refused(&format!("{hostname}\nmpi = \"mpich\""), polls);
    let files = |path: &str| format!("{hostname}\n[virtual]\nfiles = [\"{path}\"]");
    let missing = "[[program]] hostname: /no/such/library is not on this machine";
    refused(&files("/no/such/library"), missing);
    refused(&files("lib"), "virtual.files: must be an absolute path");
}

#[test]
fn an_end_before_the_programs_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let Some(_alone) = alone() else {
        return;
    };
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let run = place.start(&place.program(), PACELINE);
        let of = run.id();
        wait_until("the ranks start", || ranks(of) == RANKS);
        // SAFETY: a plain call; the process has not been waited for.
        unsafe { libc::kill(of as i32, signal) };
        let (_, errors) = finish(run);
        assert_eq!(
            errors.contains("interrupted"),
            signal == libc::SIGINT,
            "{errors}"
        );
        place.assert_nothing_is_left(of);
        assert!(status()["jobs"].as_array().unwrap().is_empty());
    }
}
