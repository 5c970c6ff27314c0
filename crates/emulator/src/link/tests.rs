// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::sync::Arc;

use super::*;
use crate::config::{Loss, Reorder, Step};
use crate::trace::{self, Trace};
use crate::EmulatorError;

mod codel;

const MS: u64 = 1_000_000;

fn link(rate_bits: u64, delay_ns: u64, buffer_bytes: u64) -> Link<u32> {
    Link::new(
        LinkConfig::new(rate_bits, delay_ns, Buffer::Bytes(buffer_bytes)),
        0,
    )
}

/// Packets, and when they were due.
fn drain(link: &mut Link<u32>) -> Vec<(u32, u64)> {
    std::iter::from_fn(|| link.deliver(u64::MAX))
        .map(|out| (out.packet, out.due))
        .collect()
}

fn dues(link: &mut Link<u32>) -> Vec<u64> {
    drain(link).into_iter().map(|(_, due)| due).collect()
}

#[test]
fn one_frame_takes_its_time_on_the_line_and_the_delay() {
    let mut link = link(500_000_000, 10 * MS, 131_072);
    let got = link.arrive(1_000, 1_514, 0).unwrap();
    // 1538 bytes at 500 Mbit/s are 24,608 ns.
    assert_eq!(
        got,
        Schedule {
            departure: 25_608,
            delivery: 10_025_608
        }
    );
    assert_eq!(link.deliver(10_025_607), None);
    assert_eq!(
        link.deliver(10_025_608),
        Some(Delivered {
            packet: 0,
            size: 1_514,
            departure: 25_608,
            due: 10_025_608,
            copies: 1,
            verdict: None,
        })
    );
}

#[test]
fn back_to_back_frames_queue_and_an_idle_line_starts_at_once() {
    let mut link = link(1_000_000_000, 0, 1 << 20);
    assert_eq!(link.arrive(0, 101, 0).unwrap().departure, 1_000);
    assert_eq!(link.arrive(0, 101, 1).unwrap().departure, 2_000);
    assert_eq!(link.arrive(5_000, 101, 2).unwrap().departure, 6_000);
}

#[test]
fn rounding_does_not_add_up() {
    // 125 bytes at 3 bit/ns: 1000/3 ns each, so every third lands on a whole one.
    let mut link = link(3_000_000_000, 0, 1 << 30);
    let last = (0..30_000)
        .map(|n| link.arrive(0, 101, n).unwrap().departure)
        .last();
    assert_eq!(last, Some(10_000_000));
}

#[test]
fn the_buffer_drops_the_frame_that_does_not_fit_and_no_other() {
    let mut link = link(8_000_000, 0, 3_000);
    assert!(link.arrive(0, 1_000, 0).is_ok());
    assert!(link.arrive(0, 1_000, 1).is_ok());
    assert_eq!(link.arrive(0, 1_001, 2), Err((2, Cause::BufferFull)));
    assert!(link.arrive(0, 1_000, 3).is_ok());
    assert_eq!(link.arrive(0, 1, 4), Err((4, Cause::BufferFull)));
    // The first leaves after 1,024 us: then there is room for one more.
    assert!(link.arrive(1_023_999, 1_000, 5).is_err());
    assert!(link.arrive(1_024_000, 1_000, 6).is_ok());
    assert_eq!(link.peak_backlog(), 3_000);
}

#[test]
fn a_buffer_of_packets_counts_packets() {
    let config = LinkConfig::new(8_000_000, 0, Buffer::Packets(2));
    let mut link = Link::new(config, 0);
    assert!(link.arrive(0, 60, 0).is_ok());
    assert!(link.arrive(0, 1_514, 1).is_ok());
    assert_eq!(link.arrive(0, 60, 2), Err((2, Cause::BufferFull)));
    assert!(link.arrive(84_000, 60, 3).is_ok());
}

#[test]
fn half_the_rate_from_the_second_frame_on() {
    let halved = Change {
        rate_bits: Some(500_000_000),
        ..Change::default()
    };
    let mut by_hand = link(1_000_000_000, 0, 1 << 20);
    let mut config = by_hand.config().clone();
    config.steps.push(Step {
        at_ns: 500,
        change: halved,
    });
    let mut by_step = Link::new(config, 0);
    for n in 0..3 {
        by_hand.arrive(0, 101, n).unwrap();
        by_step.arrive(0, 101, n).unwrap();
    }
    by_hand.change(500, &halved);
    assert_eq!(by_step.next_event(), Some(500));
    assert_eq!(dues(&mut by_hand), [1_000, 3_000, 5_000]);
    assert_eq!(dues(&mut by_step), [1_000, 3_000, 5_000]);
}

#[test]
fn a_shorter_delay_keeps_the_order() {
    let mut link = link(1_000_000_000, 10_000, 1 << 20);
    link.arrive(0, 101, 0).unwrap();
    link.arrive(0, 101, 1).unwrap();
    let shorter = Change {
        delay_ns: Some(100),
        ..Change::default()
    };
    link.change(1_500, &shorter);
    assert_eq!(link.arrive(9_000, 101, 2).unwrap().delivery, 11_000);
    assert_eq!(dues(&mut link), [11_000, 11_000, 11_000]);
}

#[test]
fn in_an_outage_the_frame_on_the_line_is_the_last_one() {
    let mut config = LinkConfig::new(1_000_000_000, 0, Buffer::Packets(3));
    config.steps.push(Step {
        at_ns: 500,
        change: Change {
            outage_ns: Some(10_000),
            ..Change::default()
        },
    });
    let mut link = Link::new(config, 100_000);
    for n in 0..2 {
        link.arrive(100_000, 101, n).unwrap();
    }
    assert_eq!(link.arrive(105_000, 101, 2).unwrap().departure, 112_500);
    assert!(link.arrive(106_000, 101, 3).is_ok());
    assert!(link.arrive(106_000, 101, 4).is_err());
    assert_eq!(dues(&mut link), [101_000, 111_500, 112_500, 113_500]);
}

