// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session must reach, in virtual time.

#![allow(clippy::single_range_in_vec_init, reason = "a path with one cut")]

use crate::common::link::Path;
use crate::common::world::{payload_share, World};
use paceline_gateway::session::{Event, Limits, Rate, Settings, Side, MS, SECOND};

/// A side with a reserved rate, bits per second, and memory for a long path.
fn reserve(rate: u64) -> Settings {
    let memory = 128 << 20;
    Settings {
        memory,
        rtt: 350 * MS,
        peer: Limits::new(memory, 1_024),
        ..Settings::new(Side::Client, Rate::Reserve(rate))
    }
}

/// More than any test moves.
const FOREVER: u64 = 1 << 40;

/// 20 Mbit/s, 350 ms, 1 % loss: the share of what the path can carry. All have the same.
fn share_at_loss(streams: u64) -> f64 {
    let settings = reserve(20_000_000);
    let path = Path {
        loss: 0.01,
        ..Path::new(20_400_000, 175 * MS)
    };
    let mut world = World::new(&path, &settings, 1);
    for _ in 0..streams {
        world.flow(FOREVER, 1);
    }
    // Long enough: what waits for a repair at either end is up to a round trip.
    world.run_until(44 * SECOND);
    let bound = 20e6 * payload_share(&settings) * 0.99;
    let share = world.goodput(4 * SECOND, 44 * SECOND) / bound;
    let statistics = world.client.statistics();
    let jain = jain(&world, 4 * SECOND, world.flows.keys());
    println!("{streams} streams: {share:.4} of the bound, Jain {jain:.4}; {statistics:?}");
    // The index of 1,000 was 0.81 while the first writers could fill the memory for sending.
    assert!(jain >= 0.99, "{jain}");
    assert!(
        statistics.spurious * 1_000 <= statistics.sent,
        "{statistics:?}"
    );
    share
}

/// Jain's index of what these streams have read from a time on.
fn jain<'s>(world: &World, from: u64, streams: impl IntoIterator<Item = &'s u64>) -> f64 {
    let read = |stream: &u64| {
        let bins = world.flows[stream].bins.range(from / (10 * MS)..);
        bins.map(|(_, bytes)| *bytes as f64).sum()
    };
    let read: Vec<f64> = streams.into_iter().map(read).collect();
    let squares: f64 = read.iter().map(|read| read.powi(2)).sum();
    read.iter().sum::<f64>().powi(2) / squares / read.len() as f64
}

#[test]
fn one_stream_fills_a_long_path_that_loses() {
    let share = share_at_loss(1);
    assert!((0.97..=1.005).contains(&share), "{share}");
}

#[test]
fn sixteen_streams_fill_a_long_path_that_loses() {
    let share = share_at_loss(16);
    assert!((0.97..=1.005).contains(&share), "{share}");
}

#[test]
fn a_thousand_streams_fill_a_long_path_that_loses() {
    let share = share_at_loss(1_000);
    assert!((0.97..=1.005).contains(&share), "{share}");
}

/// What arrives of one connection on a path that loses waits for the repair of what was lost
/// before it: a round trip, and one more where the repair is lost. It is so much behind, from its
/// beginning on, and no more.
#[test]
fn one_connection_is_behind_by_its_repairs_alone() {
    for seed in 1..5 {
        let settings = Settings {
            rtt: 350 * MS,
            ..Settings::new(Side::Client, Rate::Reserve(19_450_000))
        };
        let path = Path {
            loss: 0.01,
            ..Path::new(20_000_000, 175 * MS)
        };
        let mut world = World::new(&path, &settings, seed);
        let flow = world.idle();
        world.run_for(SECOND);
        let begin = world.now;
        world.write(flow);
        world.run_for(20 * SECOND);
        let bound = 19_450_000.0 * payload_share(&settings) * 0.99;
        let behind = 20.0 * (1.0 - world.goodput(begin, begin + 20 * SECOND) / bound);
        println!("seed {seed}: {behind:.2} s behind, of which 0.175 s are one way");
        // It was up to 1.1 s while its window closed before the first repair came.
        assert!(behind < 0.175 + 1.5 * 0.36, "{behind} s");
    }
}

