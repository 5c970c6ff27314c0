// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What many connections that do not move take of the memory, counted at the allocator: alone in
//! its process, and in one test.

#[path = "common/mod.rs"]
mod common;

use common::link::Path;
use common::world::World;
use paceline_gateway::session::{Limits, Rate, Settings, Side, MS, SECOND};

#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

const HALF_OPEN: u64 = 10_000;
const STOPPED: u64 = 1_000;
/// Beside the bytes of a stream, on each side.
const BESIDE: u64 = 1 << 10;

/// Each of 10,000 connections waits for its destination's answer, each of 1,000 for its reader,
/// with as many bytes as may be, and four go on.
#[test]
fn ten_thousand_half_open_and_a_thousand_stopped_fit_into_the_memory() {
    let (memory, streams) = (192 << 20, 12_288);
    let settings = Settings {
        memory,
        streams,
        rtt: 20 * MS,
        peer: Limits::new(memory, streams),
        ..Settings::new(Side::Client, Rate::Reserve(100_000_000))
    };
    let limits = settings.limits();
    assert_eq!((limits.streams, limits.credit), (12_288, 4 << 10));
    let mut world = World::new(&Path::new(102_000_000, 10 * MS), &settings, 1);
    let others: Vec<u64> = (0..4).map(|_| world.flow(1 << 40, 1)).collect();
    let second = |world: &mut World| {
        world.run_for(2 * SECOND);
        world.goodput(world.now - SECOND, world.now)
    };
    let alone = second(&mut world);
    let before = HEAP.current_usage() as u64;

    // A target as long as it may be.
    for _ in 0..HALF_OPEN {
        let stream = world.client.open(&[7; 300], 1);
        assert!(stream.is_some(), "one more");
    }
    let mut stopped = Vec::new();
    for _ in 0..STOPPED {
        let stream = world.flow(1 << 40, 1);
        world.flows.get_mut(&stream).expect("ours").is_read = false;
        stopped.push(stream);
    }
    world.run_for(2 * SECOND);
    let mut bytes = 0;
    for stream in &stopped {
        let written = world.flows[stream].written;
        assert!(written >= limits.credit, "{written}");
        bytes += written;
        world.server.accept(*stream);
    }
    world.events = Vec::new();
    world.forth.offered = Vec::new();
    world.back.offered = Vec::new();
    let both = HEAP.current_usage() as u64 - before;
    let count = HALF_OPEN + STOPPED + 4;
    assert_eq!(world.client.open_streams() as u64, count);
    assert_eq!(world.server.open_streams() as u64, count);
    println!(
        "{} bytes a connection on both sides, {} KiB in all",
        both / count,
        both >> 10
    );
    // What stopped waits at the server; the client holds nothing of it.
    // Beyond their credit they have loans: a third of what windows may grow by.
    let lent = bytes - STOPPED * limits.credit;
    assert!(lent <= memory / 4 / 3, "{lent} bytes lent");
    let most = bytes * 5 / 4 + 2 * count * BESIDE;
    assert!(both <= most && most < memory, "{both} of {most}");

    let beside = second(&mut world);
    println!("the four: {beside} of {alone}");
    assert!(beside >= 0.99 * alone, "{beside} of {alone}");
    for stream in &others {
        assert!(!world.flows[stream].was_reset);
    }

    // One more than may be is refused, and takes nothing.
    while world.client.open(&[7; 300], 1).is_some() {}
    world.run_for(SECOND);
    let full = HEAP.current_usage();
    for _ in 0..HALF_OPEN {
        assert_eq!(world.client.open(&[7; 300], 1), None);
    }
    assert_eq!(HEAP.current_usage(), full);
    assert_eq!(world.server.open_streams() as u64, limits.streams);

    // All of it is given back.
    let open: Vec<u64> = (0..limits.streams).map(|number| 2 * number).collect();
    for stream in open {
        world.client.reset(stream, 1);
    }
    world.flows.clear();
    world.run_for(5 * SECOND);
    let open = [&world.client, &world.server].map(|side| side.open_streams());
    assert_eq!((open, world.client.held()), ([0, 0], 0));
}
