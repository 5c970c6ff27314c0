// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts send long messages to many others at once: each host's connections take turns.

use crate::support::{about_to_send, delivery_rate, mbit, Link, World, MSS, SECOND};
use paceline_abi::{pl_base, pl_path, pl_policy, pl_turn};
use paceline_control::{
    pl_orders, pl_tcp, Phases, Startup, State, PL_LEAD_SEGS, PL_NO_SSTHRESH, PL_THIN_SEGS,
    PL_TURN_GAP_MAX_US, PL_TURN_GAP_MIN_US, PL_TURN_GAP_SEGS, PL_TURN_LEASE_US, PL_TURN_PLACES,
    PL_TURN_SEGS, PL_TURN_TOGETHER_US, PL_TURN_WINDOW_LEAST, PL_TURN_WINDOW_MOST,
    PL_TURN_WINDOW_UNIT,
};

const RTT_US: u32 = 100;
const SEGS: u32 = 23;
const NOW_US: u64 = 10_000_000;
/// Segments of a window that is too small for two turns at a time.
const ONE: u32 = 2 * PL_TURN_SEGS - 1;
/// Nothing arrives for so long: the turns are over.
const LEASE_US: u64 = PL_TURN_LEASE_US as u64 + RTT_US as u64;

/// Messages of eight hosts to eight others, over a link that is as fast as a host's.
fn world(governed: bool) -> World {
    let link = Link::new(mbit(200), u64::from(RTT_US) * 1000, 65_536);
    let mut world = World::of_hosts_to_many(link, delivery_rate(), 8, 8);
    world.governed = if governed { 64 } else { 0 };
    world
}

/// Segments dropped in thirty rounds, and the time that these took, after ten others.
fn rounds(segs: u64, governed: bool) -> (u64, u64) {
    let mut world = world(governed);
    for _ in 0..10 {
        world.burst(segs, SECOND);
    }
    let (drops, start) = (world.link.drops, world.now);
    for _ in 0..30 {
        world.burst(segs, SECOND);
    }
    (world.link.drops - drops, world.now - start)
}

#[test]
fn messages_that_overflow_a_queue_together_take_turns() {
    for (segs, fewer) in [(u64::from(SEGS), 3), (91, 2)] {
        let (base, law) = (rounds(segs, false), rounds(segs, true));
        println!("{segs} segments: {law:?}, base {base:?}");
        assert!(law.0 * fewer < base.0, "{segs}: {law:?}, base {base:?}");
        assert!(law.1 < base.1, "{segs}: {law:?}, base {base:?}");
    }
}

/// The connections of one host, each to another one, and what they look like.
struct Host {
    turn: pl_turn,
    policy: pl_policy,
    one: Vec<Connection>,
}

struct Connection {
    law: Startup,
    path: pl_path,
    tcp: pl_tcp,
}

impl Host {
    /// About to send messages of `SEGS` to two others, where such messages were lost, with a
    /// window for one turn at a time.
    fn crowded() -> Self {
        let turn = pl_turn {
            crowded_us: NOW_US,
            window: ONE * PL_TURN_WINDOW_UNIT,
            ..pl_turn::default()
        };
        Self::with(turn, 2)
    }

    fn with(turn: pl_turn, connections: usize) -> Self {
        let connection = || {
            let (path, tcp) = about_to_send(NOW_US, RTT_US, SEGS);
            Connection {
                law: Startup::default(),
                path,
                tcp,
            }
        };
        Self {
            turn,
            policy: delivery_rate(),
            one: (0..connections).map(|_| connection()).collect(),
        }
    }

    fn ask(&mut self, index: usize, due: bool) -> pl_orders {
        let Connection { law, path, tcp } = &mut self.one[index];
        let mut orders = law.before_send(path, &self.policy, tcp);
        law.before_send_in_turn(&mut self.turn, &self.policy, tcp, due, &mut orders);
        if orders.cwnd != 0 {
            tcp.cwnd = orders.cwnd;
        }
        orders
    }

    fn send(&mut self, index: usize, segs: u32) {
        let tcp = &mut self.one[index].tcp;
        tcp.sent_segs += segs;
        tcp.packets_out += segs;
        tcp.in_flight += segs;
        tcp.unsent -= segs * MSS as u32;
        tcp.nxt += segs * MSS as u32;
    }

