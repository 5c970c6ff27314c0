// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configurable TCP of ligon-1999: each control by itself, to the nanosecond, and the keys
//! of a scenario that set them.

use std::path::Path;

use paceline_simulator::event::{MS, NEVER, SECOND, US};
use paceline_simulator::link::{Limit, Link, Loss};
use paceline_simulator::measures;
use paceline_simulator::meter::Meter;
use paceline_simulator::random::{sequence, Purpose};
use paceline_simulator::receiver::Receiver;
use paceline_simulator::scenario::Scenario;
use paceline_simulator::sender::config::{Algorithm, Ato, Estimator, SenderConfig, Stack};
use paceline_simulator::sender::{Ack, Sender};
use paceline_simulator::source::{Source, SourceConfig};
use paceline_simulator::world::{Way, World};

/// A sender whose first `segments` leave at `now`.
fn sending(config: &SenderConfig, segments: u32, now: u64) -> Sender {
    let mut sender = Sender::new(config);
    sender.write(segments, now, config);
    while sender.next(now, config, None).is_some() {}
    sender
}

/// The ACK of everything before `next`, for what was sent at `stamp`.
fn ack(next: u32, stamp: u64) -> Ack {
    Ack {
        next,
        stamp,
        block: (next, next),
    }
}

/// A TCP without bounds on its RTO, whose clock does not tick.
fn unbounded(algorithm: Algorithm) -> SenderConfig {
    let mut config = SenderConfig::of(algorithm, Stack::Rfc);
    config.rto.floor_ns = 0;
    config
}

#[test]
fn a_constant_rto_is_the_same_each_time() {
    for algorithm in [Algorithm::Newreno, Algorithm::Sack, Algorithm::Vegas] {
        let mut config = SenderConfig::of(algorithm, Stack::Rfc);
        config.rto.constant_ns = 40 * MS;
        let mut sender = sending(&config, 1, 5 * MS);
        for time in 1..=20 {
            let now = 5 * MS + time * 40 * MS;
            assert_eq!(sender.timer_ns(), now, "{algorithm:?} {time}");
            sender.on_timer(now, &config, None);
            let again = sender.next(now, &config, None).expect("sent again");
            assert_eq!(again.sequence, 0);
        }
        assert_eq!(sender.totals().timeouts, 20);
        // What is measured then changes nothing.
        let now = 900 * MS;
        sender.on_ack(&ack(1, now - MS), now, &config, None);
        assert_eq!(sender.timer_ns(), NEVER);
        sender.write(1, now, &config);
        sender.next(now, &config, None).expect("a segment");
        assert_eq!(sender.timer_ns(), now + 40 * MS, "{algorithm:?}");
    }
    // Linux's timers end with a tick, and its probe comes no later than the timeout.
    let mut config = SenderConfig::of(Algorithm::Cubic, Stack::Linux);
    config.rto.constant_ns = 40 * MS;
    let sender = sending(&config, 1, 5 * MS);
    assert_eq!(sender.timer_ns(), 44 * MS);
}

#[test]
fn a_shifted_round_trip_follows_the_last_one_downwards() {
    for (algorithm, timestamps) in [
        (Algorithm::Newreno, true),
        (Algorithm::Newreno, false),
        (Algorithm::Sack, true),
    ] {
        let mut config = unbounded(algorithm);
        config.timestamps = timestamps;
        let smoothed = config.clone();
        config.rto.estimator = Estimator::Shifted(1);
        let rto = |config: &SenderConfig| {
            let mut now = MS;
            let mut sender = sending(config, 1, now);
            let mut found = Vec::new();
            for (next, rtt) in (1..).zip([100 * MS, MS, 3 * MS, 20 * US]) {
                let sent = now;
                now += rtt;
                sender.on_ack(&ack(next, sent), now, config, None);
                sender.write(1, now, config);
                sender.next(now, config, None).expect("a segment");
                found.push(sender.timer_ns() - now);
            }
            found
        };
        let expected = [200 * MS, 2 * MS, 6 * MS, 40 * US];
        assert_eq!(rto(&config), expected, "{algorithm:?}");
        // The moving averages remember the first one.
        assert!(rto(&smoothed)[3] > 100 * MS, "{algorithm:?}");
    }
}