/// Connections that were opened one after another and were idle since begin together, with the
/// memory that a gateway has by default: the time without data that their start costs, at the
/// rate, beside the way there.
fn start_costs(streams: u64) -> f64 {
    let settings = Settings {
        rtt: 350 * MS,
        ..Settings::new(Side::Client, Rate::Reserve(19_450_000))
    };
    let mut world = World::new(&Path::new(20_000_000, 175 * MS), &settings, 1);
    let flows: Vec<u64> = (0..streams)
        .map(|_| {
            let flow = world.idle();
            world.run_for(350 * MS);
            flow
        })
        .collect();
    let begin = world.now;
    for flow in flows {
        world.write(flow);
    }
    world.run_for(10 * SECOND);
    let full = world.goodput(begin + 6 * SECOND, begin + 10 * SECOND);
    let had = world.goodput(begin, begin + 6 * SECOND) * 6.0;
    let costs = 6.0 - had / full - 0.175;
    let share = full / (19_450_000.0 * payload_share(&settings));
    println!("{streams} streams: {costs:.3} s, then {share:.4} of the bound");
    costs
}

#[test]
fn a_start_costs_no_round_trip() {
    for streams in [1, 4, 16, 200] {
        let costs = start_costs(streams);
        assert!(costs < 0.05, "{streams} streams: {costs} s");
    }
}

/// kamezawa-2004, 6.2.1, at a hundredth of its rate: 82 Mbit/s, 350 ms, 16 streams.
fn after_a_cut(seconds: f64) {
    let settings = reserve(82_000_000);
    let cut = (seconds * SECOND as f64) as u64;
    let (start, round_trip) = (4 * SECOND, 350 * MS);
    let end = start + cut;
    let path = Path {
        cuts: vec![start..end],
        ..Path::new(83_000_000, 175 * MS)
    };
    let mut world = World::new(&path, &settings, 3);
    for _ in 0..16 {
        world.flow(FOREVER, 1);
    }
    world.run_until(end + 3 * SECOND);
    let first = world.first_after(end) - end;
    let bound = 82e6 * payload_share(&settings);
    let full_at = end + round_trip + 200 * MS;
    let after = world.goodput(full_at, full_at + 500 * MS) / bound;
    let later = world.goodput(full_at, full_at + 2 * SECOND) / bound;
    let statistics = world.client.statistics();
    println!(
        "cut of {seconds} s: {} ms, {after:.3}, {later:.3}; {statistics:?}",
        first / MS
    );
    assert!(
        first <= round_trip + 50 * MS,
        "first byte after {} ms",
        first / MS
    );
    assert!(
        after >= 0.97 && later >= 0.97,
        "{after}, {later} of the rate"
    );
    assert!(
        statistics.spurious * 1_000 <= statistics.sent,
        "{statistics:?}"
    );
    let most = 82_000_000 / 8 / 100 + settings.burst;
    assert!(world.forth.most_in_10_ms() <= most);
}

#[test]
fn a_cut_of_a_tenth_of_a_second_costs_little_more() {
    after_a_cut(0.1);
}

#[test]
fn a_cut_of_a_second_costs_little_more() {
    after_a_cut(1.0);
}

#[test]
fn a_cut_of_ten_seconds_costs_little_more() {
    after_a_cut(10.0);
}

#[test]
fn a_cut_of_a_minute_costs_little_more() {
    after_a_cut(60.0);
}

#[test]
fn a_pause_that_keeps_what_is_under_way_is_no_cut() {
    for (pause, buffer) in [(300, 10), (1_000, 10), (3_000, 10), (1_000, 1)] {
        let settings = reserve(20_000_000);
        let path = Path {
            pauses: vec![2 * SECOND..2 * SECOND + pause * MS],
            buffer: buffer << 20,
            ..Path::new(20_400_000, 175 * MS)
        };
        let mut world = World::new(&path, &settings, 5);
        world.flow(FOREVER, 1);
        world.run_until(2 * SECOND + pause * MS + 3 * SECOND);
        let statistics = world.client.statistics();
        println!("pause of {pause} ms: {statistics:?}");
        assert!(
            statistics.spurious * 1_000 <= statistics.sent,
            "{pause} ms: {statistics:?}"
        );
    }
}

