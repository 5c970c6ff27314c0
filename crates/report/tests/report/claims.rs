// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims: what they mean, and what is said about those that mean nothing.

use crate::sample;
use indexmap::IndexMap;
use paceline_report::claims::{evaluate_all, Claim};
use paceline_report::results::{Hold, Metric, Results};
use proptest::prelude::*;

/// Variants `a` and `b-2` with runs of 1, 2, 3 and 2, 4, 12 times the number given.
fn results() -> Results {
    let mut results = sample::startup().results;
    let metric =
        |times: f64, runs: [f64; 3]| Metric::from_runs(runs.map(|r| r * times).to_vec()).unwrap();
    let of = |runs: [f64; 3]| -> IndexMap<String, Metric> {
        [
            ("t_s/1KB", 1.0),
            ("t_s/2KB", 10.0),
            ("first_s", 100.0),
            ("goodput_bps", 1000.0),
            ("lost_share/1KB", 0.0),
        ]
        .into_iter()
        .map(|(name, times)| (name.to_owned(), metric(times, runs)))
        .collect()
    };
    results.variants = [
        ("a".to_owned(), of([1.0, 2.0, 3.0])),
        ("b-2".to_owned(), of([2.0, 4.0, 12.0])),
    ]
    .into_iter()
    .collect();
    results.bounds = [("t_s/1KB".to_owned(), 1.0), ("t_s/2KB".to_owned(), 16.0)]
        .into_iter()
        .collect();
    results
}

fn judged(claim: &str) -> Vec<Hold> {
    evaluate_all(&[claim], &results()).unwrap()
}

fn one(claim: &str) -> (f64, bool) {
    let holds = judged(claim);
    assert_eq!(holds.len(), 1, "{holds:?}");
    assert_eq!(holds[0].claim, claim);
    (holds[0].value, holds[0].pass)
}

fn refused(claim: &str) -> String {
    evaluate_all(&[claim], &results()).unwrap_err().to_string()
}

#[test]
fn the_value_is_the_ratio_that_the_claim_is_about() {
    assert_eq!(one("a/t_s/1KB <= 2.5 * bound"), (2.0, true));
    assert_eq!(one("a/t_s/1KB <= bound * 1.5"), (2.0, false));
    assert_eq!(one("a/t_s/1KB <= b-2"), (0.5, true));
    assert_eq!(one("a/t_s/1KB <= b-2 / 4"), (0.5, false));
    assert_eq!(one("a/t_s/1KB < 2"), (2.0, false));
    assert_eq!(one("a/t_s/1KB <= 4 / 2"), (2.0, true));
    assert_eq!(one("a/goodput_bps >= 0.85 * b-2/goodput_bps"), (0.5, false));
    assert_eq!(
        one("a/t_s/1KB <= max(1.25 * bound, bound + 4)"),
        (0.4, true)
    );
    assert_eq!(
        one("a/t_s/1KB <= (1 + 1.5) * max(bound, a, b-2)"),
        (0.5, true)
    );
    assert_eq!(one("a/t_s/2KB <= bound/t_s/1KB - 0.5"), (40.0, false));
    assert_eq!(one("a/lost_share/1KB <= 1.1 * b-2"), (0.0, true));
    assert_eq!(one("a/t_s/1KB <= 2e1*bound"), (2.0, true));
}

#[test]
fn best_is_the_greatest_of_what_should_be_great() {
    assert_eq!(one("b-2/t_s/1KB <= 1.02 * best(a, b-2)"), (2.0, false));
    assert_eq!(one("a/goodput_bps >= 1.0 * best(a, b-2)"), (0.5, false));
}

#[test]
fn a_statistic_can_be_named() {
    assert_eq!(one("b-2/t_s/1KB@max <= 12"), (12.0, true));
    assert_eq!(one("b-2/t_s/1KB@min <= a@max"), (2.0 / 3.0, true));
    assert_eq!(one("b-2/t_s/1KB@median > a"), (2.0, true));
    assert_eq!(one("b-2/t_s/1KB@mean <= 2 * a@mean"), (3.0, false));
}

