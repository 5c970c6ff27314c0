// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a paper printed, beside ours: in results.json and on the page.

use std::path::Path;

use crate::sample;
use crate::views::parse;
use indexmap::IndexMap;
use paceline_report::html::{page, traffic_svg};
use paceline_report::paper::{Against, Paper, Printed, Traffic};
use paceline_report::results::{Results, ResultsError};
use paceline_report::Report;

fn values(of: &[(&str, Printed)]) -> IndexMap<String, Printed> {
    of.iter()
        .map(|(metric, value)| ((*metric).to_owned(), *value))
        .collect()
}

/// The sample, with what a paper that nobody wrote says of it.
fn printed() -> Report {
    let mut report = sample::startup();
    let exactly = Printed::Exactly;
    report.results.paper = vec![
        Paper {
            source: "somebody-2005, Table 2".into(),
            says: "It was faster.".into(),
            differs: "The machine.".into(),
            values: IndexMap::from([
                (
                    "cubic".into(),
                    values(&[
                        ("completion_s/1MB", exactly(0.2)),
                        ("completion_s/10MB", exactly(1.0)),
                    ]),
                ),
                (
                    "paper".into(),
                    values(&[
                        ("completion_s/1MB", exactly(0.1)),
                        ("completion_s/10MB", exactly(0.75)),
                    ]),
                ),
            ]),
            relative_to: Some("cubic".into()),
            also: vec!["paceline".into()],
            link_rate_bps: None,
            traffic: Some(Traffic {
                above: "cubic".into(),
                below: vec!["paper".into(), "paceline".into()],
                parts: Vec::new(),
            }),
            against: None,
        },
        Paper {
            source: "somebody-2005, Figure 5".into(),
            says: "It was <short>.".into(),
            differs: "The machine.".into(),
            values: IndexMap::from([
                (
                    "bound".into(),
                    values(&[("completion_s/1MB", exactly(0.03))]),
                ),
                (
                    "cubic".into(),
                    values(&[("completion_s/1MB", Printed::Over { over: 0.2 })]),
                ),
                (
                    "bbr".into(),
                    values(&[(
                        "completion_s/1MB",
                        Printed::Between {
                            from: 0.06,
                            to: 0.07,
                        },
                    )]),
                ),
            ]),
            relative_to: None,
            also: Vec::new(),
            link_rate_bps: Some(1e9),
            traffic: None,
            against: None,
        },
    ];
    report
}

#[test]
fn values_are_drawn_beside_ours() {
    let report = printed();
    let page = page(&report);
    parse(&page);
    let section = page
        .split("<section>")
        .find(|section| section.contains("The paper, and here"))
        .expect("a section of its own");
    for text in [
        "somebody-2005, Table 2",
        "What differs: The machine.",
        "It was &lt;short&gt;.",
        "paper, 1MB, the paper: 0.50 of cubic",
        "paper, 10MB, the paper: 0.75 of cubic",
        "paceline, 1MB, here: ",
        "over 200 ms",
        "60 ms to 70 ms",
    ] {
        assert!(section.contains(text), "{text} is not in {section}");
    }
    // Of paceline the paper has nothing.
    assert!(!section.contains("paceline, 1MB, the paper"));
    let traffic = traffic_svg(&report, "1MB").expect("there is a series");
    parse(&traffic);
    let at = |name: &str| traffic.find(&format!(">{name}</text>")).expect(name);
    assert!(at("cubic") < at("paper") && at("paper") < at("paceline"));
    assert!(traffic.contains("(s)") && !traffic.contains("(ms)"));
    assert!(traffic_svg(&report, "no such part").is_none());
}

