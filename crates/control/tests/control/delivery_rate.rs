// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target `delivery-rate`: learning, finding more, giving way, forgetting.

use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_abi::{pl_path, pl_policy};
use paceline_control::{pl_tcp, remembered, Startup, State, PL_LEAD_SEGS, PL_TRAIN_FROM};

/// 500 Mbit/s, 20 ms, 128 KiB: the path of matsuda-2005.
fn link() -> Link {
    Link::new(mbit(500), 20 * MS, 131_072)
}

/// Shares of a rate, in percent.
fn percent(part: u64, whole: u64) -> u64 {
    part * 100 / whole
}

#[test]
fn an_unknown_path_is_left_to_the_base_and_learned() {
    let mut governed = World::new(link(), delivery_rate(), 1);
    let mut base = World::new(link(), delivery_rate(), 1);
    base.governed = 0;
    let (with, without) = (governed.burst(700, SECOND), base.burst(700, SECOND));
    assert_eq!(with.completion_ns, without.completion_ns);
    assert_eq!(with.starts, 0);
    assert_eq!(with.peak_rate, 0);
    let learned = percent(with.learned, link().rate);
    assert!((80..=100).contains(&learned), "learned {learned} %");
}

#[test]
fn the_second_burst_starts_at_what_was_learned() {
    let mut world = World::new(link(), delivery_rate(), 1);
    let first = world.burst(700, SECOND);
    let second = world.burst(700, SECOND);
    assert_eq!(second.starts, 1);
    assert_eq!(second.peak_rate, first.learned);
    assert_eq!(second.drops, 0);
    assert!(second.permille() < 1100, "{second:?}");
}

#[test]
fn nothing_stays_paced_after_a_burst() {
    let mut world = World::new(link(), delivery_rate(), 1);
    for segs in [700, 7000, 5, 20, 40, 700] {
        world.burst(segs, SECOND);
        assert!(!world.senders[0].is_paced(), "after {segs} segments");
        assert_eq!(world.senders[0].law.state(), State::Idle);
        assert_eq!(world.path.active, 0);
    }
}

#[test]
fn pacing_ends_within_a_bulk_transfer() {
    for link in [link(), link().with_tso()] {
        let mut world = World::new(link.clone(), delivery_rate(), 1);
        world.burst(700, SECOND);
        world.write(0, 100_000);
        world.run(world.now + SECOND);
        assert_eq!(world.senders[0].law.state(), State::Base, "{link:?}");
        assert!(!world.senders[0].is_paced(), "{link:?}");
        assert_eq!(world.senders[0].law.raw().rounds, 0, "{link:?}");
    }
}

/// The path is too slow for a probe, and its queue takes all that slow start sends.
#[test]
fn a_slow_start_that_is_the_bases_own_is_not_paced() {
    let link = Link::new(mbit(10), 20 * MS, 100_000 * MSS);
    let mut world = World::new(link, delivery_rate(), 1);
    world.burst(300, SECOND);
    world.write(0, 100_000);
    world.run(world.now + SECOND);
    let sender = &world.senders[0];
    assert_eq!(
        (sender.law.state(), sender.law.raw().slow),
        (State::Base, 1)
    );
    assert!(!sender.is_paced());
}

#[test]
fn gives_way_to_half_the_rate_and_finds_it_again() {
    for (segs, tso) in [(700, false), (7000, false), (700, true), (7000, true)] {
        let link = if tso { link().with_tso() } else { link() };
        let mut world = World::new(link, delivery_rate(), 1);
        for _ in 0..6 {
            world.burst(segs, SECOND);
        }
        world.link.rate = mbit(250);
        for _ in 0..3 {
            world.burst(segs, SECOND);
        }
        let half = world.burst(segs, SECOND);
        assert!(
            half.permille() <= 1200,
            "halved, {segs}, tso {tso}: {half:?}"
        );
        assert_eq!(half.drops, 0, "halved, {segs}, tso {tso}");
        world.link.rate = mbit(500);
        for _ in 0..3 {
            world.burst(segs, SECOND);
        }
        let whole = world.burst(segs, SECOND);
        assert!(
            whole.permille() <= 1200,
            "restored, {segs}, tso {tso}: {whole:?}"
        );
    }
}

