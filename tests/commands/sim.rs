// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline sim` as people use it: files in, files out. Needs no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

const SCENARIO: &str = r#"
title = "Small"
duration = "20s"
steady_from = "5s"
seeds = 2
holds = ["reno/cov/* <= 9 * bound"]

[link.gateway]
rate = "5mbit"
delay = "5ms"
queue = { packets = 10 }

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

[variant.reno.set]
"flows.clients.tcp" = "reno"
[variant.paceline.set]
"flows.clients.tcp" = "paceline"

[axis.clients]
set = "flows.clients.count"
values = [1, 3, 8]
"#;

/// All that a sweep leaves for people.
const RESULTS: [&str; 5] = [
    "results.json",
    "summary.csv",
    "runs.csv",
    "runs.parquet",
    "report.html",
];

struct Place(tempfile::TempDir);

impl Place {
    fn new(scenario: &str) -> Self {
        let place = Place(tempfile::tempdir().expect("a directory"));
        fs::write(place.path("small.toml"), scenario).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command
            .arg("sim")
            .args(arguments)
            .current_dir(self.0.path());
        command
    }

    fn sim(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("paceline runs")
    }

    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.sim(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {message}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn assert_same_results(one: &Path, other: &Path) {
    for name in RESULTS {
        let read = |place: &Path| fs::read(place.join(name)).expect(name);
        assert!(read(one) == read(other), "{name} differs");
    }
}

#[test]
fn a_sweep_gives_the_same_files_on_any_number_of_threads_and_in_parts() {
    let place = Place::new(SCENARIO);
    let output = place.succeeds(&["sweep", "small.toml", "--jobs", "1", "--out", "one"]);
    assert!(
        output.contains("holds  reno/cov/8 <= 9 * bound"),
        "{output}"
    );
    place.succeeds(&["sweep", "small.toml", "--jobs", "2", "--out", "two"]);
    assert_same_results(&place.path("one"), &place.path("two"));

    for part in ["1/2", "2/2"] {
        let out = format!("part-{}", &part[..1]);
        let output = place.succeeds(&["sweep", "small.toml", "--shard", part, "--out", &out]);
        assert!(output.contains("sim merge"), "{output}");
    }
    let missing = place.sim(&["merge", "part-1", "--out", "merged"]);
    assert!(!missing.status.success());
    assert!(
        String::from_utf8_lossy(&missing.stderr).contains("6 of 12 runs"),
        "{missing:?}"
    );
    place.succeeds(&["merge", "part-2", "part-1", "--out", "merged"]);
    assert_same_results(&place.path("one"), &place.path("merged"));
}

#[test]
fn a_sweep_goes_on_where_it_was_killed() {
    // Runs long enough for the kill to come in time.
    let place = Place::new(&SCENARIO.replace("\"20s\"", "\"1000s\""));
    place.succeeds(&["sweep", "small.toml", "--out", "whole"]);
    let mut child = place
        .command(&["sweep", "small.toml", "--jobs", "1", "--out", "killed"])
        .stderr(Stdio::null())
        .spawn()
        .expect("paceline runs");
    let journal = place.path("killed").join("runs.jsonl");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    // The first line says what is run; then comes one for each run.
    while lines() < 4 {
        assert!(
            child.try_wait().expect("a child").is_none(),
            "ended before it was killed"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("killed");
    child.wait().expect("a child");
    assert!(!place.path("killed").join("results.json").exists());
    let before = fs::read_to_string(&journal).expect("a journal");
    let done = before.lines().nth(2).expect("a run");

    place.succeeds(&["sweep", "small.toml", "--jobs", "1", "--out", "killed"]);
    let after = fs::read_to_string(&journal).expect("a journal");
    assert!(after.contains(done), "a run that was done is done again");
    assert_same_results(&place.path("whole"), &place.path("killed"));
}

#[test]
fn runs_can_be_read_as_parquet() {
    let place = Place::new(SCENARIO);
    place.succeeds(&["sweep", "small.toml", "--out", "out"]);
    let file = fs::File::open(place.path("out").join("runs.parquet")).expect("written");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let columns: Vec<String> = reader
        .metadata()
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .map(|column| column.name().to_owned())
        .collect();
    let text = fs::read_to_string(place.path("out").join("runs.csv")).expect("written");
    let mut lines = text.lines();
    assert_eq!(lines.next().expect("a heading"), columns.join(","));
    let mut rows = 0;
    let value = columns
        .iter()
        .position(|name| name == "value")
        .expect("a column");
    for (row, line) in reader.get_row_iter(None).expect("rows").zip(lines) {
        let row = row.expect("a row");
        let number = row.get_double(value).expect("a number");
        let expected: f64 = line
            .rsplit(',')
            .next()
            .expect("a value")
            .parse()
            .expect("a number");
        assert_eq!(number, expected, "{line}");
        rows += 1;
    }
    assert_eq!(rows, text.lines().count() - 1);
}

#[test]
fn run_writes_series_and_model_its_curve() {
    let scenario = format!("{SCENARIO}\n[trace]\nevery = \"100ms\"\nflows = 1\n");
    let place = Place::new(&scenario);
    place.succeeds(&[
        "run",
        "small.toml",
        "--at",
        "clients=8",
        "--variant",
        "reno",
        "--out",
        "run",
    ]);
    let series = fs::read_dir(place.path("run/series"))
        .expect("series")
        .count();
    assert!(
        series >= 8,
        "goodput, in flight, active flows, queue, window and ssthresh: {series}"
    );
    let page = fs::read_to_string(place.path("run/report.html")).expect("written");
    assert!(page.contains("goodput (Gbit/s)") && page.contains("<svg"));

    place.succeeds(&["model", "small.toml", "--out", "model"]);
    let results = fs::read_to_string(place.path("model/results.json")).expect("written");
    assert!(results.contains("model-as-printed") && results.contains("steady_cov/8"));
}

#[test]
fn each_problem_is_reported_once_with_file_line_and_key() {
    for (from, to, expected) in [
        ("\"5mbit\"", "5", "small.toml:9:8: link.gateway.rate"),
        (
            "path = [\"gateway\"]",
            "path = [\"way\"]",
            "small.toml:25:9: flows.clients.path: there is no link \"way\"",
        ),
        (
            "window = 30",
            "windows = 30",
            "small.toml:14:1: tcp.windows: unknown key, did you mean \"window\"?",
        ),
        (
            "= \"reno\"\n[variant.paceline",
            "= \"renno\"\n[variant.paceline",
            "there is no sender \"renno\"",
        ),
        ("[link.gateway]", "[link.gateway", "small.toml:8:14: not TOML"),
        (
            "path = [",
            "group = \"all\"\npath = [",
            "small.toml:25:9: flows.clients.group: there is no group \"all\"; there are none",
        ),
        (
            "[flows.clients]",
            "[group.all]\ncoordinate = \"evn\"\n[flows.clients]",
            "small.toml:21:14: group.all.coordinate: unknown algorithm \"evn\": use one of even, scoreboard",
        ),
        (
            "[flows.clients]",
            "[group.all]\ncoordinate = \"even\"\n[flows.clients]\ngroup = \"all\"",
            "flows.clients.group: a group bounds windows only in the stack \"linux\"",
        ),
    ] {
        let text = SCENARIO.replacen(from, to, 1);
        assert_ne!(text, SCENARIO, "{from}");
        let place = Place::new(&text);
        for verb in ["run", "sweep", "model"] {
            let output = place.sim(&[verb, "small.toml", "--out", "out"]);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{verb}: {message}");
            assert_eq!(message.matches("error").count(), 1, "{verb}: {message}");
            assert!(message.contains(expected), "{verb}: {message}");
            assert!(!place.path("out").exists(), "{verb} left something behind");
        }
    }
}

#[test]
fn an_unknown_point_is_reported_with_the_known_ones() {
    let place = Place::new(SCENARIO);
    for (arguments, expected) in [
        (["--at", "clients=2"], "\"1\", \"3\", \"8\""),
        (["--at", "client=1"], "\"clients\""),
        (["--variant", "vegas"], "\"reno\", \"paceline\""),
    ] {
        let output = place.sim(&[&["run", "small.toml"], &arguments[..]].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(message.contains(expected), "{message}");
    }
    let missing = place.sim(&["sweep", "nowhere.toml"]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nowhere.toml"));
}
