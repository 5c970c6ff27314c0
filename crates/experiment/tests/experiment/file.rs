// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiment files from outside: what is wrong is named with file, line and key,
//! and what is right becomes the plans that one expects.

use std::path::Path;

use paceline_experiment::plan::{PolicySource, Workload};
use paceline_experiment::Experiment;

const GOOD: &str = r#"title = "A title"
description = "What for"
offload = "both"
holds = ["paceline/completion_s/* <= 1.10 * bound"]

[link]
rate = "500mbit"
one_way_delay = "10ms"
buffer = "128KiB"

[[scenario]]
name = "shallow"
buffer = "32KiB"

[[scenario]]
name = "slow"
rate = "100mbit"

[[burst]]
size = "1MB"
gap = "600ms"
count = 10
quick = 4
from_burst = 3

[[burst]]
size = "1MB"
gap = "600ms"
count = 10
connections = 16

[[incast]]
senders = [8, 64]
answers = ["2KB", "64KB"]
rounds = 5
period = "1s"

[variant.cubic]
congestion = "cubic"
sysctl = { "net.ipv4.tcp_slow_start_after_idle" = 0 }

[variant.paceline]
policy = "lfn"

[variant.bbr-rto.policy]
base = "bbr"
rto = { least = "tick" }
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, Path::new("experiments/startup.toml"))
        .map_err(|error| error.to_string())
}

/// The message for the good file with `from` replaced by `to`.
fn message(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).expect_err(to)
}

#[test]
fn a_shard_is_a_variant_an_offload_and_a_scenario() {
    let experiment = parse(GOOD).expect("valid");
    assert_eq!(experiment.name, "startup");
    let plans = experiment.shards(false, None, &[]).expect("all variants");
    let names: Vec<String> = plans.iter().map(|plan| plan.shard_name()).collect();
    assert_eq!(
        names,
        [
            "cubic@shallow",
            "paceline@shallow",
            "bbr-rto@shallow",
            "cubic+tso@shallow",
            "paceline+tso@shallow",
            "bbr-rto+tso@shallow",
            "cubic@slow",
            "paceline@slow",
            "bbr-rto@slow",
            "cubic+tso@slow",
            "paceline+tso@slow",
            "bbr-rto+tso@slow",
        ]
    );
    let shallow = &plans[0].topology;
    assert_eq!(
        (shallow.rate_bps, shallow.buffer_bytes, shallow.senders),
        (500_000_000, 32_768, 64)
    );
    let slow = &plans[6].topology;
    assert_eq!((slow.rate_bps, slow.buffer_bytes), (100_000_000, 131_072));
    assert!(plans[3].topology.offload && !plans[0].topology.offload);
    let labels: Vec<&str> = plans[0].workloads.iter().map(Workload::label).collect();
    assert_eq!(
        labels,
        ["1MB", "1MB/16", "2KB/8", "64KB/8", "2KB/64", "64KB/64"]
    );
    assert_eq!(
        plans[0].adaptation.sysctl["net.ipv4.tcp_slow_start_after_idle"],
        "0"
    );
    assert_eq!(
        plans[1].adaptation.policy,
        Some(PolicySource::Preset("lfn".to_owned()))
    );
}

#[test]
fn quick_seed_and_variant_choose() {
    let experiment = parse(GOOD).expect("valid");
    let chosen = ["cubic".to_owned(), "paceline+tso".to_owned()];
    let plans = experiment
        .shards(true, Some(9), &chosen)
        .expect("known variants");
    let names: Vec<&str> = plans.iter().map(|plan| plan.variant.as_str()).collect();
    assert_eq!(
        names,
        [
            "cubic",
            "cubic+tso",
            "paceline+tso",
            "cubic",
            "cubic+tso",
            "paceline+tso"
        ]
    );
    assert!(plans.iter().all(|plan| plan.seed == 9));
    assert_eq!(plans[0].steps(), 4 + 10 + 4 * 5);
    let error = experiment
        .shards(false, None, &["vegas".to_owned()])
        .expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "the experiment has no variant \"vegas\"; it has cubic, paceline, bbr-rto"
    );
}