/// The rate moves by a segment or two in each round: that must not hold the window where it is.
#[test]
fn the_rounds_of_a_long_burst_find_a_tenth_more() {
    let mut world = World::new(link(), delivery_rate(), 1);
    world.link.rate = mbit(450);
    for _ in 0..6 {
        world.burst(7000, SECOND);
    }
    world.link.rate = mbit(500);
    let took: Vec<_> = (0..3)
        .map(|_| world.burst(7000, SECOND).permille())
        .collect();
    assert!(took[1] <= 1030 && took[2] <= 1010, "{took:?}");
}

/// The stack waits until there is room for a whole packet, 5 % of this path.
#[test]
fn with_tso_the_window_has_room_for_a_packet_that_waits() {
    let mut world = World::new(link().with_tso(), delivery_rate(), 1);
    let bursts: Vec<_> = (0..10).map(|_| world.burst(7000, SECOND)).collect();
    for burst in &bursts[3..] {
        assert!(burst.permille() <= 1001, "{burst:?}");
        assert_eq!(burst.drops, 0, "{burst:?}");
    }
}

/// The path's rate after each of `bursts` of 2048 segments that arrive as they were sent. Their probes leave at
/// `probe_bps`.
fn rates_after_probes_at(probe_bps: u64, first_rate: u64, bursts: u64) -> Vec<u64> {
    const RTT_US: u64 = 63_000;
    let mut path = pl_path {
        rate_bps: first_rate,
        confirmed_us: SECOND / 1000,
        min_rtt_us: RTT_US as u32,
        min_rtt_at_us: SECOND / 1000,
        burst_segs: 2048,
        ..pl_path::default()
    };
    let mut startup = Startup::default();
    let mut tcp = pl_tcp {
        cwnd: 10,
        ssthresh: 4000,
        srtt_us: RTT_US as u32,
        min_rtt_us: RTT_US as u32,
        mss: MSS as u32,
        ..pl_tcp::default()
    };
    let mut burst = |number: u64| {
        tcp.now_us = number * SECOND / 1000;
        tcp.unsent = 2048 * MSS as u32;
        let rate = path.rate_bps;
        let mut sent_us = Vec::new();
        while tcp.unsent > 0 {
            startup.before_send(&mut path, &delivery_rate(), &tcp);
            let segment = sent_us.len() as u32;
            sent_us.push(tcp.now_us);
            let is_probe = (16..PL_TRAIN_FROM).contains(&segment);
            tcp.now_us += MSS * 1_000_000 / if is_probe { probe_bps } else { rate };
            tcp.unsent -= MSS as u32;
            tcp.sent_segs += 1;
            tcp.packets_out += 1;
            tcp.nxt += MSS as u32;
        }
        for sent in sent_us {
            tcp.now_us = sent + RTT_US;
            tcp.rtt_us = (tcp.now_us - sent) as u32;
            tcp.delivered_segs += 1;
            tcp.packets_out -= 1;
            tcp.una += MSS as u32;
            startup.on_ack(&mut path, &delivery_rate(), &tcp);
        }
        path.rate_bps
    };
    (1..=bursts).map(&mut burst).collect()
}

/// While a host writes the first packets slowly, the probe is slow, too. The trains after it show an empty queue.
#[test]
fn a_probe_that_the_application_slows_down_does_not_bound_the_rate() {
    let found = |rate: u64| -> Vec<u64> {
        let rates = rates_after_probes_at(mbit(150), rate, 5).into_iter();
        rates.map(|found| found * 1000 / rate).collect()
    };
    // 1/32, 1/16, and 1/8 from then on.
    assert_eq!(found(mbit(470)), [1031, 1095, 1232, 1386, 1560]);
    // A path that holds less than a burst: the round trips after the start find out.
    assert_eq!(found(mbit(300)), [1000; 5]);
}

/// A packet of a millisecond of the rate would go past the probe's beginning.
#[test]
fn with_tso_too_a_probe_finds_twice_the_rate() {
    for tso in [false, true] {
        let link = if tso { link().with_tso() } else { link() };
        let rate = link.rate;
        let mut world = World::new(link, delivery_rate(), 1);
        for _ in 0..6 {
            world.burst(207, SECOND);
        }
        world.path.rate_bps = rate / 2;
        world.burst(207, SECOND);
        let found = percent(world.path.rate_bps, rate);
        assert!((88..=102).contains(&found), "{found} %, tso {tso}");
    }
}

#[test]
fn an_application_that_pauses_is_no_congestion() {
    let mut world = World::new(link(), delivery_rate(), 1);
    for _ in 0..6 {
        world.burst(700, SECOND);
    }
    let known = world.path.rate_bps;
    for _ in 0..5 {
        world.write(0, 200);
        world.idle(8 * MS);
        world.write(0, 200);
        world.idle(SECOND);
        assert!(
            percent(world.path.rate_bps, known) >= 95,
            "{} of {known}",
            world.path.rate_bps
        );
    }
}

