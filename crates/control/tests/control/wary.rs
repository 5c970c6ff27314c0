// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths on which starts lose: spread starts, repair, ssthresh, and the way back.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_abi::pl_path;
use paceline_control::{pl_tcp, Startup, State, PL_WARY_STARTS};

const RTT_US: u32 = 20_000;
const SEGS: u32 = 112;
const WARY_STARTS: u16 = PL_WARY_STARTS as u16;

fn known_path() -> pl_path {
    pl_path {
        rate_bps: mbit(500),
        confirmed_us: 1_000_000,
        min_rtt_us: RTT_US,
        min_rtt_at_us: 1_000_000,
        ..pl_path::default()
    }
}

fn quiet(now_us: u64) -> pl_tcp {
    pl_tcp {
        now_us,
        cwnd: 10,
        ssthresh: 100,
        srtt_us: RTT_US,
        min_rtt_us: RTT_US,
        mss: MSS as u32,
        unsent: SEGS * MSS as u32,
        ..pl_tcp::default()
    }
}

/// Sends `SEGS` of a burst, of which the first `arrived` are acknowledged a round trip later.
fn send(startup: &mut Startup, path: &mut pl_path, tcp: &mut pl_tcp, arrived: u32) {
    send_of(SEGS, startup, path, tcp, arrived);
}

fn send_of(segs: u32, startup: &mut Startup, path: &mut pl_path, tcp: &mut pl_tcp, arrived: u32) {
    for _ in 0..segs {
        startup.before_send(path, &delivery_rate(), tcp);
        tcp.now_us += 50;
        tcp.unsent -= MSS as u32;
        tcp.sent_segs += 1;
        tcp.packets_out += 1;
        tcp.nxt = tcp.nxt.wrapping_add(MSS as u32);
    }
    tcp.now_us += u64::from(RTT_US);
    tcp.delivered_segs += arrived;
    tcp.packets_out -= arrived;
    tcp.una = tcp.una.wrapping_add(MSS as u32 * arrived);
    startup.on_ack(path, &delivery_rate(), tcp);
}

/// And the others, of which each was sent again. Then the next burst is written.
fn finish(startup: &mut Startup, path: &mut pl_path, tcp: &mut pl_tcp, lost: u32) {
    tcp.now_us += u64::from(RTT_US);
    tcp.retransmitted_segs += lost;
    tcp.sent_segs += lost;
    tcp.delivered_segs += lost;
    tcp.packets_out = 0;
    tcp.una = tcp.nxt;
    startup.on_ack(path, &delivery_rate(), tcp);
    assert_eq!(startup.state(), State::Idle);
    tcp.now_us += 100_000;
    tcp.unsent = SEGS * MSS as u32;
}

/// What the path is believed to give now, whatever its last start has said.
const BELIEVED: u64 = mbit(400);

fn confirm(path: &mut pl_path, tcp: &pl_tcp) {
    path.rate_bps = BELIEVED;
    path.confirmed_us = tcp.now_us;
}

/// A path that has become wary, by a start of `SEGS` that lost ten.
fn after_a_loss() -> (Startup, pl_path, pl_tcp) {
    let (mut startup, mut path) = (Startup::default(), known_path());
    let mut tcp = quiet(1_000_000);
    send(&mut startup, &mut path, &mut tcp, SEGS - 10);
    finish(&mut startup, &mut path, &mut tcp, 10);
    confirm(&mut path, &tcp);
    (startup, path, tcp)
}

#[test]
fn after_a_start_that_lost_the_next_ones_are_spread_over_half_a_round_trip() {
    let (mut startup, mut path) = (Startup::default(), known_path());
    let mut tcp = quiet(1_000_000);
    send(&mut startup, &mut path, &mut tcp, SEGS - 10);
    assert_eq!(startup.raw().rate_bps, mbit(500), "a path that is trusted");
    finish(&mut startup, &mut path, &mut tcp, 10);
    assert_eq!(path.wary, WARY_STARTS);
    confirm(&mut path, &tcp);
    // No lead above the pace either.
    let first = startup.before_send(&mut path, &delivery_rate(), &tcp);
    let spread = 2 * u64::from(SEGS) * MSS * 1_000_000 / u64::from(RTT_US);
    assert!(spread < BELIEVED);
    assert_eq!(first.pacing_bps, spread);
}

