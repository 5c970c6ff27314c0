// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links drawn at random: the table and the map.

use indexmap::IndexMap;
use paceline_report::html::page;
use paceline_report::results::{Metric, PathLink};
use paceline_report::table::{render, Options};
use paceline_report::Report;

use crate::sample;
use crate::views::parse;

/// Two paths and sizes. `a` takes 1.1 of the bound on the first path and 1.6 on the second,
/// `b` 1.21 and 1; and a tenth of the segments again in one of four cells.
fn report() -> Report {
    let mut report = sample::startup();
    let link = |rate_bps, buffer_bytes| PathLink {
        rate_bps,
        rtt_s: 0.01,
        buffer_bytes,
        offload: false,
    };
    let results = &mut report.results;
    results.paths = [
        ("1-80mbit".to_owned(), link(80e6, 100_000)),
        ("2-8mbit".to_owned(), link(8e6, 30_000)),
    ]
    .into_iter()
    .collect();
    let metric = |value: f64| Metric::from_runs(vec![value]).expect("one run");
    let of = |on: [f64; 2], lost: f64| -> IndexMap<String, Metric> {
        let mut metrics = IndexMap::new();
        for (path, over) in results.paths.keys().zip(on) {
            for (size, bound) in [("1MB", 0.1), ("list#2", 0.1), ("30KB", 0.01)] {
                metrics.insert(format!("completion_s/{size}/{path}"), metric(over * bound));
            }
            let share = if over > 1.5 { lost } else { 0.005 };
            metrics.insert(format!("retransmitted_share/1MB/{path}"), metric(share));
            metrics.insert(format!("retransmitted_share/30KB/{path}"), metric(0.0));
        }
        metrics
    };
    let variants = [
        ("a".to_owned(), of([1.1, 1.6], 0.1)),
        ("b".to_owned(), of([1.21, 1.0], 0.1)),
    ];
    results.bounds = IndexMap::new();
    for path in results.paths.keys() {
        for (size, bound) in [("1MB", 0.1), ("list#2", 0.02), ("30KB", 0.01)] {
            results
                .bounds
                .insert(format!("completion_s/{size}/{path}"), bound);
        }
    }
    results.variants = variants.into_iter().collect();
    results.holds.clear();
    report.series.clear();
    report
}

#[test]
fn the_table_has_mean_worst_and_losses_of_each_variant() {
    let table = render(&report().results, Options::default());
    let wanted = "2 drawn paths, over the bound\n   mean   worst  >0.5 % retransmitted\n\
        a  1.327   1.60   25.00 %  worst: completion_s/1MB/2-8mbit\n\
        b  1.100   1.21    0.00 %  worst: completion_s/30KB/1-80mbit\n";
    assert!(table.contains(wanted), "{table}");
    assert!(!table.contains("completion 1MB"), "{table}");
}

#[test]
fn the_map_has_a_dot_for_each_path_and_names_the_slower_one() {
    let page = page(&report());
    let document = parse(&page);
    let titles: Vec<_> = document
        .descendants()
        .filter(|node| node.tag_name().name() == "circle")
        .filter_map(|node| node.first_element_child()?.text())
        .filter(|title| title.contains("of the bound"))
        .collect();
    assert_eq!(
        titles,
        [
            "1-80mbit: 1.10 of the bound, 1.00 of the best",
            "2-8mbit: 1.60 of the bound, 1.60 of the best",
            "1-80mbit: 1.21 of the bound, 1.10 of the best",
            "2-8mbit: 1.00 of the bound, 1.00 of the best",
        ]
    );
}

#[test]
fn results_keep_the_paths_and_others_have_none() {
    let results = report().results;
    let text = results.to_json().expect("finite");
    let path = std::path::Path::new("results.json");
    let read = paceline_report::results::Results::from_json(&text, path).expect("ours");
    assert_eq!(read.paths, results.paths);
    assert!(!sample::startup()
        .results
        .to_json()
        .expect("finite")
        .contains("\"paths\""));
}
