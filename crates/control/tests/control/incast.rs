// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many hosts answer one at once: messages that the initial window holds are spread.

use crate::support::{delivery_rate, mbit, Link, World, MSS};
use paceline_abi::{pl_base, pl_path, pl_policy};
use paceline_control::{
    pl_orders, pl_tcp, Phases, Startup, State, PL_LEAD_SEGS, PL_NO_SSTHRESH, PL_SPREAD_MAX_US,
    PL_THIN_SEGS,
};

const RTT_US: u32 = 200;
const SEGS: u32 = 6;

/// Rounds in which the hosts find out, and those that count.
const LEARNED: usize = 50;
const ROUNDS: usize = 100;

fn world(hosts: usize, buffer: u64, governed: usize) -> World {
    let link = Link::new(mbit(200), u64::from(RTT_US) * 1000, buffer);
    let mut world = World::of_hosts(link, delivery_rate(), hosts);
    world.governed = governed;
    world
}

fn mean(rounds: &[u64]) -> u64 {
    rounds.iter().sum::<u64>() / rounds.len() as u64
}

#[test]
fn answers_that_overflow_a_queue_together_are_spread() {
    for (hosts, segs, buffer) in [
        (8, 6, 32_768),
        (8, 10, 65_536),
        (16, 6, 65_536),
        (32, 6, 131_072),
    ] {
        let base = world(hosts, buffer, 0).rounds(LEARNED, ROUNDS, segs);
        let law = world(hosts, buffer, hosts).rounds(LEARNED, ROUNDS, segs);
        let shown = format!("{hosts} hosts, {segs} segments, {buffer} bytes");
        assert!(law[ROUNDS / 2] <= 1050, "{shown}: {}", law[ROUNDS / 2]);
        assert!(mean(&law) <= 1100, "{shown}: {}", mean(&law));
        assert!(
            2 * mean(&law) <= mean(&base) * 3 / 2,
            "{shown}: {}",
            mean(&base)
        );
    }
}

#[test]
fn answers_that_a_queue_holds_arrive_as_ever() {
    let (mut law, mut base) = (world(8, 131_072, 8), world(8, 131_072, 0));
    assert_eq!(
        law.rounds(LEARNED, ROUNDS, 6),
        base.rounds(LEARNED, ROUNDS, 6)
    );
    assert_eq!(law.link.drops, 0);
}

/// On a path of a local network that lost messages, and is spread over `spread_us`.
fn crowded(spread_us: u16) -> pl_path {
    pl_path {
        min_rtt_us: RTT_US,
        min_rtt_at_us: 1_000_000,
        started_us: 1_000_000,
        spread_us,
        ..pl_path::default()
    }
}

/// About to send `segs`.
fn about_to_send(segs: u32) -> pl_tcp {
    pl_tcp {
        now_us: 1_000_000,
        cwnd: 10,
        ssthresh: 100,
        srtt_us: RTT_US,
        min_rtt_us: RTT_US,
        mss: MSS as u32,
        unsent: segs * MSS as u32,
        ..pl_tcp::default()
    }
}

/// A connection, its path and what it looks like.
struct Host {
    startup: Startup,
    path: pl_path,
    tcp: pl_tcp,
    policy: pl_policy,
}

impl Host {
    fn new(path: pl_path, segs: u32) -> Self {
        Self {
            startup: Startup::default(),
            path,
            tcp: about_to_send(segs),
            policy: delivery_rate(),
        }
    }

    fn ask(&mut self) -> pl_orders {
        self.startup
            .before_send(&mut self.path, &self.policy, &self.tcp)
    }

    /// A segment leaves.
    fn send(&mut self) {
        self.tcp.sent_segs += 1;
        self.tcp.packets_out += 1;
        self.tcp.unsent -= MSS as u32;
        self.tcp.nxt += MSS as u32;
    }

    /// All that was sent has arrived, after `waited_us` in a queue.
    fn arrive(&mut self, waited_us: u32) -> pl_orders {
        self.acknowledge(self.path.min_rtt_us + waited_us)
    }

