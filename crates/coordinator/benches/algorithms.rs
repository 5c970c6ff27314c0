// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All algorithms on all cases of the tests' model, as a table:
//! `cargo bench -p paceline-coordinator --bench algorithms`. With `CASE`, `ALGORITHMS`
//! (separated by spaces) in the environment only those; with `SEED` another chance; with
//! `TRACE` the rounds, too.

#[path = "../tests/support/mod.rs"]
mod support;

use paceline_coordinator::algorithm::{Choice, Limits, Stream};
use support::cases::{self, BOUND_S};
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

fn main() {
    type Make = fn() -> Case;
    let all: [(&str, Make); 11] = [
        ("staggered", cases::staggered),
        ("plain", cases::plain),
        ("shallow", cases::shallow),
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
        "none even scoreboard scoreboard:block=2.15,headroom=4.3,period=0.1rtt \
         scoreboard:block=2.15,headroom=4.3,period=2.86rtt scoreboard:block=10,headroom=20 \
         largest larger average \
         largest:side=lower average:side=lower limit-average limit-weighted-average"
            .to_owned()
    });
    let seed = std::env::var("SEED").ok();
    let seed = seed.map(|seed| seed.parse().expect("SEED is a number"));
    for (name, case) in all {
        let mut case = case();
        if let Some(seed) = seed {
            case.seed = seed;
        }
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
