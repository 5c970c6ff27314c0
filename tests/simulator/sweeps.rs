// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sweeps: the same bytes on any number of threads, in parts and at once, and after an
//! interruption.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use paceline_simulator::output;
use paceline_simulator::scenario::Scenario;
use paceline_simulator::sweep::{self, Done, Shard, SweepError};

const SCENARIO: &str = r#"
title = "Small"
duration = "4s"
steady_from = "1s"
seeds = 2
holds = ["reno/cov/* <= 3 * bound", "cubic/goodput_bps/4 >= 1 * reno"]

[link.gateway]
rate = "5mbit"
delay = "5ms"
queue = { packets = 10, red = { min = 2.0, max = 8.0 } }

[tcp]
window = 30

[sender.paceline]
algorithm = "cubic"
policy = "lfn"

[flows.clients]
count = 1
tcp = "reno"
edge_rate = "10mbit"
edge_delay = "5ms"
path = ["gateway"]
source.poisson = "5ms"
per_host = 2

[variant.reno.set]
"flows.clients.tcp" = "reno"
[variant.cubic.set]
"flows.clients.tcp" = "cubic"
[variant.paceline.set]
"flows.clients.tcp" = "paceline"

[axis.clients]
set = "flows.clients.count"
values = [1, 4, 9]
more = { from = 4, to = 4, seeds = 3 }
"#;

fn scenario() -> Scenario {
    Scenario::parse(SCENARIO, Path::new("small.toml")).expect("a good scenario")
}

/// All files that make results, as text.
fn text(done: &[Done], directory: &Path) -> String {
    let results = output::results(&scenario(), 1, "", done, false).expect("claims");
    output::write_runs(done, directory).expect("a directory");
    let runs = fs::read_to_string(directory.join("runs.csv")).expect("written");
    let parquet = fs::read(directory.join("runs.parquet")).expect("written");
    let json = results.to_json().expect("finite numbers");
    format!("{json}{runs}{parquet:?}")
}

fn sweep(
    shard: Shard,
    threads: usize,
    directory: &Path,
    stop_after: usize,
) -> Result<Vec<Done>, SweepError> {
    let ended = AtomicUsize::new(0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads").install(|| {
        sweep::sweep(
            &scenario(),
            1,
            shard,
            directory,
            &|step| {
                ended.fetch_add(usize::from(step.events > 0), Ordering::Relaxed);
            },
            &|| ended.load(Ordering::Relaxed) >= stop_after,
        )
    })
}

fn directory(parent: &tempfile::TempDir, name: &str) -> PathBuf {
    parent.path().join(name)
}

#[test]
fn the_bytes_do_not_depend_on_threads_shards_or_interruptions() {
    let parent = tempfile::tempdir().expect("a directory");
    let whole = directory(&parent, "whole");
    let done = sweep(Shard::ALL, 1, &whole, usize::MAX).expect("a sweep");
    // Two values with two seeds and one with three, of three variants.
    assert_eq!(done.len(), 21);
    let expected = text(&done, &whole);

    let threads = directory(&parent, "threads");
    let done = sweep(Shard::ALL, 4, &threads, usize::MAX).expect("a sweep");
    assert_eq!(text(&done, &threads), expected);

    let parts: Vec<PathBuf> = (1..=3)
        .map(|index| {
            let part = directory(&parent, &format!("part-{index}"));
            sweep(Shard { index, of: 3 }, 2, &part, usize::MAX).expect("a part");
            part
        })
        .collect();
    let missing = sweep::merge(&parts[..2]).expect_err("a part is missing");
    assert!(
        matches!(
            missing,
            SweepError::Missing {
                missing: 7,
                runs: 21,
                ..
            }
        ),
        "{missing}"
    );
    let (_, seed, done) = sweep::merge(&parts).expect("all parts");
    assert_eq!(seed, 1);
    assert_eq!(text(&done, &parts[0]), expected);

    let again = directory(&parent, "again");
    let stopped = sweep(Shard::ALL, 2, &again, 5).expect_err("interrupted");
    assert!(
        matches!(stopped, SweepError::Interrupted { runs: 21, .. }),
        "{stopped}"
    );
    // A kill cuts a line off.
    let journal = again.join(sweep::JOURNAL);
    let mut text_so_far = fs::read_to_string(&journal).expect("a journal");
    text_so_far.push_str("{\"run\":3,\"metr");
    fs::write(&journal, text_so_far).expect("a file");
    let done = sweep(Shard::ALL, 2, &again, usize::MAX).expect("the rest");
    assert_eq!(text(&done, &again), expected);
    assert_eq!(
        fs::read(&journal).expect("a journal"),
        fs::read(whole.join(sweep::JOURNAL)).expect("a journal")
    );
}