    /// `rtt_us` is 0 where all that this ACK is for was sent twice.
    fn acknowledge(&mut self, rtt_us: u32) -> pl_orders {
        self.tcp.delivered_segs += self.tcp.packets_out;
        self.tcp.packets_out = 0;
        self.tcp.una = self.tcp.nxt;
        self.tcp.rtt_us = rtt_us;
        let orders = self.startup.on_ack(&mut self.path, &self.policy, &self.tcp);
        self.tcp.rtt_us = 0;
        orders
    }

    /// A message of `SEGS`, of which `lost` were sent twice, and its end waited `waited_us`.
    fn message(&mut self, lost: u32, waited_us: u32) {
        self.message_with(lost, self.path.min_rtt_us + waited_us);
    }

    fn message_with(&mut self, lost: u32, rtt_us: u32) {
        self.tcp.unsent = SEGS * MSS as u32;
        for _ in 0..SEGS {
            self.ask();
            self.send();
        }
        self.tcp.retransmitted_segs += lost;
        self.tcp.sent_segs += lost;
        self.acknowledge(rtt_us);
        self.tcp.now_us += 1000;
    }

    /// The program goes over to a class that is crowded too: the old class's path.
    fn switch(&mut self) -> (pl_orders, pl_path) {
        let mut old = std::mem::replace(&mut self.path, crowded(640));
        let orders = Phases::default().switch(
            1,
            &mut self.startup,
            &mut old,
            &mut self.path,
            &self.policy,
            &self.tcp,
        );
        (orders, old)
    }

    /// What the message before has taught: seen when the next one begins.
    fn spread_us(&mut self) -> u16 {
        self.tcp.unsent = SEGS * MSS as u32;
        self.ask();
        self.path.spread_us
    }
}

/// Of six segments over 3 ms, bytes per second.
const PACE: u64 = 6 * MSS * 1_000_000 / 3000;

#[test]
fn its_segments_leave_one_by_one_and_the_window_comes_back() {
    let mut host = Host::new(crowded(3000), SEGS);
    host.tcp.cwnd = 5;
    for sent in 0..SEGS {
        let orders = host.ask();
        assert_eq!(host.startup.state(), State::Paced, "{sent}");
        if sent > 0 {
            assert_eq!(orders.pacing_bps, PACE);
        }
        assert_eq!(orders.cwnd, host.tcp.packets_out + 1);
        assert_eq!(host.ask(), orders, "asked twice");
        host.send();
        // Each has arrived before the next one leaves, but for two in the middle.
        if sent != 2 {
            let orders = host.arrive(0);
            let last = sent + 1 == SEGS;
            assert_eq!(
                (orders.cwnd, orders.stop),
                if last { (6, 1) } else { (0, 0) }
            );
        }
    }
    assert_eq!(host.startup.state(), State::Idle);
}

#[test]
fn no_more_in_flight_than_the_bases_window() {
    let mut host = Host::new(crowded(3000), SEGS);
    host.tcp.cwnd = 2;
    for expected in [1, 2, 2, 2] {
        assert_eq!(host.ask().cwnd, expected);
        host.send();
    }
}

#[test]
fn others_are_not_spread() {
    let spread = |change: &dyn Fn(&mut Host)| {
        let mut host = Host::new(crowded(3000), SEGS);
        change(&mut host);
        host.ask().pacing_bps != 0
    };
    assert!(spread(&|_| ()));
    assert!(!spread(&|host| host.path.spread_us = 0), "nothing was lost");
    assert!(!spread(&|host| host.tcp.unsent = MSS as u32), "one segment");
    let long = (PL_LEAD_SEGS + 1) * MSS as u32;
    assert!(!spread(&|host| host.tcp.unsent = long), "a long message");
    let bbr = pl_base::PL_BASE_BBR as u8;
    assert!(!spread(&|host| host.policy.base = bbr), "BBR");
    // Sixteen half-lives later.
    let late = 16 * 60 * 1_000_000;
    assert!(!spread(&|host| host.tcp.now_us += late), "long ago");
}

