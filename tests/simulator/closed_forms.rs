// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator against what is known without it.

use paceline_simulator::event::{MS, SECOND, US};
use paceline_simulator::link::{Limit, Link, Loss};
use paceline_simulator::meter::{Meter, Spread};
use paceline_simulator::random::{sequence, Purpose};
use paceline_simulator::sender::config::{Algorithm, SenderConfig, Stack};
use paceline_simulator::source::{Source, SourceConfig};
use paceline_simulator::world::{Way, World};

fn source(flow: u64) -> Source {
    Source::new(sequence(11, Purpose::Source, flow))
}

fn way(there: u32, back: u32) -> Way {
    Way {
        there: vec![there],
        back: vec![back],
        path: 0,
        turn: 0,
    }
}

fn two(link: Link, back: Link, window_ns: u64) -> World {
    World::new(vec![link, back], 0, Meter::new(window_ns), 1)
}

fn open(rate: u64, delay: u64) -> Link {
    Link::new(rate, delay, Limit::None, None)
}

/// M/D/1: what an arrival finds waiting is, by PASTA, the time average, and that is
/// rho^2 / (2 (1 - rho)) (Pollaczek and Khinchine), the one in service not counted.
/// Of a line's two states the share of time in each, and how long a bad one lasts, are known.
#[test]
fn a_line_loses_the_share_that_it_should_in_bursts_as_long_as_they_should_be() {
    const PACKETS: u64 = 400_000;
    for (to_bad, to_good, good, bad) in [(0.0, 1.0, 0.03, 0.03), (0.01, 0.33, 0.0, 1.0)] {
        let loss = Loss {
            to_bad,
            to_good,
            good,
            bad,
        };
        let random = sequence(1, Purpose::Line, 0);
        let mut link = Link::new(10_000_000, MS, Limit::Packets(10), None).with_loss(loss, random);
        let (mut bursts, mut lost_before) = (0, false);
        for packet in 0..PACKETS {
            let lost = link.take(packet * 2 * MS, 1_000).is_none();
            bursts += u64::from(lost && !lost_before);
            lost_before = lost;
        }
        let is_bad = to_bad / (to_bad + to_good);
        let share = is_bad * bad + (1.0 - is_bad) * good;
        let counts = link.counts();
        let found = counts.lost as f64 / PACKETS as f64;
        assert!((found / share - 1.0).abs() < 0.03, "{found}, not {share}");
        assert_eq!(counts.dropped(), 0, "nothing waits");
        let length = counts.lost as f64 / bursts as f64;
        let expected = if good == bad {
            1.0 / (1.0 - share)
        } else {
            1.0 / to_good
        };
        assert!(
            (length / expected - 1.0).abs() < 0.03,
            "{length}, not {expected}"
        );
    }
}

#[test]
fn a_queue_of_poisson_arrivals_has_the_length_of_m_d_1() {
    for load in [0.3, 0.6, 0.9] {
        // A packet takes 240 us.
        let link = Link::new(50_000_000, MS, Limit::Packets(1_000_000), None);
        let mut world = two(link, open(0, 0), 100 * MS);
        let mean_ns = (240.0 * US as f64 / load) as u64;
        let sender = SenderConfig::of(Algorithm::Udp, Stack::Rfc);
        world.add_group("udp", sender, SourceConfig::Poisson { mean_ns });
        world.add_flow(&way(0, 1), 0, source(1));
        world.prepare();
        world.run(1_500 * SECOND);
        let counts = world.links[0].counts();
        let found = counts.queued as f64 / counts.arrived as f64;
        let expected = load * load / (2.0 * (1.0 - load));
        assert!(
            (found / expected - 1.0).abs() < 0.03,
            "load {load}: {found} instead of {expected}"
        );
    }
}

/// The number of arrivals of n Poisson sources in a window has the variance of its mean.
#[test]
fn udp_keeps_the_coefficient_of_variation_of_its_sources() {
    for clients in [1, 10, 50] {
        let mut links = vec![Link::new(50_000_000, 25 * MS, Limit::Packets(50), None)];
        links.push(open(0, 0));
        links.extend((0..clients).map(|_| open(10_000_000, 25 * MS)));
        let mut world = World::new(links, 0, Meter::new(100 * MS), 1);
        let sender = SenderConfig::of(Algorithm::Udp, Stack::Rfc);
        let poisson = SourceConfig::Poisson { mean_ns: 10 * MS };
        world.add_group("udp", sender, poisson);
        for client in 0..clients {
            let way = Way {
                there: vec![2 + client, 0],
                ..way(0, 1)
            };
            world.add_flow(&way, 0, source(u64::from(client)));
        }
        world.prepare();
        world.run(1_000 * SECOND);
        let spread = Spread::of(world.meter.counts(), 1).expect("windows");
        let expected = 1.0 / (10.0 * f64::from(clients)).sqrt();
        assert!(
            (spread.cov() / expected - 1.0).abs() < 0.03,
            "{clients}: {} instead of {expected}",
            spread.cov()
        );
        assert!((spread.dispersion() - 1.0).abs() < 0.06);
    }
}

