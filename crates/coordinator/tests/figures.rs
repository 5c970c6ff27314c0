// SPDX-License-Identifier: Apache-2.0 OR MIT
mod support;
use support::{cases, model};
use paceline_coordinator::algorithm::Choice;

#[test]
#[ignore]
fn table() {
    let only = std::env::var("CASE").unwrap_or_default();
    let algo = std::env::var("ALGO").unwrap_or_default();
    for (name, case) in [("plain", cases::plain()), ("undeclared", cases::undeclared()), ("twice", cases::twice_the_rtt()), ("two", cases::two_bottlenecks()), ("eight", cases::eight_networks()), ("stopped", cases::stopped()), ("foreign", cases::foreign()), ("killed", cases::killed())] {
        if !only.is_empty() && name != only { continue; }
        for algorithm in ["none", "even", "scoreboard", "scoreboard-scaled", "largest", "larger", "average", "average:side=lower", "limit-average", "limit-weighted-average"] {
            if !algo.is_empty() && algorithm != algo { continue; }
            let mut a = algorithm.parse::<Choice>().unwrap().start();
            let trace = std::env::var("TRACE").is_ok();
            let o = model::run_watched(&case, &mut *a, &mut |t, s, l| if trace {
                let infl: u32 = s.iter().map(|s| s.sample.inflight_segs).sum();
                let cw: u32 = s.iter().map(|s| s.sample.cwnd_segs).sum();
                let mx: u32 = l.iter().map(|s| s.max_segs).sum();
                let rec = s.iter().filter(|s| s.sample.recovering).count();
                let mut rt: Vec<u32> = s.iter().map(|s| s.sample.srtt_us).collect(); rt.sort();
                let imax = s.iter().map(|s| s.sample.inflight_segs).max().unwrap_or(0);
                let imin = s.iter().map(|s| s.sample.inflight_segs).min().unwrap_or(0);
                println!("{t:.3} n={} a={:?} infl={infl} [{imin},{imax}] cwnd={cw} max={mx} rec={rec} srtt={:?}", s.len(), l.iter().map(|l| l.max_segs).step_by(8).collect::<Vec<_>>(), rt.get(rt.len()/2));
            });
            println!("{name:10} {algorithm:24} first {:6.2} last {:6.2} ratio {:.3} last/first {:.3} foreign {:?} drop {} retx {} rto {}", o.first(), o.last(), o.last()/cases::BOUND_S, o.spread(), o.foreign_bps, o.dropped, o.retransmitted, o.timeouts);
        }
    }
}
