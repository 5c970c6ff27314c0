// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any path that lets something through at last gets everything across, in order, once.

use crate::common::link::Path;
use crate::common::world::World;
use paceline_gateway::session::{Limits, Rate, Settings, Side, MS, SECOND};
use proptest::prelude::*;

/// Cuts or pauses: where both meet, no rule can tell what is under way from what is lost.
fn gaps() -> impl Strategy<Value = (bool, Vec<(u64, u64)>)> {
    let gap = (0u64..4_000, 1u64..2_000);
    (any::<bool>(), proptest::collection::vec(gap, 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn everything_arrives_in_order_and_once(
        seed in any::<u32>(),
        mbit in 2u64..40,
        delay in 1u64..150,
        loss in 0u64..50,
        jitter in 0u64..4,
        buffer_ms in 20u64..500,
        (is_cut, gaps) in gaps(),
        sizes in proptest::collection::vec(0u64..400_000, 1..6),
    ) {
        let memory = 16 << 20;
        let settings = Settings {
            memory,
            rtt: 100 * MS,
            peer: Limits::new(memory, 1_024),
            ..Settings::new(Side::Client, Rate::Reserve(mbit * 1_000_000))
        };
        let gaps: Vec<_> = gaps
            .into_iter()
            .map(|(at, length)| at * MS..(at + length) * MS)
            .collect();
        let rate = mbit * 1_020_000;
        let mut path = Path {
            loss: loss as f64 / 1_000.0,
            jitter: jitter * MS,
            buffer: rate / 8 * buffer_ms / 1_000,
            ..Path::new(rate, delay * MS)
        };
        match is_cut {
            true => path.cuts = gaps,
            false => path.pauses = gaps,
        }
        let mut world = World::new(&path, &settings, seed.into());
        let flows: Vec<u64> = sizes.iter().map(|&size| world.flow(size, 1)).collect();
        world.run_until(40 * SECOND);
        for flow in flows {
            prop_assert!(world.flows[&flow].has_ended, "{flow}: {} of {}", world.flows[&flow].read, world.flows[&flow].want);
        }
        prop_assert_eq!((world.client.open_streams(), world.server.open_streams()), (0, 0));
        prop_assert_eq!((world.client.held(), world.server.held()), (0, 0));
        let statistics = world.client.statistics();
        // One in a thousand, and a few for what the first round trip cannot know.
        prop_assert!(statistics.spurious * 1_000 <= statistics.sent + 5_000, "{statistics:?}");
        let most = mbit * 1_000_000 / 8 / 100 + settings.burst + 2 * 1_500;
        prop_assert!(world.forth.most_in_10_ms() <= most);
    }
}