#[test]
fn good_starts_end_a_wary_path() {
    let (mut startup, mut path, mut tcp) = after_a_loss();
    for left in (0..WARY_STARTS).rev() {
        confirm(&mut path, &tcp);
        send(&mut startup, &mut path, &mut tcp, SEGS);
        finish(&mut startup, &mut path, &mut tcp, 0);
        assert_eq!(path.wary, left);
    }
    confirm(&mut path, &tcp);
    startup.before_send(&mut path, &delivery_rate(), &tcp);
    assert_eq!(startup.raw().rate_bps, BELIEVED);
}

/// Good starts on a wary path until it is trusted.
fn starts_until_recovered(startup: &mut Startup, path: &mut pl_path, tcp: &mut pl_tcp) -> u32 {
    let mut starts = 0;
    while path.wary > 0 {
        good(startup, path, tcp);
        starts += 1;
    }
    starts
}

fn good(startup: &mut Startup, path: &mut pl_path, tcp: &mut pl_tcp) {
    confirm(path, tcp);
    send(startup, path, tcp, SEGS);
    finish(startup, path, tcp, 0);
}

fn lossy(startup: &mut Startup, path: &mut pl_path, tcp: &mut pl_tcp) {
    confirm(path, tcp);
    send(startup, path, tcp, SEGS - 10);
    finish(startup, path, tcp, 10);
}

/// Each time it tries what the others leave, and each try costs all of them a round trip.
#[test]
fn a_path_that_loses_again_at_once_stays_wary_for_longer() {
    let (mut startup, mut path, mut tcp) = after_a_loss();
    for starts in [32, 128, 512, 512] {
        assert_eq!(
            starts_until_recovered(&mut startup, &mut path, &mut tcp),
            starts
        );
        for _ in 0..starts - 1 {
            good(&mut startup, &mut path, &mut tcp);
        }
        lossy(&mut startup, &mut path, &mut tcp);
    }
}

#[test]
fn a_path_that_was_not_wary_for_as_long_is_judged_anew() {
    let (mut startup, mut path, mut tcp) = after_a_loss();
    starts_until_recovered(&mut startup, &mut path, &mut tcp);
    lossy(&mut startup, &mut path, &mut tcp);
    assert_eq!(
        starts_until_recovered(&mut startup, &mut path, &mut tcp),
        128
    );
    for _ in 0..128 {
        good(&mut startup, &mut path, &mut tcp);
    }
    lossy(&mut startup, &mut path, &mut tcp);
    assert_eq!(path.wary, WARY_STARTS);
}

#[test]
fn a_loss_on_a_wary_path_restarts_the_count() {
    let (mut startup, mut path, mut tcp) = after_a_loss();
    good(&mut startup, &mut path, &mut tcp);
    lossy(&mut startup, &mut path, &mut tcp);
    assert_eq!(path.wary, WARY_STARTS);
}

#[test]
fn starts_much_shorter_than_the_one_that_lost_prove_nothing() {
    let (mut startup, mut path, mut tcp) = after_a_loss();
    tcp.unsent = SEGS / 4 * MSS as u32;
    send_of(SEGS / 4, &mut startup, &mut path, &mut tcp, SEGS / 4);
    finish(&mut startup, &mut path, &mut tcp, 0);
    assert_eq!(path.wary, WARY_STARTS);
}

#[test]
fn the_start_of_a_long_burst_proves_as_much_as_a_short_one() {
    let (mut startup, mut path, mut tcp) = after_a_loss();
    send_of(SEGS / 4, &mut startup, &mut path, &mut tcp, SEGS / 4);
    assert_eq!(path.wary, WARY_STARTS - 1);
}

