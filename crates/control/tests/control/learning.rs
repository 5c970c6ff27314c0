// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths not yet known: what a burst does there after its first losses.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_abi::pl_path;
use paceline_control::{pl_tcp, Startup, State};

/// 500 Mbit/s, 20 ms and a queue of 128 KiB, which slow start overflows at half the path.
fn shallow() -> Link {
    Link::new(mbit(500), 20 * MS, 87 * MSS)
}

/// 50 MB.
const SEGS: u64 = 34_531;

#[test]
fn a_first_transfer_that_overflowed_a_short_queue_goes_on_to_fill_the_path() {
    let mut world = World::new(shallow(), delivery_rate(), 1);
    let first = world.burst(SEGS, SECOND);
    assert!(first.drops > 0, "slow start went well");
    assert!(first.permille() < 1400, "{} of the bound", first.permille());
}

#[test]
fn once_it_was_led_its_acks_are_the_bases() {
    let mut world = World::new(shallow(), delivery_rate(), 1);
    world.write(0, SEGS);
    world.run(SECOND + 300 * MS);
    let now = world.now;
    assert!(world.senders[0].wants_ack(now), "not led yet");
    world.run(SECOND + 800 * MS);
    assert!(!world.senders[0].idle());
    let now = world.now;
    assert!(!world.senders[0].wants_ack(now));
    assert!(!world.senders[0].is_paced());
}

#[test]
fn the_next_start_uses_the_learned_rate() {
    let mut world = World::new(shallow(), delivery_rate(), 1);
    world.burst(SEGS, SECOND);
    let second = world.burst(SEGS, SECOND);
    assert_eq!(second.drops, 0);
    assert!(
        second.permille() < 1050,
        "{} of the bound",
        second.permille()
    );
}

const RTT_US: u32 = 20_000;
const WINDOW: u32 = 240;

/// Round trips after a loss was repaired, whose ACKs took `rtt_us`: the ssthresh that is
/// ordered at the end of each. In the second one something is lost again.
fn rounds_after_a_loss(lost: u32, rtt_us: u32) -> [u32; 4] {
    let mut startup = Startup::default();
    let mut path = pl_path {
        min_rtt_us: RTT_US,
        min_rtt_at_us: 1_000_000,
        ..pl_path::default()
    };
    let mut tcp = pl_tcp {
        now_us: 1_000_000,
        cwnd: WINDOW,
        ssthresh: WINDOW,
        srtt_us: RTT_US,
        min_rtt_us: RTT_US,
        mss: MSS as u32,
        unsent: 1_000_000,
        ..pl_tcp::default()
    };
    startup.before_send(&mut path, &delivery_rate(), &tcp);
    path.learned_bps = mbit(500);
    tcp.packets_out = WINDOW;
    tcp.retransmitted_segs = lost;
    if lost > 0 {
        startup.ssthresh_after_loss(&mut path, &tcp, 0, WINDOW);
    }
    let mut round = |recovering| {
        tcp.nxt += WINDOW * MSS as u32;
        tcp.now_us += u64::from(rtt_us);
        tcp.rtt_us = rtt_us;
        tcp.recovering = recovering;
        let ordered = startup.on_ack(&mut path, &delivery_rate(), &tcp).ssthresh;
        tcp.una = tcp.nxt;
        ordered
    };
    round(0);
    [round(0), round(1), round(0), round(0)]
}

/// An eighth more.
const STEP: u32 = WINDOW + WINDOW / 8;

#[test]
fn after_a_loss_the_window_is_led_on_by_an_eighth_until_the_next() {
    assert_eq!(rounds_after_a_loss(10, RTT_US), [STEP, 0, 0, 0]);
}

#[test]
fn without_a_loss_slow_start_is_the_bases() {
    assert_eq!(rounds_after_a_loss(0, RTT_US), [0; 4]);
}

#[test]
fn a_path_with_a_queue_of_others_is_not_led() {
    assert_eq!(rounds_after_a_loss(10, RTT_US + RTT_US / 4), [0; 4]);
}