#[test]
fn a_shifted_round_trip_begins_with_the_first_segment_that_an_ack_covers() {
    let mut config = unbounded(Algorithm::Sack);
    config.rto.estimator = Estimator::Shifted(2);
    let mut sender = Sender::new(&config);
    for now in 1..=4 {
        sender.write(1, now * MS, &config);
        sender.next(now * MS, &config, None).expect("a segment");
    }
    sender.write(1, 5 * MS, &config);
    // All four at 11 ms: the first took 10, the last 7.
    sender.on_ack(&ack(4, 4 * MS), 11 * MS, &config, None);
    sender.next(11 * MS, &config, None).expect("the fifth");
    assert_eq!(sender.timer_ns() - 11 * MS, 4 * 10 * MS);
}

#[test]
fn with_ticks_a_shifted_round_trip_is_one_at_least() {
    let mut config = unbounded(Algorithm::Newreno);
    config.rto.estimator = Estimator::Shifted(2);
    config.rto.tick_ns = 10 * MS;
    config.timer_tick_ns = 10 * MS;
    let mut sender = sending(&config, 1, 0);
    sender.on_ack(&ack(1, 0), MS, &config, None);
    sender.write(1, MS, &config);
    sender.next(MS, &config, None).expect("a segment");
    assert_eq!(
        sender.timer_ns(),
        40 * MS,
        "four ticks, the present one counted"
    );
}

#[test]
fn a_constant_round_trip_is_known_before_the_first_and_after_the_last() {
    let mut config = unbounded(Algorithm::Sack);
    config.rto.estimator = Estimator::Constant(7 * MS);
    let mut sender = sending(&config, 1, 0);
    assert_eq!(sender.timer_ns(), 7 * MS, "no deviation");
    sender.on_timer(7 * MS, &config, None);
    sender.next(7 * MS, &config, None).expect("sent again");
    assert_eq!(sender.timer_ns(), (7 + 14) * MS, "it backs off");
    sender.on_ack(&ack(1, 7 * MS), 207 * MS, &config, None);
    sender.write(1, 207 * MS, &config);
    sender.next(207 * MS, &config, None).expect("a segment");
    assert_eq!(sender.timer_ns(), (207 + 7) * MS);
}

/// RTOs of a lone segment that never arrives, in ticks of 4 ms, after a round trip of 1 ms.
fn lone_loss(config: &SenderConfig) -> Vec<u64> {
    let mut sender = Sender::new(config);
    sender.shake_hands(MS, config);
    sender.write(1, 0, config);
    sender.next(0, config, None).expect("a segment");
    let mut now = 0;
    let mut waits = Vec::new();
    while waits.len() < 18 {
        let at = sender.timer_ns();
        sender.on_timer(at, config, None);
        sender.next(at, config, None);
        waits.push((at - now) / (4 * MS));
        now = at;
    }
    assert_eq!(sender.totals().probes, 1, "the first is Linux's probe");
    waits
}

#[test]
fn bounds_of_the_rto_are_kept_moved_and_taken_away() {
    let mut config = SenderConfig::of(Algorithm::Cubic, Stack::Linux);
    let ticks = lone_loss(&config);
    // The minimum RTO and 1 ms, then twice that, up to 64 times.
    assert_eq!(ticks[1..5], [51, 101, 201, 402]);
    assert_eq!(ticks[8..], [3216; 10]);
    config.rto.bound_ns = SECOND;
    let ticks = lone_loss(&config);
    assert_eq!(ticks[1..], [vec![51, 101, 201], vec![250; 14]].concat());
    // No bounds, as the scenario's key sets it.
    let scenario = scenario("rto = \"unbounded\"").expect("a good one");
    let plan = scenario.plan(&scenario.points()[0]).expect("a plan");
    let config = plan.world(1).groups[0].sender.clone();
    let ticks = lone_loss(&config);
    let doubled: Vec<u64> = (0..16).map(|times| 2 << times).collect();
    assert_eq!(ticks[1..17], doubled, "two ticks, doubled fifteen times");
    assert_eq!(ticks[17], 2 << 15);
}