#[test]
fn connections_that_share_a_wary_path_are_spread_together() {
    let (mut startup, mut path, tcp) = after_a_loss();
    path.peak = 3;
    startup.before_send(&mut path, &delivery_rate(), &tcp);
    let spread = 2 * u64::from(SEGS) * MSS * 1_000_000 / u64::from(RTT_US);
    assert!(3 * spread < BELIEVED);
    assert_eq!(startup.raw().rate_bps, 3 * spread);
}

#[test]
fn a_start_that_lost_most_leaves_no_more_than_what_arrived() {
    let (mut startup, mut path) = (Startup::default(), known_path());
    let mut tcp = quiet(1_000_000);
    send(&mut startup, &mut path, &mut tcp, SEGS / 4);
    finish(&mut startup, &mut path, &mut tcp, SEGS - SEGS / 4);
    assert_eq!(path.rate_bps, mbit(500) / 4);
}

/// What a good burst of `segs` adds to a wary path's 100 Mbit/s, of 500; the good starts that
/// it needs to be trusted, and needed at first.
fn growth(segs: u64, wary: u16, wary_for: u16) -> u64 {
    let link = Link::new(mbit(500), 20 * MS, 1000 * MSS);
    let mut world = World::new(link, delivery_rate(), 1);
    world.burst(segs, SECOND);
    world.path.rate_bps = mbit(100);
    world.path.wary = wary;
    world.path.wary_for = wary_for;
    world.path.burst_segs = segs as u32;
    world.burst(segs, SECOND);
    world.path.rate_bps - mbit(100)
}

#[test]
fn with_short_bursts_a_wary_path_grows_by_a_segment_per_round_trip() {
    assert_eq!(growth(u64::from(SEGS), 32, 32), MSS * 1000 / 20);
    assert!(growth(700, 32, 32) > mbit(20));
}

#[test]
fn for_sixteen_starts_after_a_loss_a_path_grows_by_a_quarter_at_most() {
    for (wary, wary_for) in [(32, 32), (17, 32), (512, 512), (497, 512)] {
        assert_eq!(growth(700, wary, wary_for), mbit(25), "{wary}, {wary_for}");
    }
    for (wary, wary_for) in [(16, 32), (1, 32), (496, 512), (0, 32)] {
        let grown = growth(700, wary, wary_for);
        assert!(grown > mbit(50), "{wary}, {wary_for}: {grown}");
    }
}

/// Whether the law still follows a long burst that began at a known rate and lost
/// something in its first round trips.
fn follows_after_a_loss(wary: u16) -> bool {
    let mut world = World::new(
        Link::new(mbit(500), 20 * MS, 1000 * MSS),
        delivery_rate(),
        1,
    );
    for _ in 0..4 {
        world.burst(700, SECOND);
    }
    world.path.wary = wary;
    world.write(0, 20_000);
    world.run(world.now + 60 * MS);
    let buffer = std::mem::replace(&mut world.link.buffer, MSS);
    world.run(world.now + 5 * MS);
    world.link.buffer = buffer;
    assert!(world.link.drops > 0);
    world.run(world.now + 60 * MS);
    world.senders[0].law.raw().rounds != 0
}

#[test]
fn on_a_wary_path_a_loss_does_not_end_the_rounds() {
    assert!(follows_after_a_loss(WARY_STARTS));
    assert!(!follows_after_a_loss(0));
}

#[test]
fn a_single_lost_segment_makes_no_path_wary() {
    let (mut startup, mut path) = (Startup::default(), known_path());
    let mut tcp = quiet(1_000_000);
    send(&mut startup, &mut path, &mut tcp, SEGS - 1);
    finish(&mut startup, &mut path, &mut tcp, 1);
    assert_eq!(path.wary, 0);
}

