// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comet-TCP's path of SC2003 at its own size (kamezawa-2004, 3 and 6.2.1): two sessions over a
//! simulated link of 8.2 Gbit/s and 350 ms, 16 streams, frames of 9,000 bytes, and a cut in which
//! all that is under way is lost. `experiments/gateway-paper.toml` is the program at a hundredth.
//!
//! `cargo bench -p paceline-gateway --bench paper`: some 20 s, 1 GB of memory. It fails where a
//! claim of the experiment does.

#![allow(clippy::single_range_in_vec_init, reason = "a path with one cut")]

#[path = "../../../tests/gateway/common/mod.rs"]
mod common;

use std::time::Instant;

use common::link::Path;
use common::world::{payload_share, World};
use paceline_gateway::session::{Limits, Nanos, Rate, Settings, Side, MS, SECOND};

const LINE: u64 = 8_200_000_000;
const ONE_WAY: Nanos = 175 * MS;
const STREAMS: u64 = 16;
/// Bytes from the IP header on: 9,000, less those of IPv4, UDP and the encryption.
const DATAGRAM: usize = 8_929;
/// The rate counts from the IP header on; a frame has 38 bytes more on the line.
const RESERVED: u64 = LINE / 9_038 * 9_000;

/// First time, to 10 ms, from which the next half second has so many bits per second.
fn full_rate_after(world: &World, from: Nanos, rate: f64) -> Nanos {
    let mut times = (0..200).map(|step| from + step * 10 * MS);
    times
        .find(|&at| world.goodput(at, at + SECOND / 2) >= rate)
        .expect("within two seconds")
}

fn main() {
    // What is under way in a round trip, and in the one more that a repair takes.
    let memory = 2 << 30;
    let settings = Settings {
        memory,
        rtt: 2 * ONE_WAY,
        datagram: DATAGRAM,
        overhead: 9_000 - DATAGRAM,
        peer: Limits::new(memory, STREAMS),
        streams: STREAMS,
        ..Settings::new(Side::Client, Rate::Reserve(RESERVED))
    };
    let bound = RESERVED as f64 * payload_share(&settings);
    println!("cut    before the cut      first byte  full rate  after it, of the line  took");
    for cut in [100 * MS, SECOND, 3 * SECOND] {
        let begun = Instant::now();
        let (from, until) = (4 * SECOND, 4 * SECOND + cut);
        let path = Path {
            cuts: vec![from..until],
            ..Path::new(RESERVED, ONE_WAY)
        };
        let mut world = World::new(&path, &settings, 1);
        for _ in 0..STREAMS {
            world.flow(1 << 50, 1);
        }
        world.run_until(until + 3 * SECOND);
        let before = world.goodput(2 * SECOND, from);
        let first = world.first_after(until) - until;
        let full = full_rate_after(&world, until + first, 0.97 * bound) - until;
        let after = world.goodput(until + SECOND, until + 3 * SECOND);
        println!(
            "{:3.1} s  {:.2} Gbit/s, {:.3}  {:7} ms  {:6} ms  {:.2} Gbit/s, {:.3}     {:.0} s",
            cut as f64 / 1e9,
            before / 1e9,
            before / LINE as f64,
            first / MS,
            full / MS,
            after / 1e9,
            after / LINE as f64,
            begun.elapsed().as_secs_f64()
        );
        // 92 % of the line, a round trip and 50 ms, a round trip and 200 ms.
        assert!(before >= 0.92 * LINE as f64 && after >= 0.92 * LINE as f64);
        assert!(first <= 2 * ONE_WAY + 50 * MS && full <= 2 * ONE_WAY + 200 * MS);
    }
}