#[test]
fn a_plan_survives_the_way_into_the_guest() {
    let plans = parse(GOOD)
        .expect("valid")
        .shards(false, None, &[])
        .expect("all variants");
    for plan in plans {
        let text = serde_json::to_string(&plan).expect("a plan is JSON");
        assert_eq!(
            serde_json::from_str::<paceline_experiment::plan::Plan>(&text).expect("and back"),
            plan
        );
    }
}

#[test]
fn errors_name_file_line_and_key() {
    let at = |text: &str, line: usize, key: &str| {
        let place = format!("experiments/startup.toml:{line}:");
        let fits = text.starts_with(&place) && text.contains(&format!(": {key}: "));
        assert!(fits && text.lines().count() == 1, "{text}");
    };
    let bare = message("rate = \"500mbit\"", "rate = 500");
    at(&bare, 7, "link.rate");
    assert!(bare.contains("500mbit") || bare.contains("mbit"), "{bare}");
    let unknown = message("gap = \"600ms\"", "pause = \"600ms\"");
    assert!(
        unknown.contains(":21:1: burst.pause: unknown key"),
        "{unknown}"
    );
    at(
        &message("from_burst = 3", "from_burst = 5"),
        24,
        "burst.from_burst",
    );
    at(
        &message("connections = 16", "connections = 0"),
        30,
        "burst.connections",
    );
    at(
        &message("senders = [8, 64]", "senders = [8, 400]"),
        33,
        "incast.senders",
    );
    at(&message("<= 1.10 * bound", "<= 1.10 bound"), 4, "holds");
    at(
        &message("policy = \"lfn\"", "policy = \"no-such-policy\""),
        43,
        "variant.paceline.policy",
    );
    at(
        &message("base = \"bbr\"", "base = \"vegas\""),
        46,
        "variant.bbr-rto.policy.base",
    );
    at(
        &message(
            "buffer = \"128KiB\"",
            "buffer = \"128KiB\"\nedge_rate = \"100mbit\"",
        ),
        10,
        "link.edge_rate",
    );
    at(
        &message("[variant.cubic]", "[variant.bound]"),
        38,
        "variant.bound",
    );
    let nothing = parse(&GOOD[..GOOD.find("[[burst]]").expect("there")]).expect_err("no variants");
    assert!(nothing.contains("variant"), "{nothing}");
}

#[test]
fn all_problems_are_reported_at_once() {
    let changed = |changes: &[(&str, &str)]| {
        changes.iter().fold(GOOD.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        })
    };
    let lines = |text: &str| parse(text).expect_err("wrong").lines().count();
    // What does not fit the keys.
    let shape = changed(&[
        ("rate = \"500mbit\"", "rate = 500"),
        ("connections = 16", "connections = 0"),
        ("base = \"bbr\"", "base = \"vegas\""),
    ]);
    assert_eq!(lines(&shape), 3);
    // What makes no sense.
    let sense = changed(&[
        ("<= 1.10 * bound", "<= 1.10 bound"),
        ("buffer = \"128KiB\"", "buffer = \"1KB\""),
        ("from_burst = 3", "from_burst = 5"),
        ("policy = \"lfn\"", "policy = \"lnf\""),
        ("[variant.cubic]", "[variant.bound]"),
    ]);
    assert_eq!(lines(&sense), 5, "{}", parse(&sense).unwrap_err());
}

#[test]
fn the_experiments_of_this_repository_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).expect("experiments").flatten() {
        let path = entry.path();
        // Those with groups of flows are the simulator's.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if path.extension().is_some_and(|end| end == "toml") && !text.contains("\n[flows.") {
            let experiment = Experiment::load(&path).unwrap_or_else(|error| panic!("{error}"));
            for quick in [false, true] {
                assert!(!experiment
                    .shards(quick, None, &[])
                    .expect("all variants")
                    .is_empty());
            }
            count += 1;
        }
    }
    assert!(count >= 11, "{count}");
}

