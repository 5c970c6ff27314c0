// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The backend `sim` beside the recorded runs of the virtual one: the same case, once with
//! a real kernel and once with a model of it, both under the same text of the control laws.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use paceline_lab::run::{run, Backend, Enough, Options, RunError};
use paceline_report::results::Results;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn simulate(file: &Path, variants: &[&str]) -> Result<Results, RunError> {
    let place = tempfile::tempdir().expect("a directory");
    let options = Options {
        backend: Backend::Sim,
        quick: false,
        seed: None,
        variants: variants.iter().map(|name| (*name).to_owned()).collect(),
        jobs: 0,
        kernel: paceline_machine::Choice::default(),
        log: None,
        enough: Enough::default(),
        progress: false,
        out: place.path().to_owned(),
    };
    run(file, &options, &AtomicBool::new(false)).map(|report| report.results)
}

fn simulated(experiment: &str) -> Results {
    let file = root().join(format!("experiments/{experiment}.toml"));
    simulate(&file, &[]).expect("it can be simulated")
}

/// Its record on the virtual backend.
fn recorded(experiment: &str) -> Results {
    let record = root().join("docs/results").join(experiment);
    Results::read(&record.join("results.json")).expect("results")
}

fn medians(results: &Results, variant: &str, metric: &str) -> Vec<(String, f64)> {
    let metrics = &results.variants[variant];
    metrics
        .iter()
        .filter(|(name, _)| name.starts_with(metric))
        .map(|(name, metric)| (name.clone(), metric.median))
        .collect()
}

/// Each median over the recorded one, in the record's order.
fn ratios(experiment: &str, variant: &str, metric: &str) -> Vec<(String, f64)> {
    let (ours, theirs) = (simulated(experiment), recorded(experiment));
    let of = |name: &str| ours.variants[variant][name].median;
    medians(&theirs, variant, metric)
        .into_iter()
        .map(|(name, theirs)| (name.clone(), of(&name) / theirs))
        .collect()
}

#[test]
fn starts_take_as_long_as_with_a_real_kernel() {
    for (name, ratio) in ratios("startup-pacing", "paceline", "completion_s/") {
        assert!((ratio - 1.0).abs() < 0.03, "{name}: {ratio}");
    }
    // Where CUBIC loses much depends on each packet's moment.
    for (name, ratio) in ratios("startup-pacing", "cubic", "completion_s/") {
        assert!((ratio - 1.0).abs() < 0.20, "{name}: {ratio}");
    }
}

#[test]
fn parallel_streams_end_as_with_a_real_kernel() {
    for (experiment, variant, within) in [
        ("decp", "cubic", 0.10),
        ("decp", "paceline", 0.02),
        ("decp", "average-lower", 0.10),
        ("decp-routes", "cubic", 0.10),
        ("decp-routes", "paceline", 0.02),
    ] {
        for (name, ratio) in ratios(experiment, variant, "last_s") {
            assert!(
                (ratio - 1.0).abs() < within,
                "{experiment}, {variant}, {name}: {ratio}"
            );
        }
    }
}

#[test]
fn a_coordinator_that_dies_stops_nothing() {
    let text = r#"
title = "A coordinator that dies"
description = "After two seconds."

[link]
rate = "240mbit"
one_way_delay = "100ms"
buffer = "600KB"

[[streams]]
hosts = 8
per_host = 4
size = "16MB"
coordinator_dies = "2s"

[variant.cubic]
congestion = "cubic"

[variant.paceline]
policy = "lfn"
coordinate = "even"
"#;
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("dies.toml");
    std::fs::write(&file, text).expect("written");
    let results = simulate(&file, &["cubic", "paceline"]).expect("it can be simulated");
    let last = |variant: &str| results.variants[variant]["last_s"].median;
    assert!(last("paceline") < 1.1 * last("cubic"));
}

#[test]
fn single_connections_have_what_they_have_with_a_real_kernel() {
    for (variant, within) in [("cubic", 0.03), ("paper", 0.01)] {
        for (name, ratio) in ratios("spacing", variant, "goodput_bps") {
            assert!((ratio - 1.0).abs() < within, "{variant}, {name}: {ratio}");
        }
    }
}

#[test]
fn long_answers_of_many_take_as_long_as_with_a_real_kernel() {
    let long = |name: &str| name.contains("/32KB/") || name.contains("/64KB/");
    let mut off: Vec<f64> = ratios("incast", "lfn", "round_s/")
        .into_iter()
        .filter(|(name, _)| long(name))
        .map(|(name, ratio)| {
            // There simulated messages go on in gaps that are longer than the kernel's.
            let most = if name.contains("/32KB/64/128KiB") {
                1.4
            } else {
                1.2
            };
            assert!((0.8..most).contains(&ratio), "{name}: {ratio}");
            (ratio - 1.0).abs()
        })
        .collect();
    assert!(off.len() >= 24);
    off.sort_by(f64::total_cmp);
    let median = off[off.len() / 2];
    assert!(median < 0.05, "{median}");
}

