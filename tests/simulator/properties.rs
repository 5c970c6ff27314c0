// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds in every world: packets are conserved, time goes forwards, queues and
//! windows have their limits, and everything arrives in the end.

use paceline_simulator::event::{MS, SECOND};
use paceline_simulator::link::{Limit, Link};
use paceline_simulator::meter::Meter;
use paceline_simulator::random::{sequence, Purpose};
use paceline_simulator::red::{Red, RedConfig};
use paceline_simulator::sender::config::{Algorithm, SenderConfig, Stack};
use paceline_simulator::source::{Source, SourceConfig};
use paceline_simulator::world::{Way, World};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Case {
    algorithm: Algorithm,
    stack: Stack,
    flows: u32,
    segments: u32,
    window: u32,
    rate: u64,
    delay_ms: u64,
    limit: Limit,
    red: bool,
    ack_every: u32,
    reverse: u32,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let algorithm = prop::sample::select(vec![
        Algorithm::Reno,
        Algorithm::Newreno,
        Algorithm::Sack,
        Algorithm::Vegas,
        Algorithm::Cubic,
        Algorithm::Bic,
    ]);
    let stack = prop::sample::select(vec![Stack::Ns2, Stack::Ns3, Stack::Rfc, Stack::Linux]);
    let limit = prop_oneof![
        (1u32..40).prop_map(Limit::Packets),
        (1_500u64..60_000).prop_map(Limit::Bytes),
    ];
    (
        (algorithm, stack, 1u32..12, 1u32..400, 1u32..100),
        (1u64..200, 0u64..80, limit, any::<bool>(), 1u32..5),
        (1u32..20, any::<u64>()),
    )
        .prop_map(|(a, b, (reverse, seed))| {
            let (algorithm, stack, flows, segments, window) = a;
            let (mbit, delay_ms, limit, red, ack_every) = b;
            Case {
                algorithm,
                stack,
                flows,
                segments,
                window,
                rate: mbit * 1_000_000,
                delay_ms,
                limit,
                red,
                ack_every,
                reverse,
                seed,
            }
        })
}

fn world(case: &Case) -> World {
    let red = RedConfig {
        min: 2.0,
        max: 10.0,
        weight: 0.05,
        max_p: 0.1,
        gentle: false,
        wait: true,
        idle_packets_per_second: None,
    };
    let red = case
        .red
        .then(|| Red::new(red, 100_000, sequence(case.seed, Purpose::Queue, 0)));
    let delay = case.delay_ms * MS;
    // ACKs are lost, too.
    let back = Link::new(case.rate / 20, delay, Limit::Packets(case.reverse), None);
    let mut links = vec![Link::new(case.rate, delay, case.limit, red), back];
    for _ in 0..2 * case.flows {
        links.push(Link::new(100_000_000, MS, Limit::None, None));
    }
    let mut world = World::new(links, 0, Meter::new(10 * MS), 1);
    let mut sender = SenderConfig::of(case.algorithm, case.stack);
    sender.window = case.window;
    sender.ack_every = case.ack_every;
    world.add_group("all", sender, SourceConfig::Bulk(Some(case.segments)));
    for flow in 0..case.flows {
        let way = Way {
            there: vec![2 + 2 * flow, 0],
            back: vec![1, 3 + 2 * flow],
            path: flow,
            turn: flow,
        };
        let source = Source::new(sequence(case.seed, Purpose::Source, u64::from(flow)));
        world.add_flow(&way, u64::from(flow) * MS / 7, source);
    }
    world.prepare();
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn everything_arrives_and_nothing_is_made_up(case in case()) {
        let mut world = world(&case);
        let strict = case.stack != Stack::Ns2;
        for step in 1..20_000u64 {
            world.run(step * SECOND / 10);
            for flow in &world.flows {
                let totals = flow.sender.totals();
                // A packet is sent, and then arrives or is dropped, or is on its way.
                let seen = flow.receiver.arrivals() + u64::from(flow.dropped);
                prop_assert!(seen <= totals.sent);
                prop_assert!(totals.again <= totals.sent);
                prop_assert!(flow.receiver.distinct() <= u64::from(case.segments));
                // What is acknowledged has arrived.
                prop_assert!(flow.sender.acknowledged() <= flow.receiver.next());
                if strict {
                    prop_assert!(flow.sender.outstanding() <= case.window);
                }
                prop_assert!(flow.sender.window().cwnd >= 1.0);
            }
            let link = &world.links[0];
            match case.limit {
                Limit::Packets(most) => prop_assert!(link.counts().longest <= most),
                Limit::Bytes(most) => {
                    prop_assert!(u64::from(link.counts().longest) * 1_500 <= most);
                }
                Limit::None => {}
            }
            if !world.has_more() {
                break;
            }
        }
        prop_assert!(!world.has_more(), "something goes on for ever");
        for flow in &world.flows {
            prop_assert_eq!(flow.receiver.distinct(), u64::from(case.segments));
            prop_assert_eq!(flow.sender.acknowledged(), case.segments);
            let totals = flow.sender.totals();
            let seen = flow.receiver.arrivals() + u64::from(flow.dropped);
            prop_assert_eq!(seen, totals.sent, "packets are conserved");
        }
    }

    #[test]
    fn a_run_in_steps_is_the_run_at_once(case in case()) {
        let (mut whole, mut steps) = (world(&case), world(&case));
        whole.run(3 * SECOND);
        for step in 1..=300 {
            steps.run(step * 10 * MS);
        }
        prop_assert_eq!(whole.events, steps.events);
        prop_assert_eq!(whole.meter.counts(), steps.meter.counts());
        for (a, b) in whole.flows.iter().zip(&steps.flows) {
            prop_assert_eq!(a.sender.totals(), b.sender.totals());
            prop_assert_eq!(a.completed, b.completed);
        }
    }
}