#[test]
fn a_skeleton_is_run_once_at_least() {
    let text = include_str!("../../../../experiments/npb-skeleton.toml");
    assert!(parse(text).is_ok());
    let never = text.replace("repeats = 3", "repeats = 0");
    let line = 1 + never
        .lines()
        .position(|line| line == "repeats = 0")
        .unwrap();
    let message = parse(&never).unwrap_err();
    let wanted = format!(":{line}:11: skeleton.repeats: 0 is out of range: 1 to 1000");
    assert!(message.contains(&wanted), "{message}");
}

#[test]
fn an_unknown_coordinator_is_reported_with_the_known_ones() {
    let text = GOOD.replacen(
        "[variant.cubic]",
        "[variant.cubic]\ncoordinate = \"evn\"",
        1,
    );
    let line = 1 + text
        .lines()
        .position(|line| line.starts_with("coordinate"))
        .unwrap();
    let message = parse(&text).unwrap_err();
    let wanted = format!(
        ":{line}:14: variant.cubic.coordinate: unknown algorithm \"evn\": use one of even, "
    );
    assert!(message.contains(&wanted), "{message}");
}

#[test]
fn streams_that_cannot_be_are_named() {
    let with = |keys: &str| {
        let text = GOOD.replacen(
            "[variant.cubic]",
            &format!("[[streams]]\nsize = \"1MB\"\n{keys}\n\n[variant.cubic]"),
            1,
        );
        parse(&text).map(|experiment| experiment.shards(true, None, &[]).expect("plans"))
    };
    let plans = with("hosts = 8\nper_host = 4\nquick = \"10KB\"\nbeside = \"cubic\"").unwrap();
    let Some(Workload::Streams(plan)) = plans[0].workloads.last() else {
        panic!("streams come after bursts and incast");
    };
    assert_eq!((plan.size_bytes, plan.hosts, plan.per_host), (10_000, 8, 4));
    for (keys, key, right) in [
        ("hosts = 0", "hosts", "1 to 250"),
        ("hosts = 250\nbeside = \"cubic\"", "hosts", "1 to 249"),
        ("hosts = 8\nper_host = 200", "per_host", "1 to 1000"),
        ("hosts = 8\nrepeats = 0", "repeats", "1 to 1000"),
        (
            "hosts = 8\ndistant_hosts = 9",
            "distant_hosts",
            "at most the number of hosts, 8",
        ),
        ("hosts = 8\ndistant_hosts = 1", "distant_hosts", "or neither"),
        (
            "hosts = 8\nroutes = [{ hosts = 7, rate = \"10mbit\", buffer = \"9KB\", rtt = \"1ms\" }]",
            "routes",
            "all routes together 8",
        ),
        (
            "hosts = 8\nbeside = \"cubic\"\nroutes = [{ hosts = 8, rate = \"10mbit\", buffer = \"9KB\", rtt = \"1ms\" }]",
            "routes",
            "beside",
        ),
        (
            "hosts = 8\nroutes = [{ hosts = 8, rate = \"0mbit\", buffer = \"9KB\", rtt = \"1ms\" }]",
            "routes",
            "0mbit is out of range: 1bit or more",
        ),
        (
            "hosts = 2\npause = { host = 3, at = \"1s\", for = \"1s\" }",
            "pause",
            "1 to 2",
        ),
    ] {
        let message = with(keys).expect_err(keys);
        let found = message.contains(&format!(": streams.{key}"));
        assert!(found && message.contains(right), "{keys}: {message}");
    }
}

/// The good file with `keys` in the place of its first burst's, or what is wrong with them.
fn with_burst(keys: &str) -> Result<Experiment, String> {
    let burst = "size = \"1MB\"\ngap = \"600ms\"\ncount = 10\nquick = 4\nfrom_burst = 3\n";
    assert!(GOOD.contains(burst));
    parse(&GOOD.replacen(burst, keys, 1))
}

