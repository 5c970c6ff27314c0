// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths whose round trip and rate change, as after a failover.

use crate::support::{
    about_to_send, delivery_rate, mbit, send_and_acknowledge, takes_us, Link, World, MSS, SECOND,
};

fn world(rate: u64, rtt_us: u64, buffer: u64) -> World {
    let link = Link::new(mbit(rate), rtt_us * 1000, buffer);
    World::new(link, delivery_rate(), 1)
}

/// The path's rate in Mbit/s and its round trip.
fn becomes(world: &mut World, rate: u64, rtt_us: u64) {
    world.link.rate = mbit(rate);
    world.link.rtt_ns = rtt_us * 1000;
}

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
        let mut world = world(rate, rtt_ms * 1000, queue);
        for _ in 0..6 {
            world.burst(segs, 2 * SECOND);
        }
        becomes(&mut world, slower, longer_ms * 1000);
        let there = eight(&mut world, segs);
        assert!(
            there[4..].iter().all(|permille| *permille <= 1100),
            "{rate}: {there:?}"
        );
        becomes(&mut world, rate, rtt_ms * 1000);
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
    let mut world = world(42, 38_000, 302_000);
    for _ in 0..6 {
        world.burst(2000, 2 * SECOND);
    }
    becomes(&mut world, 91, 75 * 1000);
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
        let mut world = world(rate, rtt_ms * 1000, buffer);
        for _ in 0..10 {
            world.burst(2000, 2 * SECOND);
        }
        becomes(&mut world, slower, longer_ms * 1000);
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
        let mut world = world(rate, rtt_ms * 1000, buffer);
        let before = eight(&mut world, segs);
        assert!(before[2..].iter().all(|permille| *permille <= 1050));
        becomes(&mut world, faster, longer_ms * 1000);
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
fn an_inflight_that_loses_is_not_allowed_again_on_a_slower_path() {
    for (rate, slower, rtt_us, longer_us) in [
        (47, 15, 3_300, 7_200),
        (20, 10, 6_000, 1_500),
        (30, 12, 5_000, 6_000),
    ] {
        let mut world = world(rate, rtt_us, 15 * MSS);
        eight(&mut world, 21);
        becomes(&mut world, slower, longer_us);
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

/// The rate that a burst leaves which loses on a path that has become 184 ms long and 36 Mbit/s slow, where the
/// sender pauses for `pause_us` before segment `at` of its 584.
fn left_after_a_pause(at: u64, pause_us: u64) -> u64 {
    const SEGS: u64 = 584;
    let arriving = mbit(36);
    let (mut path, tcp) = about_to_send(1_000_000, 74_000, SEGS as u32);
    path.rate_bps = mbit(90);
    path.confirmed_us = tcp.now_us;
    let (mut left_us, mut acked_us, mut busy_until_us) = (Vec::new(), Vec::new(), 0);
    for n in 0..SEGS {
        let paused_us = if n >= at { pause_us } else { 0 };
        let left = tcp.now_us + takes_us(n, path.rate_bps) + paused_us;
        busy_until_us = left.max(busy_until_us) + takes_us(1, arriving);
        left_us.push(left);
        acked_us.push(busy_until_us + 184_000);
    }
    send_and_acknowledge(
        &mut path,
        tcp,
        &left_us,
        &acked_us,
        |n, startup, path, tcp| {
            if n == 533 {
                tcp.recovering = 1;
                startup.ssthresh_after_loss(path, tcp, 20, 300);
            }
        },
    );
    path.rate_bps
}

/// Where the path stays busy, what arrived is its rate, whenever and however long the sender pauses; where it runs
/// idle in the train's first half, what arrived is less than that, and not more.
#[test]
fn a_pause_does_not_hide_the_rate_of_a_busy_path() {
    for (at, pause_ms) in [
        (60, 5),
        (100, 10),
        (250, 20),
        (400, 40),
        (583, 30),
        (583, 80),
    ] {
        let left = left_after_a_pause(at, pause_ms * 1000);
        assert!(
            (mbit(35)..=mbit(37)).contains(&left),
            "busy, {at} {pause_ms}: {} kbit/s",
            left / 125
        );
    }
    for (at, pause_ms) in [(60, 20), (60, 80), (100, 40), (200, 80)] {
        let left = left_after_a_pause(at, pause_ms * 1000);
        assert!(
            (mbit(24)..=mbit(37)).contains(&left),
            "idle, {at} {pause_ms}: {} kbit/s",
            left / 125
        );
    }
}

/// ACKs that data of the other direction held up come close together. Those of a probe show too much, where the train
/// takes a little longer than at its sender: that is the longer sample.
#[test]
fn a_compressed_probe_does_not_raise_the_rate_against_its_train() {
    const SEGS: u64 = 160;
    let rate = mbit(94);
    let after = |stretch: u64| {
        let (mut path, tcp) = about_to_send(1_000_000, 20_000, SEGS as u32);
        path.rate_bps = rate;
        path.confirmed_us = tcp.now_us;
        let left = |n| tcp.now_us + takes_us(n, rate);
        // Lead and probe leave at twice the rate: their first segments wait for the last ones of the probe.
        let acked = |n: u64| match n {
            0..30 => left(30) - takes_us(30 - n, rate) / 2 + 20_000,
            _ => left(30) + takes_us(n - 30, rate) * stretch / 1000 + 20_000,
        };
        let (left_us, acked_us): (Vec<u64>, Vec<u64>) =
            (0..SEGS).map(|n| (left(n), acked(n))).unzip();
        send_and_acknowledge(&mut path, tcp, &left_us, &acked_us, |_, _, _, _| {});
        path.rate_bps * 1000 / rate
    };
    // A train that arrives as it left does not contradict the probe.
    let raised = after(1000);
    assert!((1050..1200).contains(&raised), "{raised}");
    for stretch in [1050, 1080, 1110] {
        let left = after(stretch);
        assert!((950..=1000).contains(&left), "{stretch}: {left}");
    }
}

/// Data that goes the other way delays ACKs. They then come closer together, and a probe shows too much. Each train takes a
/// little longer than at its sender, too little for a queue to be seen.
#[test]
fn a_rate_slightly_above_the_path_falls_again() {
    for (rate, rtt_ms, segs) in [
        (94, 20, 120),
        (94, 20, 150),
        (47, 40, 130),
        (188, 10, 110),
        (470, 5, 120),
    ] {
        for (over, wary) in [(108, 0), (112, 0), (108, 500), (112, 500)] {
            let link = Link::new(mbit(rate), rtt_ms * 1_000_000, 100 * MSS);
            let mut world = World::new(link, delivery_rate(), 1);
            for _ in 0..4 {
                world.burst(segs, SECOND);
            }
            world.path.rate_bps = mbit(rate) * over / 100;
            world.path.wary = wary;
            world.path.wary_for = wary;
            for _ in 0..12 {
                world.burst(segs, SECOND);
            }
            let percent = world.path.rate_bps * 100 / mbit(rate);
            assert!(
                (98..=106).contains(&percent),
                "{rate} Mbit/s, {rtt_ms} ms, {segs} segments, from {over} %, wary {wary}: {percent} %"
            );
        }
    }
}
