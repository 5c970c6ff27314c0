// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The algorithms on the model's paths. The virtual lab judges them on a real TCP; here
//! is what must hold before it is worth its time.
//!
//! All of them on all cases, as a table:
//!
//! ```text
//! cargo test --release -p paceline-coordinator --test algorithms -- --ignored --nocapture
//! ```

mod support;

use paceline_coordinator::algorithm::{Choice, Limits, Stream};
use support::cases::{self, BOUND_S, RATE_BPS, STREAMS};
use support::model::{self, Case, Outcome};

/// With `TRACE` set the rounds are told, too.
fn run(case: &Case, algorithm: &str) -> Outcome {
    let choice: Choice = algorithm.parse().expect("an algorithm");
    let trace = std::env::var_os("TRACE").is_some();
    let watch = &mut |time: f64, streams: &[Stream], limits: &[Limits]| {
        if trace {
            let inflight: u32 = streams.iter().map(|s| s.sample.inflight_segs).sum();
            let limit: u32 = limits.iter().map(|l| l.max_segs).sum();
            let srtt = streams.iter().map(|s| s.sample.srtt_us).max();
            println!(
                "{time:.3} s: {} streams, {inflight} of {limit}, srtt {srtt:?}",
                streams.len()
            );
        }
    };
    let outcome = model::run_watched(case, choice.start().as_mut(), watch);
    assert!(outcome.last().is_finite(), "{algorithm}: it stalls");
    outcome
}

#[test]
fn even_ends_together_and_in_time() {
    let outcome = run(&cases::plain(), "even");
    assert!(outcome.last() <= 1.08 * BOUND_S, "{outcome:?}");
    assert!(outcome.spread() <= 1.01, "{outcome:?}");
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
fn even_needs_no_totals_and_no_word_of_recoveries() {
    for case in [cases::undeclared(), cases::blind()] {
        let outcome = run(&case, "even");
        assert!(outcome.last() <= 1.08 * BOUND_S, "{outcome:?}");
        assert!(outcome.spread() <= 1.02, "{outcome:?}");
    }
}

#[test]
fn a_stopped_hosts_share_goes_to_others_and_comes_back() {
    let outcome = run(&cases::stopped(), "even");
    assert!(outcome.last() <= 1.08 * BOUND_S, "{outcome:?}");
    assert!(outcome.spread() <= 1.10, "{outcome:?}");
    assert!(outcome.last() < run(&cases::stopped(), "none").last());
}

#[test]
fn twice_the_round_trip_is_no_handicap() {
    let outcome = run(&cases::twice_the_rtt(), "even");
    assert!(outcome.last() <= 1.10 * BOUND_S, "{outcome:?}");
    assert!(outcome.spread() <= 1.10, "{outcome:?}");
    assert!(outcome.last() < run(&cases::twice_the_rtt(), "none").last());
}

#[test]
fn networks_behind_one_bottleneck_share_it() {
    let outcome = run(&cases::eight_networks(), "even");
    assert!(outcome.last() <= 1.12 * BOUND_S, "{outcome:?}");
    assert!(outcome.spread() <= 1.10, "{outcome:?}");
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
fn somebody_elses_flow_keeps_its_share() {
    let outcome = run(&cases::foreign(), "even");
    let fair = RATE_BPS as f64 / (STREAMS + 1) as f64;
    assert!(outcome.foreign_bps[0] >= 0.8 * fair, "{outcome:?}");
    assert!(outcome.last() < run(&cases::foreign(), "none").last());
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

#[test]
#[ignore = "a table, not a test"]
fn table() {
    type Make = fn() -> Case;
    let all: [(&str, Make); 10] = [
        ("staggered", cases::staggered),
        ("plain", cases::plain),
        ("undeclared", cases::undeclared),
        ("blind", cases::blind),
        ("stopped", cases::stopped),
        ("twice the RTT", cases::twice_the_rtt),
        ("eight networks", cases::eight_networks),
        ("two bottlenecks", cases::two_bottlenecks),
        ("foreign", cases::foreign),
        ("killed", cases::killed),
    ];
    let algorithms = std::env::var("ALGORITHMS").unwrap_or_else(|_| {
        "none even scoreboard scoreboard-scaled scoreboard:block=2,headroom=4 \
         scoreboard:block=2,headroom=4,period=200ms scoreboard:block=10,headroom=20 \
         scoreboard-scaled:block=0.1,headroom=0.2,period=400ms largest larger average \
         largest:side=lower average:side=lower limit-average limit-weighted-average"
            .to_owned()
    });
    for (name, case) in all {
        let case = case();
        if std::env::var("CASE").is_ok_and(|only| only != name) {
            continue;
        }
        println!("{name}");
        for algorithm in algorithms.split_whitespace() {
            let outcome = run(&case, algorithm);
            let foreign = match outcome.foreign_bps.first() {
                Some(bps) => format!(", foreign {:.1} Mbit/s", bps / 1e6),
                None => String::new(),
            };
            println!(
                "  {algorithm:<55} first {:6.2} s, last {:6.2} s, {:5.2} of the bound, \
                 last/first {:5.2}, {:4.1} % retransmitted, {} timeouts{foreign}",
                outcome.first(),
                outcome.last(),
                outcome.last() / BOUND_S,
                outcome.spread(),
                outcome.retransmitted as f64 / outcome.segments as f64 * 100.0,
                outcome.timeouts,
            );
        }
    }
}
