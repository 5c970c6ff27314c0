// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths whose round trip and rate change, as after a failover.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};

/// Eight bursts, each over its bound.
fn eight(world: &mut World, segs: u64) -> Vec<u64> {
    (0..8)
        .map(|_| world.burst(segs, 2 * SECOND).permille())
        .collect()
}

/// A failover to a line that is longer and slower at once. The first bursts lose, or wait, and what they show
/// of the rate is all that tells the longer path from somebody else's queue.
#[test]
fn a_path_that_is_longer_and_slower_at_once_is_found_again() {
    for (rate, slower, rtt_ms, longer_ms, segs) in [
        (96, 38, 74, 184, 2000),
        (200, 60, 20, 60, 2000),
        (91, 42, 76, 160, 2000),
    ] {
        let queue = mbit(rate) * rtt_ms / 1000;
        let mut world = World::new(
            Link::new(mbit(rate), rtt_ms * MS, queue),
            delivery_rate(),
            1,
        );
        for _ in 0..6 {
            world.burst(segs, 2 * SECOND);
        }
        world.link.rate = mbit(slower);
        world.link.rtt_ns = longer_ms * MS;
        let there = eight(&mut world, segs);
        assert!(
            there[4..].iter().all(|permille| *permille <= 1100),
            "{rate}: {there:?}"
        );
        world.link.rate = mbit(rate);
        world.link.rtt_ns = rtt_ms * MS;
        let back = eight(&mut world, segs);
        assert!(
            back[5..].iter().all(|permille| *permille <= 1100),
            "{rate}: {back:?}"
        );
    }
}

/// The way back from a shorter and slower line: the RTT is nearly twice what it was, which alone would look
/// like somebody else's queue.
#[test]
fn a_path_that_is_longer_and_faster_at_once_is_found() {
    let mut world = World::new(Link::new(mbit(42), 38 * MS, 302_000), delivery_rate(), 1);
    for _ in 0..6 {
        world.burst(2000, 2 * SECOND);
    }
    world.link.rate = mbit(91);
    world.link.rtt_ns = 75 * MS;
    let there: Vec<u64> = (0..10)
        .map(|_| world.burst(2000, 2 * SECOND).permille())
        .collect();
    assert!(
        there[6..].iter().all(|permille| *permille <= 1150),
        "{there:?}"
    );
}

/// The same where the train of a start is less than the path keeps in flight: the receiver holds the ACK of an odd
/// last segment for 40 ms, so the train seems to arrive at two thirds of the path's rate.
#[test]
fn a_delayed_last_ack_does_not_hide_a_longer_path() {
    for (rate, slower, rtt_ms, longer_ms, buffer) in [
        (150, 50, 50, 130, 800_000),
        (150, 55, 60, 140, 1_000_000),
        (60, 24, 90, 190, 600_000),
    ] {
        let mut world = World::new(
            Link::new(mbit(rate), rtt_ms * MS, buffer),
            delivery_rate(),
            1,
        );
        for _ in 0..10 {
            world.burst(2000, 2 * SECOND);
        }
        world.link.rate = mbit(slower);
        world.link.rtt_ns = longer_ms * MS;
        let there = eight(&mut world, 2000);
        assert!(
            there[4..].iter().all(|permille| *permille <= 1050),
            "{rate}: {there:?}"
        );
    }
}

/// A path that the initial window filled, so that the window was held, becomes longer and faster: the longer
/// round trip is no queue of the burst's own.
#[test]
fn a_held_window_is_released_on_a_longer_path() {
    for (rate, faster, rtt_ms, longer_ms, buffer) in [
        (10, 22, 8, 29, 24_000),
        (6, 24, 12, 40, 24_000),
        (20, 40, 4, 20, 30_000),
    ] {
        let segs = 4000;
        let mut world = World::new(
            Link::new(mbit(rate), rtt_ms * MS, buffer),
            delivery_rate(),
            1,
        );
        let before = eight(&mut world, segs);
        assert!(before[2..].iter().all(|permille| *permille <= 1050));
        world.link.rate = mbit(faster);
        world.link.rtt_ns = longer_ms * MS;
        let there = eight(&mut world, segs);
        assert!(
            there[2..].iter().all(|permille| *permille <= 1500),
            "{rate}: {there:?}"
        );
    }
}

/// Messages of three initial windows, a queue of one and a half, and a path that becomes slower: the inflight
/// that was delivered before is not allowed again while it loses.
#[test]
fn what_loses_is_not_allowed_again_on_a_slower_path() {
    for (rate, slower, rtt_us, longer_us) in [
        (47, 15, 3_300, 7_200),
        (20, 10, 6_000, 1_500),
        (30, 12, 5_000, 6_000),
    ] {
        let mut world = World::new(
            Link::new(mbit(rate), rtt_us * 1000, 15 * MSS),
            delivery_rate(),
            1,
        );
        eight(&mut world, 21);
        world.link.rate = mbit(slower);
        world.link.rtt_ns = longer_us * 1000;
        eight(&mut world, 21);
        let lost = world.retransmitted();
        let later = eight(&mut world, 21);
        assert!(
            later.iter().all(|permille| *permille <= 1100),
            "{rate}: {later:?}"
        );
        assert_eq!(world.retransmitted(), lost, "{rate}");
    }
}
