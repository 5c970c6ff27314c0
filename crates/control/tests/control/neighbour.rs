// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Somebody else's flow fills the queue of the path: what it takes is no news of what the
//! path carries.

use crate::support::{
    about_to_send, delivery_rate, mbit, send_and_acknowledge, takes_us, Link, World, MS, MSS,
    SECOND,
};

const RTT_US: u32 = 20_000;

/// 50 Mbit/s, 20 ms, a queue of 200 ms: a home's or an office's access link.
fn access_link() -> Link {
    Link::new(mbit(50), 20 * MS, 1_250_000)
}

/// Bursts of 200 KB, every 400 ms after the last was answered, beside a copy of the base's.
/// Returns their mean completion and the path's rate at the end, in percent of the link's.
fn beside_a_copy(governed: usize, bursts: u64) -> (u64, u64) {
    let mut world = World::new(access_link(), delivery_rate(), 2);
    world.governed = governed;
    for _ in 0..6 {
        world.burst_of(0..1, 138, 400 * MS);
    }
    world.write(1, 10_000_000);
    world.idle(3 * SECOND);
    let took: u64 = (0..bursts)
        .map(|_| world.burst_of(0..1, 138, 400 * MS).completion_ns)
        .sum();
    (took / bursts, world.path.rate_bps * 100 / mbit(50))
}

#[test]
fn a_standing_queue_does_not_make_a_path_slow() {
    for bursts in [10, 40, 160] {
        let (plain, _) = beside_a_copy(0, bursts);
        let (paced, rate) = beside_a_copy(1, bursts);
        assert!(
            paced <= plain,
            "{bursts} bursts: {paced} ns, without us {plain}"
        );
        assert!(rate >= 50, "{bursts} bursts: the path is down to {rate} %");
    }
}

/// Bursts of `segs` segments on each of `many` connections, beside an endless flow of the base whose queue is a part of the BDP.
/// Returns their mean over the bound in thousandths, from the fifth on, and the flow's goodput in percent of the link.
fn beside_an_endless_flow(link: Link, governed: usize, many: usize, segs: u64) -> (u64, u64) {
    let rate = link.rate;
    let mut world = World::new(link, delivery_rate(), many + 1);
    world.governed = governed;
    world.write(many, 10_000_000);
    world.idle(10 * SECOND);
    for _ in 0..4 {
        world.burst_of(0..many, segs, SECOND);
    }
    let (began, before) = (world.now, world.senders[many].delivered);
    let over: u64 = (0..8)
        .map(|_| world.burst_of(0..many, segs, SECOND).permille())
        .sum();
    let got = (world.senders[many].delivered - before) * MSS * SECOND / (world.now - began);
    (over / 8, got * 100 / rate)
}

/// A rate that followed the stretch of its trains would fall without end: a train of rate r among the packets of a flow that
/// keeps a queue takes 1 + r/C times as long, whatever r is.
#[test]
fn bursts_beside_an_endless_flow_get_their_share_of_the_path() {
    for (rate, rtt_us, share_of_bdp) in [(249, 20_900, 54), (96, 39_000, 135), (150, 9_900, 74)] {
        // Four connections of the base get most of such a path; the law's share one rate.
        for (many, segs, most, over_plain) in [
            (1, 207, 3200, 67),
            (1, 2072, 3200, 67),
            (4, 100, 3200, 100),
            (4, 500, 4000, 115),
        ] {
            let buffer = mbit(rate) * rtt_us / 1_000_000 * share_of_bdp / 100;
            let link = || Link::new(mbit(rate) * 96 / 100, rtt_us * 1000, buffer);
            let (plain, _) = beside_an_endless_flow(link(), 0, many, segs);
            let (ours, left) = beside_an_endless_flow(link(), many, many, segs);
            let name = format!("{rate} Mbit/s, {rtt_us} us, {many} times {segs} segments: {ours}, without us {plain}; {left} % left");
            assert!(
                ours <= most && 100 * ours <= over_plain * plain && left >= 60,
                "{name}"
            );
        }
    }
}

/// The path's rate, in thousandths of the one before, after the train of one of four connections of a path. Its segments
/// arrive as they left, and each waited for 8 segments. The room of the path's queue is 4, and the first
/// segment of the last burst found `found_us` of queue on the quiet path. `contended`: others were seen to fill it.
fn after_a_train_behind_a_queue(found_us: u32, contended: bool) -> u64 {
    const SEGS: u64 = 60;
    let before = mbit(40);
    let (mut path, tcp) = about_to_send(1_000_000, RTT_US, SEGS as u32);
    path.rate_bps = before;
    path.confirmed_us = tcp.now_us;
    path.room_segs = 4;
    path.lead_rtt_us = RTT_US + found_us;
    path.lead_us = tcp.now_us;
    path.contended = contended.into();
    (path.active, path.peak) = (3, 3);
    let left_us: Vec<u64> = (0..SEGS)
        .map(|n| tcp.now_us + 4 * takes_us(n, before))
        .collect();
    let acked_us: Vec<u64> = left_us
        .iter()
        .map(|left| left + u64::from(RTT_US) + takes_us(8, before))
        .collect();
    send_and_acknowledge(&mut path, tcp, &left_us, &acked_us, |_, _, _, _| {});
    path.rate_bps * 1000 / before
}

/// What others leave of a queue, at a rate that is a share of the path's, looks like a short queue. So their standing
/// queue is no sign that the connections of a job send too fast.
#[test]
fn a_standing_queue_of_others_does_not_lower_the_rate_of_several() {
    let own = after_a_train_behind_a_queue(0, false);
    assert!((900..1000).contains(&own), "{own}");
    for (found_us, contended) in [(6000, false), (0, true)] {
        let beside = after_a_train_behind_a_queue(found_us, contended);
        assert!(beside >= 1000, "{found_us} {contended}: {beside}");
    }
}