#[test]
fn an_ordered_path_declares_no_loss_in_silence() {
    let path = Path {
        pauses: vec![3 * SECOND..6 * SECOND],
        // TCP's own: it loses nothing.
        buffer: 64 << 20,
        ..Path::new(20_400_000, 100 * MS)
    };
    let settings = Settings {
        rtt: 200 * MS,
        is_ordered: true,
        ..reserve(20_000_000)
    };
    // One direction alone: reports of the silence are on time, and look like those of a cut.
    let back = Path::new(20_400_000, 100 * MS);
    let run = |is_ordered| {
        let settings = Settings {
            is_ordered,
            ..settings.clone()
        };
        let mut world = World::between(&path, &back, &settings, 23);
        world.flow(FOREVER, 1);
        world.run_until(12 * SECOND);
        world.client.statistics().again_bytes
    };
    assert_eq!(run(true), 0);
    assert!(run(false) > 0, "the rule of silence is there");
}

/// All reports that the other side made in the silence, and none before, are kept as well: no
/// round trip tells of the pause.
#[test]
fn late_reports_distinguish_a_pause_from_a_cut() {
    let settings = reserve(20_000_000);
    let pause = |from: u64| Path {
        pauses: vec![from * MS..4_000 * MS],
        buffer: 10 << 20,
        ..Path::new(20_400_000, 175 * MS)
    };
    let (forth, back) = (pause(2_000), pause(2_195));
    let mut world = World::between(&forth, &back, &settings, 29);
    world.flow(FOREVER, 1);
    world.run_until(6 * SECOND);
    let statistics = world.client.statistics();
    println!("{statistics:?}");
    assert_eq!(statistics.spurious, 0, "{statistics:?}");
    assert!(statistics.received > 300 && world.goodput(5 * SECOND, 6 * SECOND) > 15e6);
}

#[test]
fn reordering_is_not_taken_for_loss() {
    let settings = reserve(40_000_000);
    let path = Path {
        reorder: (0.01, 5 * MS),
        ..Path::new(40_400_000, 175 * MS)
    };
    let mut world = World::new(&path, &settings, 7);
    world.flow(FOREVER, 1);
    world.run_until(10 * SECOND);
    let statistics = world.client.statistics();
    println!("{statistics:?}");
    assert!(
        statistics.lost > 0,
        "a few at first, before the window is known"
    );
    assert!(
        statistics.spurious * 1_000 <= statistics.sent,
        "{statistics:?}"
    );
    let share = world.goodput(4 * SECOND, 10 * SECOND) / (40e6 * payload_share(&settings));
    assert!(share >= 0.97, "{share}");
}

#[test]
fn streams_share_by_weight() {
    let settings = Settings {
        rtt: 40 * MS,
        ..reserve(20_000_000)
    };
    let mut world = World::new(&Path::new(20_400_000, 20 * MS), &settings, 9);
    let equal: Vec<u64> = (0..16).map(|_| world.flow(FOREVER, 1)).collect();
    let heavy = world.flow(FOREVER, 4);
    world.run_until(6 * SECOND);
    let read = |stream: &u64| world.flows[stream].read as f64;
    let sum: f64 = equal.iter().map(read).sum();
    let jain = jain(&world, 0, &equal);
    println!("Jain {jain}; weight 4 gets {}", read(&heavy) / (sum / 16.0));
    assert!(jain >= 0.99, "{jain}");
    let ratio = read(&heavy) / (sum / equal.len() as f64);
    assert!((3.6..4.4).contains(&ratio), "{ratio}");
}

#[test]
fn a_stopped_reader_costs_others_nothing() {
    let run = |stopped: u64| {
        let settings = reserve(20_000_000);
        let mut world = World::new(&Path::new(20_400_000, 50 * MS), &settings, 11);
        let others: Vec<u64> = (0..4).map(|_| world.flow(FOREVER, 1)).collect();
        for _ in 0..stopped {
            let stream = world.flow(FOREVER, 1);
            world.flows.get_mut(&stream).expect("ours").is_read = false;
        }
        // The stopped ones fill their first credit.
        let warm = (3 + stopped / 8) * SECOND;
        world.run_until(warm + 3 * SECOND);
        assert!(others.iter().all(|stream| world.flows[stream].read > 0));
        world.goodput(warm, warm + 3 * SECOND)
    };
    let alone = run(0);
    for stopped in [1, 40] {
        let beside = run(stopped);
        println!("{stopped} stopped: {beside} of {alone}");
        assert!(
            beside >= 0.99 * alone,
            "{beside} of {alone} beside {stopped}"
        );
    }
}

