// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What connections whose readers stopped cost the others: time of the CPU for a second of four
//! transfers at 200 Mbit/s, both sides and a simulated link together, beside 0 to 4,000 of them.
//!
//! `cargo bench -p paceline-gateway --bench stopped`

#[path = "../../../tests/gateway/common/mod.rs"]
mod common;

use nix::time::{clock_gettime, ClockId};

use common::link::Path;
use common::world::World;
use paceline_gateway::session::{Limits, Rate, Settings, Side, MS, SECOND};

/// Seconds of virtual time that are measured.
const SECONDS: u64 = 4;

fn main() {
    let (memory, streams) = (128 << 20, 4_096);
    let settings = Settings {
        memory,
        streams,
        rtt: 50 * MS,
        peer: Limits::new(memory, streams),
        ..Settings::new(Side::Client, Rate::Reserve(200_000_000))
    };
    let credit = settings.limits().credit;
    println!("stopped  CPU until they stopped  CPU per second from then on  goodput");
    for stopped in [0u64, 40, 100, 400, 1_000, 4_000] {
        let begun = cpu();
        let mut world = World::new(&Path::new(204_000_000, 25 * MS), &settings, 1);
        for _ in 0..4 {
            world.flow(1 << 40, 1);
        }
        for _ in 0..stopped {
            let stream = world.flow(1 << 40, 1);
            world.flows.get_mut(&stream).expect("ours").is_read = false;
        }
        // They have what their first credit permits then.
        let warm = 2 * SECOND + 2 * stopped * credit * 8 * SECOND / 200_000_000;
        world.run_until(warm);
        let filled = cpu() - begun;
        let begun = cpu();
        world.run_for(SECONDS * SECOND);
        let took = (cpu() - begun) / SECONDS as f64;
        let goodput = world.goodput(warm, warm + SECONDS * SECOND) / 1e6;
        println!(
            "{stopped:7}  {filled:.3} s in {} s  {took:.3} s  {goodput:.1} Mbit/s",
            warm / SECOND
        );
    }
}

/// Seconds of CPU time of this process: other work on the machine does not count.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("Linux has it");
    time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
}
