// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of a window: what holds for any sequence of calls, and for a sender over a
//! bottleneck.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_abi::{pl_policy, pl_uwnd};
use paceline_control::{pl_tcp, uwnd_add, Window};
use proptest::prelude::*;

const RTT_US: u64 = 20_000;

fn tcp(now_us: u64, cwnd: u32) -> pl_tcp {
    pl_tcp {
        now_us,
        cwnd,
        ssthresh: 0x7fff_ffff,
        srtt_us: RTT_US as u32,
        min_rtt_us: RTT_US as u32,
        mss: 1448,
        unsent: 1 << 20,
        ..Default::default()
    }
}

fn cap(max_segs: u32) -> pl_uwnd {
    pl_uwnd {
        max_segs,
        ..Default::default()
    }
}

fn lift(min_segs: u32) -> pl_uwnd {
    pl_uwnd {
        min_segs,
        ..Default::default()
    }
}

/// A connection as the kernel side handles it: `cwnd` is the socket's.
struct Connection {
    window: Window,
    cwnd: u32,
    now_us: u64,
    recovering: bool,
}

impl Connection {
    fn new(cwnd: u32) -> Self {
        Self {
            window: Window::default(),
            cwnd,
            now_us: 1,
            recovering: false,
        }
    }

    /// Returns the pace, if there is one.
    fn send(&mut self, uwnd: &pl_uwnd) -> u64 {
        let mut tcp = tcp(self.now_us, self.window.base_cwnd(self.cwnd));
        tcp.recovering = self.recovering.into();
        let orders = self.window.before_send(uwnd, &tcp);
        self.cwnd = orders.cwnd;
        orders.pacing_bps
    }

    /// An ACK with which the base adds `segs`.
    fn grow(&mut self, segs: u32) {
        self.cwnd = self.window.before_ack(self.cwnd);
        self.cwnd = self.window.after_ack(self.cwnd);
        self.cwnd = self.window.before_growth(self.cwnd) + segs;
    }

    fn lose(&mut self) {
        self.cwnd = self.window.lost(self.cwnd, self.cwnd) * 7 / 10;
        self.recovering = true;
    }

    fn base_cwnd(&self) -> u32 {
        self.window.base_cwnd(self.cwnd)
    }
}

#[test]
fn without_bounds_nothing_is_changed() {
    let mut connection = Connection::new(10);
    for segs in 0..100 {
        assert_eq!(connection.send(&pl_uwnd::default()), 0);
        connection.grow(segs);
        connection.now_us += 1000;
    }
    assert_eq!(connection.cwnd, 10 + 99 * 100 / 2);
}

#[test]
fn a_cap_holds_the_base_and_goes_without_a_burst() {
    let mut connection = Connection::new(500);
    assert_eq!(connection.send(&cap(100)), 0);
    assert_eq!(connection.cwnd, 100);
    // A second of ACKs, each of which the base grows by.
    for _ in 0..1000 {
        connection.grow(2);
        connection.now_us += 1000;
        connection.send(&cap(100));
        assert_eq!(connection.cwnd, 100);
    }
    assert_eq!(connection.base_cwnd(), 500, "held");
    // Its lease ends: it doubles per round trip, paced, up to what it was.
    let mut windows = Vec::new();
    for _ in 0..5 {
        let pace = connection.send(&pl_uwnd::default());
        windows.push(connection.cwnd);
        if pace != 0 {
            let window_per_rtt = u64::from(connection.cwnd) * 1448 * 1_000_000 / RTT_US;
            assert_eq!(pace, window_per_rtt);
        }
        // Within a round trip nothing is added, however often it sends.
        connection.now_us += RTT_US / 2;
        connection.send(&pl_uwnd::default());
        assert_eq!(connection.cwnd, windows[windows.len() - 1]);
        connection.now_us += RTT_US / 2;
    }
    assert_eq!(windows, [200, 400, 500, 500, 500]);
    assert_eq!(connection.send(&pl_uwnd::default()), 0, "and is free again");
    connection.grow(7);
    assert_eq!(connection.base_cwnd(), 507);
}

