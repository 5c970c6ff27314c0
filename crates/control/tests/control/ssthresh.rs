// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target `ssthresh`: matsuda-2005, 3.2.

use crate::support::{mbit, ssthresh, Link, World, MS, MSS, SECOND};
use paceline_abi::{pl_path, pl_policy};
use paceline_control::{pl_tcp, Startup, State, PL_NO_SSTHRESH};

fn tcp(cwnd: u32, ssthresh: u32) -> pl_tcp {
    pl_tcp {
        now_us: 1_000_000,
        cwnd,
        ssthresh,
        srtt_us: 20_000,
        min_rtt_us: 20_000,
        mss: MSS as u32,
        unsent: 1_000_000,
        ..Default::default()
    }
}

#[test]
fn the_rate_is_ssthresh_segments_per_rtt() {
    let (mut startup, mut path) = (Startup::default(), pl_path::default());
    let orders = startup.before_send(&mut path, &ssthresh(), &tcp(10, 582));
    assert_eq!(orders.pacing_bps, 582 * MSS * 1_000_000 / 20_000);
    assert_eq!(orders.cwnd, 582);
    assert_eq!(startup.state(), State::Paced);
}

#[test]
fn a_start_needs_nothing_in_flight() {
    let (mut startup, mut path) = (Startup::default(), pl_path::default());
    let busy = pl_tcp {
        packets_out: 1,
        ..tcp(10, 582)
    };
    assert_eq!(
        startup.before_send(&mut path, &ssthresh(), &busy),
        Default::default()
    );
}

#[test]
fn a_start_needs_a_window_below_ssthresh() {
    for cwnd in [582, 583, 10_000] {
        let (mut startup, mut path) = (Startup::default(), pl_path::default());
        let orders = startup.before_send(&mut path, &ssthresh(), &tcp(cwnd, 582));
        assert_eq!(orders, Default::default(), "cwnd {cwnd}");
        assert_eq!(startup.state(), State::Base);
    }
}

#[test]
fn the_first_ack_stops_it() {
    let (mut startup, mut path) = (Startup::default(), pl_path::default());
    let mut tcp = tcp(10, 582);
    for _ in 0..50 {
        let orders = startup.before_send(&mut path, &ssthresh(), &tcp);
        assert_eq!(orders.pacing_bps, 582 * MSS * 50, "until the ACK");
        tcp.cwnd = orders.cwnd;
        tcp.sent_segs += 1;
        tcp.packets_out += 1;
        tcp.nxt += MSS as u32;
        tcp.now_us += 34;
    }
    tcp.now_us = 1_020_000;
    tcp.delivered_segs = 2;
    tcp.packets_out -= 2;
    tcp.una += 2 * MSS as u32;
    let orders = startup.on_ack(&mut path, &ssthresh(), &tcp);
    assert_eq!(orders.stop, 1);
    assert_eq!(startup.state(), State::Measured);
    assert_eq!(
        startup.before_send(&mut path, &ssthresh(), &tcp),
        Default::default()
    );
}

#[test]
fn an_infinite_ssthresh_is_not_a_target() {
    let (mut startup, mut path) = (Startup::default(), pl_path::default());
    let orders = startup.before_send(&mut path, &ssthresh(), &tcp(10, PL_NO_SSTHRESH));
    assert_eq!(orders, Default::default());
    assert_eq!(startup.state(), State::Base);
}

#[test]
fn initial_rate_stands_in_for_an_infinite_ssthresh() {
    let policy = pl_policy {
        initial_rate_bps: mbit(250),
        ..ssthresh()
    };
    let (mut startup, mut path) = (Startup::default(), pl_path::default());
    let orders = startup.before_send(&mut path, &policy, &tcp(10, PL_NO_SSTHRESH));
    let segs = (mbit(250) / 50).div_ceil(MSS);
    assert_eq!(u64::from(orders.ssthresh), segs);
    assert_eq!(orders.pacing_bps, segs * MSS * 50);
}

#[test]
fn nothing_is_remembered_or_shared() {
    let mut path = pl_path::default();
    let mut starts = [Startup::default(), Startup::default()];
    for startup in &mut starts {
        let orders = startup.before_send(&mut path, &ssthresh(), &tcp(10, 582));
        assert_eq!(orders.pacing_bps, 582 * MSS * 50);
    }
    assert_eq!(path.rate_bps, 0);
}

#[test]
fn a_start_after_idle_beats_slow_start() {
    let link = Link::new(mbit(500), 20 * MS, 131_072);
    let mut paper = World::new(link.clone(), ssthresh(), 1);
    let mut base = World::new(link, ssthresh(), 1);
    base.governed = 0;
    for _ in 0..2 {
        // Each finds its ssthresh by losing.
        paper.burst(7000, SECOND);
        base.burst(7000, SECOND);
    }
    for _ in 0..3 {
        let (with, without) = (paper.burst(700, 3 * SECOND), base.burst(700, 3 * SECOND));
        assert!(with.completion_ns < without.completion_ns);
        assert!(!paper.senders[0].is_paced());
    }
}