#[test]
fn the_time_grows_by_what_the_end_waited_and_shrinks_slowly() {
    let mut host = Host::new(crowded(0), SEGS);
    host.message(2, 900);
    assert_eq!(host.spread_us(), 900, "at first");
    host.message(1, 500);
    assert_eq!(host.spread_us(), 1400);
    host.message(1, 60_000);
    assert_eq!(
        host.spread_us(),
        2800,
        "doubled at most: an ACK may be delayed"
    );
    host.message(1, 0);
    assert_eq!(host.spread_us(), 2800, "its end met no queue");
    host.message(0, 2800 / 16 - 1);
    assert_eq!(host.spread_us(), 2800 - 2800 / 64 - 1, "it met no queue");
    for _ in 0..1000 {
        host.message(0, 0);
    }
    assert_eq!(host.spread_us(), 0);
}

#[test]
fn a_time_whose_end_meets_a_queue_is_kept_much_longer() {
    let mut host = Host::new(crowded(3000), SEGS);
    for _ in 0..64 {
        host.message(0, 3000 / 16);
    }
    assert!((2750..2850).contains(&host.spread_us()));
    for _ in 0..20_000 {
        host.message(0, 3000 / 16);
    }
    assert_eq!(host.spread_us(), 0, "an ACK may always be delayed");
}

#[test]
fn the_time_has_an_end() {
    let mut host = Host::new(crowded(20_000), SEGS);
    host.message(1, 60_000);
    assert_eq!(u32::from(host.spread_us()), PL_SPREAD_MAX_US);
}

/// A receiver that waits 40 ms with the ACK of an odd segment is no queue of 40 ms.
#[test]
fn one_delayed_ack_does_not_spread_the_next_message_over_as_long() {
    let mut host = Host::new(crowded(0), SEGS);
    host.message(1, 40_000);
    assert_eq!(u32::from(host.spread_us()), 8 * RTT_US);
}

#[test]
fn a_message_of_which_all_was_lost_is_spread_over_a_round_trip() {
    let mut host = Host::new(crowded(0), SEGS);
    host.message_with(SEGS, 0);
    assert_eq!(u32::from(host.spread_us()), RTT_US);
}

/// Or all of them would send their next segments together too.
#[test]
fn the_first_gap_is_anything_up_to_two() {
    let mut host = Host::new(crowded(3000), SEGS);
    let mut gaps = Vec::new();
    for message in 0..500_u32 {
        host.tcp.una = message * SEGS * MSS as u32;
        host.startup = Startup::default();
        let pace = host.ask().pacing_bps;
        assert_eq!(host.ask().pacing_bps, pace, "asked twice");
        gaps.push(MSS * 1_000_000 / pace);
    }
    // Microseconds, of 500 on the average.
    let within = |from, to| gaps.iter().filter(|gap| (from..to).contains(*gap)).count();
    assert_eq!(within(0, 1001), 500);
    for quarter in 0..4 {
        let share = within(250 * quarter, 250 * (quarter + 1));
        assert!((100..150).contains(&share), "{quarter}: {share}");
    }
}

#[test]
fn a_message_that_waited_for_a_timeout_is_spread_no_longer() {
    let mut host = Host::new(crowded(3000), SEGS);
    host.ask();
    host.send();
    host.tcp.now_us += 6000;
    assert_eq!(host.ask().pacing_bps, PACE);
    host.tcp.now_us += 1;
    let orders = host.ask();
    assert_eq!((orders.cwnd, orders.stop), (10, 1));
    assert_eq!(host.startup.state(), State::Base);
}

#[test]
fn a_long_path_is_not_crowded_by_such_messages() {
    let mut host = Host::new(crowded(0), SEGS);
    host.path.min_rtt_us = 20_000;
    host.tcp.min_rtt_us = 20_000;
    host.message(2, 900);
    assert_eq!(host.spread_us(), 0);
}

#[test]
fn a_loss_takes_half_of_the_bases_window_and_not_of_the_spread_ones() {
    let mut host = Host::new(crowded(3000), SEGS);
    host.tcp.cwnd = 8;
    host.ask();
    host.send();
    let ssthresh = host
        .startup
        .ssthresh_after_loss(&mut host.path, &host.tcp, 0, 2);
    assert_eq!(ssthresh, 4);
}

