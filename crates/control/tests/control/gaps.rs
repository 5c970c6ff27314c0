// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many hosts answer one at once with more than the initial window: gaps between segments.

use crate::support::{about_to_send, delivery_rate, mbit, Link, World, MSS, SECOND};
use paceline_abi::{pl_base, pl_path, pl_policy, pl_turn};
use paceline_control::{
    pl_orders, pl_tcp, Startup, State, PL_GAP_LOSING, PL_GAP_SEGS_MAX, PL_THIN_SEGS,
};

const RTT_US: u32 = 200;
const NOW_US: u64 = 10_000_000;
const SEGS: u32 = 23;
const GAP_US: u32 = 1_000;
/// What the queue is seen to hold.
const QUEUE_US: u32 = 1_200;

/// Rounds in which the hosts find out, and those that count.
const LEARNED: usize = 12;
const ROUNDS: usize = 21;

/// A stock kernel's least timeout, and that of preset `lfn` where the tick is 4 ms, with some
/// jitter.
const RTO_US: [u32; 2] = [200_000, 10_000];

/// Of these the least timeout does not double for a thin stream, as under preset `lfn`.
fn linear() -> pl_policy {
    pl_policy {
        rto_linear: 1,
        ..delivery_rate()
    }
}

fn world(hosts: usize, buffer: u64, governed: usize, rto_us: u32) -> World {
    let link = Link::new(mbit(200), u64::from(RTT_US) * 1000, buffer);
    let policy = if rto_us == RTO_US[1] {
        linear()
    } else {
        delivery_rate()
    };
    let mut world = World::of_hosts(link, policy, hosts);
    world.governed = governed;
    world.set_rto_min(rto_us);
    world
}

#[test]
fn long_answers_that_overflow_a_queue_together_leave_in_gaps() {
    for (hosts, segs, buffer) in [
        (32, 23, 32_768),
        (64, 23, 32_768),
        (32, 45, 32_768),
        (64, 45, 32_768),
        (64, 45, 65_536),
    ] {
        let median = |governed, rto_us| {
            world(hosts, buffer, governed, rto_us).rounds(LEARNED, ROUNDS, segs)[ROUNDS / 2]
        };
        let base = median(0, RTO_US[0]);
        let law = RTO_US.map(|rto_us| median(hosts, rto_us));
        let shown = format!("{hosts} hosts, {segs} segments, {buffer} bytes: {law:?}, base {base}");
        println!("{shown}");
        assert!(law[0] < base && law[1] <= 1350, "{shown}");
    }
}

#[test]
fn answers_that_a_queue_holds_arrive_as_ever() {
    let (mut law, mut base) = (
        world(8, 262_144, 8, RTO_US[0]),
        world(8, 262_144, 0, RTO_US[0]),
    );
    assert_eq!(
        law.rounds(LEARNED, ROUNDS, u64::from(SEGS)),
        base.rounds(LEARNED, ROUNDS, u64::from(SEGS))
    );
    assert_eq!(law.link.drops, 0);
}

/// What crowded times have left costs the first message of quiet ones little.
#[test]
fn a_connection_that_is_alone_again_soon_sends_as_before() {
    let mut world = world(64, 65_536, 64, RTO_US[1]);
    world.rounds(LEARNED, ROUNDS, 45);
    let alone: Vec<u64> = (0..3)
        .map(|_| world.burst_of(0..1, 45, SECOND).completion_ns)
        .collect();
    let crowded = world.link.bound_ns(64 * 45);
    assert!(alone[0] < crowded / 5, "{alone:?}, crowded {crowded}");
    assert!(alone[2] < crowded / 16, "{alone:?}");
}

/// A connection that is alone on its host, and what it looks like.
struct Host {
    law: Startup,
    path: pl_path,
    turn: pl_turn,
    tcp: pl_tcp,
    policy: pl_policy,
}

impl Host {
    /// About to send `SEGS` over a path whose long messages leave in gaps of `gap_us`.
    fn with(gap_us: u32) -> Self {
        let (path, tcp) = about_to_send(NOW_US, RTT_US, SEGS);
        Host {
            law: Startup::default(),
            path: pl_path { gap_us, ..path },
            turn: pl_turn::default(),
            tcp,
            policy: delivery_rate(),
        }
    }

    fn ask(&mut self) -> pl_orders {
        let mut orders = self
            .law
            .before_send(&mut self.path, &self.policy, &self.tcp);
        self.law
            .before_send_in_turn(&mut self.turn, &self.policy, &self.tcp, true, &mut orders);
        if orders.cwnd != 0 {
            self.tcp.cwnd = orders.cwnd;
        }
        orders
    }