#[test]
fn a_trace_is_the_line() {
    let mut config = LinkConfig::new(1, MS, Buffer::Packets(100));
    config.line = Line::Trace(Arc::new(Trace::parse("1\n3\n", "t").unwrap()));
    config.framing_bytes = trace::FRAMING;
    let mut link = Link::new(config, 0);
    for n in 0..3 {
        link.arrive(0, 1_514, n).unwrap();
    }
    let outage = Change {
        outage_ns: Some(2 * MS),
        ..Change::default()
    };
    link.change(2 * MS, &outage);
    assert_eq!(dues(&mut link), [2 * MS, 4 * MS, 7 * MS]);
}

#[test]
fn a_held_packet_is_overtaken_and_a_lost_one_takes_its_time() {
    let mut config = LinkConfig::new(1_000_000_000, 0, Buffer::Bytes(1 << 20));
    config.reorder = Some(Reorder {
        share: 1.0,
        by_ns: 1_500,
    });
    let mut link = Link::new(config.clone(), 0);
    link.arrive(0, 101, 0).unwrap();
    link.config.reorder = None;
    link.arrive(0, 101, 1).unwrap();
    link.arrive(0, 101, 2).unwrap();
    assert_eq!(link.inside().packets, 3);
    assert_eq!(drain(&mut link), [(1, 2_000), (0, 2_500), (2, 3_000)]);

    config.reorder = None;
    config.loss = Some(Loss::Random { share: 1.0 });
    let mut link = Link::new(config, 0);
    link.arrive(0, 101, 0).unwrap();
    link.config.loss = None;
    link.arrive(0, 101, 1).unwrap();
    assert_eq!(link.deliver(1_000).map(|out| out.copies), Some(0));
    assert_eq!(link.deliver(2_000).map(|out| out.copies), Some(1));
}

#[test]
fn invalid_link_configurations_are_refused() {
    let config = |rate, buffer| LinkConfig::new(rate, 0, Buffer::Bytes(buffer));
    let no_rate = config(0, 131_072).check(1_514);
    assert!(matches!(no_rate, Err(EmulatorError::NoRate)));
    let small = config(1, 1_513).check(1_514);
    assert!(matches!(small, Err(EmulatorError::BufferTooSmall { .. })));
    let mut lossy = config(1, 1_514);
    lossy.loss = Some(Loss::Random { share: 1.5 });
    assert!(lossy.check(1_514).is_err());
}

#[test]
fn a_policer_passes_its_burst_and_then_its_rate() {
    let mut config = LinkConfig::new(1_000_000_000, 0, Buffer::Packets(1000));
    config.framing_bytes = 0;
    // Four packets at once, and one each 8 ms.
    config.policer = Some(Policer {
        rate_bits: 1_000_000,
        burst_bytes: 4_000,
    });
    let mut link = Link::new(config, 0);
    let mut passed = |at_ms: u64| link.arrive(at_ms * 1_000_000, 1_000, ()).map(drop);
    let dropped = Err(((), Cause::Policer));
    let at_once: Vec<_> = (0..6).map(|_| passed(0)).collect();
    assert_eq!(at_once, [Ok(()), Ok(()), Ok(()), Ok(()), dropped, dropped]);
    assert_eq!(passed(7), dropped);
    assert_eq!(passed(8), Ok(()));
    assert_eq!(passed(9), dropped);
    // It never holds more than its burst.
    let later: Vec<_> = (0..5).map(|_| passed(10_000)).collect();
    assert_eq!(later, [Ok(()), Ok(()), Ok(()), Ok(()), dropped]);
}

#[test]
fn a_slot_releases_the_packets_that_arrived_in_it() {
    let mut config = LinkConfig::new(8_000_000_000, 1_000, Buffer::Packets(1000));
    config.framing_bytes = 0;
    config.slot_ns = 10_000;
    let mut link = Link::new(config, 0);
    // A byte takes a nanosecond, and a microsecond of delay.
    let mut due = |at| link.arrive(at, 1, ()).map(|schedule| schedule.delivery);
    assert_eq!(due(0), Ok(11_001));
    assert_eq!(due(5_000), Ok(11_001));
    assert_eq!(due(10_000), Ok(11_001));
    assert_eq!(due(10_001), Ok(21_002));
    assert_eq!(due(50_000), Ok(61_001));
}

#[test]
fn a_cut_loses_all_that_is_under_way_and_nothing_later() {
    let mut config = LinkConfig::new(8_000_000, 1_000_000, Buffer::Packets(10));
    config.framing_bytes = 0;
    let mut link = Link::new(config, 0);
    // One on its way, one on the line, two that wait: a millisecond each.
    for number in 0..4 {
        assert!(link.arrive(0, 1_000, number).is_ok());
    }
    let cut = Change {
        cut: true,
        ..Change::default()
    };
    link.change(1_500_000, &cut);
    assert_eq!(link.backlog(1_500_000), 0);
    let later = link
        .arrive(1_600_000, 1_000, 4)
        .expect("the buffer is empty");
    assert_eq!((later.departure, later.delivery), (2_600_000, 3_600_000));
    let mut arrived = Vec::new();
    while let Some(delivered) = link.deliver(10_000_000) {
        arrived.push((delivered.packet, delivered.copies));
    }
    assert_eq!(arrived, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)]);
}