#[test]
fn wildcards_give_one_hold_per_match() {
    let texts = |claim: &str| {
        judged(claim)
            .into_iter()
            .map(|hold| hold.claim)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        texts("a/t_s/* <= 3 * bound"),
        ["a/t_s/1KB <= 3 * bound", "a/t_s/2KB <= 3 * bound"]
    );
    assert_eq!(
        texts("a/t_s/{2KB,1KB} <= 9"),
        ["a/t_s/2KB <= 9", "a/t_s/1KB <= 9"]
    );
    assert_eq!(
        texts("*/first_s@max <= 9"),
        ["a/first_s@max <= 9", "b-2/first_s@max <= 9"]
    );
    assert_eq!(
        texts("{a,b-2}/t_s/* <= 2 * a/t_s/*"),
        [
            "a/t_s/1KB <= 2 * a/t_s/1KB",
            "a/t_s/2KB <= 2 * a/t_s/2KB",
            "b-2/t_s/1KB <= 2 * a/t_s/1KB",
            "b-2/t_s/2KB <= 2 * a/t_s/2KB"
        ]
    );
    let values: Vec<f64> = judged("b-2/t_s/* <= a/t_s/*")
        .iter()
        .map(|hold| hold.value)
        .collect();
    assert_eq!(values, [2.0, 2.0]);
}

#[test]
fn an_error_names_the_missing_metric_bound_or_variant() {
    assert_eq!(
        refused("a/t_s/3KB <= bound"),
        "claim `a/t_s/3KB <= bound`: the variant `a` has no metric `t_s/3KB`; it has `t_s/1KB`, `t_s/2KB`, `first_s`, \
         `goodput_bps`, `lost_share/1KB`"
    );
    assert_eq!(
        refused("a/first_s <= bound"),
        "claim `a/first_s <= bound`: there is no bound for `first_s`; there are bounds for `t_s/1KB`, `t_s/2KB`"
    );
    assert!(refused("c/first_s <= 1").contains("there is no variant `c`; there are `a`, `b-2`"));
    assert!(refused("a/first_s <= 1.02 * best(a, c)").contains("no variant `c`"));
    assert!(refused("a/u_s/* <= 1").contains("no metric `u_s/*`"));
    assert!(refused("a/t_s/{1KB,9KB} <= 1").contains("no metric `t_s/9KB`"));
    assert!(refused("a/first_s <= 1 / 0").contains("the right side is inf for `a/first_s`"));
}

#[test]
fn syntax_errors_show_their_column() {
    let problems = [
        ("", "column 1: expected a reference such as `paceline/completion_s/1MB`, found the end"),
        ("cubic <= 1", "column 1: the left side names a variant and a metric, such as `cubic/completion_s/1MB`"),
        ("a/first_s = 1", "column 11: expected `<=`, `<`, `>=` or `>`, found `=`"),
        ("a/first_s <=", "column 13: expected a number, `bound`, a variant, a reference or a function, found the end"),
        ("a/first_s <= 110ms", "column 14: `110ms` is not a number: write it in the metric's own unit without a suffix, `0.110` for 110 ms"),
        ("a/first_s <= mean(a, b-2)", "column 14: there is no function `mean`: `min`, `max` and `best` are there"),
        ("a/first_s <= max(a, 1", "column 22: expected `)`, found the end"),
        ("a/first_s <= 1.1 bound", "column 18: expected the end of the claim, or an operator with spaces around it, found `bound`"),
        ("a//first_s <= 1", "column 1: `a//first_s` has an empty part"),
        ("a/t_s/{1KB <= 1", "column 3: the braces of `t_s/{1KB` do not match: a choice is written `{100KB,1MB}`"),
        ("a/first_s@middle <= 1", "column 10: `@middle` is unknown: `@median`, `@mean`, `@min` and `@max` are there"),
        ("a/first_s <= bound*2", "column 14: `bound*2` has a wildcard that none on the left side fills (to multiply, put a space on each side of `*`)"),
        ("a/{x,y}_s/{1,2} <= b/z_s/*", "column 20: `b/z_s/*` has 1 of the left side's 2 wildcards: give it all of them, or the variant's name alone, which means the metric of the left side"),
        ("a/**** <= 1", "column 3: `****` has too many wildcards: at most 3 `*` and 1000 choices in one name"),
        ("é/t_s <> 1", "column 8: expected a number, `bound`, a variant, a reference or a function, found `>`"),
    ];
    for (claim, problem) in problems {
        assert_eq!(refused(claim), format!("claim `{claim}`, {problem}"));
    }
    assert!(
        refused(&format!("a/first_s <= {}1", "(".repeat(40))).ends_with("nested more than 32 deep")
    );
}