    fn send(&mut self, segs: u32) {
        self.tcp.sent_segs += segs;
        self.tcp.packets_out += segs;
        self.tcp.in_flight += segs;
        self.tcp.unsent -= segs * MSS as u32;
        self.tcp.nxt += segs * MSS as u32;
    }

    /// All that was sent has arrived, after `waited_us` in a queue; `lost` of it were sent again.
    fn arrive(&mut self, waited_us: u32, lost: u32) -> pl_orders {
        self.tcp.delivered_segs += self.tcp.packets_out;
        self.tcp.retransmitted_segs += lost;
        self.tcp.sent_segs += lost;
        self.tcp.packets_out = 0;
        self.tcp.in_flight = 0;
        self.tcp.una = self.tcp.nxt;
        self.tcp.rtt_us = RTT_US + waited_us;
        let mut orders = self.law.on_ack(&mut self.path, &self.policy, &self.tcp);
        if self.law.waits() || self.law.has_turn() {
            self.law
                .on_ack_in_turn(&mut self.turn, &self.tcp, &mut orders);
        }
        if orders.cwnd != 0 {
            self.tcp.cwnd = orders.cwnd;
        }
        orders
    }

    /// A message of `SEGS` that takes `took_us`, of which `lost` are sent again, and the next one begins.
    fn message(&mut self, took_us: u64, waited_us: u32, lost: u32) {
        self.message_with(0, took_us, waited_us, lost);
    }

    fn message_with(&mut self, timeouts: u32, took_us: u64, waited_us: u32, lost: u32) {
        self.whole_message(timeouts, took_us, waited_us, lost);
        self.tcp.unsent = SEGS * MSS as u32;
        self.ask();
    }

    fn whole_message(&mut self, timeouts: u32, took_us: u64, waited_us: u32, lost: u32) {
        self.ask();
        (0..timeouts).for_each(|_| self.law.note_timeout());
        self.send(SEGS - 1);
        self.tcp.now_us += took_us;
        self.arrive(waited_us, lost);
        self.ask();
        self.send(1);
        self.arrive(waited_us, 0);
    }
}

fn gap_of(orders: &pl_orders) -> u32 {
    (MSS * 1_000_000 / orders.pacing_bps) as u32
}

#[test]
fn a_segment_leaves_in_each_gap() {
    let mut host = Host::with(GAP_US);
    let first = host.ask();
    assert_eq!((first.cwnd, host.law.state()), (1, State::Paced));
    // One gap for the first segments of all, and up to one more, by chance.
    assert!((GAP_US..=2 * GAP_US).contains(&gap_of(&first)));
    host.send(1);
    let second = host.ask();
    assert_eq!((second.cwnd, gap_of(&second)), (2, GAP_US));
    // With more in flight, as many more as the stack needs to let one go.
    host.send(5);
    assert_eq!(host.ask().cwnd, 9);
    host.send(SEGS - 6);
    let over = host.arrive(GAP_US, 0);
    assert_eq!((over.cwnd, over.stop), (10, 1), "the base's cwnd");
}

/// A repair that is lost, too, is waited for no longer than the first time.
#[test]
fn the_window_stays_thin_if_timeouts_of_thin_streams_do_not_double() {
    let window = |policy, lost| {
        let mut host = Host::with(GAP_US);
        host.policy = policy;
        host.ask();
        host.send(PL_THIN_SEGS);
        host.tcp.in_flight -= lost;
        host.ask().cwnd
    };
    assert_eq!(window(delivery_rate(), 0), PL_THIN_SEGS + 2);
    assert_eq!(window(linear(), 0), PL_THIN_SEGS);
    assert_eq!(window(linear(), 1), PL_THIN_SEGS - 1);
    assert_eq!(window(linear(), PL_THIN_SEGS), 1);
}

/// The gap after an ACK that waited for so long, where the queue was seen to hold `QUEUE_US`.
fn gap_after(waited_us: u32) -> u32 {
    let mut host = Host::with(GAP_US);
    host.ask();
    host.send(1);
    host.arrive(QUEUE_US, 0);
    let before = gap_of(&host.ask());
    host.send(1);
    host.arrive(waited_us, 0);
    gap_of(&host.ask()) * GAP_US / before
}

#[test]
fn the_gap_follows_the_waiting_time_in_the_queue() {
    assert!(gap_after(0).abs_diff(GAP_US / 2) <= 1);
    assert!(gap_after(QUEUE_US / 4).abs_diff(GAP_US * 3 / 4) <= 1);
    assert!(gap_after(QUEUE_US / 2).abs_diff(GAP_US) <= 1);
    assert!(gap_after(QUEUE_US * 3 / 4).abs_diff(GAP_US * 17 / 16) <= 1);
}