    /// All that was sent has arrived; `lost` of it were sent again.
    fn arrive(&mut self, index: usize, lost: u32) -> pl_orders {
        self.arrive_but(index, 0, lost)
    }

    /// All but `left` segments.
    fn arrive_but(&mut self, index: usize, left: u32, lost: u32) -> pl_orders {
        let Connection { law, path, tcp } = &mut self.one[index];
        tcp.delivered_segs += tcp.packets_out - left;
        tcp.retransmitted_segs += lost;
        tcp.sent_segs += lost;
        tcp.packets_out = left;
        tcp.in_flight = left;
        tcp.una = tcp.nxt;
        tcp.rtt_us = RTT_US;
        let mut orders = law.on_ack(path, &self.policy, tcp);
        if law.waits() || law.has_turn() {
            law.on_ack_in_turn(&mut self.turn, tcp, &mut orders);
        }
        if orders.cwnd != 0 {
            tcp.cwnd = orders.cwnd;
        }
        orders
    }

    fn later(&mut self, us: u64) {
        for one in &mut self.one {
            one.tcp.now_us += us;
        }
    }

    /// The first connection takes its turn and sends ten segments, the second one waits.
    fn with_a_turn() -> Self {
        let mut host = Self::crowded();
        host.ask(0, true);
        host.send(0, 10);
        host.ask(1, true);
        host.send(1, 1);
        assert!(host.one[0].law.has_turn() && host.one[1].law.waits());
        host
    }
}

#[test]
fn one_sends_and_the_other_waits() {
    let mut host = Host::crowded();
    let first = host.ask(0, true);
    assert_eq!((first.cwnd, first.pacing_bps, first.stop), (10, 0, 1));
    assert_eq!(host.one[0].law.state(), State::Base);
    host.send(0, 10);
    let second = host.ask(1, true);
    assert_eq!((second.cwnd, second.stop), (1, 0));
    assert_eq!(host.one[1].law.state(), State::Paced);
    host.send(1, 1);
    let gap = u64::from(PL_TURN_GAP_MAX_US * PL_LEAD_SEGS / ONE);
    assert_eq!(host.ask(1, true).pacing_bps, MSS * 1_000_000 / gap);
    assert_eq!(host.ask(1, true).cwnd, 2, "it does not wait for the ACK");
    assert_eq!(host.turn.waiting, 1);
}

/// The window lets one segment go, and not one more for each that was lost.
#[test]
fn a_waiting_connection_sends_one_segment_after_a_loss_too() {
    let mut host = Host::with_a_turn();
    host.send(1, 3);
    host.one[1].tcp.in_flight -= 2;
    assert_eq!(host.ask(1, true).cwnd, host.one[1].tcp.in_flight + 1);
}

#[test]
fn a_waiting_connection_has_the_turn_after_the_message() {
    let mut host = Host::with_a_turn();
    host.arrive(0, 0);
    host.ask(1, true);
    assert!(host.one[1].law.waits(), "more of the message is to come");
    host.send(0, SEGS - 10);
    host.arrive(0, 0);
    assert!(!host.one[0].law.has_turn());
    host.ask(1, false);
    assert!(host.one[1].law.waits(), "its next segment is not due");
    let orders = host.ask(1, true);
    assert_eq!((orders.pacing_bps, orders.stop), (0, 1));
    assert!(host.one[1].law.has_turn());
    assert_eq!(host.turn.waiting, 0);
}

#[test]
fn a_turn_in_which_nothing_arrives_is_over() {
    let mut host = Host::with_a_turn();
    host.later(LEASE_US - 1);
    host.ask(1, true);
    assert!(host.one[1].law.waits());
    host.later(1);
    host.ask(1, true);
    assert!(host.one[1].law.has_turn());
    // Whose turn it was goes on, under the window of all turns, and does not end this one.
    host.arrive(0, 0);
    host.send(0, SEGS - 10);
    host.arrive(0, 0);
    assert_eq!(host.turn.taken, 1);
}

#[test]
fn each_arrival_keeps_the_turn() {
    let mut host = Host::with_a_turn();
    for _ in 0..3 {
        host.later(LEASE_US - 1);
        host.arrive(0, 0);
        host.ask(1, true);
        assert!(host.one[1].law.waits());
        host.send(0, 2);
    }
}

