// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table, the page and the figure.

use crate::sample;
use paceline_report::html::{figure_svg, page};
use paceline_report::table::{render, Options};
use paceline_report::Series;

pub fn parse(text: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    roxmltree::Document::parse_with_options(text, options).unwrap()
}

#[test]
fn table_as_on_a_terminal() {
    let table = render(
        &sample::startup().results,
        Options {
            color: false,
            width: 100,
        },
    );
    let expected = include_str!("table.txt");
    assert!(table == expected, "the table is now\n{table}");
}

#[test]
fn table_fits_the_width_and_is_plain_without_colour() {
    for report in [sample::startup(), sample::incast()] {
        let plain = render(
            &report.results,
            Options {
                color: false,
                width: 72,
            },
        );
        let body = plain
            .split("\n\n")
            .filter(|block| block.contains("\nbound ") || block.contains("\ncubic "));
        for line in body.flat_map(str::lines) {
            assert!(line.chars().count() <= 72, "{line}");
        }
        assert!(!plain.contains('\x1b'));
        let colored = render(
            &report.results,
            Options {
                color: true,
                width: 72,
            },
        );
        let mut stripped = String::new();
        for piece in colored.split('\x1b') {
            stripped.push_str(
                piece
                    .split_once('m')
                    .filter(|_| piece.starts_with('['))
                    .map_or(piece, |(_, rest)| rest),
            );
        }
        let lines = |text: &str| {
            text.lines()
                .map(|line| line.trim_end().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&stripped), lines(&plain));
    }
}

#[test]
fn an_invalid_run_is_marked_first() {
    let report = sample::incast();
    let table = render(&report.results, Options::default());
    assert!(table.contains("\nINVALID"));
    let page = page(&report);
    let (warning, numbers) = (
        page.find("the run is invalid").unwrap(),
        page.find("What was asked").unwrap(),
    );
    assert!(warning < numbers);
    assert!(!page.contains("claims hold"));
}

#[test]
fn the_page_shows_every_part_of_the_results() {
    let report = sample::startup();
    let page = page(&report);
    let document = parse(&page);
    let text: String = document
        .descendants()
        .filter_map(|node| node.text())
        .collect::<Vec<_>>()
        .join(" ");
    let results = &report.results;
    let claims = results.holds.iter().map(|hold| hold.claim.as_str());
    let variants = results.variants.keys().map(String::as_str);
    let others = [
        &results.kernel,
        &results.backend,
        results.command.as_ref().unwrap(),
        &results.warnings[0],
    ];
    for wanted in claims.chain(variants).chain(others.map(String::as_str)) {
        assert!(text.contains(wanted), "{wanted} is missing");
    }
    assert!(text.contains("1 of 11 claims fails"));
}

#[test]
fn the_figure_has_a_panel_per_variant_on_the_same_axes() {
    let report = sample::startup();
    let svg = figure_svg(&report, "10MB").unwrap();
    let document = parse(&svg);
    let filled = document
        .descendants()
        .filter(|node| node.attribute("fill-opacity").is_some())
        .count();
    assert_eq!(filled, report.results.variants.len());
    let texts: Vec<&str> = document
        .descendants()
        .filter(|node| node.tag_name().name() == "text")
        .filter_map(|node| node.text())
        .collect();
    assert_eq!(
        texts.iter().filter(|text| **text == "500").count(),
        report.results.variants.len()
    );
    assert!(
        texts.contains(&"bound of the completion, 190 ms") && texts.contains(&"link, 500 Mbit/s")
    );
    assert_eq!(figure_svg(&report, "7MB"), None);
}

#[test]
fn the_figure_is_byte_for_byte_what_is_recorded() {
    let mut report = sample::startup();
    let sampled = |variant: &str, line: &str, points: &[(f64, f64)]| Series {
        experiment_part: "<1MB> & \"more\"".into(),
        variant: variant.into(),
        line: line.into(),
        x_label: "time since the start (ms)".into(),
        y_label: "bandwidth (Mbit/s)".into(),
        points: points.to_vec(),
    };
    report.series = vec![
        sampled(
            "cubic",
            "",
            &[(0.0, 12.5), (1.0, 500.0), (2.0, 500.0), (3.0, 0.0)],
        ),
        sampled("it's <new>", "slowest", &[(0.0, 0.25), (2.5, 330.0)]),
        sampled("it's <new>", "fastest\u{1}", &[(0.0, 400.0), (2.5, 499.99)]),
    ];
    let svg = figure_svg(&report, &report.series[0].experiment_part).unwrap();
    assert!(
        svg == include_str!("figure.svg"),
        "the figure is now\n{svg}"
    );
}

#[test]
fn lines_of_one_variant_share_a_panel_and_are_named() {
    let mut report = sample::startup();
    let line = |variant: &str, line: &str, height: f64| Series {
        experiment_part: "arrived".into(),
        variant: variant.into(),
        line: line.into(),
        x_label: "time since the common start (s)".into(),
        y_label: "arrived (MB)".into(),
        points: vec![(0.0, 0.0), (1.0, height), (2.0, height)],
    };
    report.series = vec![
        line("cubic", "slowest", 2.0),
        line("cubic", "fastest", 8.0),
        line("bbr", "fastest", 5.0),
        line("bbr", "slowest", 5.0),
    ];
    let svg = figure_svg(&report, "arrived").unwrap();
    let document = parse(&svg);
    let with = |name: &str, value: &str| {
        let nodes = document.descendants();
        nodes
            .filter(|node| node.attribute(name) == Some(value))
            .count()
    };
    // Lines, not areas; and of each variant one is dashed, in the panel and in the legend.
    assert_eq!(with("fill-opacity", "0.28"), 0);
    assert_eq!(with("stroke-dasharray", "4 3"), 4);
    for (text, times) in [("cubic", 1), ("bbr", 1), ("fastest", 2), ("slowest", 2)] {
        assert_eq!(
            svg.matches(&format!(">{text}</text>")).count(),
            times,
            "{text}"
        );
    }
    assert!(svg.contains("<title>arrived (MB) over time: arrived, per variant</title>"));
    assert!(!page(&report).contains("Bandwidth over"));
}

#[test]
fn equal_reports_give_equal_pages() {
    assert_eq!(page(&sample::startup()), page(&sample::startup()));
}

#[test]
fn empty_and_odd_reports_are_drawn_too() {
    let mut report = sample::startup();
    for series in &mut report.series {
        series.points.truncate(usize::from(series.variant == "bbr"));
    }
    report.series[0].points = vec![(0.0, 0.0)];
    for metrics in report.results.variants.values_mut() {
        for metric in metrics.values_mut() {
            (metric.median, metric.min, metric.max) = (0.0, 0.0, 0.0);
        }
    }
    report
        .results
        .bounds
        .values_mut()
        .for_each(|bound| *bound = 0.0);
    let first = page(&report);
    parse(&first);
    let drawn = first.split("<script>").next().unwrap();
    assert!(!drawn.contains("NaN") && !drawn.contains("inf\""));
    report.results.variants.clear();
    report.results.bounds.clear();
    report.results.holds.clear();
    report.series.clear();
    parse(&page(&report));
    assert!(!render(
        &report.results,
        Options {
            color: false,
            width: 0
        }
    )
    .contains("bound"));
}