#[test]
fn bursts_may_be_a_list() {
    let plan = |keys: &str| {
        let experiment = with_burst(keys).unwrap_or_else(|error| panic!("{keys}: {error}"));
        let plans = experiment.shards(false, None, &[]).expect("plans");
        match &plans[0].workloads[0] {
            Workload::Burst(burst) => burst.clone(),
            other => panic!("{other:?}"),
        }
    };
    let mixed = plan("name = \"mixed\"\nsizes = [\"1MB\", \"29KB\"]\ngaps = [\"61s\"]\n");
    assert_eq!((mixed.count, &mixed.positions[..]), (2, &[1, 2][..]));
    let second = mixed.chunk(2);
    assert_eq!((second.label.as_str(), second.size_bytes), ("29KB", 29_000));
    assert_eq!(mixed.chunk(1).gap_ns, 61_000_000_000);
    // Gone through again.
    let again = plan(
        "name = \"m\"\nsizes = [\"1MB\", \"29KB\"]\ngap = \"1s\"\ncount = 5\npositions = [5]\n",
    );
    assert_eq!((again.count, again.chunk(5).size_bytes), (5, 1_000_000));
    assert_eq!(again.positions, [5]);
    // One size, several gaps: the metrics are those of the size.
    let gaps = plan("size = \"1MB\"\ngaps = [\"1s\", \"9s\"]\n");
    assert_eq!((gaps.count, gaps.label.as_str()), (3, "1MB"));
    assert_eq!(
        (gaps.chunk(2).gap_ns, gaps.chunk(2).label.as_str()),
        (9_000_000_000, "")
    );
}

#[test]
fn lists_of_bursts_that_do_not_fit_are_named() {
    let list = "name = \"m\"\nsizes = [\"1MB\", \"29KB\", \"1MB\"]\n";
    for (keys, key, right) in [
        ("gap = \"1s\"\ncount = 4\n".to_owned(), "size", "sizes = ["),
        (
            "size = \"1MB\"\nsizes = [\"1MB\"]\ngap = \"1s\"\n".to_owned(),
            "sizes",
            "either",
        ),
        (
            "sizes = [\"1MB\"]\ngap = \"1s\"\n".to_owned(),
            "name",
            "completion_s/mixed#2",
        ),
        (format!("{list}count = 3\n"), "gap", "gaps = ["),
        (
            format!("{list}gaps = [\"1s\"]\n"),
            "gaps",
            "one gap per size",
        ),
        (
            format!("{list}gaps = [\"1s\", \"2s\"]\ncount = 6\n"),
            "gaps",
            "if the list is used once",
        ),
        (
            format!("{list}gaps = [\"1s\"]\ngap = \"1s\"\n"),
            "gaps",
            "either",
        ),
        (
            format!("{list}gap = \"1s\"\npositions = [4]\n"),
            "positions",
            "1 to 3",
        ),
        (
            "name = \"a#1\"\nsize = \"1MB\"\ngap = \"1s\"\ncount = 4\n".to_owned(),
            "name",
            "must not have #",
        ),
        (
            "size = \"1MB\"\ngap = \"1s\"\n".to_owned(),
            "count",
            "number of bursts",
        ),
    ] {
        let message = with_burst(&keys).expect_err(&keys);
        let place = format!(": burst.{key}: ");
        assert!(
            message.contains(&place) && message.contains(right),
            "{keys}: {message}"
        );
    }
}