#[test]
fn results_carry_it_and_older_ones_lack_it() {
    let results = printed().results;
    let text = results.to_json().unwrap();
    let again = Results::from_json(&text, Path::new("results.json")).unwrap();
    assert_eq!(again.paper, results.paper);
    assert_eq!(again.to_json().unwrap(), text);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |variant: &str| &json["paper"][1]["values"][variant]["completion_s/1MB"];
    assert_eq!(of("bound"), &serde_json::json!(0.03));
    assert_eq!(of("cubic"), &serde_json::json!({ "over": 0.2 }));
    assert_eq!(of("bbr"), &serde_json::json!({ "from": 0.06, "to": 0.07 }));

    let before = sample::startup();
    let text = before.results.to_json().unwrap();
    assert!(!text.contains("\"paper\": ["));
    let old = Results::from_json(&text, Path::new("results.json")).unwrap();
    assert!(old.paper.is_empty());
    assert!(!page(&before).contains("The paper, and here"));
    assert!(traffic_svg(&before, "1MB").is_none());
}

#[test]
fn a_number_that_json_lacks_is_named() {
    let mut results = printed().results;
    results.paper[0].values["cubic"]["completion_s/1MB"] = Printed::Exactly(f64::NAN);
    let error = results.to_json().unwrap_err();
    assert!(
        matches!(&error, ResultsError::NotFinite { place, .. } if place == "paper.values.cubic.completion_s/1MB"),
        "{error}"
    );
}

#[test]
fn nothing_that_is_missing_or_hostile_breaks_the_page() {
    let mut report = printed();
    let hostile = "</p><script>alert(1)</script>&\"'\u{1}";
    for paper in &mut report.results.paper {
        (paper.source, paper.says, paper.differs) =
            (hostile.into(), hostile.into(), hostile.into());
        let first = paper.values[0].clone();
        paper.values.insert(hostile.into(), first);
        paper.also.push("no such variant".into());
    }
    let values = &mut report.results.paper[0].values;
    values["cubic"]["completion_s/1MB"] = Printed::Exactly(0.0);
    values["paper"].insert(hostile.into(), Printed::Exactly(-1.0));
    values["paper"].insert(
        "goodput_bps".into(),
        Printed::Between {
            from: f64::MIN,
            to: f64::MAX,
        },
    );
    report.results.paper[1].relative_to = Some("no such variant".into());
    let text = page(&report);
    parse(&text);
    assert!(!text.contains("<script>alert"));
    report.results.variants.clear();
    report.results.bounds.clear();
    report.series.clear();
    parse(&page(&report));
}

#[test]
fn traffic_is_of_the_parts_that_are_named() {
    let mut report = printed();
    let about = |report: &Report, part: &str| traffic_svg(report, part).is_some();
    // Of the parts that the values are of.
    assert!(about(&report, "1MB") && about(&report, "10MB") && !about(&report, "100KB"));
    let traffic = report.results.paper[0].traffic.as_mut().unwrap();
    traffic.parts = vec!["100KB".into()];
    assert!(!about(&report, "1MB") && about(&report, "100KB"));
}

#[test]
fn a_metric_is_drawn_against_a_number_of_the_variants() {
    let mut report = printed();
    let at = [("cubic", 8.0), ("bbr", 1023.0), ("no such variant", 9.0)];
    report.results.paper[1].against = Some(Against {
        metric: "completion_s/1MB".into(),
        label: "gap (bytes)".into(),
        at: at.map(|(name, number)| (name.to_owned(), number)).into(),
    });
    let text = page(&report);
    parse(&text);
    let found = &report.results.variants["bbr"]["completion_s/1MB"];
    let runs = found.runs.len();
    for part in [
        format!("<title>bbr, greatest of {runs} runs: "),
        format!("<title>bbr, mean of {runs} runs: "),
        format!("<title>cubic, least of {runs} runs: "),
        ">gap (bytes)</text>".to_owned(),
        ">Completion 1MB (ms)</text>".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}");
    }
    let json = report.results.to_json().unwrap();
    let again = Results::from_json(&json, Path::new("results.json")).unwrap();
    assert_eq!(again.paper[1], report.results.paper[1]);
    // Without any of its variants there is nothing to draw.
    report.results.variants.clear();
    assert!(!page(&report).contains("gap (bytes)"));
}
