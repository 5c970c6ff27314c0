// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[paper]]` of an experiment file from outside, and an empty loop beside bursts.

use std::path::Path;

use paceline_experiment::plan::Workload;
use paceline_experiment::Experiment;
use paceline_report::paper::Printed;

const GOOD: &str = r#"title = "A title"
description = "What for"

[link]
rate = "500mbit"
one_way_delay = "10ms"
buffer = "128KiB"

[[burst]]
size = "1MB"
gap = "600ms"
count = 4
empty_loop = true

[[paper]]
source = "somebody-2005, Table 2"
says = "It was faster."
differs = "The machine."
metric = "completion_s"
relative_to = "cubic"
also = ["bbr"]
link = "1gbit"
values.cubic = { 1MB = 2, 10MB = 0.5 }
values.paper = { 1MB = "over 1.5", 10MB = "0.25 to 0.5" }

[[paper]]
source = "somebody-2005, Figure 5"
says = "It was short."
differs = "The machine."
metric = "longest_pause_s/1MB"
values.bound = 0.2
traffic = ["cubic", "paper"]

[variant.cubic]
congestion = "cubic"

[variant.bbr]
congestion = "bbr"

[variant.paper]
policy = "paper"
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, Path::new("experiments/again.toml")).map_err(|error| error.to_string())
}

#[test]
fn values_go_to_the_results_by_their_full_metric() {
    let experiment = parse(GOOD).expect("valid");
    let table = experiment.file.paper[0].for_results();
    assert_eq!(
        table.values["cubic"]["completion_s/1MB"],
        Printed::Exactly(2.0)
    );
    assert_eq!(
        table.values["paper"]["completion_s/1MB"],
        Printed::Over { over: 1.5 }
    );
    assert_eq!(
        table.values["paper"]["completion_s/10MB"],
        Printed::Between {
            from: 0.25,
            to: 0.5
        }
    );
    assert_eq!(table.link_rate_bps, Some(1e9));
    let figure = experiment.file.paper[1].for_results();
    assert_eq!(
        figure.values["bound"]["longest_pause_s/1MB"],
        Printed::Exactly(0.2)
    );
    let traffic = figure.traffic.expect("given");
    assert_eq!(traffic.variants().collect::<Vec<_>>(), ["cubic", "paper"]);
}

#[test]
fn errors_name_file_line_and_key() {
    let wrong = |from: &str, to: &str, line: usize, key: &str, problem: &str| {
        assert!(GOOD.contains(from), "{from}");
        let message = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        let (place, key) = (
            format!("experiments/again.toml:{line}:"),
            format!(": {key}: "),
        );
        let is_reported =
            |line: &str| line.starts_with(&place) && line.contains(&key) && line.contains(problem);
        assert!(message.lines().any(is_reported), "{message}");
    };
    wrong(
        "1MB = 2,",
        "1MB = \"two\",",
        23,
        "paper.values.cubic.1MB",
        "\"two\" is no value",
    );
    wrong(
        "1MB = 2,",
        "1MB = [2],",
        23,
        "paper.values.cubic.1MB",
        "a list",
    );
    wrong(
        "1MB = 2,",
        "1MB = nan,",
        23,
        "paper.values.cubic.1MB",
        "is not a finite number",
    );
    wrong(
        "\"0.25 to 0.5\"",
        "\"0.5 to 0.25\"",
        24,
        "paper.values.paper.10MB",
        "A to B",
    );
    wrong(
        "values.paper =",
        "values.vegas =",
        24,
        "paper.values.vegas",
        "no variant \"vegas\"",
    );
    wrong(
        "also = [\"bbr\"]",
        "also = [\"vegas\"]",
        21,
        "paper.also",
        "no variant \"vegas\"",
    );
    wrong(
        "relative_to = \"cubic\"",
        "relative_to = \"bbr\"",
        20,
        "paper.relative_to",
        "values.bbr",
    );
    wrong(
        "1MB = 2,",
        "1MB = 0,",
        23,
        "paper.values.cubic",
        "above zero",
    );
    wrong(
        "says = \"It was short.\"",
        "says = \" \"",
        28,
        "paper.says",
        "empty",
    );
    wrong("values.bound = 0.2\n", "", 30, "paper.metric", "or neither");
    wrong(
        "traffic = [\"cubic\", \"paper\"]",
        "traffic = [\"cubic\"]",
        32,
        "paper.traffic",
        "two",
    );
    let traffic = "traffic = [\"cubic\", \"paper\"]";
    wrong(
        traffic,
        "parts = [\"1MB\"]",
        32,
        "paper.parts",
        "in traffic",
    );
    let against = |at: &str| {
        format!("{traffic}\nagainst = {{ metric = \"longest_pause_s\", label = \"gap\", at = {{ {at} }} }}")
    };
    for (at, key, problem) in [
        ("cubic = 8, vegas = 9", ".at.vegas", "no variant \"vegas\""),
        ("cubic = 8", "", "two variants"),
        ("cubic = 8, paper = -1", "", "below zero"),
    ] {
        let key = format!("paper.against{key}");
        wrong(traffic, &against(at), 33, &key, problem);
    }
    let good = parse(&GOOD.replace(traffic, &against("cubic = 8, paper = 9.5"))).unwrap();
    let drawn = good.file.paper[1].for_results().against.unwrap();
    assert_eq!((drawn.at["cubic"], drawn.at["paper"]), (8.0, 9.5));
    wrong("link = \"1gbit\"", "link = 1", 22, "paper.link", "");
    wrong("differs =", "differ =", 18, "paper.differ", "unknown key");
}

#[test]
fn a_loop_is_asked_for_in_the_plan_and_other_plans_stay_as_they_were() {
    let plans = |text: &str| {
        parse(text)
            .expect("valid")
            .shards(false, None, &[])
            .unwrap()
    };
    let with = &plans(GOOD)[0];
    assert!(matches!(&with.workloads[0], Workload::Burst(burst) if burst.empty_loop));
    let without = &plans(&GOOD.replace("empty_loop = true\n", ""))[0];
    let text = serde_json::to_string(without).expect("a plan is JSON");
    assert!(!text.contains("empty_loop"), "{text}");
}