#[test]
fn the_window_is_that_of_all_turns() {
    let mut host = Host::with_a_turn();
    host.arrive(0, 2);
    assert_eq!(host.turn.window, ONE * PL_TURN_WINDOW_UNIT * 3 / 4);
    assert_eq!(host.one[0].tcp.cwnd, 5);
    host.send(0, 5);
    host.arrive(0, 1);
    assert_eq!(host.one[0].tcp.cwnd, 5, "one cut in so short a time");
    host.send(0, SEGS - 15);
    host.arrive(0, 0);
    // The next one has it too, whatever its own was.
    host.one[1].tcp.cwnd = 2;
    assert_eq!(host.ask(1, true).cwnd, 5);
}

#[test]
fn the_window_grows_where_it_is_used_and_has_a_floor() {
    let mut host = Host::with_a_turn();
    let whole = ONE * PL_TURN_WINDOW_UNIT;
    host.arrive(0, 0);
    assert_eq!(host.turn.window, whole + 10);
    host.one[0].tcp.cwnd = ONE - 1;
    host.send(0, ONE - 1);
    host.arrive(0, 0);
    assert_eq!(host.turn.window, whole + 10, "the base's cwnd is smaller");
    for _ in 0..100 {
        host.later(LEASE_US + 1);
        host.one[0].tcp.unsent = SEGS * MSS as u32;
        host.arrive(0, 1);
    }
    // It still tells how crowded the network is.
    assert_eq!(host.turn.window, PL_TURN_WINDOW_UNIT);
    assert_eq!(host.one[0].tcp.cwnd, PL_TURN_WINDOW_LEAST);
}

#[test]
fn losses_of_the_last_window_of_a_turn_count() {
    let mut host = Host::with_a_turn();
    host.arrive(0, 0);
    host.send(0, SEGS - 10);
    // All has left, so the other one has the turn. The loss is seen after that.
    host.arrive_but(0, 2, 0);
    host.ask(1, true);
    assert!(host.one[1].law.has_turn());
    let window = host.turn.window;
    host.arrive(0, 1);
    assert_eq!(host.turn.window, window - window / 4);
    assert_eq!(host.turn.taken, 1, "it ends no turn but its own");
}

/// A larger window is for several: a port that the one does not use would be idle.
#[test]
fn the_window_is_shared_by_as_many_as_it_is_enough_for() {
    let mut host = Host::with(
        pl_turn {
            crowded_us: NOW_US,
            others_us: NOW_US,
            window: 3 * PL_TURN_SEGS * PL_TURN_WINDOW_UNIT,
            ..pl_turn::default()
        },
        5,
    );
    for index in 0..5 {
        host.ask(index, true);
        assert!(
            host.one[index].law.waits(),
            "the first of all has no turn either"
        );
        host.send(index, 1);
    }
    for index in 0..3 {
        assert_eq!(host.ask(index, true).cwnd, PL_TURN_SEGS);
        assert!(host.one[index].law.has_turn());
    }
    host.ask(3, true);
    assert!(host.one[3].law.waits());
    host.send(0, SEGS - 1);
    host.arrive(0, 0);
    host.ask(3, true);
    assert!(host.one[3].law.has_turn() && host.one[4].law.waits());
    assert_eq!((host.turn.taken, host.turn.waiting), (3, 1));
}

#[test]
fn a_single_connection_has_the_whole_window() {
    let mut host = Host::crowded();
    host.turn.others_us = NOW_US;
    host.turn.window = 3 * PL_TURN_SEGS * PL_TURN_WINDOW_UNIT;
    host.ask(0, true);
    host.send(0, 1);
    assert_eq!(host.ask(0, true).cwnd, 3 * PL_TURN_SEGS);
}

#[test]
fn there_is_an_end_to_turns_at_a_time() {
    let mut host = Host::crowded();
    host.turn.others_us = NOW_US;
    host.turn.window = PL_TURN_WINDOW_MOST * PL_TURN_WINDOW_UNIT;
    host.turn.until_us = NOW_US + LEASE_US;
    host.turn.taken = PL_TURN_PLACES;
    host.ask(0, true);
    host.ask(0, true);
    assert!(host.one[0].law.waits());
}