#[test]
fn a_stopped_reader_stops_its_writer_and_goes_on() {
    let settings = reserve(20_000_000);
    let mut world = World::new(&Path::new(20_400_000, 10 * MS), &settings, 13);
    let want = 20 << 20;
    let stream = world.flow(want, 1);
    world.flows.get_mut(&stream).expect("ours").is_read = false;
    world.run_until(3 * SECOND);
    // The first credit, and a loan of three round trips at the rate.
    let credit = settings.limits().credit;
    let written = world.flows[&stream].written;
    let most = credit + 20_000_000 / 8 * 350 / 1_000 * 3;
    assert!((credit..=most).contains(&written), "{written} of {most}");
    assert!(world.client.held() == 0, "and all of that has arrived");
    world.flows.get_mut(&stream).expect("ours").is_read = true;
    world.read(stream);
    world.run_for(12 * SECOND);
    assert!(world.flows[&stream].has_ended);
    assert!(world
        .events
        .iter()
        .any(|event| event.2 == Event::Closed(stream)));
}

/// Beside 200 others a message took 161 ms while it waited for a turn of each of them.
#[test]
fn small_messages_do_not_wait_behind_bulk() {
    let one_way = 100 * MS;
    let settings = Settings {
        rtt: 2 * one_way,
        ..reserve(20_000_000)
    };
    for bulk in [4, 200] {
        let mut world = World::new(&Path::new(20_400_000, one_way), &settings, 15);
        for _ in 0..bulk {
            world.flow(FOREVER, 1);
        }
        world.run_until(5 * SECOND);
        let mut took = Vec::new();
        for _ in 0..120 {
            let stream = world.flow(1_000, 1);
            let begun = world.now;
            world.run_for(one_way + 61 * MS);
            let done = world.flows[&stream].done_at.unwrap_or(world.now);
            took.push((done - begun) / 1_000);
        }
        took.sort_unstable();
        println!("beside {bulk}: {} us, longest {} us", took[60], took[119]);
        assert!(took[119] <= (one_way + 20 * MS) / 1_000, "{took:?}");
    }
}

#[test]
fn a_reset_overtakes_data_and_ends_both_sides() {
    let settings = reserve(20_000_000);
    let mut world = World::new(&Path::new(20_400_000, 50 * MS), &settings, 17);
    let (gone, other) = (world.flow(FOREVER, 1), world.flow(4 << 20, 1));
    world.run_until(SECOND);
    world.client.reset(gone, 3);
    world.run_for(60 * MS);
    assert!(world.flows[&gone].was_reset);
    let reset = Event::Reset {
        stream: gone,
        reason: 3,
    };
    let is_reset = |(_, side, event): &(u64, Side, Event)| *side == Side::Server && *event == reset;
    assert!(world.events.iter().any(is_reset));
    world.run_for(6 * SECOND);
    assert!(world.flows[&other].has_ended && !world.flows[&other].was_reset);
    assert_eq!(
        (world.client.open_streams(), world.server.open_streams()),
        (0, 0)
    );
    assert_eq!(world.client.held(), 0);
}

#[test]
fn one_direction_may_end_long_before_the_other() {
    let settings = reserve(20_000_000);
    let mut world = World::new(&Path::new(20_400_000, 10 * MS), &settings, 19);
    let stream = world.client.open(b"target", 1).expect("the first");
    world.client.finish(stream);
    world.run_for(SECOND);
    let mut read = Vec::new();
    assert_eq!(world.server.read(stream, 10, &mut read), None);
    world.server.consume(world.now, stream, 0);
    // The other direction lives.
    assert_eq!(world.server.write(stream, b"an answer"), 9);
    world.run_for(SECOND);
    assert_eq!(world.client.read(stream, 100, &mut read), Some(9));
    world.client.consume(world.now, stream, 9);
    assert_eq!(world.client.open_streams(), 1);
    world.server.finish(stream);
    world.run_for(SECOND);
    assert_eq!(world.client.read(stream, 100, &mut read), None);
    world.client.consume(world.now, stream, 0);
    assert_eq!(
        (world.client.open_streams(), world.server.open_streams()),
        (0, 0)
    );
    assert_eq!(read, b"an answer");
}