fn way(there: u32, back: u32) -> Way {
    Way {
        there: vec![there],
        back: vec![back],
        path: 0,
        turn: 0,
    }
}

/// One flow over a link and back, without a rate: what is sent arrives 1 ms later.
fn alone(link: Link, sender: SenderConfig, source: SourceConfig) -> World {
    let back = Link::new(0, MS, Limit::None, None);
    let mut world = World::new(vec![link, back], 0, Meter::new(100 * MS), 1);
    world.add_group("one", sender, source);
    let chance = sequence(1, Purpose::Source, 0);
    world.add_flow(&way(0, 1), 0, Source::new(chance));
    world.samples.every_ns = MS;
    world.samples.flows = vec![0];
    world.prepare();
    world
}

fn open() -> Link {
    Link::new(0, MS, Limit::None, None)
}

#[test]
fn an_ack_is_forced_after_so_many_segments() {
    for every in 1..=64 {
        let mut config = SenderConfig::of(Algorithm::Sack, Stack::Rfc);
        config.initial_window = 1_000;
        config.ack_every = every;
        let mut world = alone(open(), config, SourceConfig::Bulk(Some(640)));
        world.run(2 * MS);
        assert_eq!(world.links[1].counts().arrived, u64::from(640 / every));
        assert_eq!(world.flows[0].sender.acknowledged(), 0);
        world.run(2 * MS + 1);
        let forced = 640 / every * every;
        assert_eq!(world.flows[0].sender.acknowledged(), forced);
        // The rest waits for the ATO.
        world.run(101 * MS + MS + 1);
        assert_eq!(world.flows[0].sender.acknowledged(), 640);
        let rest = u64::from(640 % every != 0);
        let acks = world.links[1].counts().arrived;
        assert_eq!(acks, u64::from(640 / every) + rest);
    }
}

#[test]
fn a_fixed_ato_delays_an_ack_by_itself() {
    // Linux's timers end with a tick of 4 ms.
    for (stack, ato, due) in [
        (Stack::Rfc, 10 * MS, 11 * MS),
        (Stack::Rfc, 40 * MS, 41 * MS),
        (Stack::Linux, 10 * MS, 12 * MS),
        (Stack::Linux, 40 * MS, 40 * MS),
    ] {
        let mut config = SenderConfig::of(Algorithm::Sack, stack);
        config.ack_every = 4;
        config.ack_delay_ns = ato;
        let mut world = alone(open(), config, SourceConfig::Bulk(Some(1)));
        world.run(due + MS);
        assert_eq!(world.flows[0].sender.acknowledged(), 0, "{stack:?} {ato}");
        world.run(due + MS + 1);
        assert_eq!(world.flows[0].sender.acknowledged(), 1, "{stack:?} {ato}");
        assert_eq!(world.links[1].counts().arrived, 1);
    }
}

