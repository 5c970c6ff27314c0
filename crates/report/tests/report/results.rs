// SPDX-License-Identifier: Apache-2.0 OR MIT
//! results.json and the series: what is written can be read, and equal runs give
//! equal bytes.

use std::path::Path;

use crate::sample;
use paceline_report::results::{round, Metric, Results, ResultsError, SIGNIFICANT_DIGITS};
use paceline_report::{csv, Report, Series};
use proptest::prelude::*;

fn series(points: Vec<(f64, f64)>) -> Series {
    Series {
        experiment_part: "1MB, \"late\"".into(),
        variant: "a,b".into(),
        line: String::new(),
        x_label: "time (ms)".into(),
        y_label: "bandwidth (Mbit/s)".into(),
        points,
    }
}

#[test]
fn json_has_the_fields_of_the_format_and_no_empty_options() {
    let mut results = sample::startup().results;
    (results.title, results.description, results.command) = (None, None, None);
    results.notes.clear();
    results.link.rtt_s = None;
    let json: serde_json::Value = serde_json::from_str(&results.to_json().unwrap()).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "experiment",
            "backend",
            "kernel",
            "seed",
            "valid",
            "warnings",
            "cpu_idle",
            "link",
            "variants",
            "bounds",
            "holds"
        ]
    );
    let link: Vec<&String> = json["link"].as_object().unwrap().keys().collect();
    assert_eq!(
        link,
        [
            "rate_bps",
            "one_way_delay_s",
            "buffer_bytes",
            "buffer_measured_bytes",
            "edge_rate_bps"
        ]
    );
    let metric = json["variants"]["cubic"]["completion_s/1MB"]
        .as_object()
        .unwrap();
    assert_eq!(
        metric.keys().collect::<Vec<_>>(),
        ["median", "min", "max", "runs"]
    );
    let hold = json["holds"][0].as_object().unwrap();
    assert_eq!(hold.keys().collect::<Vec<_>>(), ["claim", "value", "pass"]);
}

#[test]
fn a_report_survives_the_disk_and_gives_the_same_bytes_again() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (
        directory.path().join("first"),
        directory.path().join("second"),
    );
    let report = sample::startup();
    report.write(&first).unwrap();
    let read = Report::read(&first).unwrap();
    assert_eq!(read.series.len(), report.series.len());
    read.write(&second).unwrap();
    for file in ["results.json", "series/10MB-paceline.csv", "report.html"] {
        let bytes = |directory: &Path| std::fs::read(directory.join(file)).unwrap();
        assert!(bytes(&first) == bytes(&second), "{file} differs");
    }
}

#[test]
fn an_earlier_runs_series_do_not_stay() {
    let directory = tempfile::tempdir().unwrap();
    sample::startup().write(directory.path()).unwrap();
    let mut report = sample::startup();
    report.series.truncate(1);
    report.write(directory.path()).unwrap();
    assert_eq!(Report::read(directory.path()).unwrap().series.len(), 1);
}

#[test]
fn the_last_bits_of_a_sum_do_not_reach_the_file() {
    let mut results = sample::startup().results;
    results.cpu_idle = 0.1 + 0.2;
    let one = results.to_json().unwrap();
    results.cpu_idle = 0.3;
    assert_eq!(one, results.to_json().unwrap());
}

#[test]
fn numbers_that_json_cannot_hold_are_refused_by_place() {
    let mut results = sample::startup().results;
    results.variants["bbr"]["completion_s/1MB"].runs[2] = f64::NAN;
    let error = results.to_json().unwrap_err().to_string();
    assert_eq!(
        error,
        "variants.bbr.completion_s/1MB.runs[2] is NaN: results hold finite numbers only"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.json");
    assert!(matches!(
        results.write(&path),
        Err(ResultsError::NotFinite { .. })
    ));
    assert!(!path.exists());
}

#[test]
fn a_read_error_names_file_and_line() {
    let error =
        Results::from_json("{\n  \"experiment\": 3", Path::new("out/results.json")).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("out/results.json does not hold results: "),
        "{text}"
    );
    assert!(text.contains("line 2"), "{text}");
    let error = Results::read(Path::new("nowhere/results.json")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot read nowhere/results.json: "),
        "{error}"
    );
}