#[test]
fn a_path_that_the_initial_window_fills_is_not_led() {
    let mut startup = Startup::default();
    let mut path = pl_path {
        min_rtt_us: 200,
        ..pl_path::default()
    };
    let mut tcp = learning(&mut startup, &mut path);
    tcp.retransmitted_segs = 1;
    startup.ssthresh_after_loss(&mut path, &tcp, 0, 7);
    path.learned_bps = mbit(200);
    let short = startup.on_ack(&mut path, &delivery_rate(), &tcp);
    assert_eq!((short.pacing_bps, short.ssthresh), (0, 0));
    path.learned_bps = mbit(1000);
    let longer = startup.on_ack(&mut path, &delivery_rate(), &tcp);
    assert!(longer.pacing_bps > 0);
}

/// A burst has begun on a path not yet known: 100 segments are on their way.
fn learning(startup: &mut Startup, path: &mut pl_path) -> pl_tcp {
    let mut tcp = pl_tcp {
        now_us: 1_000_000,
        cwnd: 10,
        mss: MSS as u32,
        unsent: 100 * MSS as u32,
        ..pl_tcp::default()
    };
    startup.before_send(path, &delivery_rate(), &tcp);
    tcp.unsent = 0;
    tcp.packets_out = 100;
    tcp.sent_segs = 100;
    tcp
}

/// The rate that a path is known by after a burst whose blocks of ACKs said 800 Mbit/s
/// and whose best round trip delivered 100.
fn kept(lost: u32, connections: u32) -> u64 {
    let mut startup = Startup::default();
    let mut path = pl_path::default();
    let mut tcp = learning(&mut startup, &mut path);
    path.learned_bps = mbit(800);
    path.learned_segs = 16;
    path.carried_bps = mbit(100);
    path.peak = connections;
    if lost > 0 {
        startup.ssthresh_after_loss(&mut path, &tcp, 0, 7);
    }
    tcp.retransmitted_segs = lost;
    tcp.delivered_segs = 100;
    tcp.packets_out = 0;
    startup.on_ack(&mut path, &delivery_rate(), &tcp);
    assert_eq!(startup.state(), State::Idle);
    path.rate_bps
}

#[test]
fn after_losses_aggregated_acks_count_up_to_twice_the_carried_rate() {
    assert_eq!(kept(0, 1), mbit(750));
    assert_eq!(kept(30, 1), mbit(200));
    assert_eq!(kept(30, 3), mbit(600));
}

#[test]
fn a_message_that_the_initial_window_holds_is_learned_from_its_last_ack() {
    let (mut startup, mut path) = (Startup::default(), pl_path::default());
    let mut tcp = learning(&mut startup, &mut path);
    assert!(startup.wants_ack(&tcp));
    tcp.sent_segs = 10;
    assert!(!startup.wants_ack(&tcp));
    tcp.unsent = 1;
    assert!(startup.wants_ack(&tcp), "more to come");
    tcp.unsent = 0;
    tcp.delivered_segs = 10;
    tcp.packets_out = 0;
    path.carried_bps = mbit(100);
    startup.on_ack(&mut path, &delivery_rate(), &tcp);
    assert_eq!(path.flight_segs, 10);
}

/// The rate after one message of 12 segments, all called app-limited by the kernel, whose ACKs come
/// 100 us apart, each with an RTT `more_us` longer than the one before, if the segment was not sent again.
fn rate_after(more_us: u32, retransmitted: u32) -> u64 {
    let mut startup = Startup::default();
    let mut path = pl_path {
        min_rtt_us: 5_001,
        ..pl_path::default()
    };
    let mut tcp = pl_tcp {
        now_us: 1_000_000,
        cwnd: 10,
        mss: MSS as u32,
        unsent: 12 * MSS as u32,
        ..pl_tcp::default()
    };
    startup.before_send(&mut path, &delivery_rate(), &tcp);
    tcp.app_limited = 1;
    for delivered in 1..=12 {
        tcp.now_us += 100;
        tcp.unsent = 0;
        tcp.sent_segs = 12;
        tcp.delivered_segs = delivered;
        tcp.packets_out = 12 - delivered;
        tcp.rtt_us = match delivered == retransmitted {
            true => 0,
            false => 5_001 + delivered * more_us,
        };
        startup.on_ack(&mut path, &delivery_rate(), &tcp);
    }
    assert_eq!(startup.state(), State::Idle);
    path.rate_bps
}

