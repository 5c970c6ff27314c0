// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The charts that can be zoomed: what the page holds is what was sampled.

use paceline_report::html::page;
use paceline_report::results::round;
use paceline_report::{csv, Report, Series};
use serde_json::Value;

use crate::sample;
use crate::views::parse;

/// Samples of all charts of a page, as documented in docs/experiments.md.
const MOST_IN_PAGE: usize = 100_000;

/// The data of each chart of the page, and what stands with it.
fn charts(page: &str) -> Vec<(Value, String)> {
    let document = parse(page);
    let nodes = document.descendants();
    let charts = nodes.filter_map(|node| Some((node, node.attribute("data-chart")?)));
    let read = |(node, data): (roxmltree::Node, &str)| {
        let words = node.descendants().filter_map(|node| node.text());
        let words = words.collect::<String>();
        // Without the script it is not seen.
        assert!(node.has_attribute("hidden"));
        (serde_json::from_str(data).expect("JSON"), words)
    };
    charts.map(read).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().expect("a list").iter();
    numbers.map(|n| n.as_f64().expect("a number")).collect()
}

fn points(line: &Value) -> Vec<(f64, f64)> {
    let (x, y) = (numbers(&line["x"]), numbers(&line["y"]));
    assert_eq!(x.len(), y.len());
    x.into_iter().zip(y).collect()
}

/// `count` samples of one variant and part.
fn series(part: &str, variant: &str, line: &str, count: usize) -> Series {
    Series {
        experiment_part: part.into(),
        variant: variant.into(),
        line: line.into(),
        x_label: "time (ms)".into(),
        y_label: "bandwidth (Mbit/s)".into(),
        points: (0..count).map(|i| (i as f64, (i % 7) as f64)).collect(),
    }
}

#[test]
fn the_page_holds_each_sample_of_the_csv_files() {
    let report = sample::startup();
    let directory = tempfile::tempdir().unwrap();
    let page = std::fs::read_to_string(report.write(directory.path()).unwrap()).unwrap();
    let written = csv::read(&directory.path().join("series")).unwrap();
    let charts = charts(&page);
    assert_eq!(charts.len(), 3);
    let mut seen = 0;
    // In the order of the metrics, as the figures are.
    for ((chart, words), part) in charts.iter().zip(["100KB", "1MB", "10MB"]) {
        assert!(!words.contains("mean"), "{words}");
        let lines = chart["lines"].as_array().unwrap();
        let names: Vec<&str> = lines.iter().map(|l| l["name"].as_str().unwrap()).collect();
        let variants: Vec<&String> = report.results.variants.keys().collect();
        assert_eq!(names, variants);
        for line in lines {
            let series = written
                .iter()
                .find(|s| s.experiment_part == part && line["name"] == s.variant.as_str())
                .expect("a file of the line");
            assert_eq!(points(line), series.points);
            assert_eq!(chart["x"], series.x_label.as_str());
            assert_eq!(chart["y"], series.y_label.as_str());
            seen += 1;
        }
    }
    assert_eq!(seen, written.len());
}

#[test]
fn colours_are_those_of_the_figures() {
    let page = page(&sample::startup());
    for line in charts(&page)[0].0["lines"].as_array().unwrap() {
        let dot = format!(
            "fill=\"{}\" stroke=\"#fff\" stroke-width=\"1.5\"><title>{}</title>",
            line["color"].as_str().unwrap(),
            line["name"].as_str().unwrap()
        );
        assert!(page.contains(&dot), "{dot}");
    }
}

#[test]
fn lines_of_one_variant_are_named_and_dashed() {
    let mut report = sample::startup();
    report.series = vec![
        series("arrived", "cubic", "slowest", 3),
        series("arrived", "cubic", "fastest", 3),
    ];
    let charts = charts(&page(&report));
    let lines = charts[0].0["lines"].as_array().unwrap();
    let of = |key: &str| lines.iter().map(|l| l[key].as_str()).collect::<Vec<_>>();
    assert_eq!(of("name"), [Some("cubic, fastest"), Some("cubic, slowest")]);
    assert_eq!(of("dash"), [None, Some("4 3")]);
    assert_eq!(lines[0]["color"], lines[1]["color"]);
}

#[test]
fn many_samples_become_means_and_the_page_shows_it() {
    let mut report = sample::startup();
    report.series = vec![
        series("long", "cubic", "", 120_001),
        series("long", "bbr", "", 60_000),
        series("short", "cubic", "", 1_000),
    ];
    let charts = charts(&page(&report));
    let allowance = MOST_IN_PAGE / report.series.len();
    let (long, words) = &charts[0];
    let samples = 120_001_usize.div_ceil(allowance);
    assert!(
        words.contains(&format!("Each step is the mean of {samples} samples")),
        "{words}"
    );
    let mean = |chunk: &[(f64, f64)]| {
        let sum: f64 = chunk.iter().map(|point| point.1).sum();
        (chunk[0].0, round(sum / chunk.len() as f64))
    };
    for (line, series) in long["lines"].as_array().unwrap().iter().zip(&report.series) {
        let wanted: Vec<_> = series.points.chunks(samples).map(mean).collect();
        assert!(points(line) == wanted, "{} differs", series.variant);
        assert!(wanted.len() <= allowance);
    }
    // What is short loses nothing.
    let (short, words) = &charts[1];
    assert!(!words.contains("mean"));
    assert_eq!(points(&short["lines"][0]), report.series[2].points);
}

#[test]
fn points_that_are_not_finite_are_left_out() {
    let mut report = sample::startup();
    report.series = vec![
        series("part", "cubic", "", 4),
        series("part", "bbr", "", 1),
        series("other", "bbr", "", 1),
    ];
    report.series[0].points[1].1 = f64::NAN;
    report.series[0].points[3].0 = f64::INFINITY;
    report.series[1].points[0].1 = f64::NAN;
    report.series[2].points[0].1 = f64::NAN;
    let charts = charts(&page(&report));
    assert_eq!(charts.len(), 1);
    let lines = charts[0].0["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(points(&lines[0]), [(0.0, 0.0), (2.0, 2.0)]);
}

#[test]
fn a_page_without_series_has_no_script() {
    let report = Report {
        series: Vec::new(),
        ..sample::startup()
    };
    let page = page(&report);
    assert!(charts(&page).is_empty());
    assert!(!page.contains("<script"));
}
