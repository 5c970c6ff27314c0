// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Losses that no full queue explains.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_abi::pl_path;
use paceline_control::{pl_tcp, Startup, PL_NO_SSTHRESH};

const RTT_US: u32 = 20_000;

fn tcp() -> pl_tcp {
    pl_tcp {
        now_us: 1_000_000,
        cwnd: 300,
        ssthresh: 300,
        min_rtt_us: RTT_US,
        mss: MSS as u32,
        delivered_segs: 200,
        sent_segs: 500,
        rtt_us: RTT_US,
        ..pl_tcp::default()
    }
}

fn path() -> pl_path {
    pl_path {
        rate_bps: mbit(200),
        min_rtt_us: RTT_US,
        ..pl_path::default()
    }
}

/// ssthresh where the base would take 210 of 300, `lost` are taken for lost and `again` were sent
/// again before, and the last segment that arrived had waited behind `queued` others.
fn after(lost: u32, again: u32, queued: u64) -> u32 {
    let mut tcp = tcp();
    tcp.rtt_us += (queued * MSS * 1_000_000 / mbit(200)) as u32;
    tcp.retransmitted_segs = again;
    Startup::default().ssthresh_after_loss(&mut path(), &tcp, lost, 210)
}

#[test]
fn a_random_loss_takes_nothing_of_the_window() {
    assert_eq!(after(1, 0, 0), 300);
    assert_eq!(after(1, 0, 3), 300);
    assert_eq!(after(4, 6, 3), 300, "2 of 100");
    assert_eq!(after(4, 7, 3), 210, "more than that");
    assert_eq!(after(1, 0, 9), 300, "a thirty-second of the minimum RTT");
    assert_eq!(after(1, 0, 16), 210, "a queue");
    assert_eq!(after(0, 0, 0), 210, "a mark by ECN, or a timeout");
}

/// Where a queue is known to be short, as many that waited are a queue.
#[test]
fn in_a_short_queue_a_few_that_waited_are_no_random_loss() {
    let mut tcp = tcp();
    tcp.rtt_us += (6 * MSS * 1_000_000 / mbit(200)) as u32;
    for (room_segs, ssthresh) in [(0, 300), (5, 210)] {
        let mut path = pl_path {
            room_segs,
            ..path()
        };
        let found = Startup::default().ssthresh_after_loss(&mut path, &tcp, 1, 210);
        assert_eq!(found, ssthresh, "{room_segs}");
    }
}

/// No more than the path's share: cross traffic may have left a larger window.
#[test]
fn a_window_beyond_the_path_becomes_its_share() {
    let mut tcp = tcp();
    tcp.cwnd = 900;
    let found = Startup::default().ssthresh_after_loss(&mut path(), &tcp, 1, 210);
    let bdp = (mbit(200) * u64::from(RTT_US) / 1_000_000 / MSS) as u32;
    assert!((bdp..bdp + 20).contains(&found), "{found} of {bdp}");
}

#[test]
fn on_an_unknown_path_slow_start_goes_on() {
    let mut path = pl_path {
        min_rtt_us: RTT_US,
        ..pl_path::default()
    };
    let mut tcp = tcp();
    (tcp.cwnd, tcp.unsent) = (10, 1_000_000);
    tcp.delivered_segs = 0;
    let mut startup = Startup::default();
    startup.before_send(&mut path, &delivery_rate(), &tcp);
    (tcp.cwnd, tcp.delivered_segs) = (60, 50);
    (tcp.carried_segs, tcp.carried_us) = (40, RTT_US);
    for (ssthresh, expected) in [(PL_NO_SSTHRESH, PL_NO_SSTHRESH), (100, 60)] {
        tcp.ssthresh = ssthresh;
        let found = startup.ssthresh_after_loss(&mut path, &tcp, 1, 42);
        assert_eq!(found, expected);
    }
    tcp.rtt_us += RTT_US / 4;
    assert_eq!(startup.ssthresh_after_loss(&mut path, &tcp, 1, 42), 42);
}

/// One of a hundred is lost, whatever is sent: bursts take little longer than repairing them does.
#[test]
fn bursts_keep_the_rate_of_a_path_with_random_loss() {
    for (rate, rtt_ms, one_of) in [(265, 23, 100), (130, 49, 300), (900, 60, 1000)] {
        let rtt_ns = rtt_ms * MS;
        let link = Link::new(mbit(rate), rtt_ns, 2000 * MSS).with_random_loss(one_of);
        let mut world = World::new(link, delivery_rate(), 1);
        let segs = 4 * world.link.bdp_segs();
        let bursts: Vec<_> = (0..12).map(|_| world.burst(segs, SECOND)).collect();
        let mean = bursts[4..]
            .iter()
            .map(|burst| burst.permille())
            .sum::<u64>()
            / 8;
        let known = 100 * world.path.rate_bps / world.link.rate;
        let name = format!("{rate} Mbit/s, {rtt_ms} ms, 1 of {one_of}: {mean}, {known} %");
        assert!(mean <= 1350 && known >= 80, "{name}");
    }
}
