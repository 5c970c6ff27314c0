// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rate that nobody reserved, in virtual time.

use crate::common::link::Path;
use crate::common::world::{payload_share, World};
use paceline_gateway::session::{Nanos, Rate, Settings, Side, MS, SECOND};

/// What streams that begin together have of a path.
struct Had {
    /// Of what the path carries, from the half of the time on.
    share: f64,
    world: World,
}

fn have(path: &Path, streams: u64, seconds: u64, seed: u64) -> Had {
    have_by(path, streams, seconds, seed, 0)
}

/// With timers of this tick.
fn have_by(path: &Path, streams: u64, seconds: u64, seed: u64, tick: Nanos) -> Had {
    let settings = Settings {
        rtt: 2 * path.delay,
        catch_up: 2 * MS,
        ..Settings::new(
            Side::Client,
            Rate::Learned {
                most: 1_000_000_000,
            },
        )
    };
    let mut world = World::new(path, &settings, seed);
    world.tick = tick;
    let flows: Vec<u64> = (0..streams).map(|_| world.idle()).collect();
    world.run_for(2 * SECOND);
    let (begin, half) = (world.now, seconds / 2 * SECOND);
    world.write_in_turn(&flows);
    world.run_until(begin + 2 * half);
    let bound = path.rate as f64 * payload_share(&settings) * (1.0 - path.loss);
    let share = world.goodput(begin + half, begin + 2 * half) / bound;
    let statistics = world.client.statistics();
    println!(
        "{streams} streams, {} Mbit/s, {} ms, seed {seed}: {share:.3} at {:.1} Mbit/s, the other \
         side's {:.1}; {statistics:?}",
        path.rate / 1_000_000,
        2 * path.delay / MS,
        world.client.rate() as f64 / 1e6,
        world.server.rate() as f64 / 1e6,
    );
    Had { share, world }
}

#[test]
fn a_learned_rate_finds_the_path_and_builds_no_queue() {
    for loss in [0.0, 0.01] {
        let path = Path {
            loss,
            buffer: 1 << 20,
            ..Path::new(20_000_000, 50 * MS)
        };
        let had = have(&path, 1, 20, 25);
        let queue: Nanos = had.world.client.round_trip() - 100 * MS;
        assert!(had.share >= 0.9, "{}", had.share);
        assert!(queue < 60 * MS, "{} ms", queue / MS);
    }
}

/// One stream pauses at times for its window. That its rate was too high was not seen in such a
/// round: 0.60 of the path, and three of five datagrams lost.
#[test]
fn a_stream_that_pauses_learns_that_its_rate_is_too_high() {
    for (path, least) in [
        (Path::new(20_000_000, 175 * MS), 0.93),
        (Path::new(10_000_000, 300 * MS), 0.90),
        (Path::new(50_000_000, 100 * MS), 0.90),
    ] {
        let path = Path { loss: 0.01, ..path };
        for seed in 1..4 {
            let had = have(&path, 1, 30, seed);
            let most = path.rate / 2 * 3;
            assert!(had.share >= least, "seed {seed}: {}", had.share);
            assert!(had.world.client.rate() <= most, "seed {seed}");
            let statistics = had.world.client.statistics();
            assert!(statistics.lost * 10 < statistics.sent, "{statistics:?}");
        }
    }
}

/// What a path loses at any rate is no sign of a rate too high: it was taken for one from a tenth
/// on, round for round, until 0.1 of the path was left.
#[test]
fn a_path_that_loses_a_tenth_is_used() {
    for seed in 1..4 {
        let path = Path {
            loss: 0.1,
            ..Path::new(20_000_000, 175 * MS)
        };
        let had = have(&path, 16, 30, seed);
        assert!(had.share >= 0.9, "seed {seed}: {}", had.share);
    }
}

/// A side that has only reports to send sees the queue of the other direction, and sends less
/// than it might: that says nothing about its rate. With less of it, it reported every 0.4 s.
#[test]
fn a_side_that_only_reports_keeps_its_rate() {
    for seed in 1..4 {
        let path = Path {
            loss: 0.003,
            jitter: 3 * MS,
            ..Path::new(50_000_000, 40 * MS)
        };
        let had = have(&path, 1, 20, seed);
        assert!(had.world.server.rate() >= 1_000_000, "seed {seed}");
        assert!(had.share >= 0.9, "seed {seed}: {}", had.share);
    }
}

/// A packet that was overtaken has a longer round trip, and there is no queue.
#[test]
fn reordering_is_not_taken_for_a_queue() {
    for streams in [1, 16] {
        let path = Path {
            reorder: (0.05, 20 * MS),
            ..Path::new(100_000_000, 20 * MS)
        };
        let had = have(&path, streams, 10, 1);
        assert!(had.share >= 0.9, "{}", had.share);
    }
}

/// Packets that come later when there are many, as in wireless networks, and wait in no queue:
/// the delay stays when the rate falls. It fell on: 0.04 of the path.
#[test]
fn a_delay_that_stays_is_no_queue() {
    for (streams, seed) in [(1, 1), (16, 2), (200, 3)] {
        let path = Path {
            loss: 0.005,
            jitter: 20 * MS,
            ..Path::new(5_000_000, 15 * MS)
        };
        let had = have(&path, streams, 30, seed);
        assert!(had.share >= 0.7, "{}", had.share);
    }
}

/// A timer with a tick of 1 ms and a burst of 16 KiB are 131 Mbit/s at most, whatever the rate:
/// what is late is caught up with.
#[test]
fn a_slow_timer_is_no_limit() {
    let path = Path::new(500_000_000, 10 * MS);
    let had = have_by(&path, 16, 10, 1, MS);
    assert!(had.share >= 0.9, "{}", had.share);
}