#[test]
fn the_ato_follows_the_time_between_segments() {
    let tick = 10 * MS;
    let mut receiver = Receiver::default();
    let mut at = |now: u64| receiver.estimate_ato(now * MS, tick, 500 * MS);
    assert_eq!(at(3), None, "the first is acknowledged at once");
    // The paper's Figure 9: 40 ms after D1 the ATO goes from 10 to 40 ms.
    assert_eq!(at(43), Some(4 * tick));
    assert_eq!(at(53), Some(3 * tick));
    assert_eq!(at(54), Some(2 * tick), "no time is a tick");
    assert_eq!(at(55), Some(2 * tick));
    assert_eq!(at(2_055), Some(50 * tick), "half a second at most");
    // In a run: the second of two segments, 40 ms after the first.
    let mut config = SenderConfig::of(Algorithm::Sack, Stack::Rfc);
    config.timer_tick_ns = tick;
    config.ack_delay_ns = 500 * MS;
    config.ack_every = 2;
    config.ato = Ato::Estimated;
    let entries = [(0, 1), (40 * MS, 1)];
    let mut world = alone(open(), config.clone(), SourceConfig::Trace(entries.into()));
    world.run(2 * MS + 1);
    assert_eq!(world.flows[0].sender.acknowledged(), 1, "quick");
    // It arrives at 41 ms; the tick in which it does counts.
    world.run(81 * MS);
    assert_eq!(world.flows[0].sender.acknowledged(), 1);
    world.run(81 * MS + 1);
    assert_eq!(world.flows[0].sender.acknowledged(), 2);
    // 40 ticks for the second, which arrives in tick 40; the third comes at once, and 21 are
    // enough for both.
    config.ack_every = 4;
    let entries = [(0, 1), (400 * MS, 1), (401 * MS, 1)];
    let mut world = alone(open(), config, SourceConfig::Trace(entries.into()));
    world.run(611 * MS);
    assert_eq!(world.flows[0].sender.acknowledged(), 1);
    world.run(611 * MS + 1);
    assert_eq!(world.flows[0].sender.acknowledged(), 3);
}

#[test]
fn a_fixed_window_stays_through_losses_timeouts_and_pauses() {
    for (algorithm, stack) in [
        (Algorithm::Reno, Stack::Ns2),
        (Algorithm::Newreno, Stack::Rfc),
        (Algorithm::Sack, Stack::Rfc),
        (Algorithm::Vegas, Stack::Rfc),
        (Algorithm::Cubic, Stack::Linux),
        (Algorithm::Bic, Stack::Linux),
    ] {
        let loss = Loss {
            to_bad: 0.01,
            to_good: 0.1,
            good: 0.0,
            bad: 1.0,
        };
        let link = Link::new(20_000_000, MS, Limit::Packets(100), None)
            .with_loss(loss, sequence(1, Purpose::Line, 0));
        let mut config = SenderConfig::of(algorithm, stack);
        config.fixed_window = 10;
        let entries: Vec<(u64, u32)> = (0..20).map(|at| (at * SECOND, 300)).collect();
        let mut world = alone(link, config, SourceConfig::Trace(entries.into()));
        world.samples.every_ns = 9 * MS;
        world.run(2_000 * SECOND);
        let totals = world.flows[0].sender.totals();
        assert!(totals.timeouts > 0 && totals.recoveries > 0, "{totals:?}");
        assert_eq!(world.flows[0].receiver.next(), 6_000, "{algorithm:?}");
        let windows = world.samples.windows.iter().map(|(cwnd, _)| *cwnd);
        // Beyond it only Linux's probe leaves.
        let most = if stack == Stack::Linux { 11.0 } else { 10.0 };
        for (number, cwnd) in windows.enumerate() {
            assert!(
                cwnd == 10.0 || cwnd == most,
                "{algorithm:?}: {cwnd} in sample {number}"
            );
        }
    }
}

#[test]
fn a_fixed_window_is_in_flight() {
    let mut config = SenderConfig::of(Algorithm::Cubic, Stack::Linux);
    config.fixed_window = 30;
    let mut world = alone(open(), config, SourceConfig::Bulk(Some(3_000)));
    world.run(MS);
    assert_eq!(world.flows[0].sender.in_flight(), 30);
    // A window each round trip of 2 ms, from the first.
    world.run(41 * MS + 1);
    assert_eq!(world.flows[0].receiver.next(), 21 * 30);
    // After a minute's pause too, which halves other windows.
    let mut config = SenderConfig::of(Algorithm::Cubic, Stack::Linux);
    config.fixed_window = 30;
    let mut sender = sending(&config, 1, 0);
    sender.on_ack(&ack(1, 0), MS, &config, None);
    sender.write(100, 60 * SECOND, &config);
    while sender.next(60 * SECOND, &config, None).is_some() {}
    assert_eq!(sender.in_flight(), 30);
}