/// Messages a little longer than the initial window: whether a path is learned from them
/// depends on when a sender counts as limited by its application.
#[test]
fn small_calls_take_as_long_as_with_a_real_kernel() {
    for variant in ["cubic", "paceline"] {
        for (name, ratio) in ratios("small-calls", variant, "completion_s/") {
            assert!((ratio - 1.0).abs() < 0.02, "{variant}, {name}: {ratio}");
        }
    }
}

/// Two segments each into a queue that takes half of them: what is lost is the end of a
/// message, and the probe that repairs it bars the next message's.
#[test]
fn lost_ends_of_messages_are_waited_for_as_with_a_real_kernel() {
    for (name, ratio) in ratios("tiny-queue", "cubic", "completion_s/") {
        assert!((ratio - 1.0).abs() < 0.10, "{name}: {ratio}");
    }
}

/// Cells that tests/simulator/small_bursts.py drew and ran on a real kernel: where the
/// simulator says who is faster, and how long it takes, that is so there, too; of what
/// timers and repairs decide it judges nothing.
#[test]
fn small_bursts_into_short_queues_are_as_with_a_real_kernel_or_not_judged() {
    let text = include_str!("../../docs/results/small-bursts/cells.csv");
    let template = include_str!("../simulator/small-bursts.toml");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("cell.toml");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let columns = lines.next().expect("a heading");
    let (mut cells, mut judged, mut near, mut near_of_all, mut wrong) = (0, 0, 0, 0, Vec::new());
    for row in lines {
        cells += 1;
        let mut cell = template.to_owned();
        for (column, value) in columns.iter().zip(&row) {
            cell = cell.replace(&format!("@{}@", column.to_uppercase()), value);
        }
        // Whether it would be judged: a claim that says nothing.
        let claim = "paceline/completion_s/* <= 1000 * cubic/completion_s/*";
        let cell = cell.replace("[link]", &format!("holds = [\"{claim}\"]\n[link]"));
        std::fs::write(&file, cell).expect("a cell");
        let results = simulate(&file, &[]).expect("it can be simulated");
        let of = |variant| medians(&results, variant, "completion_s")[0].1;
        let kernel = row[row.len() - 2..]
            .iter()
            .map(|seconds| seconds.parse().expect("seconds"));
        let kernel: Vec<f64> = kernel.collect();
        let (here, there) = (of("paceline") / of("cubic"), kernel[1] / kernel[0]);
        // Within 2 % there is no sign.
        let has_sign = |ratio: f64| (ratio - 1.0).abs() > 0.02;
        let is_wrong = has_sign(here) && has_sign(there) && (here < 1.0) != (there < 1.0);
        if is_wrong {
            wrong.push(format!(
                "{row:?}: lfn over CUBIC {here:.2}, there {there:.2}"
            ));
        }
        let ratios = [of("cubic") / kernel[0], of("paceline") / kernel[1]];
        let is_near = ratios.iter().all(|ratio| (0.75..=1.25).contains(ratio));
        near_of_all += u32::from(is_near);
        println!(
            "{row:?}: {ratios:.2?} of the kernel's, lfn over CUBIC {here:.2}, there {there:.2}"
        );
        if results.holds.is_empty() {
            let note = |note: &String| note.starts_with("not judged");
            assert!(results.notes.iter().any(note), "{:?}", results.notes);
            continue;
        }
        judged += 1;
        near += u32::from(is_near && !is_wrong);
    }
    println!("{judged} of {cells} judged, {near} within 25 %; of all {near_of_all}");
    assert_eq!((near, cells), (judged, 30));
    assert!(judged >= 4, "{judged}: then the rule judges nothing");
    // Of those that are not judged, too: it may get better, not worse.
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(near_of_all >= 27, "{near_of_all}");
}

#[test]
fn the_same_again_is_the_same() {
    let [one, other] = [(); 2].map(|()| simulated("startup-pacing").to_json().expect("JSON"));
    assert!(one == other);
}

#[test]
fn variants_that_cannot_be_simulated_are_left_out_with_a_note() {
    let results = simulated("startup-pacing");
    for name in ["bbr", "cubic-no-idle-restart", "paceline+tso"] {
        assert!(!results.variants.contains_key(name), "{name}");
        let is_left_out = |note: &String| note.contains(&format!("left out: {name}, "));
        assert!(
            results.notes.iter().any(is_left_out),
            "{name}: {:?}",
            results.notes
        );
    }
    let file = root().join("experiments/startup-pacing.toml");
    let error = simulate(&file, &["bbr"]).expect_err("there is no BBR");
    assert_eq!(
        error.to_string(),
        "bbr: the simulator has no bbr, but cubic, reno and bic: use --backend virtual"
    );
}
