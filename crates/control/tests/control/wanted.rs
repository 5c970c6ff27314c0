// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel side asks the law only where it wants to be asked: it must have no more to say.

use crate::support::{delivery_rate, mbit, Link, World, MS, SECOND};
use paceline_control::State;

/// 500 Mbit/s, 20 ms, 128 KiB: the path of matsuda-2005.
fn link() -> Link {
    Link::new(mbit(500), 20 * MS, 131_072)
}

/// What bursts of several lengths do on a path, which loses, and then gives half, in the last ones.
fn bursts(link: Link, always: bool) -> Vec<(u64, u64, u64, u32)> {
    let connections = 3;
    let mut world = World::new(link, delivery_rate(), connections);
    for sender in &mut world.senders {
        sender.asks_always = always;
    }
    let mut seen = Vec::new();
    let mut note = |world: &mut World, range: std::ops::Range<usize>, segs| {
        let burst = world.burst_of(range, segs, SECOND);
        let path = &world.path;
        seen.push((
            burst.completion_ns,
            burst.retransmitted,
            path.rate_bps,
            path.min_rtt_us,
        ));
    };
    for segs in [700, 700, 5, 40, 100, 700, 7000, 2000] {
        note(&mut world, 0..1, segs);
        note(&mut world, 0..connections, segs);
        // It has sent all, and has more to send before that is acknowledged.
        world.write(0, segs);
        world.idle(22 * MS);
        note(&mut world, 0..connections, segs);
    }
    world.link.buffer /= 8;
    for segs in [700, 40, 7000, 700, 700] {
        note(&mut world, 0..1, segs);
    }
    world.link.rate /= 2;
    for segs in [700, 7000, 700, 700] {
        note(&mut world, 0..1, segs);
    }
    seen
}

#[test]
fn a_law_that_sees_every_ack_gives_the_same_bursts() {
    for link in [link(), link().with_tso(), Link::new(mbit(100), MS, 65_536)] {
        let (wanted, always) = (bursts(link.clone(), false), bursts(link.clone(), true));
        assert!(wanted.iter().any(|burst| burst.1 > 0), "none lost {link:?}");
        assert_eq!(wanted, always, "{link:?}");
    }
}

/// The kernel side skips what the law does not want: it must say no more than was noted.
#[test]
fn within_a_round_an_ack_is_its_rtt_and_no_more() {
    let mut world = World::new(link(), delivery_rate(), 1);
    for _ in 0..4 {
        world.burst(700, SECOND);
    }
    world.write(0, 20_000);
    world.run(world.now + 60 * MS);
    let sender = &world.senders[0];
    let mut tcp = sender.tcp(world.now);
    assert_eq!(sender.law.state(), State::Base);
    assert!(tcp.unsent > 0 && !sender.is_paced());
    let begun = sender.law.clone();
    tcp.una = begun.raw().round_end.wrapping_sub(1);

    let (mut noted, mut always) = (begun.clone(), begun.clone());
    let mut path = world.path;
    for (rtt_us, least) in [(0, 0), (25_000, 25_000), (21_000, 21_000), (30_000, 21_000)] {
        tcp.rtt_us = rtt_us;
        assert!(!noted.wants_ack(&tcp));
        let orders = always.on_ack(&mut path, &delivery_rate(), &tcp);
        assert_eq!((orders.cwnd, orders.ssthresh), (0, 0));
        assert_eq!((orders.pacing_bps, orders.stop), (0, 0));
        let seen = [&noted, &always].map(|law| law.raw().round_rtt_us);
        assert_eq!(seen, [least, least]);
    }
    assert_eq!(path.rate_bps, world.path.rate_bps);
    assert_eq!(path.active, world.path.active);

    // It ends a round, or the sender has nothing more to send: the law is to look.
    let mut none_left = tcp;
    none_left.unsent = 0;
    assert!(begun.clone().wants_ack(&none_left));
    tcp.una = begun.raw().round_end;
    assert!(begun.clone().wants_ack(&tcp));
}
