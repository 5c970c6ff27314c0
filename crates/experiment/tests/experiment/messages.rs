// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[messages]]`, `[[netpipe]]`, `[[outofcore]]` and one switch, from outside.

use std::path::Path;

use paceline_experiment::plan::{Plan, Program, Workload};
use paceline_experiment::Experiment;

const GOOD: &str = r#"title = "A title"
description = "What for"

[link]
rate = "100mbit"
one_way_delay = "50us"
buffer = "64KiB"
clusters = [16]

[[messages]]
name = "read"
sizes = ["1B", "1448B"]
count = 90
quick = 9
gap = "60ms"
read_every = "500ms"
trace = 400

[[messages]]
sizes = ["100B"]
count = 50
direction = "both"
writes = 2
nagle = true

[[netpipe]]
largest = "4B"
trials = 3
quick = 1
time = "50ms"

[[alltoall]]
blocks = ["32KB"]
rounds = 10

[[outofcore]]
name = "jacobi"
side = 2048
stripe = "64KiB"
compute = "26ms"
iterations = 20
quick = 5
from_iteration = 3

[variant.cubic]
congestion = "cubic"
"#;

fn plan(text: &str, quick: bool) -> Result<Plan, String> {
    let experiment = Experiment::parse(text, Path::new("experiments/ligon.toml"));
    let experiment = experiment.map_err(|error| error.to_string())?;
    let mut plans = experiment.shards(quick, None, &[]).expect("all variants");
    Ok(plans.remove(0))
}

/// What is said of the good file with `from` replaced by `to`, at which place.
fn assert_problem(from: &str, to: &str, at: &str, problem: &str) {
    assert!(GOOD.contains(from), "{from}");
    let message = plan(&GOOD.replacen(from, to, 1), false).expect_err(to);
    let mut of_place = message
        .lines()
        .filter(|line| line.contains(&format!("{at}: ")));
    assert!(of_place.any(|line| line.contains(problem)), "{message}");
}

#[test]
fn all_hosts_are_at_one_switch() {
    let topology = plan(GOOD, false).expect("valid").topology;
    assert!(topology.one_switch && topology.is_cluster());
    assert_eq!((topology.senders, topology.far_hosts), (16, 0));
    assert_eq!(topology.edge_rate_bps, 100_000_000);
    let same = GOOD.replacen("buffer =", "edge_rate = \"100mbit\"\nbuffer =", 1);
    assert_eq!(plan(&same, false).expect("valid").topology, topology);
    let two = GOOD.replacen("clusters = [16]", "clusters = [8, 8]", 1);
    assert!(plan(&two, false).is_err(), "messages need no two clusters");
}

#[test]
fn each_size_is_a_workload_of_its_own() {
    let labels = |quick| {
        let plan = plan(GOOD, quick).expect("valid");
        plan.workloads
            .iter()
            .map(|workload| format!("{} {}", workload.label(), workload.steps()))
            .collect::<Vec<_>>()
    };
    let expected = [
        "read/1B 1",
        "read/1448B 1",
        "100B 1",
        " 4",
        "32KB 10",
        "jacobi 20",
    ];
    assert_eq!(labels(false), expected);
    assert_eq!(labels(true)[5], "jacobi 5");
    let plan = plan(GOOD, true).expect("valid");
    let [Workload::Messages(one_way), _, Workload::Messages(both), Workload::Netpipe(pipe), _, Workload::Ranks(ranks)] =
        &plan.workloads[..]
    else {
        panic!("{:?}", plan.workloads);
    };
    assert_eq!((one_way.count, one_way.answered), (9, false));
    assert_eq!(
        (one_way.gap_ns, one_way.read_every_ns, one_way.trace),
        (60_000_000, 500_000_000, 400)
    );
    assert_eq!((both.writes, both.answered, both.nagle), (2, true, true));
    assert_eq!(both.payload_bytes(), 10_000);
    assert_eq!((pipe.trials, &pipe.sizes[..]), (1, &[1, 2, 3, 4][..]));
    assert!(matches!(&ranks.program, Program::OutOfCore(of) if of.compute_ns == 26_000_000));
}