#[test]
fn a_message_that_left_at_once_shows_the_rate_and_an_application_that_writes_slowly_does_not() {
    let link = MSS * 10_000;
    let at_once = rate_after(100, 0) * 100 / link;
    assert!((85..=100).contains(&at_once), "{at_once} %");
    assert_eq!(rate_after(0, 0), 0, "as it was written");
    assert_eq!(rate_after(49, 0), 0, "hardly slower");
    assert_eq!(rate_after(100, 1), 0, "the first one's queue is not known");
}

/// From the second one on it takes one round trip, where it began with an initial window again.
#[test]
fn messages_a_little_longer_than_the_initial_window_show_the_rate() {
    for (rate, rtt_us) in [(50, 5_000), (200, 1_500), (90, 40_000), (400, 70_000)] {
        for (connections, segs) in [(1, 11), (1, 15), (4, 11), (8, 13), (16, 11)] {
            let link = Link::new(mbit(rate), rtt_us * 1000, 400 * MSS);
            let mut world = World::new(link, delivery_rate(), connections);
            let name = format!("{rate} Mbit/s, {rtt_us} us, {connections} of {segs}");
            world.burst(segs, SECOND);
            let percent = world.path.rate_bps * 100 / world.link.rate;
            assert!((80..=100).contains(&percent), "{name}: {percent} %");
            for _ in 0..3 {
                let permille = world.burst(segs, SECOND).permille();
                assert!(permille <= 1200, "{name}: {permille}");
            }
        }
    }
}

/// A receiver's host that does nothing for the second time in each first one, in microseconds.
const STALLS_US: [(u64, u64); 6] = [
    (1000, 300),
    (1370, 400),
    (1700, 400),
    (2300, 1100),
    (3100, 600),
    (5000, 800),
];

/// What came late comes closer together. A train of ACKs is measured from when it was due,
/// by one connection or by several at once.
#[test]
fn a_receiver_that_is_busy_now_and_then_makes_no_path_faster() {
    for (every_us, held_us) in STALLS_US {
        for (connections, segs) in [(1, 70), (1, 207), (1, 700), (3, 207), (8, 100)] {
            let link = Link::new(mbit(480), 20 * MS, 87 * MSS)
                .with_stalls(every_us * 1000, held_us * 1000)
                .with_each_acknowledged();
            let mut world = World::new(link, delivery_rate(), connections);
            world.burst(segs, SECOND);
            let percent = world.path.rate_bps * 100 / world.link.rate;
            assert!(
                (60..=100).contains(&percent),
                "{percent} % of it: {held_us} us in {every_us}, {segs} segments of {connections}"
            );
        }
    }
}

/// Nor does a probe whose first ACK came late: it says no more than what arrived since that
/// was due, and a little.
#[test]
fn a_probe_with_a_late_first_ack_does_not_raise_the_rate() {
    let mut worst = (0, String::new());
    for (every_us, held_us) in STALLS_US {
        for connections in [1, 3] {
            let link = Link::new(mbit(480), 20 * MS, 400 * MSS)
                .with_stalls(every_us * 1000, held_us * 1000)
                .with_each_acknowledged();
            let rate = link.rate;
            let mut world = World::new(link, delivery_rate(), connections);
            world.burst(207, SECOND);
            for burst in 0..40 {
                world.path.rate_bps = rate * 2 / 3;
                world.burst(207, SECOND + burst * 137 * MS / 10);
                let percent = world.path.rate_bps * 100 / rate;
                if percent > worst.0 {
                    let text =
                        format!("{held_us} us in {every_us}, burst {burst} of {connections}");
                    worst = (percent, text);
                }
            }
        }
    }
    assert!(worst.0 <= 110, "{} % of the link: {}", worst.0, worst.1);
}
