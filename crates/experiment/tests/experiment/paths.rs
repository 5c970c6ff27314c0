// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links drawn at random, from the file to the plans.

use std::path::Path;

use paceline_experiment::Experiment;

const GOOD: &str = r#"title = "A title"
description = "What for"
offload = "drawn"

[link]
rate = "500mbit"
one_way_delay = "10ms"
buffer = "128KiB"

[paths]
count = 5
quick = 2
rate = ["20mbit", "700mbit"]
rtt = ["1ms", "200ms"]
queue = [0.06, 3.0]

[[burst]]
size = "1MB"
gap = "600ms"
count = 10

[variant.cubic]
congestion = "cubic"

[variant.bbr]
congestion = "bbr"
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, Path::new("paths.toml")).map_err(|error| error.to_string())
}

#[test]
fn all_variants_of_a_path_run_on_the_same_link() {
    let experiment = parse(GOOD).expect("valid");
    let plans = experiment.shards(false, None, &[]).expect("all");
    assert_eq!(plans.len(), 10);
    for pair in plans.chunks(2) {
        let [cubic, bbr] = pair else { panic!("two") };
        assert_eq!((&*cubic.variant, &*bbr.variant), ("cubic", "bbr"));
        assert_eq!(cubic.scenario, bbr.scenario);
        assert_eq!(cubic.topology, bbr.topology);
        let name = format!("-{}mbit-", cubic.topology.rate_bps as f64 / 1e6);
        assert!(cubic.scenario.contains(&name), "{}", cubic.scenario);
    }
    let offload = |seed| {
        let plans = experiment.shards(false, Some(seed), &[]).expect("all");
        plans.iter().filter(|plan| plan.topology.offload).count()
    };
    assert!((1..=8).any(|seed| (1..10).contains(&offload(seed))));
    let quick = experiment.shards(true, None, &[]).expect("all");
    assert_eq!(quick[..], plans[..4]);
    let other = experiment.shards(true, Some(2), &[]).expect("all");
    assert_ne!(quick[0].topology, other[0].topology);
}

#[test]
fn paths_have_the_scenarios_in_turn() {
    let with = GOOD.to_owned()
        + "[[scenario]]\nname = \"plain\"\n[[scenario]]\nname = \"lossy\"\nloss = \"1%\"\n";
    let plans = parse(&with).expect("valid").shards(false, None, &[]);
    let plans = plans.expect("all");
    let plain = parse(GOOD).expect("valid").shards(false, None, &[]);
    for (number, (plan, plain)) in plans.iter().zip(plain.expect("all")).enumerate() {
        let is_lossy = number / 2 % 2 == 1;
        assert_eq!(plan.topology.impairments.loss.is_some(), is_lossy);
        let name = if is_lossy { "lossy" } else { "plain" };
        assert_eq!(plan.scenario, format!("{}-{name}", plain.scenario));
        assert_eq!(plan.topology.rate_bps, plain.topology.rate_bps);
    }
}

#[test]
fn ranges_that_cannot_be_are_named() {
    for (from, to, wanted) in [
        (
            "[\"20mbit\", \"700mbit\"]",
            "[\"700mbit\", \"20mbit\"]",
            ":13:8: paths.rate: the first of two values must be above zero and at most the second",
        ),
        (
            "700mbit",
            "7gbit",
            "paths.rate: must be at most the link's edge_rate: else the hosts' links are the bottleneck",
        ),
        ("1ms", "1us", "paths.rtt: the first of two values must be 2us or more"),
        ("0.06", "0.0", "paths.queue: the first of two values"),
        ("quick = 2", "quick = 6", "paths.quick: must be at most count"),
        ("count = 5", "count = 0", "paths.count: 0 is out of range: 1 to 1000"),
        (
            "\"drawn\"",
            "\"random\"",
            "offload: ",
        ),
        (
            "buffer = \"128KiB\"",
            "buffer = \"128KiB\"\n[[link.step]]\nat = \"1s\"\nrate = \"1mbit\"",
            "paths: [[link.step]] changes one link, not drawn ones: leave one of both out",
        ),
    ] {
        let error = parse(&GOOD.replace(from, to)).expect_err(to);
        assert!(error.contains(wanted), "{to}: {error}");
    }
    let start = GOOD.find("[paths]").expect("there");
    let end = GOOD.find("[[burst]]").expect("there");
    let without = GOOD[..start].to_owned() + &GOOD[end..];
    let error = parse(&without).expect_err("nothing draws it");
    assert!(
        error.contains("offload: \"drawn\" needs [paths]"),
        "{error}"
    );
}
