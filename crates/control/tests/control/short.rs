// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of little more than an initial window, of one connection and of several at once.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_abi::pl_path;
use paceline_control::{pl_tcp, Startup};

/// Whatever made a job believe that its path is far slower than it is: messages too short for
/// a train or a probe find out, by their lead.
#[test]
fn a_rate_that_is_far_too_low_is_found_by_short_messages() {
    for (rate, rtt_ns) in [(500, 20 * MS), (100, 40 * MS), (1000, 10 * MS)] {
        let plain = Link::new(mbit(rate), rtt_ns, 256_000);
        let offloaded = plain.clone().with_tso().with_gro(MS / 5);
        for link in [plain, offloaded] {
            for segs in [12, 20, 30] {
                for connections in [1, 2, 4, 8] {
                    let mut world = World::new(link.clone(), delivery_rate(), connections);
                    for connection in 0..connections {
                        world.burst_of(connection..connection + 1, 700, SECOND);
                    }
                    world.path.rate_bps = mbit(13);
                    let before = world.burst(segs, SECOND);
                    for _ in 0..4 {
                        world.burst(segs, SECOND);
                    }
                    let case = format!("{rate} Mbit/s, {segs} of each of {connections}");
                    let after = world.burst(segs, SECOND);
                    assert_eq!(after.drops, 0, "{case}");
                    // Half of it is enough, or where the lead takes a millisecond.
                    let found = world.path.rate_bps;
                    assert!(
                        found >= mbit(100).min(world.link.rate * 3 / 10),
                        "{case}: {found}"
                    );
                    assert!(found <= world.link.rate, "{case}: {found}");
                    let of = if connections > 2 { 12 } else { 10 };
                    assert!(
                        after.completion_ns * of <= before.completion_ns * 10,
                        "{case}: {after:?} {before:?}"
                    );
                }
            }
        }
    }
}

/// What one of four carried in a round trip is no rate of a path that was not full.
#[test]
fn the_rate_of_one_window_is_multiplied_by_the_connections() {
    assert_eq!(learned_from_a_window(20_000, 0), 4 * mbit(12));
    // Unless it waited there, or was lost there.
    assert_eq!(learned_from_a_window(30_000, 0), mbit(12));
    assert_eq!(learned_from_a_window(20_000, 1), mbit(12));
}

/// One of four sends 20 segments in two round trips. Its ACKs took `rtt_us`, and `lost` were lost.
fn learned_from_a_window(rtt_us: u32, lost: u32) -> u64 {
    let mut law = Startup::default();
    let mut path = pl_path {
        min_rtt_us: 20_000,
        ..pl_path::default()
    };
    let mut tcp = pl_tcp {
        now_us: 1_000_000,
        cwnd: 10,
        mss: MSS as u32,
        min_rtt_us: 20_000,
        unsent: 20 * MSS as u32,
        ..pl_tcp::default()
    };
    law.before_send(&mut path, &delivery_rate(), &tcp);
    tcp.sent_segs = 10;
    tcp.packets_out = 10;
    tcp.unsent = 10 * MSS as u32;
    tcp.now_us += u64::from(rtt_us);
    tcp.rtt_us = rtt_us;
    tcp.delivered_segs = 10;
    tcp.packets_out = 5;
    if lost > 0 {
        law.ssthresh_after_loss(&mut path, &tcp, 0, 7);
    }
    law.on_ack(&mut path, &delivery_rate(), &tcp);
    path.carried_bps = mbit(12);
    path.peak = 4;
    tcp.now_us += u64::from(rtt_us);
    tcp.sent_segs = 20;
    tcp.delivered_segs = 20;
    tcp.packets_out = 0;
    tcp.unsent = 0;
    law.on_ack(&mut path, &delivery_rate(), &tcp);
    path.rate_bps
}