/// A gap so long that each ACK is delayed would never end otherwise.
#[test]
fn the_ack_of_one_segment_that_may_have_been_delayed_shortens_the_gap() {
    let mut host = Host::with(GAP_US);
    host.policy.delayed_ack_us = 8_000;
    host.ask();
    host.send(1);
    host.arrive(4_000, 0);
    assert_eq!(gap_of(&host.ask()), GAP_US * 3 / 4);
    // Of two it is not: they waited in the queue.
    host.send(2);
    host.arrive(4_000, 0);
    assert_eq!(gap_of(&host.ask()), GAP_US * 3 / 4 + GAP_US * 3 / 64);
}

#[test]
fn the_next_message_takes_as_long_as_this_one() {
    let took_us = u64::from(SEGS * GAP_US * 2);
    for lost in [0, 2] {
        let mut host = Host::with(GAP_US);
        host.message(took_us, 0, lost);
        assert_eq!(host.path.gap_us, GAP_US * 2);
    }
}

/// The pacing timer asks once more after the last packet.
#[test]
fn nothing_begins_where_nothing_is_to_be_sent() {
    let mut host = Host::with(GAP_US);
    host.whole_message(0, u64::from(SEGS * GAP_US), 0, 0);
    let state = host.law.state();
    host.tcp.now_us += 1_000;
    assert_eq!(host.ask(), pl_orders::default());
    assert_eq!(host.law.state(), state);
    // The next message does, and is not taken for as long as the pause before it.
    host.tcp.now_us += 1_000_000;
    host.tcp.unsent = SEGS * MSS as u32;
    host.message(u64::from(SEGS * GAP_US), 0, 0);
    assert_eq!(host.path.gap_us, GAP_US);
}

#[test]
fn gaps_begin_where_messages_go_on_timing_out() {
    let mut host = Host::with(0);
    for times in 1..PL_GAP_LOSING {
        host.message_with(1, 50_000, 0, 3);
        assert_eq!(host.path.gap_us, 0, "{times}");
    }
    host.message_with(1, 46_000, 0, 3);
    assert_eq!(host.path.gap_us, 46_000 / SEGS);
    // Not where half of them do, and the others do not; nor for losses alone.
    let mut host = Host::with(0);
    for _ in 0..10 {
        host.message_with(1, 50_000, 0, 3);
        host.message(5_000, 0, 9);
    }
    assert_eq!(host.path.gap_us, 0);
}

#[test]
fn gaps_end_where_nobody_else_is_there() {
    let mut host = Host::with(GAP_US);
    // An initial window in each round trip.
    host.message(u64::from(RTT_US * SEGS / 11), 0, 0);
    assert_eq!(host.path.gap_us, 0);
}

#[test]
fn a_longer_message_finds_its_window() {
    let mut host = Host::with(GAP_US);
    host.tcp.unsent = 1000 * MSS as u32;
    host.ask();
    for _ in 0..=PL_GAP_SEGS_MAX {
        assert_eq!(host.law.state(), State::Paced);
        host.send(1);
        host.ask();
    }
    assert_eq!(host.law.state(), State::Base);
}

#[test]
fn a_host_with_others_that_wait_goes_by_turns() {
    let mut host = Host::with(GAP_US);
    host.ask();
    host.send(1);
    host.turn.waiting = 1;
    assert_eq!(host.arrive(GAP_US, 0).stop, 1);
    assert_eq!(host.law.state(), State::Base);
    let gapped = |others_us, now_us| {
        let mut host = Host::with(GAP_US);
        host.turn.others_us = others_us;
        host.tcp.now_us = now_us;
        host.ask().pacing_bps != 0
    };
    assert!(gapped(0, NOW_US));
    assert!(!gapped(NOW_US - SECOND / 1000, NOW_US));
    // Two half-lives later of that, and one of the gap.
    let later = NOW_US + 2 * 60 * 1_000_000;
    assert!(gapped(NOW_US, later));
}

#[test]
fn others_have_no_gaps() {
    let gapped = |change: &dyn Fn(&mut Host)| {
        let mut host = Host::with(GAP_US);
        change(&mut host);
        host.ask().pacing_bps != 0
    };
    assert!(gapped(&|_| ()));
    assert!(!gapped(&|host| host.tcp.unsent = MSS as u32), "a short one");
    let bbr = pl_base::PL_BASE_BBR as u8;
    assert!(!gapped(&|host| host.policy.base = bbr), "BBR");
}