/// One endless flow of Reno that loses when its window exceeds what the path holds: a
/// sawtooth between W/2 and W loses one packet in 3/8 W^2, so that its rate is the square
/// root law's: sqrt(3/2) / (RTT sqrt(p)) (Mathis et al. 1997).
#[test]
fn a_lone_flow_follows_the_square_root_law() {
    for (algorithm, stack) in [
        (Algorithm::Newreno, Stack::Rfc),
        (Algorithm::Sack, Stack::Rfc),
        (Algorithm::Reno, Stack::Ns2),
    ] {
        // 1000 packets per second over 100 ms, and a queue of a packet or two: the round
        // trip is that of the propagation, nearly.
        let link = Link::new(12_000_000, 50 * MS, Limit::Packets(10), None);
        let mut world = two(link, open(0, 50 * MS), 100 * MS);
        let mut sender = SenderConfig::of(algorithm, stack);
        sender.initial_ssthresh = 50.0;
        world.add_group("bulk", sender, SourceConfig::Bulk(None));
        world.add_flow(&way(0, 1), 0, source(1));
        world.prepare();
        world.run(2_000 * SECOND);
        let flow = &world.flows[0];
        let sent = flow.sender.totals().sent as f64;
        let events = f64::from(flow.sender.totals().recoveries);
        let loss = events / sent;
        let rate = flow.receiver.distinct() as f64 / 2_000.0;
        // Half of the queue and a packet's time come to the round trip on average.
        let rtt = 0.1 + 0.001 * (1.0 + 3.0);
        let expected = 1.5_f64.sqrt() / (rtt * loss.sqrt());
        assert!(events > 100.0, "{algorithm:?} {events}");
        assert!(
            (rate / expected - 1.0).abs() < 0.08,
            "{algorithm:?}: {rate} instead of {expected}, loss {loss}"
        );
        // Nearly all losses are repaired without one.
        let timeouts = f64::from(flow.sender.totals().timeouts);
        assert!(timeouts < events / 50.0, "{algorithm:?} {timeouts}");
    }
}

/// A window that is fixed sends a window each round trip.
#[test]
fn a_receivers_window_is_a_rate() {
    for (algorithm, stack) in [
        (Algorithm::Reno, Stack::Ns2),
        (Algorithm::Newreno, Stack::Rfc),
        (Algorithm::Sack, Stack::Rfc),
        (Algorithm::Cubic, Stack::Linux),
        (Algorithm::Bic, Stack::Linux),
    ] {
        let link = Link::new(100_000_000, 50 * MS, Limit::Packets(1_000), None);
        let mut world = two(link, open(0, 50 * MS), 100 * MS);
        let mut sender = SenderConfig::of(algorithm, stack);
        sender.window = 20;
        world.add_group("bulk", sender, SourceConfig::Bulk(None));
        world.add_flow(&way(0, 1), 0, source(1));
        world.prepare();
        world.run(100 * SECOND);
        let rate = world.flows[0].receiver.distinct() as f64 / 100.0;
        // 20 packets in 100.12 ms; slow start costs some.
        assert!((rate / 199.8 - 1.0).abs() < 0.01, "{algorithm:?} {rate}");
        assert_eq!(world.links[0].counts().dropped(), 0);
    }
}

/// A flow of Vegas alone keeps between alpha and beta segments in the queue.
#[test]
fn vegas_keeps_its_few_segments_queued() {
    let link = Link::new(12_000_000, 50 * MS, Limit::Packets(1_000), None);
    let mut world = two(link, open(0, 50 * MS), 100 * MS);
    world.samples.every_ns = 100 * MS;
    let sender = SenderConfig::of(Algorithm::Vegas, Stack::Rfc);
    world.add_group("bulk", sender, SourceConfig::Bulk(None));
    world.add_flow(&way(0, 1), 0, source(1));
    world.prepare();
    world.run(200 * SECOND);
    let late = &world.samples.queue[1_000..];
    let mean = late.iter().map(|(queue, _)| f64::from(*queue)).sum::<f64>() / late.len() as f64;
    assert!((0.5..=4.0).contains(&mean), "{mean}");
    let rate = world.flows[0].receiver.distinct() as f64 / 200.0;
    assert!(rate > 950.0, "{rate}");
    assert_eq!(world.links[0].counts().dropped(), 0);
}

/// A connection that is set up first sends after a round trip of small packets.
#[test]
fn a_handshake_takes_a_round_trip() {
    for (handshake, expected) in [(false, 0), (true, 2 * (32 * US + 10 * MS))] {
        // A packet takes 1.2 ms, an ACK 32 us.
        let link = || Link::new(10_000_000, 10 * MS, Limit::Packets(10), None);
        let mut world = two(link(), link(), 100 * MS);
        let mut sender = SenderConfig::of(Algorithm::Newreno, Stack::Ns3);
        sender.handshake = handshake;
        world.add_group("bulk", sender, SourceConfig::Bulk(Some(1)));
        world.add_flow(&way(0, 1), 3 * MS, source(1));
        world.prepare();
        world.run(SECOND);
        let arrived = 3 * MS + expected + 1_200 * US + 10 * MS;
        assert_eq!(world.flows[0].completed, arrived);
    }
}