#[test]
fn slow_start_begins_with_the_initial_window_again() {
    for (algorithm, stack) in [
        (Algorithm::Newreno, Stack::Rfc),
        (Algorithm::Sack, Stack::Rfc),
        (Algorithm::Vegas, Stack::Rfc),
        (Algorithm::Cubic, Stack::Linux),
    ] {
        for again in [false, true] {
            let mut config = SenderConfig::of(algorithm, stack);
            config.initial_window = 20;
            config.initial_window_again = again;
            let mut sender = sending(&config, 100, 0);
            assert_eq!(sender.outstanding(), 20);
            while sender.totals().timeouts == 0 {
                let at = sender.timer_ns();
                sender.on_timer(at, &config, None);
            }
            let now = 3 * SECOND;
            let mut left = 0;
            while sender.next(now, &config, None).is_some() {
                left += 1;
            }
            let one = if algorithm == Algorithm::Vegas { 2 } else { 1 };
            let expected = if again { 20 } else { one };
            assert_eq!(left, expected, "{algorithm:?} {again}");
        }
    }
    // And after a pause, which Linux takes for one.
    for again in [false, true] {
        let mut config = SenderConfig::of(Algorithm::Cubic, Stack::Linux);
        config.initial_window = 20;
        let mut sender = sending(&config, 1, 0);
        sender.on_ack(&ack(1, 0), MS, &config, None);
        sender.write(1, 2 * MS, &config);
        sender.next(2 * MS, &config, None).expect("a segment");
        while sender.totals().timeouts == 0 {
            let at = sender.timer_ns();
            sender.on_timer(at, &config, None);
            sender.next(at, &config, None);
        }
        config.initial_window_again = again;
        let now = 2 * SECOND;
        sender.on_ack(&ack(2, now - MS), now, &config, None);
        let before = sender.window().cwnd;
        assert!(before < 20.0, "{before}");
        sender.write(1, now + 60 * SECOND, &config);
        let cwnd = sender.window().cwnd;
        assert_eq!(cwnd, if again { 20.0 } else { before });
    }
}

const SCENARIO: &str = r#"
title = "Two hosts"
duration = "3s"

[link.line]
rate = "10mbit"
delay = "1ms"
queue = { packets = 10 }

[tcp]
stack = "linux"
algorithm = "cubic"

[sender.one]
KEYS

[flows.one]
count = 8
tcp = "one"
path = ["line"]
edge_rate = "100mbit"
source.phases = { size = "32KB", count = 20 }
"#;

fn scenario(keys: &str) -> Result<Scenario, String> {
    let text = SCENARIO.replace("KEYS", keys);
    Scenario::parse(&text, Path::new("beowulf.toml")).map_err(|error| error.to_string())
}

fn outcome(keys: &str) -> Vec<(String, u64)> {
    outcome_of(&SCENARIO.replace("KEYS", keys))
}

/// All metrics of one run, to the last bit.
fn outcome_of(text: &str) -> Vec<(String, u64)> {
    let scenario = Scenario::parse(text, Path::new("beowulf.toml"));
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let plan = scenario.plan(&scenario.points()[0]).expect("a plan");
    let outcome = measures::run(&plan, 1, false, &|| false).expect("not stopped");
    let bits = |(name, value): (String, f64)| (name, value.to_bits());
    outcome.metrics.into_iter().map(bits).collect()
}

/// The Beowulf Transmission Policy, as the paper lists it in section 4.3.
const BTP: &str = r#"
ato = "fixed"
ack_delay = "10ms"
ack_every = 4
initial_window = 20
initial_window_again = true
rtt = { shift = 1 }
rto = "unbounded"
"#;