#[test]
fn a_directory_of_another_scenario_is_left_alone() {
    let parent = tempfile::tempdir().expect("a directory");
    let journal = parent.path().join(sweep::JOURNAL);
    fs::write(&journal, "something else\n").expect("a file");
    let error = sweep(Shard::ALL, 1, parent.path(), usize::MAX).expect_err("not ours");
    assert!(matches!(error, SweepError::Another { .. }), "{error}");
    assert_eq!(
        fs::read_to_string(&journal).expect("a file"),
        "something else\n"
    );
}

#[test]
fn errors_in_a_file_name_line_and_column() {
    for (from, to, expected) in [
        (
            "\"5mbit\"",
            "5",
            "small.toml:9:8: link.gateway.rate: 5 has no unit",
        ),
        (
            "\"5mbit\"",
            "\"0bit\"",
            "small.toml:9:8: link.gateway.rate: 0bit is out of range: 1bit or more",
        ),
        (
            "path = [\"gateway\"]",
            "path = [\"way\"]",
            "small.toml:25:9: flows.clients.path: there is no link \"way\"; there are \"gateway\"",
        ),
        (
            "max = 8.0",
            "max = 1.0",
            "small.toml:11:25: link.gateway.queue.red: min and max",
        ),
        (
            "\"cubic/good",
            "\"cubic good",
            "small.toml:6:37: holds: claim",
        ),
        (
            "set = \"flows.clients.count\"",
            "set = \"flows.client.count\"",
            "small.toml:37:1: axis.clients.set: there is no table \"client\"",
        ),
        (
            "\"flows.clients.tcp\" = \"cubic\"",
            "\"flows.clients.tcp\" = \"cubik\"",
            "there is no sender \"cubik\"",
        ),
        (
            "policy = \"lfn\"",
            "policy = \"lnf\"",
            "small.toml:18:10: sender.paceline.policy: ",
        ),
        (
            "window = 30",
            "windows = 30",
            "small.toml:14:1: tcp.windows: unknown key, did you mean \"window\"?",
        ),
    ] {
        let text = SCENARIO.replacen(from, to, 1);
        assert_ne!(text, SCENARIO);
        let error = Scenario::parse(&text, Path::new("small.toml")).expect_err(to);
        let error = error.to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let problems = |changes: &[(&str, &str)]| {
        let text = changes
            .iter()
            .fold(SCENARIO.to_owned(), |text, (from, to)| {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            });
        let error = Scenario::parse(&text, Path::new("small.toml")).expect_err("wrong");
        error.to_string()
    };
    // What does not fit the keys.
    let shape = problems(&[
        ("\"5mbit\"", "5"),
        ("window = 30", "windows = 30"),
        ("seeds = 3 }", "seeds = \"3\" }"),
    ]);
    assert_eq!(shape.lines().count(), 3, "{shape}");
    // What makes no sense, each once although all variants have it.
    let sense = problems(&[
        ("steady_from = \"1s\"", "steady_from = \"5s\""),
        ("max = 8.0", "max = 1.0"),
        ("path = [\"gateway\"]", "path = [\"gatewy\"]"),
        ("policy = \"lfn\"", "policy = \"lnf\""),
    ]);
    assert_eq!(sense.lines().count(), 4, "{sense}");
    assert!(sense.contains("did you mean \"gateway\"?"), "{sense}");
    // What only a variant or a value of an axis has.
    let varied = problems(&[
        (
            "\"flows.clients.tcp\" = \"reno\"",
            "\"flows.clients.tcp\" = 7",
        ),
        ("values = [1, 4, 9]", "values = [1, 4, -9]"),
    ]);
    let expected = "\
small.toml:30:23: variant.reno.set.flows.clients.tcp: flows.clients.tcp: a whole number does not fit: write a string in quotes
small.toml:37:7: axis.clients.set: flows.clients.count: -9 is out of range: 0 to 4294967295";
    assert_eq!(varied, expected);
}

#[test]
fn the_scenarios_of_this_repository_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut read = 0;
    for entry in fs::read_dir(directory).expect("experiments").flatten() {
        let path = entry.path();
        let is_scenario = path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && fs::read_to_string(&path).is_ok_and(|text| text.contains("\n[flows."));
        if is_scenario {
            Scenario::load(&path).unwrap_or_else(|error| panic!("{error}"));
            read += 1;
        }
    }
    assert!(read >= 6, "only {read}");
}
