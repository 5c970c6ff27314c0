// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several connections of one job on one path.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_abi::pl_policy;

fn link() -> Link {
    Link::new(mbit(500), 20 * MS, 131_072)
}

#[test]
fn connections_that_start_together_divide_the_rate() {
    const CONNECTIONS: usize = 16;
    let mut one = World::new(link(), delivery_rate(), 1);
    let mut many = World::new(link(), delivery_rate(), CONNECTIONS);
    // Each has sent before: TCP does not pace a connection's first segments.
    for connection in 0..CONNECTIONS {
        one.burst(2000, SECOND);
        many.burst_of(connection..connection + 1, 2000, SECOND);
    }
    for round in 0..6 {
        let alone = one.burst(250 * CONNECTIONS as u64, SECOND);
        let shared = many.burst(250, SECOND);
        assert!(
            shared.retransmitted <= alone.retransmitted,
            "round {round}: {shared:?}, alone {alone:?}"
        );
        assert!(shared.permille() <= 1150, "round {round}: {shared:?}");
        assert_eq!(many.path.active, 0);
    }
}

#[test]
fn the_shares_add_up_to_the_path() {
    let mut world = World::new(link(), delivery_rate(), 16);
    for connection in 0..16 {
        world.burst_of(connection..connection + 1, 2000, SECOND);
    }
    for connection in 0..16 {
        world.write(connection, 1000);
    }
    assert_eq!(world.path.active, 16);
    for _ in 0..12 {
        world.run(world.now + MS);
        world.peak_rate = 0;
        let paced = world
            .senders
            .iter()
            .filter(|sender| sender.law.raw().led != 0);
        let shares: u64 = paced.map(|sender| sender.law.raw().share_bps).sum();
        assert!(shares <= world.link.rate * 102 / 100, "{shares}");
    }
}

#[test]
fn a_share_is_given_back() {
    let mut world = World::new(link(), delivery_rate(), 4);
    world.burst_of(0..1, 700, SECOND);
    world.write(0, 5000);
    world.write(1, 50);
    assert_eq!(world.path.active, 2);
    world.run(world.now + 60 * MS);
    assert_eq!(world.path.active, 1);
    let sender = &mut world.senders[0];
    sender.law.leave(&mut world.path);
    sender.law.leave(&mut world.path);
    assert_eq!(world.path.active, 0);
}

#[test]
fn a_vanished_connection_does_not_keep_its_share() {
    let mut world = World::new(link(), delivery_rate(), 2);
    world.burst_of(0..1, 700, SECOND);
    let known = world.path.rate_bps;
    // The second begins a burst and is never heard of again.
    let mut tcp = world.senders[1].tcp(world.now);
    tcp.unsent = 1_000_000;
    let vanished = &mut world.senders[1].law;
    vanished.before_send(&mut world.path, &world.policy, &tcp);
    assert_eq!(world.path.active, 1);
    let beside = world.burst_of(0..1, 700, SECOND);
    assert!(beside.peak_rate <= known / 2);
    world.policy.half_life_ms = 3_600_000;
    world.idle(120 * SECOND);
    let alone = world.burst_of(0..1, 700, SECOND);
    assert!(alone.peak_rate > known * 9 / 10, "{alone:?}");
    // If it does come back, its leaving is not counted twice.
    let vanished = &mut world.senders[1].law;
    vanished.leave(&mut world.path);
    assert_eq!(world.path.active, 0);
}

#[test]
fn beside_a_bulk_flow_the_breaker_leaves_it_to_the_base() {
    let mut world = World::new(link(), delivery_rate(), 5);
    world.governed = 1;
    for _ in 0..5 {
        world.burst_of(0..1, 2000, SECOND);
    }
    let alone = world.path.rate_bps;
    for bulk in 1..5 {
        world.write(bulk, 2_000_000);
    }
    world.idle(5 * SECOND);
    for _ in 0..6 {
        world.burst_of(0..1, 2000, 200 * MS);
    }
    let law = &world.senders[0].law;
    assert!(world.path.rate_bps < alone);
    assert!(law.raw().breaker_opened >= 1);
    assert!(law.breaker_open(world.now / 1000));
}
#[test]
fn connections_that_share_a_path_find_more_of_its_rate() {
    for connections in [4, 16] {
        let mut world = World::new(link(), delivery_rate(), connections);
        for connection in 0..connections {
            world.burst_of(connection..connection + 1, 2000, SECOND);
        }
        world.path.rate_bps = mbit(200);
        let before = world.link.drops;
        for _ in 0..24 {
            world.burst(700 / connections as u64, SECOND);
        }
        let found = world.path.rate_bps;
        assert!(found > mbit(450), "{connections}, short: {found}");
        world.path.rate_bps = mbit(200);
        for _ in 0..12 {
            world.burst(4000 / connections as u64, SECOND);
        }
        let found = world.path.rate_bps;
        assert!(found > mbit(350), "{connections}, long: {found}");
        assert_eq!(world.link.drops, before, "{connections}");
    }
}

/// Linux paces none of a connection's first ten segments: sixteen lose some of them, and
/// make their path wary. What it allows a window beyond its share they have together.
/// With TSO a packet of each share waits for room: windows without it delivered less than they were
/// meant for, for ever.
#[test]
fn connections_that_share_a_path_find_half_as_much_again_with_tso() {
    for (rate, rtt, connections) in [(480, 5, 4), (480, 20, 16), (100, 60, 16)] {
        let link = Link::new(mbit(rate * 65 / 100), rtt * MS, 1_000_000).with_tso();
        let mut world = World::new(link, delivery_rate(), connections);
        // Some twelve round trips of the first rate.
        let segs = 3 * rate * rtt / 4 / connections as u64;
        for _ in 0..5 {
            world.burst(segs, SECOND);
        }
        world.link.rate = mbit(rate);
        let took: Vec<_> = (0..8)
            .map(|_| world.burst(segs, SECOND).permille())
            .collect();
        assert!(took[7] <= 1040, "{rate} Mbit/s, {rtt} ms: {took:?}");
    }
}