#[test]
fn the_window_has_an_end() {
    let mut host = Host::with_a_turn();
    host.one[0].tcp.delivered_segs = u32::MAX / 2;
    host.arrive(0, 0);
    let most = PL_TURN_WINDOW_MOST * PL_TURN_WINDOW_UNIT;
    assert_eq!(host.turn.window, most);
}

#[test]
fn the_window_in_recovery_is_the_bases() {
    let mut host = Host::with_a_turn();
    host.one[0].tcp.recovering = 1;
    assert_eq!(host.arrive(0, 3).cwnd, 0);
}

#[test]
fn a_loss_teaches_all_connections_of_the_host() {
    let mut host = Host::with(pl_turn::default(), 2);
    assert_eq!(host.ask(0, true), pl_orders::default());
    host.turn.window = ONE * PL_TURN_WINDOW_UNIT;
    host.send(0, SEGS);
    host.arrive(0, 2);
    host.later(1000);
    host.one[0].tcp.unsent = MSS as u32;
    host.ask(0, true);
    assert_eq!(host.turn.crowded_us, NOW_US + 1000);
    assert!(host.one[0].law.has_turn());
    host.ask(1, true);
    assert!(host.one[1].law.waits());
}

/// A repair that was not needed, or a chance loss, is no reason.
#[test]
fn one_loss_teaches_nothing() {
    let mut host = Host::with(pl_turn::default(), 2);
    host.ask(0, true);
    host.send(0, SEGS);
    host.arrive(0, 1);
    host.one[0].tcp.unsent = MSS as u32;
    host.ask(0, true);
    assert_eq!(host.turn.crowded_us, 0);
    assert!(!host.one[0].law.has_turn());
}

/// Few segments at first are against hosts that all send to one. A host that begins many
/// messages sends them one after the other.
#[test]
fn first_messages_that_begin_together_are_not_held_back() {
    let mut host = Host::with(pl_turn::default(), 4);
    host.policy.rto_linear = 1;
    for one in &mut host.one {
        one.tcp.ssthresh = PL_NO_SSTHRESH;
    }
    assert_eq!(host.ask(0, true).cwnd, PL_THIN_SEGS);
    host.later(u64::from(PL_TURN_TOGETHER_US) - 1);
    assert_eq!(host.ask(1, true).cwnd, 0);
    host.later(u64::from(PL_TURN_TOGETHER_US) - 1);
    assert_eq!(host.ask(2, true).cwnd, 0, "since the last one");
    host.later(u64::from(PL_TURN_TOGETHER_US));
    assert_eq!(host.ask(3, true).cwnd, PL_THIN_SEGS);
}

#[test]
fn others_do_not_take_turns() {
    let takes = |change: &dyn Fn(&mut Connection, &mut pl_policy)| {
        let mut host = Host::crowded();
        change(&mut host.one[0], &mut host.policy);
        host.ask(0, true);
        host.one[0].law.has_turn()
    };
    assert!(takes(&|_, _| ()));
    let short = PL_LEAD_SEGS * MSS as u32;
    assert!(!takes(&|one, _| one.tcp.unsent = short), "a short message");
    let bbr = pl_base::PL_BASE_BBR as u8;
    assert!(!takes(&|_, policy| policy.base = bbr), "BBR");
    let far = |one: &mut Connection| {
        one.path.min_rtt_us = 2000;
        one.tcp.min_rtt_us = 2000;
    };
    assert!(!takes(&|one, _| far(one)), "another site");
    // Two half-lives later.
    let late = 2 * 60 * 1_000_000;
    assert!(!takes(&|one, _| one.tcp.now_us += late), "long ago");
}

/// A stack without segmentation offload sends the first segment of a write before it has
/// taken the second one.
#[test]
fn a_message_that_comes_segment_by_segment_is_as_long_as_the_last_one() {
    let mut host = Host::crowded();
    host.ask(0, true);
    host.send(0, SEGS);
    host.arrive(0, 0);
    host.one[0].tcp.unsent = MSS as u32;
    host.ask(0, true);
    assert!(host.one[0].law.has_turn());
    host.one[1].tcp.unsent = MSS as u32;
    host.ask(1, true);
    assert!(!host.one[1].law.waits(), "of this one nothing is known");
}