#[test]
fn a_plan_survives_the_way_into_the_guest() {
    let plan = plan(GOOD, false).expect("valid");
    let text = serde_json::to_string(&plan).expect("plain data");
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("the same"), plan);
}

#[test]
fn a_switch_that_cannot_be_is_named() {
    let link = |key: &str| format!("{key}\nclusters = [16]");
    let with = |key: &str, at: &str, problem: &str| {
        assert_problem("clusters = [16]", &link(key), at, problem);
    };
    with(
        "edge_rate = \"1gbit\"",
        "link.edge_rate",
        "ports of one rate",
    );
    with(
        "switch_buffer = \"64KiB\"",
        "link.switch_buffer",
        "buffer is the queue of each port",
    );
    with(
        "bottleneck = \"emulator\"",
        "link.bottleneck",
        "are the kernel's",
    );
    with("loss = \"1%\"", "link.clusters", "not clusters");
    for hosts in ["[1]", "[65]"] {
        let clusters = format!("clusters = {hosts}");
        assert_problem(
            "clusters = [16]",
            &clusters,
            "link.clusters",
            "2 to 64 hosts",
        );
    }
    assert_problem(
        "clusters = [16]",
        "clusters = [4, 4, 4]",
        "link.clusters",
        "two of the same size",
    );
}

#[test]
fn workloads_have_the_network_that_they_need() {
    assert_problem(
        "clusters = [16]",
        "",
        "link.clusters",
        "[[outofcore]] needs one cluster",
    );
    assert_problem(
        "[[alltoall]]\nblocks = [\"32KB\"]\nrounds = 10\n",
        "[[burst]]\nsize = \"1MB\"\ngap = \"1s\"\ncount = 2\n",
        "link.clusters",
        "leave clusters out",
    );
    assert_problem(
        "[[alltoall]]\nblocks = [\"32KB\"]\nrounds = 10\n",
        "[[switch]]\ntransfer = \"1MB\"\nblock = \"1KB\"\ncycles = 2\npause = \"1s\"\n",
        "link.clusters",
        "need two clusters",
    );
}

#[test]
fn messages_that_cannot_be_are_named() {
    assert_problem(
        "sizes = [\"100B\"]",
        "sizes = [\"0B\"]",
        "messages.sizes",
        "at least one byte",
    );
    assert_problem(
        "sizes = [\"100B\"]",
        "sizes = [\"1B\", \"65MiB\"]",
        "messages.sizes",
        "at most 64MiB",
    );
    assert_problem(
        "direction = \"both\"\n",
        "",
        "messages.writes",
        "direction = \"both\"",
    );
    assert_problem(
        "gap = \"60ms\"",
        "direction = \"both\"",
        "messages.read_every",
        "direction = \"one\"",
    );
    assert_problem(
        "\"500ms\"",
        "\"0s\"",
        "messages.read_every",
        "longer than 0",
    );
    assert_problem("count = 90\n", "count = 0\n", "messages.count", "range");
    assert_problem("trace = 400", "trace = 10001", "messages.trace", "range");
    assert_problem("\"50ms\"", "\"50us\"", "netpipe.time", "1ms to 10s");
}

#[test]
fn a_matrix_is_divided_evenly() {
    assert_problem("side = 2048", "side = 2040", "outofcore.side", "16 ranks");
    assert_problem(
        "\"64KiB\"\ncompute",
        "\"48KiB\"\ncompute",
        "outofcore.side",
        "16 stripes",
    );
    assert_problem(
        "from_iteration = 3",
        "from_iteration = 6",
        "outofcore.from_iteration",
        "1 to iterations",
    );
}
