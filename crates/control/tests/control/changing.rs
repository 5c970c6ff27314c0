// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths whose round trip and rate change, as after a failover.

use crate::support::{about_to_send, delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_control::Startup;

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

/// The rate that a burst leaves which loses on a path that has become 184 ms long and 36 Mbit/s slow, where the last
/// segment of its train left `late_us` after the others.
fn left_by_a_late_segment(late_us: u64) -> u64 {
    const SEGS: u32 = 584;
    let (rate, arriving) = (mbit(90), mbit(36));
    let (mut path, mut tcp) = about_to_send(1_000_000, 74_000, SEGS);
    path.rate_bps = rate;
    path.confirmed_us = tcp.now_us;
    let policy = delivery_rate();
    let mut startup = Startup::default();
    let took_us = |segs: u64, rate: u64| segs * MSS * 1_000_000 / rate;
    let begin_us = tcp.now_us;
    let mut left_us = Vec::new();
    for n in 0..SEGS {
        let late_us = if n + 1 == SEGS { late_us } else { 0 };
        tcp.now_us = begin_us + took_us(n.into(), rate) + late_us;
        startup.before_send(&mut path, &policy, &tcp);
        left_us.push(tcp.now_us);
        tcp.sent_segs += 1;
        tcp.packets_out += 1;
        tcp.nxt += MSS as u32;
        tcp.unsent -= MSS as u32;
    }
    for n in (1..SEGS).step_by(2) {
        tcp.now_us = begin_us + 184_000 + took_us((n + 1).into(), arriving);
        tcp.rtt_us = (tcp.now_us - left_us[n as usize]) as u32;
        tcp.delivered_segs += 2;
        tcp.packets_out -= 2;
        tcp.una += 2 * MSS as u32;
        if n == SEGS - 51 {
            tcp.recovering = 1;
            startup.ssthresh_after_loss(&mut path, &tcp, 20, 300);
        }
        startup.on_ack(&mut path, &policy, &tcp);
    }
    path.rate_bps
}

/// The path was never idle, so what arrived is its rate, however long the sender paused.
#[test]
fn a_pause_does_not_hide_the_rate_of_a_path_that_is_never_idle() {
    for late_us in [0, 5_000, 16_000, 30_000] {
        let left = left_by_a_late_segment(late_us);
        assert!(
            (mbit(34)..=mbit(37)).contains(&left),
            "{late_us}: {} kbit/s",
            left / 125
        );
    }
}
