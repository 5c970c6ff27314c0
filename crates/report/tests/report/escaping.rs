// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever a user writes is text on the page and in its figures, never markup.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use paceline_report::html::comparison::{comparison, Run};
use paceline_report::html::{figure_svg, page, traffic_svg};
use paceline_report::paper::{Against, Paper, Printed, Traffic};
use paceline_report::Report;
use proptest::prelude::*;
use roxmltree::{Document, Node};

use crate::sample;
use crate::views::parse;

const HOSTILE: &str = "<script>alert(1)</script>&\"'";

/// The sample with `text` wherever a text comes from a file that a user writes: title,
/// description, variant, workload, unit, claim, what a paper says.
pub fn report_with(text: &str) -> Report {
    let mut report = sample::startup();
    let results = &mut report.results;
    for field in [
        &mut results.title,
        &mut results.description,
        &mut results.command,
    ] {
        *field = Some(text.to_owned());
    }
    for field in [
        &mut results.experiment,
        &mut results.kernel,
        &mut results.backend,
    ] {
        *field = text.to_owned();
    }
    results.warnings.push(text.into());
    results.notes.push(text.into());
    results.holds[0].claim = text.into();
    let workload = format!("completion_s/{text}");
    let mut metrics = results.variants["bbr"].clone();
    metrics.insert(workload.clone(), metrics["completion_s/1MB"].clone());
    metrics.insert(text.into(), metrics["first_s"].clone());
    results.variants.insert(text.into(), metrics);
    results.bounds.insert(workload.clone(), 0.01);
    let value = IndexMap::from([(workload.clone(), Printed::Exactly(0.02))]);
    results.paper = vec![Paper {
        source: text.into(),
        says: text.into(),
        differs: text.into(),
        values: IndexMap::from([(text.to_owned(), value.clone()), ("bbr".to_owned(), value)]),
        relative_to: Some("bbr".into()),
        also: vec![text.into()],
        link_rate_bps: None,
        traffic: Some(Traffic {
            above: text.into(),
            below: Vec::new(),
            parts: vec![text.into()],
        }),
        against: Some(Against {
            metric: workload,
            label: text.into(),
            at: IndexMap::from([(text.to_owned(), 1.0)]),
        }),
    }];
    let mut lines = report.series.iter_mut().take(2);
    for line in ["", text] {
        let series = lines.next().expect("the sample has series");
        series.experiment_part = text.into();
        series.variant = text.into();
        series.line = line.into();
        series.x_label = text.into();
        series.y_label = text.into();
    }
    report
}

/// [`report_with`] what would break out, with a character that XML does not have.
pub fn hostile() -> Report {
    report_with(&format!("</p>{HOSTILE}\u{1}"))
}

/// How many elements of each name there are.
fn elements(document: &Document) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in document.descendants().filter(Node::is_element) {
        *counts.entry(node.tag_name().name().to_owned()).or_default() += 1;
    }
    counts
}

/// The texts of the elements of this name.
fn texts<'d>(document: &'d Document, name: &str) -> Vec<String> {
    let nodes = document
        .descendants()
        .filter(|node| node.has_tag_name(name));
    let all = |node: Node<'d, '_>| -> String {
        let texts = node.descendants().filter(Node::is_text);
        texts.filter_map(|text| text.text()).collect()
    };
    nodes.map(all).collect()
}

/// The page but its script.
fn without_script(page: &str) -> String {
    let (before, rest) = page.split_once("<script>").expect("the page has charts");
    let (_, after) = rest.split_once("</script>").expect("the script ends");
    format!("{before}{after}")
}

#[test]
fn a_users_text_is_text_wherever_it_stands() {
    let report = report_with(HOSTILE);
    let page = page(&report);
    let document = parse(&page);
    for name in ["title", "h1", "h3", "p", "pre", "li", "code", "td", "text"] {
        let found = texts(&document, name);
        assert!(
            found.iter().any(|text| text == HOSTILE),
            "no <{name}> says it: {found:?}"
        );
    }
    let heads = texts(&document, "th");
    for part in [
        HOSTILE.to_owned(),
        format!("{HOSTILE}, ms"),
        format!("{HOSTILE}here"),
    ] {
        assert!(heads.contains(&part), "{part} heads nothing: {heads:?}");
    }
    let without = without_script(&page);
    assert!(!without.contains("<script") && !without.contains("alert(1)</"));
    for svg in [figure_svg(&report, HOSTILE), traffic_svg(&report, HOSTILE)] {
        let svg = svg.expect("there are series of the part");
        let found = texts(&parse(&svg), "text");
        // Variant, line, both axes.
        let count = found.iter().filter(|text| *text == HOSTILE).count();
        assert_eq!(count, 4, "{found:?}");
        assert!(!svg.contains("<script"));
    }
}

#[test]
fn a_users_text_is_text_on_the_page_of_several_runs() {
    let report = report_with(HOSTILE);
    let runs = [Run {
        results: &report.results,
        page: format!("{HOSTILE}/report.html").into(),
    }];
    let page = comparison(&runs);
    let document = parse(&page);
    assert!(!page.contains("<script"));
    assert!(texts(&document, "a").contains(&HOSTILE.to_owned()));
    assert!(texts(&document, "h2").contains(&format!("1. {HOSTILE}")));
    let address = "%3Cscript%3Ealert%281%29%3C/script%3E%26%22%27/report.html";
    assert!(page.contains(&format!("href=\"{address}\"")), "{page}");
}

#[test]
fn the_page_is_well_formed_and_loads_nothing() {
    let mut scripts = Vec::new();
    for report in [sample::startup(), sample::incast(), hostile()] {
        let page = page(&report);
        let document = parse(&page);
        for node in document.descendants().filter(Node::is_element) {
            assert!(!["link", "iframe", "img"].contains(&node.tag_name().name()));
            for attribute in node.attributes() {
                assert!(
                    !["src", "href"].contains(&attribute.name()),
                    "{attribute:?}"
                );
                assert!(!attribute.name().starts_with("on"), "{attribute:?}");
            }
        }
        scripts.push(texts(&document, "script"));
        let style = texts(&document, "style").concat();
        assert!(!style.contains("url(") && !style.contains("@import"));
    }
    // One where there is something to draw, the same whatever the results say.
    assert_eq!(scripts.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
    assert_eq!(scripts[0], scripts[2]);
}

#[test]
fn the_script_ends_where_it_should_and_bears_its_licence() {
    let page = page(&sample::startup());
    // HTML ends it at the first of these, XML at the other.
    for (end, count) in [("</script", 1), ("]]>", 1), ("<!--", 0)] {
        assert_eq!(page.matches(end).count(), count, "{end}");
    }
    let script = texts(&parse(&page), "script").concat();
    assert!(script.contains("Copyright (c) 2022 Leon Sorokin"));
    assert!(script.contains("Permission is hereby granted"));
    for loader in ["fetch(", "XMLHttpRequest", "import(", "eval(", "Function("] {
        assert!(!script.contains(loader), "{loader}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A text of any characters makes the elements that a plain one makes. It has none that
    /// mean something to the report itself: `/` in metrics, empty lines in descriptions.
    #[test]
    fn no_text_makes_an_element(text in "[^/\n\r _]{0,40}") {
        let plain = page(&report_with("plain0"));
        let odd = page(&report_with(&format!("odd{text}0")));
        prop_assert_eq!(elements(&parse(&odd)), elements(&parse(&plain)));
    }
}