#[test]
fn initial_rate_serves_an_unknown_path() {
    let policy = pl_policy {
        initial_rate_bps: mbit(250),
        ..delivery_rate()
    };
    let mut world = World::new(link(), policy, 1);
    let mut plain = World::new(link(), delivery_rate(), 1);
    let first = world.burst(700, SECOND);
    assert_eq!(first.peak_rate, mbit(250));
    assert_eq!(first.drops, 0);
    assert!(first.completion_ns < plain.burst(700, SECOND).completion_ns);
    world.burst(700, SECOND);
    let third = world.burst(700, SECOND);
    assert!(third.permille() <= 1100, "{third:?}");
}

#[test]
fn a_remembered_rate_is_used_for_two_half_lives() {
    let policy = delivery_rate();
    let half_life = u64::from(policy.half_life_ms) * 1000;
    let path = pl_path {
        rate_bps: mbit(500),
        confirmed_us: 7,
        ..Default::default()
    };
    for age in [0, half_life - 1, half_life, 2 * half_life - 1] {
        assert_eq!(remembered(&path, &policy, 7 + age), mbit(500));
    }
    for halvings in [2, 3, 20, 31, 32, 63, 64, 65, 10_000] {
        assert_eq!(remembered(&path, &policy, 7 + halvings * half_life), 0);
    }
}

#[test]
fn a_forgotten_path_is_learned_anew() {
    let mut world = World::new(link(), delivery_rate(), 1);
    world.burst(700, SECOND);
    world.burst(700, SECOND);
    world.idle(65 * SECOND);
    let kept = world.burst(700, 3600 * SECOND);
    assert!(percent(kept.peak_rate, mbit(500)) >= 80, "{kept:?}");
    let forgotten = world.burst(700, SECOND);
    assert_eq!(forgotten.peak_rate, 0);
    let known = world.burst(700, SECOND);
    assert!(known.permille() <= 1100, "{known:?}");
}

/// Every other segment of a paced train is lost, over and over.
fn bad_burst(startup: &mut Startup, path: &mut pl_path, policy: &pl_policy, tcp: &mut pl_tcp) {
    path.rate_bps = mbit(100);
    path.confirmed_us = tcp.now_us;
    let segs = 4 * PL_TRAIN_FROM;
    tcp.unsent = segs * MSS as u32;
    for _ in 0..segs {
        startup.before_send(path, policy, tcp);
        tcp.now_us += 100;
        tcp.unsent -= MSS as u32;
        tcp.sent_segs += 1;
        tcp.packets_out += 1;
        tcp.nxt = tcp.nxt.wrapping_add(MSS as u32);
    }
    let paced = startup.state() == State::Paced;
    tcp.now_us += 50_000;
    tcp.delivered_segs += segs / 2;
    tcp.packets_out -= segs / 2;
    tcp.una = tcp.una.wrapping_add(MSS as u32 * segs / 2);
    startup.on_ack(path, policy, tcp);
    assert!(!paced || startup.state() != State::Paced);
    tcp.now_us += 50_000;
    tcp.retransmitted_segs += segs / 2;
    tcp.sent_segs += segs / 2;
    tcp.delivered_segs += segs / 2;
    tcp.packets_out = 0;
    tcp.una = tcp.nxt;
    startup.on_ack(path, policy, tcp);
    assert_eq!(startup.state(), State::Idle);
}

fn quiet(now_us: u64) -> pl_tcp {
    pl_tcp {
        now_us,
        cwnd: 10,
        ssthresh: 100,
        srtt_us: 50_000,
        min_rtt_us: 50_000,
        mss: MSS as u32,
        unsent: MSS as u32,
        ..Default::default()
    }
}