#[test]
fn the_preset_is_what_the_paper_lists_and_the_keys_beside_it_go_before() {
    let stock = outcome("");
    let btp = outcome("preset = \"btp\"");
    assert_ne!(stock, btp);
    assert_eq!(btp, outcome(BTP));
    // Each of its parts has an effect, and can be taken out.
    let out = r#"
preset = "btp"
ack_delay = "40ms"
ack_every = 2
initial_window = 10
initial_window_again = false
rtt = "smoothed"
rto = "bounded"
"#;
    assert_eq!(stock, outcome(out));
    for part in [
        "ack_every = 2",
        "initial_window = 10",
        "initial_window_again = false",
        "rtt = \"smoothed\"",
        "rto = \"bounded\"",
    ] {
        let without = outcome(&format!("preset = \"btp\"\n{part}"));
        assert_ne!(btp, without, "{part}");
    }
    // It goes before what all senders have.
    let all = "[tcp]\nack_every = 2\nack_delay = \"20ms\"\nrto_min = \"300ms\"\ninitial_window = 3";
    let text = SCENARIO.replace("[tcp]", all);
    assert_eq!(btp, outcome_of(&text.replace("KEYS", "preset = \"btp\"")));
    assert_ne!(stock, outcome_of(&text.replace("KEYS", "")));
    // What it leaves without effect further back is no mistake.
    assert!(scenario("preset = \"btp\"\nrto = { constant = \"40ms\" }").is_ok());
    assert_eq!(outcome("ato = \"quick\""), outcome("ack_every = 1"));
}

#[test]
fn keys_that_leave_others_without_effect_are_refused() {
    for (keys, line, message) in [
        (
            "rto = \"unbounded\"\nrto_min = \"1ms\"",
            "rto_min",
            "has no effect with rto = \"unbounded\": remove one of them",
        ),
        (
            "rto = \"unbounded\"\nrto_max = \"1s\"",
            "rto_max",
            "has no effect",
        ),
        (
            "rto = { constant = \"40ms\" }\nrto_min = \"1ms\"",
            "rto_min",
            "has no effect with a constant rto",
        ),
        (
            "rto = { constant = \"40ms\" }\nrto_max = \"1s\"",
            "rto_max",
            "has no effect",
        ),
        (
            "rto = { constant = \"40ms\" }\nrto_initial = \"1s\"",
            "rto_initial",
            "has no effect",
        ),
        (
            "preset = \"btp\"\nrto_min = \"200ms\"",
            "rto_min",
            "has no effect with rto = \"unbounded\"",
        ),
        (
            "ato = \"quick\"\nack_every = 2",
            "ack_every",
            "has no effect with ato = \"quick\"",
        ),
        (
            "ato = \"quick\"\nack_delay = \"10ms\"",
            "ack_delay",
            "has no effect",
        ),
        (
            "fixed_window = 10\ninitial_window = 20",
            "initial_window",
            "has no effect with fixed_window",
        ),
        (
            "fixed_window = 10\ninitial_window_again = true",
            "initial_window_again",
            "has no effect",
        ),
        (
            "fixed_window = 10\npolicy = \"lfn\"",
            "fixed_window",
            "a policy's laws set the window",
        ),
        (
            "rtt = { shift = 1 }\npolicy = \"lfn\"",
            "rtt",
            "a policy's laws go by the kernel's estimator",
        ),
        ("rtt = { shift = 9 }", "rtt.shift", "0 to 8"),
        ("rtt = { constant = \"0s\" }", "rtt.constant", "1us"),
        ("rto = { constant = \"0s\" }", "rto.constant", "1us"),
        ("rto = \"none\"", "rto", "unbounded"),
        ("fixed_window = 0", "fixed_window", "1"),
        ("timer_tick = \"2s\"", "timer_tick", "1s"),
        ("preset = \"bpt\"", "preset", "\"btp\""),
    ] {
        let error = scenario(keys).expect_err(keys);
        assert!(
            error.contains(line) && error.contains(message),
            "{keys}: {error}"
        );
    }
    let text = SCENARIO.replace("KEYS", "fixed_window = 10");
    let text = text.replace("path =", "group = \"all\"\npath =");
    let text = format!("{text}\n[group.all]\ncoordinate = \"even\"\n");
    let error = Scenario::parse(&text, Path::new("beowulf.toml")).expect_err("a group");
    assert!(
        error.to_string().contains("fixed_window does not move"),
        "{error}"
    );
}