#[test]
fn all_matches_together_are_one_claim() {
    // 2 of 1, and 20 of 16.
    let mean = (2.0f64 * 1.25).sqrt();
    let (value, holds) = one("geomean of a/t_s/* <= 1.6 * bound");
    assert!((value - mean).abs() < 1e-12 && holds, "{value}");
    assert!(!one("geomean of a/t_s/* <= 1.5 * bound").1);
    // Each compared with another number: 4 of 2.5 and 40 of 40.
    let (value, holds) = one("geomean of b-2/t_s/* <= max(2.5, 2.5 * bound)");
    assert!((value - 1.6f64.sqrt()).abs() < 1e-12 && !holds, "{value}");
    let (value, holds) = one("geomean of a/t_s/* < 7");
    assert!((value - 40f64.sqrt()).abs() < 1e-12 && holds, "{value}");
    assert_eq!(one("geomean of a/lost_share/* <= 0.01"), (0.0, true));
    assert_eq!(one("50% of a/t_s/* <= 1.5 * bound"), (0.5, true));
    assert_eq!(one("50.1% of a/t_s/* <= 1.5 * bound"), (0.5, false));
    assert_eq!(one("100% of a/t_s/* <= 2.0 * bound"), (1.0, true));
}

#[test]
fn a_claim_about_all_is_refused_if_nothing_matches() {
    assert!(refused("101% of a/t_s/* <= 1")
        .ends_with("column 1: `101%` is no share: 0% to 100%, as in `95% of`"));
    assert!(refused("many% of a/t_s/* <= 1").contains("`many%` is no share"));
    assert!(refused("geomean of a <= 1").contains("the left side names a variant and a metric"));
    assert!(refused("geomean of a/t_s/* <= -1").contains("there is no variant `-1`"));
    assert!(refused("geomean of a/t_s/* <= 1 - 2").contains("which nothing can be compared with"));
}

#[test]
fn the_subject_is_the_cell_of_the_table() {
    let subject = |claim| Claim::parse(claim).unwrap().subject();
    assert_eq!(
        subject("a/t_s/1KB@max <= 3"),
        Some(("a".into(), "t_s/1KB".into()))
    );
    assert_eq!(subject("a/t_s/* <= 3"), None);
    assert_eq!(subject("50% of a/t_s/1KB <= 3"), None);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        let _ = evaluate_all(&[text], &results());
    }

    #[test]
    fn no_text_of_the_grammars_own_characters_panics(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "a", "b-2", "*", "/", "t_s", "1KB", "{1KB,2KB}", "{", "}", ",", "@max", "<=", ">", "bound", "max",
                "(", ")", "geomean of ", "50", "% of ", "1.5", "1e", ".", "0", " ", " + ", " - ", " / ", " * ", "é",
            ]),
            0..24,
        )
    ) {
        let text = words.concat();
        if let Ok(holds) = evaluate_all(&[&text], &results()) {
            for hold in holds {
                prop_assert!(hold.value.is_finite());
                // A claim filled in is a claim, and says the same.
                let again = evaluate_all(&[&hold.claim], &results()).unwrap();
                prop_assert_eq!(again, vec![hold]);
            }
        }
    }

    #[test]
    fn the_verdict_is_that_of_the_numbers(factor in 0.0..5.0f64) {
        let holds = judged(&format!("a/t_s/1KB <= {factor} * bound"));
        prop_assert_eq!(holds[0].pass, 2.0 <= factor);
    }
}