/// However many wait, a host sends as many of their segments per second.
#[test]
fn the_gap_is_shared_by_those_that_wait() {
    let mut host = Host::with_a_turn();
    let gap = u64::from(PL_TURN_GAP_MAX_US * PL_LEAD_SEGS / ONE);
    host.turn.waiting = 5;
    assert_eq!(host.ask(1, true).pacing_bps, MSS * 1_000_000 / (5 * gap));
}

#[test]
fn the_gap_is_shorter_on_a_fast_network_and_under_a_large_window() {
    let gap = |rate_mbit, window| {
        let mut host = Host::crowded();
        host.ask(0, true);
        host.one[1].path.rate_bps = mbit(rate_mbit);
        host.one[1].path.confirmed_us = NOW_US;
        host.ask(1, true);
        host.send(1, 1);
        host.turn.window = window * PL_TURN_WINDOW_UNIT;
        host.turn.taken = PL_TURN_PLACES;
        MSS * 1_000_000 / host.ask(1, true).pacing_bps
    };
    let segs = u64::from(PL_TURN_GAP_SEGS);
    assert_eq!(gap(300, PL_LEAD_SEGS), segs * MSS * 1_000_000 / mbit(300));
    assert_eq!(gap(100, PL_LEAD_SEGS), u64::from(PL_TURN_GAP_MAX_US));
    assert_eq!(
        gap(100, PL_LEAD_SEGS / 2),
        2 * u64::from(PL_TURN_GAP_MAX_US)
    );
    assert_eq!(
        gap(100, 2 * PL_LEAD_SEGS),
        u64::from(PL_TURN_GAP_MAX_US) / 2
    );
    assert_eq!(gap(1000, 10 * PL_LEAD_SEGS), u64::from(PL_TURN_GAP_MIN_US));
}

#[test]
fn the_first_gap_is_random() {
    let mut host = Host::crowded();
    host.ask(0, true);
    let mut gaps = Vec::new();
    for message in 0..200_u32 {
        host.one[1].law = Startup::default();
        host.turn.waiting = 0;
        host.turn.window = PL_LEAD_SEGS * PL_TURN_WINDOW_UNIT;
        host.turn.taken = PL_TURN_PLACES;
        // Not a whole number of segments: a multiple of these meets few of all values.
        host.one[1].tcp.una = message * 33_331;
        gaps.push(MSS * 1_000_000 / host.ask(1, true).pacing_bps);
    }
    let most = u64::from(PL_TURN_GAP_MAX_US);
    let shorter = gaps.iter().filter(|gap| **gap < most).count();
    assert!((80..120).contains(&shorter), "{shorter}");
    assert!(gaps.iter().all(|gap| *gap <= 2 * most + 1));
}

#[test]
fn all_of_it_left_while_it_waited() {
    let mut host = Host::with_a_turn();
    host.send(1, SEGS - 1);
    let orders = host.arrive(1, 0);
    assert_eq!((orders.cwnd, orders.stop), (10, 1));
    assert_eq!(host.turn.waiting, 0);
    assert!(!host.one[1].law.has_turn());
}

#[test]
fn a_connection_that_ends_returns_its_turn_and_its_place() {
    let mut host = Host::with_a_turn();
    let Connection { law, tcp, .. } = &mut host.one[1];
    let orders = law.leave_turn(&mut host.turn, tcp);
    assert_eq!((orders.cwnd, orders.stop), (10, 1));
    assert_eq!(host.turn.waiting, 0);
    let Connection { law, tcp, .. } = &mut host.one[0];
    law.leave_turn(&mut host.turn, tcp);
    assert_eq!(host.turn.taken, 0);
}

/// As the kernel side does it: the turn first, then the phase.
#[test]
fn a_switch_of_phases_in_a_message_that_waits() {
    let mut host = Host::with_a_turn();
    let Connection { law, path, tcp } = &mut host.one[1];
    law.leave_turn(&mut host.turn, tcp);
    let mut new = pl_path::default();
    Phases::default().switch(1, law, path, &mut new, &host.policy, tcp);
    assert_eq!(
        host.ask(1, true).pacing_bps,
        0,
        "in the middle of a message"
    );
}

#[test]
fn a_loss_while_it_waits_takes_half_of_the_bases_window() {
    let mut host = Host::with_a_turn();
    let Connection { law, path, tcp } = &mut host.one[1];
    assert_eq!(law.ssthresh_after_loss(path, tcp, 0, 2), 5);
}
