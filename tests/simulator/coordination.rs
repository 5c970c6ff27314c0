// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coordinated flows: bounds hold, end with their lease, and never stop a transfer.

use paceline_coordinator::algorithm::Limits;
use paceline_simulator::event::{MS, NEVER, SECOND, US};
use paceline_simulator::link::{Limit, Link};
use paceline_simulator::meter::Meter;
use paceline_simulator::random::{sequence, Purpose};
use paceline_simulator::sender::config::{Algorithm, SenderConfig, Stack};
use paceline_simulator::source::{Source, SourceConfig};
use paceline_simulator::world::{Coordination, Way, World};
use proptest::prelude::*;

/// Flows of 40 Mbit/s and 100 ms, whose queue holds a tenth of that.
const RATE: u64 = 40_000_000;
const DELAY: u64 = 50 * MS;
const QUEUE: u32 = 33;

fn world(algorithm: Algorithm, flows: u32, segments: Option<u32>, queue: u32) -> World {
    let links = vec![
        Link::new(RATE, DELAY, Limit::Packets(queue), None),
        Link::new(0, DELAY, Limit::None, None),
    ];
    let mut world = World::new(links, 0, Meter::new(SECOND), 1);
    let sender = SenderConfig::of(algorithm, Stack::Linux);
    world.add_group("all", sender, SourceConfig::Bulk(segments));
    for flow in 0..flows {
        let way = Way {
            there: vec![0],
            back: vec![1],
            path: flow,
            turn: flow,
        };
        let source = Source::new(sequence(1, Purpose::Source, flow.into()));
        world.add_flow(&way, u64::from(flow) * MS, source);
    }
    world
}

fn coordinated(mut world: World, algorithm: &str, until: u64) -> World {
    let choice = algorithm.parse().expect("an algorithm");
    let mut coordination = Coordination::new("all", choice, until);
    for flow in 0..world.flows.len() as u32 {
        coordination.add(flow, None);
    }
    world.coordinate(coordination);
    world
}

fn ends_s(world: &mut World) -> (f64, f64) {
    world.prepare();
    world.run(100 * SECOND);
    let mut ends: Vec<u64> = world.flows.iter().map(|flow| flow.completed).collect();
    ends.sort_unstable();
    assert_ne!(ends.last(), Some(&NEVER), "all is over within 100 s");
    let seconds = |end: u64| end as f64 / SECOND as f64;
    (seconds(ends[0]), seconds(ends[ends.len() - 1]))
}

/// Most in flight of the first flow, at any millisecond of a time.
fn most_in_flight(world: &mut World, from: u64, to: u64) -> u32 {
    let look = |at: u64| {
        world.run(at);
        world.flows[0].sender.in_flight()
    };
    (from / MS..to / MS)
        .map(|ms| ms * MS)
        .map(look)
        .max()
        .expect("some time")
}

#[test]
fn a_cap_holds_until_its_lease_ends() {
    let roomy = world(Algorithm::Cubic, 1, None, 10 * QUEUE);
    let mut world = coordinated(roomy, "none", 1);
    world.prepare();
    world.run(MS / 2);
    let sender = &mut world.flows[0].sender;
    sender.limit(Limits::upper(40.0), 10 * SECOND / US);
    assert_eq!(most_in_flight(&mut world, 2 * SECOND, 10 * SECOND), 40);
    assert!(most_in_flight(&mut world, 10 * SECOND, 14 * SECOND) > 120);
}

#[test]
fn a_lift_is_what_is_in_flight() {
    for algorithm in [Algorithm::Cubic, Algorithm::Sack] {
        let mut world = coordinated(world(algorithm, 2, None, QUEUE), "none", 1);
        world.prepare();
        world.run(20 * SECOND);
        let own = world.flows[0].sender.in_flight();
        let lifted = f64::from(own + 60);
        let until_us = 25 * SECOND / US;
        for flow in &mut world.flows {
            flow.sender.limit(Limits::upper(60.0), until_us);
        }
        world.run(22 * SECOND);
        world.flows[0].sender.limit(Limits::lower(lifted), until_us);
        assert_eq!(
            most_in_flight(&mut world, 22 * SECOND, 24 * SECOND),
            own + 60
        );
    }
}

#[test]
fn even_streams_end_together_and_sooner() {
    let transfer = || world(Algorithm::Cubic, 8, Some(4_000), QUEUE);
    let (first, last) = ends_s(&mut transfer());
    let (first_even, last_even) = ends_s(&mut coordinated(transfer(), "even", NEVER));
    assert!(last / first > 1.1, "uncoordinated: {first} to {last}");
    assert!(last_even / first_even < 1.02, "{first_even} to {last_even}");
    assert!(last_even < last, "{last_even} against {last}");
}

#[test]
fn observing_changes_nothing() {
    let transfer = || world(Algorithm::Cubic, 8, Some(4_000), QUEUE);
    let alone = ends_s(&mut transfer());
    assert_eq!(alone, ends_s(&mut coordinated(transfer(), "none", NEVER)));
}

#[test]
fn without_its_coordinator_a_transfer_goes_on_by_itself() {
    let transfer = || world(Algorithm::Cubic, 8, Some(4_000), QUEUE);
    // What is frozen at the average of the first windows takes much longer.
    let frozen = "limit-average:period=50ms";
    let (_, last_frozen) = ends_s(&mut coordinated(transfer(), frozen, NEVER));
    let (_, last_freed) = ends_s(&mut coordinated(transfer(), frozen, SECOND));
    let (_, last) = ends_s(&mut transfer());
    let text = format!("frozen {last_frozen}, freed {last_freed}, alone {last}");
    assert!(last_frozen > 2.0 * last, "{text}");
    assert!(last_freed < 0.5 * last_frozen, "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn everything_arrives_whatever_bounds_it(
        name in prop::sample::select(vec![
            "even", "scoreboard", "scoreboard:block=2,headroom=4,period=20ms", "largest",
            "average:side=lower", "limit-weighted-average",
        ]),
        algorithm in prop::sample::select(vec![Algorithm::Cubic, Algorithm::Sack, Algorithm::Bic]),
        flows in 1u32..12,
        segments in 1u32..600,
        queue in 1u32..60,
        dies_ms in 1u64..4_000,
    ) {
        let transfer = world(algorithm, flows, Some(segments), queue);
        let mut world = coordinated(transfer, name, dies_ms * MS);
        world.prepare();
        world.run(2_000 * SECOND);
        prop_assert!(!world.has_more(), "something goes on for ever");
        for flow in &world.flows {
            prop_assert_eq!(flow.sender.acknowledged(), segments);
            let totals = flow.sender.totals();
            let seen = flow.receiver.arrivals() + u64::from(flow.dropped);
            prop_assert_eq!(seen, totals.sent, "packets are conserved");
        }
    }
}
