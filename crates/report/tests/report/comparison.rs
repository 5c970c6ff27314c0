// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several runs in one page.

use indexmap::IndexMap;
use paceline_report::html::comparison::{comparison, Run};
use paceline_report::results::{Metric, Results};

use crate::escaping::hostile;
use crate::sample;
use crate::views::parse;

fn run(results: &Results) -> Run<'_> {
    Run {
        results,
        page: "startup/report.html".into(),
    }
}

/// A run in which `metric` has these runs in each variant, with a bound of 1.
pub fn results(metric: &str, variants: &[(&str, [f64; 6])]) -> Results {
    let mut results = sample::startup().results;
    let found = variants.iter().map(|(name, runs)| {
        let found = Metric::from_runs(runs.to_vec()).unwrap();
        let metrics = IndexMap::from([(metric.to_owned(), found)]);
        ((*name).to_owned(), metrics)
    });
    results.variants = found.collect();
    results.bounds = IndexMap::from([(metric.to_owned(), 1.0)]);
    results
}

/// The cells of each row of the last table.
fn rows(page: &str) -> Vec<Vec<String>> {
    let document = parse(page);
    let table = document
        .descendants()
        .rfind(|node| node.has_tag_name("tbody"))
        .expect("a table");
    let text = |node: roxmltree::Node| -> String {
        node.descendants()
            .filter(roxmltree::Node::is_text)
            .filter_map(|node| node.text())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let rows = table.children().filter(roxmltree::Node::is_element);
    rows.map(|row| {
        row.children()
            .filter(roxmltree::Node::is_element)
            .map(text)
            .collect()
    })
    .collect()
}

#[test]
fn the_comparison_shows_winner_ratio_and_confidence() {
    let results = results(
        "completion_s/1MB",
        &[
            ("cubic", [4.0, 4.0, 4.0, 4.0, 4.0, 5.0]),
            ("ideal", [1.0; 6]),
            ("bbr", [2.4, 3.0, 3.0, 3.0, 3.0, 3.0]),
            ("paceline", [2.0, 2.0, 2.0, 2.0, 2.0, 2.5]),
        ],
    );
    let page = comparison(&[run(&results)]);
    assert_eq!(
        rows(&page),
        [[
            "Completion, 1MB",
            "paceline",
            "2 s",
            "2.00\u{d7}",
            "bbr",
            "1.50\u{d7} 0.96\u{2013}1.50: not sure",
            "2.00\u{d7} 1.60\u{2013}2.50",
        ]]
    );
    assert!(page.contains("paceline 1 of 1"));
    assert!(page.contains("href=\"startup/report.html\""));
}

#[test]
fn more_is_better_where_it_is() {
    let results = results("goodput_bps/all", &[("bbr", [8e6; 6]), ("cubic", [9e6; 6])]);
    let rows = rows(&comparison(&[run(&results)]));
    assert_eq!(rows[0][1], "cubic");
    assert!(rows[0][5].starts_with("1.12"), "{rows:?}");
    // The baseline is not compared with itself.
    assert_eq!(rows[0][6], "\u{2013}");
}

#[test]
fn a_page_of_several_is_well_formed_and_loads_nothing() {
    let (startup, incast) = (sample::startup().results, sample::incast().results);
    let hostile = hostile().results;
    let mut invalid = sample::startup().results;
    invalid.valid = false;
    let alone = results("completion_s/1MB", &[("cubic", [1.0; 6])]);
    let all = [&startup, &incast, &hostile, &invalid, &alone];
    let page = comparison(&all.map(run));
    let document = parse(&page);
    assert!(!document
        .descendants()
        .any(|node| node.has_tag_name("script") || node.attribute("src").is_some()));
    let sections = document
        .descendants()
        .filter(|node| node.attribute("id").is_some());
    assert_eq!(sections.count(), all.len());
    // In the overview, and before its numbers.
    let invalid = all.iter().filter(|results| !results.valid).count();
    assert_eq!(page.matches("the run is invalid").count(), 2 * invalid);
    assert!(page.contains("Nothing to compare"));
}

#[test]
fn a_page_is_linked_whatever_its_directory_is_called() {
    let results = sample::startup().results;
    for (file, address) in [
        ("a b/report.html", "a%20b/report.html"),
        (
            "javascript:alert(1)/report.html",
            "javascript%3Aalert%281%29/report.html",
        ),
        ("50%/#1?/report.html", "50%25/%231%3F/report.html"),
        ("\"><script>/report.html", "%22%3E%3Cscript%3E/report.html"),
        (
            "/home/m\u{fc}ller/report.html",
            "file:///home/m%C3%BCller/report.html",
        ),
    ] {
        let runs = [Run {
            results: &results,
            page: file.into(),
        }];
        let page = comparison(&runs);
        let document = parse(&page);
        let mut links = document
            .descendants()
            .filter_map(|node| node.attribute("href"));
        assert!(links.any(|link| link == address), "{file}: {page}");
    }
}