#[test]
fn the_breaker_opens_after_bad_starts_in_a_row_and_closes() {
    for starts in 1..5 {
        let policy = pl_policy {
            breaker_starts: starts,
            ..delivery_rate()
        };
        let (mut startup, mut path) = (Startup::default(), pl_path::default());
        let mut tcp = quiet(1_000_000);
        for bad in 1..=starts {
            assert!(!startup.breaker_open(tcp.now_us));
            bad_burst(&mut startup, &mut path, &policy, &mut tcp);
            assert_eq!(startup.raw().bad_starts, bad);
        }
        assert!(startup.breaker_open(tcp.now_us));
        assert_eq!(startup.raw().breaker_opened, 1);
        let counted = startup.raw().starts;
        // Left to the base while it is open.
        bad_burst(&mut startup, &mut path, &policy, &mut tcp);
        assert_eq!(startup.raw().starts, counted);
        assert_eq!(startup.raw().bad_starts, starts);
        tcp.now_us += u64::from(policy.breaker_hold_ms) * 1000;
        assert!(!startup.breaker_open(tcp.now_us));
        bad_burst(&mut startup, &mut path, &policy, &mut tcp);
        assert_eq!(startup.raw().starts, counted + 1);
    }
}

#[test]
fn a_breaker_that_is_off_never_opens() {
    let policy = pl_policy {
        breaker_permille: 0,
        breaker_starts: 0,
        breaker_hold_ms: 0,
        ..delivery_rate()
    };
    let (mut startup, mut path) = (Startup::default(), pl_path::default());
    let mut tcp = quiet(1_000_000);
    for _ in 0..20 {
        bad_burst(&mut startup, &mut path, &policy, &mut tcp);
        assert!(!startup.breaker_open(tcp.now_us));
    }
    assert_eq!(startup.raw().breaker_opened, 0);
}

#[test]
fn a_good_start_between_bad_ones_keeps_the_breaker_closed() {
    let policy = delivery_rate();
    let mut world = World::new(link(), policy, 1);
    world.burst(700, SECOND);
    for _ in 0..4 {
        // The path's rate is overrated fourfold: the start loses.
        world.path.rate_bps = 4 * mbit(500);
        world.path.confirmed_us = world.now / 1000;
        world.path.flight_segs = 100_000;
        let bad = world.burst(3000, SECOND);
        assert!(bad.drops > 0);
        for _ in 0..8 {
            world.burst(700, SECOND);
        }
        assert_eq!(world.senders[0].law.raw().breaker_opened, 0);
    }
    assert!(world.senders[0].law.raw().bad_starts >= 4);
}

#[test]
fn short_messages_hardly_wait() {
    for rate in [mbit(10), mbit(100), mbit(1000)] {
        for rtt in [MS, 20 * MS, 100 * MS] {
            let link = Link::new(rate, rtt, 200 * MSS);
            for segs in 1..=u64::from(PL_LEAD_SEGS) {
                let mut world = World::new(link.clone(), delivery_rate(), 1);
                let mut base = World::new(link.clone(), delivery_rate(), 1);
                base.governed = 0;
                for _ in 0..3 {
                    world.burst(200, SECOND);
                    base.burst(200, SECOND);
                }
                for pause in [0, MS, SECOND] {
                    let with = world.burst(segs, pause).completion_ns;
                    let without = base.burst(segs, pause).completion_ns;
                    assert!(
                        with <= without + rtt / 8 + MS / 1000,
                        "{segs} segments at {rate} B/s over {rtt} ns: {with} against {without}"
                    );
                }
            }
        }
    }
}

#[test]
fn no_start_while_recovering() {
    let policy = delivery_rate();
    let mut startup = Startup::default();
    let mut path = pl_path {
        rate_bps: mbit(100),
        confirmed_us: 1_000_000,
        ..Default::default()
    };
    let tcp = pl_tcp {
        recovering: 1,
        ..quiet(1_000_000)
    };
    let orders = startup.before_send(&mut path, &policy, &tcp);
    assert_eq!(orders, Default::default());
    assert_eq!(startup.state(), State::Base);
}

#[test]
fn counters_may_wrap() {
    for segs in [700u64, 7000] {
        let mut plain = World::new(link(), delivery_rate(), 1);
        let bursts: Vec<_> = (0..6).map(|_| plain.burst(segs, SECOND)).collect();
        for before in [1, 100, 699, 1400, 3000, 700 * MSS as u32, 2000 * MSS as u32] {
            let offset = 0u32.wrapping_sub(before);
            let mut world = World::with_counters(link(), delivery_rate(), 1, offset);
            for (index, burst) in bursts.iter().enumerate() {
                assert_eq!(
                    &world.burst(segs, SECOND),
                    burst,
                    "burst {index}, -{before}"
                );
            }
        }
    }
}