#[test]
fn new_connections_do_not_lose_again_on_the_path_that_they_made_wary() {
    for segs in [100, 200] {
        let mut world = World::new(link(), delivery_rate(), 17);
        for _ in 0..4 {
            world.burst_of(0..1, 7000, SECOND);
        }
        let first = world.burst_of(1..17, segs, SECOND);
        assert!((1..100).contains(&first.drops), "{segs}: {first:?}");
        for round in 0..40 {
            let burst = world.burst_of(1..17, segs, SECOND);
            assert_eq!(burst.drops, 0, "{segs}, round {round}: {burst:?}");
            assert!(burst.permille() <= 1030, "{segs}, round {round}: {burst:?}");
        }
    }
}

/// What many send together is too short to leave a queue, or loses; and they are not always
/// as many. The rate of their path stays what arrived of all of them, and a little.
#[test]
fn connections_that_share_a_path_do_not_raise_its_rate_above_the_link() {
    for (rate, rtt_ns) in [(500, 20 * MS), (100, 10 * MS)] {
        for buffer in [64_000, 1_250_000] {
            for segs in [14, 70, 207, 700] {
                for most in [2, 4, 8, 16] {
                    let link = Link::new(mbit(rate), rtt_ns, buffer);
                    let mut world = World::new(link, delivery_rate(), most);
                    for connection in 0..most {
                        world.burst_of(connection..connection + 1, 2000, SECOND);
                    }
                    for turn in 0..32 {
                        // First all of them, then numbers without an order.
                        let many = if turn < 16 { most } else { 1 + turn * 7 % most };
                        let burst = world.burst_of(0..many, segs, SECOND);
                        assert!(
                            burst.learned <= world.link.rate * 27 / 25,
                            "{rate} Mbit/s, {buffer} B, {segs} of each of {many}: {burst:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_connection_that_has_sent_everything_leaves_its_share() {
    let mut world = World::new(link(), delivery_rate(), 2);
    for connection in 0..2 {
        world.burst_of(connection..connection + 1, 2000, SECOND);
    }
    let known = world.path.rate_bps;
    world.write(0, 100);
    world.write(1, 2000);
    assert_eq!(world.path.active, 2);
    // All of the first is sent, and none of it acknowledged.
    world.run(world.now + 12 * MS);
    assert_eq!(world.senders[0].nxt, world.senders[0].written);
    assert_ne!(world.senders[0].una, world.senders[0].nxt);
    assert_eq!(world.path.active, 1);
    assert_eq!(world.senders[1].law.raw().share_bps, known);
}

/// All start in the same moment, with the same gap between their packets. In step, each packet of all would meet
/// the others in the queue, and the rate would fall for losses that it does not cause: on the first twelve paths the
/// mean was 1.68 of the bound. Nor do their initial windows, which together are longer than path and queue, leave beyond
/// their shares: on these paths 4.6 % were lost, and 1.2 % are.
#[test]
fn connections_that_start_together_do_not_stay_in_step() {
    const COUNT: u64 = 20;
    let paths = [
        (8, 39, 200, 10, 8),
        (8, 39, 200, 10, 9),
        (8, 39, 200, 10, 10),
        (4, 68, 200, 4, 12),
        (4, 68, 200, 4, 10),
        (6, 60, 100, 20, 9),
        (6, 60, 100, 20, 10),
        (6, 60, 100, 20, 8),
        (7, 30, 200, 10, 9),
        (5, 50, 200, 10, 8),
        (5, 50, 200, 10, 9),
        (10, 50, 300, 10, 12),
        (8, 11, 206, 2, 15),
        (4, 21, 100, 3, 15),
        (8, 11, 32, 7, 15),
        (16, 21, 300, 5, 20),
    ];
    let (mut sum, mut lost) = (0, 0);
    for (connections, segs, rate, rtt_ms, queue) in paths {
        let link = Link::new(mbit(rate), rtt_ms * MS, queue * MSS);
        let policy = pl_policy {
            breaker_starts: 0,
            ..delivery_rate()
        };
        let mut world = World::new(link, policy, connections);
        // Until the length of the queue is known.
        for _ in 0..6 {
            world.burst(segs, 100 * MS);
        }
        for _ in 0..COUNT {
            let burst = world.burst(segs, 100 * MS);
            sum += burst.permille();
            lost += burst.drops * 1000 / (segs * connections as u64);
        }
    }
    let count = COUNT * paths.len() as u64;
    let (mean, lost) = (sum / count, lost / count);
    assert!(mean <= 1350 && lost <= 20, "{mean} {lost}");
}

/// Where the first packet is a segment, so that the others find room, a message of a segment leaves the
/// base's window as it was.
#[test]
fn a_first_packet_of_a_segment_is_no_window_of_one() {
    let mut world = World::new(Link::new(mbit(200), 10 * MS, 8 * MSS), delivery_rate(), 8);
    for segs in [39, 39, 39, 39, 1, 39, 2, 39, 3] {
        world.burst(segs, 100 * MS);
        let windows: Vec<u32> = world.senders.iter().map(|sender| sender.cwnd).collect();
        assert!(windows.iter().all(|cwnd| *cwnd > 2), "{segs}: {windows:?}");
    }
    assert!(world.path.room_segs > 0);
}