/// What is sent meanwhile tells whether the repair was lost too.
#[test]
fn a_loss_does_not_hold_the_pace_up() {
    let mut host = Host::new(crowded(3000), SEGS);
    host.ask();
    host.send();
    host.send();
    host.tcp.recovering = 1;
    host.tcp.cwnd = 1;
    let orders = host.ask();
    assert_eq!((orders.cwnd, orders.pacing_bps), (3, PACE));
}

#[test]
fn the_base_decides_on_the_window_after_a_loss() {
    let mut host = Host::new(crowded(3000), SEGS);
    host.message(1, 900);
    host.tcp.unsent = SEGS * MSS as u32;
    for _ in 0..SEGS {
        host.ask();
        host.send();
    }
    host.tcp.recovering = 1;
    let orders = host.arrive(0);
    assert_eq!((orders.cwnd, orders.stop), (0, 1));
}

#[test]
fn the_base_sends_data_that_is_written_meanwhile() {
    let mut host = Host::new(crowded(3000), SEGS);
    for _ in 0..SEGS {
        host.ask();
        host.send();
        host.tcp.retransmitted_segs += 1;
        host.tcp.sent_segs += 1;
    }
    host.tcp.unsent = 20 * MSS as u32;
    let orders = host.ask();
    assert_eq!((orders.cwnd, orders.stop), (10, 1));
    assert_eq!(host.startup.state(), State::Base);
}

#[test]
fn a_class_learns_of_its_own_messages_only() {
    let mut host = Host::new(crowded(0), SEGS);
    host.message(2, 900);
    let (_, old) = host.switch();
    assert_eq!(old.spread_us, 900);
    assert_eq!(host.spread_us(), 640);
}

#[test]
fn a_switch_gives_the_window_back() {
    let mut host = Host::new(crowded(3000), SEGS);
    host.ask();
    host.send();
    host.tcp.cwnd = 1;
    let (orders, _) = host.switch();
    assert_eq!((orders.cwnd, orders.stop), (10, 1));
    assert_eq!(host.ask().pacing_bps, 0, "in the middle of a message");
}

/// The window of a connection's first message under `lfn`, then changed by `change`.
fn first_window(change: fn(&mut Host)) -> u32 {
    let path = pl_path {
        min_rtt_us: RTT_US,
        ..pl_path::default()
    };
    let mut host = Host::new(path, 20);
    host.policy.rto_linear = 1;
    host.tcp.ssthresh = PL_NO_SSTHRESH;
    change(&mut host);
    host.ask().cwnd
}

#[test]
fn a_first_message_begins_as_a_thin_stream() {
    assert_eq!(first_window(|_| {}), PL_THIN_SEGS);
    // Longer paths are left to the base, and what they are is not known without an RTT.
    assert_eq!(first_window(|host| host.tcp.min_rtt_us = 0), PL_THIN_SEGS);
    assert_eq!(
        first_window(|host| (host.tcp.min_rtt_us, host.path.min_rtt_us) = (0, 0)),
        0
    );
    assert_eq!(first_window(|host| host.path.min_rtt_us = 0), PL_THIN_SEGS);
    assert_eq!(
        first_window(|host| (host.tcp.min_rtt_us, host.path.min_rtt_us) = (1001, 1001)),
        0
    );
    // Where timeouts double whatever is in flight nothing is gained.
    assert_eq!(first_window(|host| host.policy.rto_linear = 0), 0);
    // It has lost before, or fits anyway.
    assert_eq!(first_window(|host| host.tcp.ssthresh = 10), 0);
    assert_eq!(first_window(|host| host.tcp.cwnd = PL_THIN_SEGS), 0);
    assert_eq!(
        first_window(|host| host.tcp.unsent = PL_THIN_SEGS * MSS as u32),
        0
    );
}

#[test]
fn only_the_first_long_message_does() {
    let mut host = Host::new(pl_path::default(), 1);
    host.policy.rto_linear = 1;
    host.tcp.ssthresh = PL_NO_SSTHRESH;
    let mut windows = Vec::new();
    for segs in [1, 3, 20, 20, 4] {
        host.tcp.unsent = segs * MSS as u32;
        windows.push(host.ask().cwnd);
        while host.tcp.unsent > 0 {
            host.send();
        }
        host.acknowledge(RTT_US);
    }
    assert_eq!(windows, [0, 0, PL_THIN_SEGS, 0, 0]);
}