#[test]
fn a_session_ends_after_a_silence_longer_than_its_patience() {
    let settings = reserve(20_000_000);
    let path = Path {
        cuts: vec![SECOND..200 * SECOND],
        ..Path::new(20_400_000, 10 * MS)
    };
    let mut world = World::new(&path, &settings, 21);
    world.client.open(b"target", 1);
    world.run_until(90 * SECOND);
    assert!(!world.events.iter().any(|event| event.2 == Event::Silent));
    world.run_until(92 * SECOND);
    let silent = world.events.iter().filter(|event| event.2 == Event::Silent);
    assert_eq!(silent.count(), 2, "both sides, once");
}

#[test]
fn an_idle_session_is_almost_silent() {
    let settings = reserve(20_000_000);
    let mut world = World::new(&Path::new(20_400_000, 50 * MS), &settings, 23);
    world.flow(100_000, 1);
    world.run_until(3 * SECOND);
    let before = world.client.statistics().sent;
    world.run_for(10 * SECOND);
    let sent = world.client.statistics().sent - before;
    assert!((30..=50).contains(&sent), "{sent} datagrams in 10 s");
}

#[test]
fn the_breaker_ends_a_reservation_that_the_path_does_not_honour() {
    // Half of it is there.
    let settings = reserve(20_000_000);
    let mut world = World::new(&Path::new(10_000_000, 50 * MS), &settings, 27);
    world.flow(FOREVER, 1);
    world.run_until(5 * SECOND);
    assert!(!world.events.iter().any(|event| event.2 == Event::Broken));
    world.run_until(15 * SECOND);
    let broken = world.events.iter().filter(|event| event.2 == Event::Broken);
    assert_eq!(broken.count(), 1);
    assert!(world.client.rate() < 13_000_000, "{}", world.client.rate());
}

/// Its clock stood still, so all its reports are late by 10 s from then on: a cut is known for
/// one all the same, once that is not new.
#[test]
fn a_peer_whose_host_slept_goes_on_and_a_later_cut_is_known() {
    let settings = reserve(20_000_000);
    let (woken, round_trip) = (14 * SECOND, 350 * MS);
    let cut = woken + 65 * SECOND..woken + 67 * SECOND;
    let path = Path {
        cuts: vec![cut.clone()],
        ..Path::new(20_400_000, 175 * MS)
    };
    let mut world = World::new(&path, &settings, 31);
    world.sleep = 4 * SECOND..woken;
    world.flow(FOREVER, 1);
    world.run_until(cut.end + 3 * SECOND);
    let bound = 20e6 * payload_share(&settings);
    for (end, what) in [(woken, "sleep"), (cut.end, "cut")] {
        let first = world.first_after(end) - end;
        let full_at = end + round_trip + 200 * MS;
        let after = world.goodput(full_at, full_at + SECOND) / bound;
        println!("after the {what}: {} ms, {after:.3}", first / MS);
        assert!(first <= round_trip + 50 * MS, "{what}: {first} ns");
        assert!(after >= 0.97, "{what}: {after}");
    }
    let statistics = world.client.statistics();
    println!("{statistics:?}");
    assert!(
        statistics.spurious * 1_000 <= statistics.sent,
        "{statistics:?}"
    );
}

#[test]
fn datagrams_that_come_again_do_nothing() {
    let settings = reserve(20_000_000);
    let run = |repeat| {
        let path = Path {
            repeat,
            loss: 0.01,
            ..Path::new(20_400_000, 50 * MS)
        };
        let mut world = World::new(&path, &settings, 33);
        let want = 4 << 20;
        let streams: Vec<u64> = (0..4).map(|_| world.flow(want, 1)).collect();
        world.run_until(20 * SECOND);
        for stream in &streams {
            let flow = &world.flows[stream];
            assert!(flow.has_ended && flow.read == want && !flow.was_reset);
        }
        let opened = |event: &&(u64, Side, Event)| matches!(event.2, Event::Opened { .. });
        assert_eq!(world.events.iter().filter(opened).count(), streams.len());
        assert_eq!(world.server.open_streams(), 0);
        (world.server.statistics(), world.client.statistics())
    };
    // At once, within the time that reordering is taken for, and long after all is over.
    for by in [0, 5 * MS, SECOND, 12 * SECOND] {
        let (server, client) = run((0.5, by));
        assert!(server.duplicates > 4_000 && server.duplicates < server.received);
        assert!(client.spurious * 1_000 <= client.sent, "{client:?}");
    }
}
