// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[program]]` in experiment files, from outside: what is wrong is named with file, line
//! and key, and what is right becomes the plan that one expects.

use std::path::Path;

use paceline_experiment::plan::{Library, Starter, Workload};
use paceline_experiment::Experiment;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, Path::new("experiments/startup.toml"))
        .map_err(|error| error.to_string())
}

const PROGRAM: &str = r#"
title = "A program"
description = "On two clusters."

[link]
rate = "100mbit"
one_way_delay = "10ms"
buffer = "64KiB"
clusters = [2, 2]

[[program]]
command = ["./bin/is.B.4"]
ranks = 4
mpi = "openmpi"
timeout = "5min"
result = { values = { Mops = "Mop/s total *= *([0-9.]+)" } }

[variant.cubic]
congestion = "cubic"
"#;

#[test]
fn a_program_is_a_workload() {
    let plans = parse(PROGRAM).unwrap().shards(false, None, &[]).unwrap();
    let [Workload::RealProgram(program)] = &plans[0].workloads[..] else {
        panic!("{:?}", plans[0].workloads);
    };
    assert_eq!(program.label, "is.B.4");
    let starter = Starter::Launcher {
        ranks: 4,
        library: Library::OpenMpi,
    };
    assert_eq!(program.starter, starter);
    assert_eq!(program.timeout_ns, 300_000_000_000);
    let rest = PROGRAM.replace("ranks = 4\n", "name = \"IS\"\n");
    let plans = parse(&rest).unwrap().shards(false, None, &[]).unwrap();
    assert_eq!(plans[0].workloads[0].label(), "IS");
}

#[test]
fn a_server_and_its_client_are_one() {
    let client = "server = [\"sh\", \"nginx.sh\"]\nport = 8080\ntimeout";
    let text = PROGRAM
        .replace("ranks = 4\nmpi = \"openmpi\"\ntimeout", client)
        .replace(
            "values = { Mops",
            "times = { 1MB = \"took\" }, values = { Mops",
        );
    let plans = parse(&text).unwrap().shards(false, None, &[]).unwrap();
    let [Workload::RealProgram(program)] = &plans[0].workloads[..] else {
        panic!("{:?}", plans[0].workloads);
    };
    let server = vec!["sh".to_owned(), "nginx.sh".to_owned()];
    assert_eq!(program.starter, Starter::Client { server, port: 8080 });
    assert_eq!(program.times, [("1MB".to_owned(), "took".to_owned())]);
    assert_eq!(program.values[0].0, "Mops");

    let assert_problem = |from: &str, to: &str, key: &str, problem: &str| {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).expect_err(to);
        let is_reported = error.contains(&format!(": program.{key}: ")) && error.contains(problem);
        assert!(is_reported, "{error}");
    };
    assert_problem("port = 8080\n", "", "port", "1 to 65535");
    assert_problem("8080", "0", "port", "1 to 65535");
    assert_problem("8080", "80800", "port", "1 to 65535");
    assert_problem("server = [\"sh\", \"nginx.sh\"]\n", "", "port", "server");
    assert_problem("[\"sh\", \"nginx.sh\"]", "[]", "server", "arguments");
    assert_problem("port = 8080", "port = 8080\nranks = 2", "ranks", "MPI");
    assert_problem("port = 8080", "port = 8080\nmpi = \"mpich\"", "mpi", "MPI");
    let result = text
        .lines()
        .find(|line| line.starts_with("result"))
        .unwrap();
    assert_problem(result, "", "result", "times");
    assert_problem(result, "result = {}", "result", "times");
}

#[test]
fn errors_of_programs_name_line_and_key() {
    let assert_problem = |from: &str, to: &str, line: usize, key: &str, problem: &str| {
        assert!(PROGRAM.contains(from), "{from}");
        let error = parse(&PROGRAM.replacen(from, to, 1)).expect_err(to);
        let place = format!("experiments/startup.toml:{line}:");
        let key = format!(": {key}: ");
        let is_reported =
            |line: &str| line.starts_with(&place) && line.contains(&key) && line.contains(problem);
        assert!(error.lines().any(is_reported), "{error}");
    };
    let bare = "command = [\"./bin/is.B.4\"]";
    assert_problem(bare, "command = []", 12, "program.command", "hpcc");
    assert_problem(
        bare,
        "command = [\"/\"]",
        11,
        "program.name",
        "metric's name",
    );
    assert_problem(
        "ranks = 4",
        "ranks = 5",
        13,
        "program.ranks",
        "2 to the number of hosts, 4",
    );
    assert_problem("ranks = 4", "rank = 4", 13, "program.rank", "unknown key");
    assert_problem("openmpi", "lam", 14, "program.mpi", "openmpi");
    assert_problem("5min", "0s", 15, "program.timeout", "1s to 24h");
    assert_problem("\"5min\"", "300", 15, "program.timeout", "s");
    assert_problem(
        "([0-9.]+)",
        "[0-9.]+",
        16,
        "program.result.values.Mops",
        "one group",
    );
    assert_problem(
        "([0-9.]+)",
        "([0-9.+)",
        16,
        "program.result.values.Mops",
        "regex",
    );
    assert_problem(
        "values = {",
        "file = \"../out\", values = {",
        16,
        "program.result.file",
        "in the program's working directory",
    );
    assert_problem(
        "Mops = ",
        "\"M/s\" = ",
        16,
        "program.result.values.\"M/s\"",
        "metric's name",
    );
    let there = "ranks = 4\ndirectory = ";
    assert_problem(
        "ranks = 4",
        &format!("{there}\"none\""),
        14,
        "program.directory",
        "no directory",
    );
    assert_problem(
        "ranks = 4",
        &format!("{there}\"../lab\""),
        14,
        "program.directory",
        "beside",
    );
    assert_problem("clusters = [2, 2]", "", 5, "link.clusters", "[[program]]");
    assert_problem(
        "clusters = [2, 2]",
        "clusters = [2, 2]\nip = 6",
        10,
        "link.ip",
        "IPv4",
    );
    let twice = "[[program]]\ncommand = [\"is.B.4\"]\n\n[variant.cubic]";
    assert_problem("[variant.cubic]", twice, 18, "program.name", "another");
}
