// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links drawn at random, from the file to the plans.

use std::path::Path;

use paceline_experiment::plan::Cross;
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

/// A change is a multiple of what was drawn; rounds to the bit per second, and to the
/// microsecond.
#[test]
fn changes_of_drawn_paths_are_multiples_of_their_own_values() {
    let with = GOOD.to_owned()
        + "[[scenario]]\nname = \"plain\"\n[[scenario]]\nname = \"reroute\"\n\
           step = [{ at_burst = 4, delay_factor = 4 }, { at_burst = 7, rate_factor = 0.5, delay_factor = 1 }]\n";
    let plans = parse(&with).expect("valid").shards(false, None, &[]);
    for (number, plan) in plans.expect("all").iter().enumerate() {
        let link = &plan.topology;
        if number / 2 % 2 == 0 {
            assert!(link.steps.is_empty());
            continue;
        }
        let values: Vec<(u64, u64)> = (0..3)
            .map(|steps| link.after(steps))
            .map(|link| (link.rate_bps, link.one_way_delay_ns / 1000))
            .collect();
        let (rate_bps, delay_us) = values[0];
        assert_eq!(values[1], (rate_bps, 4 * delay_us));
        assert_eq!(values[2], (rate_bps.div_ceil(2), delay_us));
        let passed = [3, 4, 6, 7].map(|burst| link.steps_before(burst, None));
        assert_eq!(passed, [0, 1, 1, 2]);
    }
}

/// Other traffic comes from a host of its own, and has the rate of its path.
#[test]
fn short_flows_are_a_share_of_each_path() {
    let with = GOOD.to_owned()
        + "[[scenario]]\nname = \"short\"\ncross = { load = \"20%\", size = \"50KB\" }\n\
           [[scenario]]\nname = \"long\"\ncross = { flows = 2, congestion = \"bbr\" }\n";
    let plans = parse(&with).expect("valid").shards(false, None, &[]);
    for (number, plan) in plans.expect("all").iter().enumerate() {
        assert_eq!(plan.topology.senders, 2);
        let cross = plan.topology.cross.as_ref().expect("in both scenarios");
        let wanted = match number / 2 % 2 {
            0 => Cross::Short {
                congestion: "cubic".to_owned(),
                size_bytes: 50_000,
                per_second: 0.2 * plan.topology.rate_bps as f64 / 8.0 / 50_000.0,
            },
            _ => Cross::Endless {
                congestion: "bbr".to_owned(),
                flows: 2,
            },
        };
        assert_eq!(*cross, wanted);
    }
    let alone = parse(GOOD).expect("valid").shards(false, None, &[]);
    assert_eq!(alone.expect("all")[0].topology.senders, 1);
}

#[test]
fn other_traffic_that_cannot_be_is_named() {
    for (cross, wanted) in [
        (
            "{}",
            "link.cross: give flows = 1 for endless flows, or load and size for short ones",
        ),
        ("{ flows = 1, load = \"5%\" }", "link.cross: give flows = 1"),
        ("{ load = \"5%\" }", "link.cross: give flows = 1"),
        (
            "{ flows = 0 }",
            "link.cross.flows: 0 is out of range: 1 to 100",
        ),
        (
            "{ load = \"95%\", size = \"1MB\" }",
            "link.cross.load: must be above 0% and at most 90%",
        ),
        (
            "{ load = \"0%\", size = \"1MB\" }",
            "link.cross.load: must be above 0% and at most 90%",
        ),
        (
            "{ load = \"9%\", size = \"10B\" }",
            "link.cross.size: must be 1000B at least",
        ),
        // Of the fastest path that may be drawn.
        (
            "{ load = \"30%\", size = \"20KB\" }",
            "link.cross.size: makes 1312 flows a second, 1000 at most: give longer ones",
        ),
        ("{ flow = 1 }", "link.cross.flow: unknown key"),
    ] {
        let text = GOOD.replace(
            "buffer = \"128KiB\"",
            &format!("buffer = \"128KiB\"\ncross = {cross}"),
        );
        let error = parse(&text).expect_err(cross);
        assert!(error.contains(wanted), "{cross}: {error}");
    }
    let start = GOOD.find("[[burst]]").expect("there");
    let end = GOOD.find("[variant.cubic]").expect("there");
    let bulk = "[[bulk]]\nname = \"b\"\nduration = \"9s\"\n[[bulk.flows]]\nname = \"a\"\n";
    let text = GOOD[..start].replace(
        "buffer = \"128KiB\"",
        "buffer = \"128KiB\"\ncross = { flows = 1 }",
    );
    let error = parse(&(text + bulk + &GOOD[end..])).expect_err("no bursts");
    assert!(
        error.contains("link.cross: is beside [[burst]]: give one, and no clusters"),
        "{error}"
    );
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
            "link.step.rate: each of the [paths] has its own: give rate_factor = 0.5",
        ),
        (
            "[[burst]]",
            "[[scenario]]\nname = \"slower\"\n[[scenario.step]]\nat_burst = 3\n\
             one_way_delay = \"1ms\"\nbuffer = \"1MB\"\n[[burst]]",
            "scenario.step.one_way_delay: each of the [paths] has its own: give delay_factor = 4",
        ),
        (
            "[[burst]]",
            "[[scenario]]\nname = \"faster\"\nstep = [{ at_burst = 3, rate_factor = 2.0 }]\n[[burst]]",
            "scenario.step.rate_factor: must be at most the hosts' edge_rate, and is 1400mbit",
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
