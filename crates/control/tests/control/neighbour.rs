// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Somebody else's flow fills the queue of the path: what it takes is no news of what the
//! path carries.

use crate::support::{delivery_rate, mbit, Link, World, MS, SECOND};

/// 50 Mbit/s, 20 ms, a queue of 200 ms: a home's or an office's access link.
fn access_link() -> Link {
    Link::new(mbit(50), 20 * MS, 1_250_000)
}

/// Bursts of 200 KB, every 400 ms after the last was answered, beside a copy of the base's.
/// Returns their mean completion and the path's rate at the end, in percent of the link's.
fn beside_a_copy(governed: usize, bursts: u64) -> (u64, u64) {
    let mut world = World::new(access_link(), delivery_rate(), 2);
    world.governed = governed;
    for _ in 0..6 {
        world.burst_of(0..1, 138, 400 * MS);
    }
    world.write(1, 10_000_000);
    world.idle(3 * SECOND);
    let took: u64 = (0..bursts)
        .map(|_| world.burst_of(0..1, 138, 400 * MS).completion_ns)
        .sum();
    (took / bursts, world.path.rate_bps * 100 / mbit(50))
}

#[test]
fn a_standing_queue_does_not_make_a_path_slow() {
    for bursts in [10, 40, 160] {
        let (plain, _) = beside_a_copy(0, bursts);
        let (paced, rate) = beside_a_copy(1, bursts);
        assert!(
            paced <= plain,
            "{bursts} bursts: {paced} ns, without us {plain}"
        );
        assert!(rate >= 50, "{bursts} bursts: the path is down to {rate} %");
    }
}