#[test]
fn a_cap_that_rises_little_by_little_is_followed_at_once() {
    let mut connection = Connection::new(500);
    for segs in 100..200 {
        assert_eq!(connection.send(&cap(segs)), 0, "no pace for one segment");
        assert_eq!(connection.cwnd, segs);
        connection.now_us += 1;
    }
}

#[test]
fn a_lift_is_paced_and_leaves_the_base_its_own() {
    let mut connection = Connection::new(10);
    let mut highest = 0;
    for round in 0..6 {
        connection.send(&lift(200));
        assert!(connection.cwnd <= 10 << (round + 1));
        highest = connection.cwnd;
        connection.grow(1);
        assert_eq!(connection.base_cwnd(), 11 + round);
        connection.now_us += RTT_US;
    }
    assert_eq!(highest, 200);
    // When it goes the base's cwnd is back at once: less in flight bursts nothing.
    connection.send(&pl_uwnd::default());
    assert_eq!(connection.cwnd, 16);
}

#[test]
fn nothing_is_lifted_while_a_loss_is_repaired() {
    let mut connection = Connection::new(100);
    for _ in 0..5 {
        connection.send(&lift(200));
        connection.now_us += RTT_US;
    }
    assert_eq!(connection.cwnd, 200);
    connection.lose();
    assert_eq!(connection.cwnd, 140, "of what was in flight");
    for _ in 0..10 {
        connection.send(&lift(200));
        assert_eq!(connection.cwnd, 140);
        connection.now_us += RTT_US;
    }
    connection.recovering = false;
    connection.send(&lift(200));
    assert!((141..=200).contains(&connection.cwnd));
}

#[test]
fn a_lift_that_was_not_used_is_not_reduced() {
    // 200 are allowed, of which so many were in flight.
    for (in_flight, seen) in [(0, 100), (90, 100), (150, 150), (300, 200)] {
        let mut connection = Connection::new(100);
        for _ in 0..5 {
            connection.send(&lift(200));
            connection.now_us += RTT_US;
        }
        assert_eq!(connection.window.lost(connection.cwnd, in_flight), seen);
        assert_eq!(connection.window.undo(seen), 100, "the base's cwnd");
    }
}

#[test]
fn a_cap_that_fell_a_moment_ago_is_not_what_was_overfilled() {
    // 50 are allowed, and so many of the 200 from before are still in flight.
    for (in_flight, seen) in [(30, 50), (50, 50), (150, 150), (300, 200)] {
        let mut connection = Connection::new(200);
        connection.send(&cap(50));
        assert_eq!(connection.cwnd, 50);
        assert_eq!(connection.window.lost(connection.cwnd, in_flight), seen);
        assert_eq!(connection.window.undo(seen), 200, "the base's cwnd");
    }
}

#[test]
fn an_ack_shows_the_base_its_own_and_a_loss_the_effective_cwnd() {
    let mut connection = Connection::new(100);
    for _ in 0..5 {
        connection.send(&lift(200));
        connection.now_us += RTT_US;
    }
    connection.cwnd = connection.window.before_ack(connection.cwnd);
    assert_eq!(connection.cwnd, 100);
    connection.cwnd = connection.window.after_ack(connection.cwnd);
    assert_eq!((connection.cwnd, connection.base_cwnd()), (200, 100));
    // Another law set the window meanwhile.
    connection.cwnd = 50;
    connection.window.set();
    assert_eq!(connection.window.after_ack(connection.cwnd), 50);
}

#[test]
fn a_capped_connection_gives_way_and_an_undo_gives_back() {
    let mut connection = Connection::new(500);
    connection.send(&cap(100));
    connection.lose();
    assert_eq!(connection.cwnd, 70, "of the effective cwnd");
    connection.send(&cap(100));
    assert_eq!(connection.cwnd, 70);
    connection.cwnd = connection.window.undo(connection.cwnd.max(100));
    connection.recovering = false;
    assert_eq!(connection.base_cwnd(), 500);
    connection.send(&cap(100));
    assert_eq!((connection.cwnd, connection.base_cwnd()), (100, 500));
}

#[test]
fn a_reduction_by_the_base_is_kept() {
    let mut connection = Connection::new(500);
    connection.send(&cap(100));
    // The kernel's restart after idle.
    connection.cwnd = 10;
    assert_eq!(connection.base_cwnd(), 10);
    connection.send(&cap(100));
    assert_eq!(connection.cwnd, 10);
}

