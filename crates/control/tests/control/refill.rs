// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What follows a pause of the application within a burst.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS};
use paceline_abi::pl_path;
use paceline_control::{pl_tcp, Startup, State};

/// 100 Mbit/s, 20 ms, and a queue of a quarter of the BDP.
fn link() -> Link {
    Link::new(mbit(100), 20 * MS, 65_536).with_tso()
}

/// Segments that are lost of 60 messages of 128 KiB, one each 15 ms, so that the connection is
/// never idle and uses 70 % of the path.
fn lost(world: &mut World) -> u64 {
    let before = world.link.drops;
    for _ in 0..60 {
        world.write(0, 90);
        world.idle(15 * MS);
    }
    world.link.drops - before
}

/// And keep their window: one after a loss would be too small to overflow a queue.
#[test]
fn messages_that_overlap_do_not_overflow_a_queue() {
    let mut world = World::new(link(), delivery_rate(), 1);
    world.rounds(8, 1, 1000);
    assert_eq!(lost(&mut world), 0);
    let cwnd = world.senders[0].cwnd;
    assert!(cwnd > 170, "{cwnd}");
}

/// There the rate is what the ACKs showed so far: slow start overflows the queue once.
#[test]
fn overlapping_messages_on_an_unknown_path_overflow_a_queue_once() {
    let mut world = World::new(link(), delivery_rate(), 1);
    let first = lost(&mut world);
    assert!(first < 120, "{first}");
    assert_eq!(world.senders[0].law.state(), State::Base);
    assert_eq!(lost(&mut world), 0);
}

fn path() -> pl_path {
    pl_path {
        rate_bps: mbit(100),
        min_rtt_us: 20_000,
        confirmed_us: 1_000_000,
        ..pl_path::default()
    }
}

/// A burst of 300 segments in which 100 are in flight after the start, and nothing was left to send.
fn paused(path: &mut pl_path) -> (Startup, pl_tcp) {
    let mut law = Startup::default();
    let mut tcp = pl_tcp {
        now_us: 1_000_000,
        cwnd: 200,
        ssthresh: 200,
        min_rtt_us: 20_000,
        srtt_us: 20_000,
        mss: MSS as u32,
        unsent: 200 * MSS as u32,
        ..pl_tcp::default()
    };
    law.before_send(path, &delivery_rate(), &tcp);
    assert_eq!(law.state(), State::Paced);
    for (sent, delivered) in [(200, 2), (200, 100), (300, 200)] {
        tcp.now_us += 20_000;
        tcp.rtt_us = 20_000;
        (tcp.sent_segs, tcp.nxt) = (sent, sent * MSS as u32);
        (tcp.delivered_segs, tcp.una) = (delivered, delivered * MSS as u32);
        (tcp.in_flight, tcp.packets_out) = (sent - delivered, sent - delivered);
        tcp.unsent = 0;
        law.on_ack(path, &delivery_rate(), &tcp);
    }
    assert_eq!(law.state(), State::Base);
    (law, tcp)
}

#[test]
fn a_refill_is_paced_at_the_rate_of_the_path_until_its_own_acks_come() {
    let mut path = path();
    let (mut law, mut tcp) = paused(&mut path);
    tcp.app_limited = 1;
    tcp.unsent = 90 * MSS as u32;
    let orders = law.before_send(&mut path, &delivery_rate(), &tcp);
    assert_eq!((orders.pacing_bps, orders.cwnd), (path.rate_bps, 0));
    // The window is full again, but for a few: still the pace.
    (tcp.in_flight, tcp.packets_out) = (195, 160);
    tcp.sent_segs += 60;
    tcp.nxt += 60 * MSS as u32;
    let orders = law.before_send(&mut path, &delivery_rate(), &tcp);
    assert_eq!(orders.pacing_bps, path.rate_bps);
    // All that was in flight before it: no clock yet.
    tcp.una = 300 * MSS as u32;
    tcp.delivered_segs = 300;
    tcp.app_limited = 0;
    tcp.packets_out = 60;
    assert_eq!(law.on_ack(&mut path, &delivery_rate(), &tcp).stop, 0);
    tcp.una += 2 * MSS as u32;
    tcp.delivered_segs += 2;
    assert_eq!(law.on_ack(&mut path, &delivery_rate(), &tcp).stop, 1);
    assert!(!law.wants_refill(&tcp));
}

/// One ACK for many segments, little to send, or little room.
#[test]
fn other_transmissions_are_not_asked_for() {
    let mut path = path();
    let (law, mut tcp) = paused(&mut path);
    tcp.unsent = 90 * MSS as u32;
    assert!(!law.wants_refill(&tcp));
    tcp.app_limited = 1;
    assert!(law.wants_refill(&tcp));
    tcp.unsent = MSS as u32;
    assert!(!law.wants_refill(&tcp));
    tcp.unsent = 90 * MSS as u32;
    tcp.in_flight = 190;
    assert!(!law.wants_refill(&tcp));
}

#[test]
fn losses_and_paths_that_the_initial_window_fills_are_left_alone() {
    let mut path = path();
    let (mut law, mut tcp) = paused(&mut path);
    tcp.app_limited = 1;
    tcp.unsent = 90 * MSS as u32;
    let orders = law.before_send(&mut path, &delivery_rate(), &tcp);
    assert_eq!(orders.pacing_bps, path.rate_bps);
    tcp.recovering = 1;
    assert_eq!(
        law.before_send(&mut path, &delivery_rate(), &tcp)
            .pacing_bps,
        0
    );
    tcp.recovering = 0;
    path.min_rtt_us = 1_000;
    assert_eq!(
        law.before_send(&mut path, &delivery_rate(), &tcp)
            .pacing_bps,
        0
    );
}
