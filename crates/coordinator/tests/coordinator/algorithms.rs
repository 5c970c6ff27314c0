// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The algorithms on the model's paths. The virtual lab judges them on a real TCP; here
//! is what must hold before it is worth its time. All of them on all cases, as a table:
//! `cargo bench -p paceline-coordinator --bench algorithms`.

use crate::support::cases::{self, BOUND_S, RATE_BPS, STREAMS};
use crate::support::model::{self, Case, Outcome};
use paceline_coordinator::algorithm::Choice;

fn run(case: &Case, algorithm: &str) -> Outcome {
    let choice: Choice = algorithm.parse().expect("an algorithm");
    let outcome = model::run(case, choice.start().as_mut());
    assert!(outcome.last().is_finite(), "{algorithm}: it stalls");
    outcome
}

/// Programs that start a little earlier or later, hosts that take a little longer: what
/// an algorithm is worth must not be chance. Even ends by `last_s` whatever the chance is,
/// and so close together.
fn even_holds(case: &Case, last_s: f64, spread: f64) {
    for seed in 1..=8 {
        let mut case = case.clone();
        case.seed = seed;
        let outcome = run(&case, "even");
        assert!(outcome.last() <= last_s, "seed {seed}: {outcome:?}");
        assert!(outcome.spread() <= spread, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn even_ends_together_and_in_time() {
    even_holds(&cases::plain(), 1.06 * BOUND_S, 1.01);
    // Who is alone ends much earlier than who is last.
    let alone = run(&cases::plain(), "none");
    assert!(
        alone.spread() > 3.0 && alone.last() > 1.2 * BOUND_S,
        "{alone:?}"
    );
}

#[test]
fn even_beats_the_papers_scoreboard_which_is_fairer_than_none() {
    let [even, paper, none] = ["even", "scoreboard", "none"].map(|a| run(&cases::plain(), a));
    assert!(even.last() < paper.last() && even.last() < none.last());
    assert!(even.spread() < paper.spread() && paper.spread() < none.spread());
}

#[test]
fn even_needs_no_totals_and_no_reports_of_recoveries() {
    for case in [cases::undeclared(), cases::blind()] {
        even_holds(&case, 1.06 * BOUND_S, 1.01);
    }
}

#[test]
fn a_stopped_hosts_share_goes_to_others_and_comes_back() {
    even_holds(&cases::stopped(), 1.08 * BOUND_S, 1.01);
    let outcome = run(&cases::stopped(), "even");
    assert!(outcome.last() < run(&cases::stopped(), "none").last());
}

#[test]
fn twice_the_round_trip_is_no_handicap() {
    even_holds(&cases::twice_the_rtt(), 1.10 * BOUND_S, 1.10);
    let outcome = run(&cases::twice_the_rtt(), "even");
    assert!(outcome.last() < run(&cases::twice_the_rtt(), "none").last());
}

#[test]
fn networks_behind_one_bottleneck_share_it() {
    even_holds(&cases::eight_networks(), 1.10 * BOUND_S, 1.10);
}

#[test]
fn routes_that_do_not_meet_are_not_mixed_up() {
    let case = cases::two_bottlenecks();
    let (even, none) = (run(&case, "even"), run(&case, "none"));
    // The first 24 have their own link, which could carry them in 13.9 s.
    let last = |outcome: &Outcome, from: usize, to: usize| {
        outcome.ends[from..to].iter().copied().fold(0.0, f64::max)
    };
    assert!(last(&even, 0, 24) <= 1.15 * 13.9, "{even:?}");
    assert!(last(&even, 24, 32) <= 1.20 * BOUND_S, "{even:?}");
    assert!(even.last() < none.last());
}

#[test]
fn a_burst_of_the_first_windows_is_not_taken_for_a_full_path() {
    even_holds(&cases::shallow(), 1.10 * BOUND_S, 1.02);
}

#[test]
fn somebody_elses_flow_keeps_its_share() {
    let fair = RATE_BPS as f64 / (STREAMS + 1) as f64;
    for seed in 1..=8 {
        let mut case = cases::foreign();
        case.seed = seed;
        let outcome = run(&case, "even");
        assert!(
            outcome.foreign_bps[0] >= 0.8 * fair,
            "seed {seed}: {outcome:?}"
        );
        // Nor is all left to it.
        assert!(
            outcome.last() < run(&case, "none").last(),
            "seed {seed}: {outcome:?}"
        );
    }
}

#[test]
fn without_its_coordinator_a_transfer_goes_on() {
    let outcome = run(&cases::killed(), "even");
    // Eight seconds of it were even.
    assert!(
        outcome.last() < run(&cases::plain(), "none").last(),
        "{outcome:?}"
    );
}