#[test]
fn a_longer_route_is_learned_at_once_and_a_shorter_one_too() {
    let mut world = World::new(link(), delivery_rate(), 1);
    for _ in 0..3 {
        world.burst(700, SECOND);
    }
    assert_eq!(world.path.min_rtt_us / 1000, 20);
    // The kernel's own minimum RTT goes on saying 20 for five minutes.
    world.link.rtt_ns = 100 * MS;
    world.burst(700, SECOND);
    assert_eq!(world.path.min_rtt_us / 1000, 100);
    for _ in 0..2 {
        let known = world.burst(700, SECOND);
        assert!(known.permille() <= 1100, "{known:?}");
        assert_eq!(known.drops, 0);
    }
    world.link.rtt_ns = 20 * MS;
    world.burst(700, SECOND);
    assert_eq!(world.path.min_rtt_us / 1000, 20);
    let back = world.burst(700, SECOND);
    assert!(back.permille() <= 1100, "{back:?}");
}

/// Bursts of `segs` on a path that nobody knows, and after a pause of so many half-lives.
fn fresh_and_after_a_pause(link: &Link, segs: u64, halvings: u64) -> Vec<(u64, u64)> {
    let mut fresh = World::new(link.clone(), delivery_rate(), 1);
    let mut world = World::new(link.clone(), delivery_rate(), 1);
    for _ in 0..6 {
        world.burst(segs, SECOND);
    }
    world.idle(halvings * 60 * SECOND + SECOND);
    (0..6)
        .map(|_| {
            let (fresh, paused) = (fresh.burst(segs, SECOND), world.burst(segs, SECOND));
            (fresh.completion_ns, paused.completion_ns)
        })
        .collect()
}

#[test]
fn after_a_pause_no_burst_is_slower_than_on_a_fresh_path() {
    let paths = [
        link(),
        link().with_tso(),
        Link::new(mbit(100), 50 * MS, 250_000),
        // Without delayed ACKs, which are met by chance.
        Link::new(mbit(50), 5 * MS, 40_000).with_each_acknowledged(),
    ];
    for path in paths {
        for segs in [70, 700, 7000] {
            for halvings in [1, 2, 3, 4, 6, 8, 12, 20] {
                for (index, (fresh, paused)) in fresh_and_after_a_pause(&path, segs, halvings)
                    .into_iter()
                    .enumerate()
                {
                    assert!(
                        paused * 100 <= fresh * 102,
                        "burst {index} of {segs} segments after {halvings} half-lives: {paused} ns, fresh {fresh}, {path:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn short_messages_do_not_unlearn_a_path() {
    let mut world = World::new(link(), delivery_rate(), 1);
    for _ in 0..6 {
        world.burst(7000, SECOND);
    }
    world.idle(61 * SECOND);
    for _ in 0..6 {
        world.burst(20, SECOND);
    }
    let first = world.burst(7000, SECOND);
    assert!(first.permille() <= 1150, "{first:?}");
    let second = world.burst(7000, SECOND);
    assert!(second.permille() <= 1020, "{second:?}");
}

#[test]
fn a_loss_after_the_start_lowers_the_rate_and_ends_the_rounds() {
    let mut world = World::new(link(), delivery_rate(), 1);
    for _ in 0..4 {
        world.burst(700, SECOND);
    }
    world.write(0, 20_000);
    world.run(world.now + 60 * MS);
    assert_eq!(world.senders[0].law.state(), State::Base);
    assert_ne!(world.senders[0].law.raw().rounds, 0);
    let before = world.path.rate_bps;
    let buffer = std::mem::replace(&mut world.link.buffer, MSS);
    world.run(world.now + 5 * MS);
    world.link.buffer = buffer;
    assert!(world.link.drops > 0);
    world.run(world.now + 60 * MS);
    assert_eq!(world.senders[0].law.raw().rounds, 0);
    let after = percent(world.path.rate_bps, before);
    assert!((90..=98).contains(&after), "{after}");
}

/// A message now and then says how often the application sends, not what fits.
#[test]
fn app_limited_samples_are_not_learned() {
    let learned = |app_limited| {
        let (mut startup, mut path) = (Startup::default(), pl_path::default());
        let mut tcp = quiet(1_000_000);
        tcp.app_limited = app_limited;
        startup.before_send(&mut path, &delivery_rate(), &tcp);
        // One segment each millisecond, each acknowledged a round trip later.
        for _ in 0..200 {
            tcp.now_us += 1_000;
            tcp.sent_segs += 1;
            tcp.delivered_segs += 1;
            tcp.packets_out = 20;
            startup.on_ack(&mut path, &delivery_rate(), &tcp);
        }
        path.learned_bps
    };
    assert!(learned(0) > 0);
    assert_eq!(learned(1), 0);
}