#[test]
fn a_link_that_changes_is_the_one_before_with_what_changed() {
    let text = GOOD.replacen(
        "[[scenario]]",
        "[[link.step]]\nat_burst = 2\nrate = \"100mbit\"\n\n\
         [[link.step]]\nat_burst = 4\nafter = \"5ms\"\none_way_delay = \"50ms\"\nbuffer = \"1MB\"\n\n[[scenario]]",
        1,
    );
    let experiment = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let plans = experiment.shards(false, None, &[]).expect("plans");
    let link = &plans[0].topology;
    let values = |link: &paceline_experiment::plan::Topology| {
        (link.rate_bps, link.one_way_delay_ns, link.buffer_bytes)
    };
    assert_eq!(values(&link.after(0)), (500_000_000, 10_000_000, 32_768));
    assert_eq!(values(&link.after(1)), (100_000_000, 10_000_000, 32_768));
    assert_eq!(values(&link.after(2)), (100_000_000, 50_000_000, 1_000_000));
    // The burst in which it changes is on neither link.
    let passed: Vec<usize> = (1..=6)
        .map(|burst| link.steps_before(burst, None))
        .collect();
    assert_eq!(passed, [0, 1, 1, 1, 2, 2]);
}

#[test]
fn links_that_cannot_be_are_named() {
    let step = |keys: &str| {
        let text = GOOD.replacen(
            "[[scenario]]",
            &format!("[[link.step]]\n{keys}\n\n[[scenario]]"),
            1,
        );
        parse(&text).map(drop)
    };
    assert_eq!(step("at = \"1s\"\nrate = \"1mbit\""), Ok(()));
    for (keys, key, right) in [
        ("rate = \"1mbit\"", "link.step.at_burst", "at = \"10s\""),
        (
            "at_burst = 1\nrate = \"1mbit\"",
            "link.step.at_burst",
            "at least 2",
        ),
        ("at_burst = 3", "link.step.rate", "changes nothing"),
        (
            "at_burst = 3\nat = \"1s\"\nrate = \"1mbit\"",
            "link.step.at",
            "either",
        ),
        (
            "at = \"1s\"\nafter = \"1ms\"\nrate = \"1mbit\"",
            "link.step.after",
            "at_burst",
        ),
        (
            "at_burst = 3\nrate = \"2gbit\"",
            "link.step.rate",
            "edge_rate",
        ),
        (
            "at_burst = 3\nrate = \"1mbit\"\nrate_factor = 0.5",
            "link.step.rate_factor",
            "give either rate or rate_factor",
        ),
        (
            "at_burst = 3\none_way_delay = \"1ms\"\ndelay_factor = 2.0",
            "link.step.delay_factor",
            "give either one_way_delay or delay_factor",
        ),
        (
            "at_burst = 3\ndelay_factor = 0.0",
            "link.step.delay_factor",
            "out of range",
        ),
        (
            "at_burst = 3\nrate_factor = 5",
            "link.step.rate_factor",
            "must be at most the hosts' edge_rate, and is 2500mbit",
        ),
        (
            "at_burst = 3\nbuffer = \"100B\"",
            "link.step.buffer",
            "1514B",
        ),
        (
            "at_burst = 11\nrate = \"1mbit\"",
            "burst.count",
            "before the link changes",
        ),
        ("at_burst = 3\nrate = 5", "link.step.rate", "mbit"),
        (
            "at_burst = 3\ncrash = true",
            "link.step.crash",
            "unknown key",
        ),
        (
            "at_burst = 3\nrate = \"1mbit\"\n[[link.step]]\nat_burst = 2\nrate = \"2mbit\"",
            "link.step.at_burst",
            "must ascend",
        ),
    ] {
        let message = step(keys).expect_err(keys);
        let place = format!(": {key}: ");
        assert!(
            message.contains(&place) && message.contains(right),
            "{keys}: {message}"
        );
    }
    let link = |keys: &str| {
        message(
            "buffer = \"128KiB\"",
            &format!("buffer = \"128KiB\"\n{keys}"),
        )
    };
    assert!(link("mtu = 100").contains(":10:7: link.mtu: must be 576 to 9216"));
    assert!(link("mtu = 1000\nip = 6").contains(":10:7: link.mtu: must be 1280 to 9216"));
    let unknown = link("qdisc = \"cake\"");
    assert!(
        unknown.contains(":10:9: link.qdisc: ") && unknown.contains("fq_codel"),
        "{unknown}"
    );
}