#[test]
fn bounds_add_up_until_their_leases_end() {
    let until = |min_segs, max_segs, until_us| pl_uwnd {
        min_segs,
        max_segs,
        until_us,
    };
    let mut sum = pl_uwnd::default();
    for bound in [
        until(5, 0, 100),
        until(3, 40, 100),
        until(0, 30, 101),
        until(9, 7, 50),
    ] {
        uwnd_add(&mut sum, &bound, 99);
    }
    assert_eq!((sum.min_segs, sum.max_segs), (5, 30));
    let mut later = pl_uwnd::default();
    uwnd_add(&mut later, &until(5, 0, 100), 100);
    assert_eq!(
        (later.min_segs, later.max_segs),
        (0, 0),
        "over at that moment"
    );
}

/// A path of 100 Mbit/s and 50 ms, 431 segments, and a queue that takes as many.
fn long_path(policy: pl_policy) -> World {
    World::new(Link::new(mbit(100), 50 * MS, 600_000), policy, 1)
}

fn bound(world: &mut World, uwnd: pl_uwnd) {
    world.senders[0].uwnd = Some(uwnd);
    world.senders[0].peak_flight = 0;
}

#[test]
fn a_sender_over_a_bottleneck_keeps_its_cap_and_is_freed_without_a_burst() {
    const CAP: u32 = 60;
    for (policy, governed) in [(pl_policy::default(), 0), (delivery_rate(), 1)] {
        let mut world = long_path(policy);
        world.governed = governed;
        world.write(0, 60_000);
        // A window of some size before the cap.
        while world.senders[0].cwnd < 400 {
            world.idle(MS);
        }
        let lease_us = (world.now + 2 * SECOND) / 1000;
        bound(
            &mut world,
            pl_uwnd {
                until_us: lease_us,
                ..cap(CAP)
            },
        );
        // What was in flight is acknowledged.
        world.idle(100 * MS);
        bound(
            &mut world,
            pl_uwnd {
                until_us: lease_us,
                ..cap(CAP)
            },
        );
        world.idle(lease_us * 1000 - MS - world.now);
        assert!(
            (CAP - 2..=CAP).contains(&world.senders[0].peak_flight),
            "governed {governed}"
        );
        let own = world.senders[0].tcp(world.now).cwnd;
        assert!(own >= 400, "{own}");
        let drops = world.link.drops;
        world.link.longest_queue = 0;
        world.idle(SECOND);
        assert!(world.senders[0].peak_flight > 5 * CAP);
        assert_eq!(world.link.drops, drops);
        // What is added at once waits in the queue: the path has room for it all.
        let added = u64::from(own - CAP) * MSS;
        let queue = world.link.longest_queue;
        assert!(queue < added / 4, "governed {governed}: {queue} of {added}");
    }
}

#[test]
fn a_start_at_the_paths_rate_keeps_a_cap_too() {
    const CAP: u32 = 60;
    let mut world = long_path(delivery_rate());
    for _ in 0..3 {
        world.burst(3000, SECOND);
    }
    bound(
        &mut world,
        pl_uwnd {
            until_us: u64::MAX,
            ..cap(CAP)
        },
    );
    let burst = world.burst(3000, SECOND);
    assert!(world.senders[0].peak_flight <= CAP);
    assert_eq!(burst.drops, 0);
    // The path is remembered as it was, and the next free burst is as good as ever.
    bound(&mut world, pl_uwnd::default());
    let free = world.burst(3000, SECOND);
    assert!(free.permille() < 1150, "{free:?}");
}

#[test]
fn a_capped_sender_gives_way_at_a_loss() {
    // A queue of a few segments beside a path of 60: the cap is more than both hold.
    let mut world = World::new(
        Link::new(mbit(14), 50 * MS, 10_000),
        pl_policy::default(),
        1,
    );
    world.governed = 0;
    bound(
        &mut world,
        pl_uwnd {
            until_us: u64::MAX,
            ..cap(90)
        },
    );
    world.write(0, 20_000);
    world.idle(5 * SECOND);
    assert!(world.link.drops > 0);
    assert!(world.senders[0].peak_flight <= 90);
    let own = world.senders[0].tcp(world.now).cwnd;
    assert!(own < 90, "{own}");
}