#[test]
fn a_metric_sums_up_its_runs() {
    let odd = Metric::from_runs(vec![3.0, 1.0, 2.0]).unwrap();
    assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
    assert_eq!(odd.runs, [3.0, 1.0, 2.0]);
    assert_eq!(
        Metric::from_runs(vec![4.0, 1.0, 2.0, 3.0]).unwrap().median,
        2.5
    );
    assert!(matches!(
        Metric::from_runs(vec![]),
        Err(ResultsError::NoRuns)
    ));
    assert!(matches!(
        Metric::from_runs(vec![1.0, f64::INFINITY]),
        Err(ResultsError::NotFinite { .. })
    ));
}

#[test]
fn csv_quotes_what_it_has_to() {
    let directory = tempfile::tempdir().unwrap();
    let one = series(vec![(0.0, 1.5), (1.0, 0.0)]);
    let files = csv::write(directory.path(), std::slice::from_ref(&one)).unwrap();
    assert_eq!(
        std::fs::read_to_string(&files[0]).unwrap(),
        "part,variant,time (ms),bandwidth (Mbit/s)\n\
         \"1MB, \"\"late\"\"\",\"a,b\",0,1.5\n\"1MB, \"\"late\"\"\",\"a,b\",1,0\n"
    );
    assert_eq!(
        csv::read(directory.path()).unwrap(),
        std::slice::from_ref(&one)
    );
    assert!(matches!(
        csv::write(directory.path(), &[one.clone(), one.clone()]),
        Err(csv::CsvError::SameFile(_))
    ));
    // Lines of one panel have a column and a file of their own each.
    let line = |name: &str| Series {
        line: name.into(),
        ..one.clone()
    };
    let both = [line("least"), line("most, \"of all\"")];
    let files = csv::write(directory.path(), &both).unwrap();
    let text = std::fs::read_to_string(&files[0]).unwrap();
    assert!(text.starts_with("part,variant,line,time (ms),"), "{text}");
    assert_eq!(csv::read(directory.path()).unwrap(), both);
    let mixed = text.replace(",least,1,0", ",most,1,0");
    std::fs::write(&files[0], mixed).unwrap();
    let error = csv::read(directory.path()).unwrap_err().to_string();
    assert!(
        error.contains("line 3: expected the part, variant and line"),
        "{error}"
    );
    csv::write(directory.path(), &[one]).unwrap();
    std::fs::write(&files[0], "part,variant,x,y\n1MB,cubic,0,fast\n").unwrap();
    let error = csv::read(directory.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("line 2: expected numbers for x and y"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn rounding_is_close_and_final(number in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
        let once = round(number);
        prop_assert_eq!(once.to_bits(), round(once).to_bits());
        prop_assert!((once - number).abs() <= number.abs() * 10f64.powi(1 - SIGNIFICANT_DIGITS as i32));
    }

    #[test]
    fn reading_and_writing_changes_no_byte(
        runs in proptest::collection::vec(-1e12..1e12f64, 1..20), bound in 1e-9..1e9f64,
    ) {
        let mut results = sample::startup().results;
        results.bounds.insert("completion_s/1MB".into(), bound);
        results.variants["bbr"].insert("completion_s/1MB".into(), Metric::from_runs(runs).unwrap());
        let json = results.to_json().unwrap();
        prop_assert_eq!(&Results::from_json(&json, Path::new("x")).unwrap().to_json().unwrap(), &json);
    }

    #[test]
    fn any_series_survives_csv(points in proptest::collection::vec((0..100_000u32, 0..1_000_000u32), 1..50)) {
        let directory = tempfile::tempdir().unwrap();
        let one = series(points.into_iter().map(|(x, y)| (f64::from(x), f64::from(y) / 8.0)).collect());
        csv::write(directory.path(), std::slice::from_ref(&one)).unwrap();
        prop_assert_eq!(csv::read(directory.path()).unwrap(), vec![one]);
    }
}