#[test]
fn a_start_repairs_its_losses_at_the_rate_of_the_path() {
    let (mut startup, mut path) = (Startup::default(), known_path());
    let mut tcp = quiet(1_000_000);
    send(&mut startup, &mut path, &mut tcp, SEGS / 2);
    tcp.recovering = 1;
    tcp.ssthresh = 60;
    tcp.cwnd = 2;
    let waiting = startup.before_send(&mut path, &delivery_rate(), &tcp);
    assert_eq!(
        (waiting.cwnd, waiting.pacing_bps),
        (0, 0),
        "before anything came"
    );
    tcp.repairing = 1;
    let repair = startup.before_send(&mut path, &delivery_rate(), &tcp);
    assert!(repair.cwnd > 2 && repair.cwnd <= 60, "{}", repair.cwnd);
    assert!(repair.pacing_bps > 0 && repair.pacing_bps <= mbit(500));
    // A window that is larger already stays.
    tcp.cwnd = 60;
    let enough = startup.before_send(&mut path, &delivery_rate(), &tcp);
    assert_eq!((enough.cwnd, enough.pacing_bps), (0, 0));
}

#[test]
fn ssthresh_after_a_loss_is_what_arrived_and_not_far_below_the_base() {
    let (mut startup, mut path) = (Startup::default(), known_path());
    let mut tcp = quiet(1_000_000);
    tcp.cwnd = 100;
    assert_eq!(
        startup.ssthresh_after_loss(&mut path, &tcp, 0, 70),
        70,
        "no burst"
    );
    send(&mut startup, &mut path, &mut tcp, SEGS / 2);
    assert_eq!(startup.state(), State::Measured);
    assert_eq!(
        startup.ssthresh_after_loss(&mut path, &tcp, 0, 70),
        70,
        "not known"
    );
    // The kernel's sample is of an earlier burst, until the first flight has arrived.
    (tcp.carried_segs, tcp.carried_us) = (400, RTT_US);
    let (delivered, now_us) = (tcp.delivered_segs, tcp.now_us);
    tcp.now_us = now_us + 2 * u64::from(RTT_US);
    for (arrived, expected) in [(180, 90), (100, 50), (20, 35), (900, 100), (15, 70)] {
        tcp.delivered_segs = delivered + arrived;
        assert_eq!(
            startup.ssthresh_after_loss(&mut path, &tcp, 0, 70),
            expected
        );
    }
    assert_eq!(
        startup.ssthresh_after_loss(&mut path, &tcp, 0, 2),
        2,
        "never below two"
    );
}

/// Its window ends before a train would begin, so nothing could be measured.
#[test]
fn a_path_thought_to_be_slow_is_found_to_be_fast() {
    for known in [8, 12, 20, 30] {
        let mut world = World::new(Link::new(mbit(500), 20 * MS, 131_072), delivery_rate(), 1);
        world.burst(700, SECOND);
        world.path.rate_bps = mbit(known);
        world.path.flight_segs = 0;
        let before = world.link.drops;
        for _ in 0..12 {
            world.burst(112, SECOND);
        }
        let found = world.path.rate_bps;
        assert!(found > mbit(200), "{known}: {found}");
        assert_eq!(world.link.drops, before, "{known}");
    }
}

/// ACKs that waited behind data in a queue on their way come all at once.
#[test]
fn compressed_acks_are_not_taken_for_a_rate() {
    let learned = |queue_us: u32| {
        let (mut startup, mut path) = (Startup::default(), pl_path::default());
        let mut tcp = quiet(1_000_000);
        tcp.packets_out = 64;
        startup.before_send(&mut path, &delivery_rate(), &{
            let mut first = tcp;
            first.packets_out = 0;
            first
        });
        // 64 segments, one each 100 us, held up until the last has arrived.
        for number in 0..64_u32 {
            let waits_us = queue_us - queue_us * number / 64;
            tcp.now_us = 1_020_000 + u64::from(number) * 100 + u64::from(waits_us);
            tcp.rtt_us = RTT_US + waits_us;
            tcp.delivered_segs += 1;
            startup.on_ack(&mut path, &delivery_rate(), &tcp);
        }
        path.learned_bps
    };
    let sent = MSS * 1_000_000 / 100;
    assert!(learned(0) <= sent && learned(0) > sent * 9 / 10);
    let compressed = learned(6_000);
    assert!(compressed <= sent * 11 / 10, "{compressed} of {sent}");
}