/// What may happen to a connection, and how much later.
#[derive(Debug, Clone)]
enum Event {
    Send(u32, u32),
    Grow(u32),
    Lose,
    Recovered,
    Undo,
    Set(u32),
}

fn event() -> impl Strategy<Value = (Event, u64)> {
    let segs = || prop_oneof![3 => 1..2000u32, 1 => Just(0)];
    let event = prop_oneof![
        6 => (segs(), segs()).prop_map(|(min, max)| Event::Send(min, max)),
        4 => (0..100u32).prop_map(Event::Grow),
        1 => Just(Event::Lose),
        1 => Just(Event::Recovered),
        1 => Just(Event::Undo),
        1 => (1..2000u32).prop_map(Event::Set),
    ];
    (event, prop_oneof![0..100u64, 0..50_000u64])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A cap is never exceeded; nothing is lifted in recovery; the effective cwnd more than
    /// doubles in no round trip beyond the base's own; nothing is zero.
    #[test]
    fn invariants_hold_for_all_events(first in 1..2000u32, events in prop::collection::vec(event(), 1..100)) {
        let mut connection = Connection::new(first);
        for (event, later_us) in events {
            connection.now_us += later_us;
            match event {
                Event::Send(min, max) => {
                    let own = connection.base_cwnd();
                    let uwnd = pl_uwnd { min_segs: min, max_segs: max, until_us: 0 };
                    let pace = connection.send(&uwnd);
                    prop_assert!(connection.cwnd >= 1);
                    if max != 0 {
                        prop_assert!(connection.cwnd <= max, "{} above {max}", connection.cwnd);
                    }
                    if connection.recovering || min == 0 {
                        prop_assert!(connection.cwnd <= own);
                    } else {
                        prop_assert!(connection.cwnd <= own.max(min));
                    }
                    prop_assert_eq!(connection.base_cwnd(), own, "the base's cwnd stays");
                    if pace != 0 {
                        prop_assert_eq!(pace, u64::from(connection.cwnd) * 1448 * 1_000_000 / RTT_US);
                    }
                }
                Event::Grow(segs) => {
                    let (own, held) = (connection.base_cwnd(), connection.window.raw().binds != 0);
                    connection.grow(segs);
                    let grown = connection.base_cwnd();
                    prop_assert_eq!(grown, if held { own } else { own + segs });
                }
                Event::Lose if connection.cwnd > 1 => {
                    let before = connection.cwnd;
                    connection.lose();
                    prop_assert_eq!(connection.base_cwnd(), before * 7 / 10, "of the effective cwnd");
                    connection.cwnd = connection.cwnd.max(1);
                }
                Event::Lose => {}
                Event::Recovered => connection.recovering = false,
                Event::Undo => {
                    if connection.recovering {
                        connection.cwnd = connection.window.undo(connection.cwnd);
                        connection.recovering = false;
                    }
                }
                Event::Set(cwnd) => {
                    connection.cwnd = cwnd;
                    connection.window.set();
                    prop_assert_eq!(connection.base_cwnd(), cwnd);
                }
            }
        }
    }

    /// Any bits at all: nothing overflows, and the base's cwnd survives.
    #[test]
    fn any_bits(
        calls in prop::collection::vec((any::<u64>(), any::<[u32; 6]>(), any::<u8>()), 1..50)
    ) {
        let mut window = Window::default();
        let mut cwnd = 1;
        for (now_us, value, what) in calls {
            let tcp = pl_tcp {
                now_us,
                cwnd: window.base_cwnd(cwnd),
                srtt_us: value[0],
                mss: value[1],
                unsent: value[2],
                recovering: what & 1,
                ..Default::default()
            };
            let uwnd = pl_uwnd { min_segs: value[3], max_segs: value[4], until_us: 0 };
            match what % 4 {
                0 | 1 => cwnd = window.before_send(&uwnd, &tcp).cwnd,
                2 => cwnd = window.before_growth(cwnd).wrapping_add(value[5]),
                _ => cwnd = window.lost(cwnd, value[5]),
            }
        }
    }
}
