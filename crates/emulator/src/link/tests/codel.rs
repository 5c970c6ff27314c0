// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CoDel in the buffer.

use super::*;
use crate::codel::Verdict;
use crate::config::Codel;

const TARGET: u64 = 5 * MS;
const INTERVAL: u64 = 100 * MS;

/// A frame takes a millisecond on the line.
const FRAME: u32 = 1_000;
const RATE: u64 = 8_192_000;

fn link(ecn: bool) -> Link<u32> {
    Link::new(
        LinkConfig {
            codel: Some(Codel {
                target_ns: TARGET,
                interval_ns: INTERVAL,
                ecn,
            }),
            ..LinkConfig::new(RATE, 10 * MS, Buffer::Packets(1_000))
        },
        0,
    )
}

/// What became of `count` frames that came so many nanoseconds apart.
fn offered(mut link: Link<u32>, capable: bool, count: u32, gap: u64) -> Vec<Delivered<u32>> {
    let mut seen = Vec::new();
    for number in 0..count {
        let now = u64::from(number) * gap;
        seen.extend(std::iter::from_fn(|| link.deliver(now)));
        link.arrive_capable(now, FRAME, capable, number).unwrap();
    }
    seen.extend(std::iter::from_fn(|| link.deliver(u64::MAX)));
    assert_eq!(seen.len(), count as usize);
    seen
}

fn taken(seen: &[Delivered<u32>], verdict: Verdict) -> Vec<u64> {
    let of = seen.iter().filter(|out| out.verdict == Some(verdict));
    of.map(|out| out.departure).collect()
}

#[test]
fn marks_come_by_the_control_law() {
    // A tenth too fast: the wait reaches 5 ms after 55 ms.
    let marks = taken(&offered(link(true), true, 600, 909_091), Verdict::Mark);
    let first = 55 * MS + INTERVAL;
    assert!(marks[0].abs_diff(first) <= 3 * MS, "{marks:?}");
    for (number, pair) in (1..).zip(marks.windows(2)) {
        let gap = INTERVAL as f64 / f64::from(number).sqrt();
        assert!(
            ((pair[1] - pair[0]) as f64 - gap).abs() <= 1.1 * MS as f64,
            "{number}: {marks:?}"
        );
    }
    assert_eq!(marks.len(), 9, "{marks:?}");
}

#[test]
fn a_mark_moves_nothing() {
    let mut without = link(true);
    without.config.codel = None;
    let due = |seen: Vec<Delivered<u32>>| seen.iter().map(|out| out.due).collect::<Vec<_>>();
    assert_eq!(
        due(offered(link(true), true, 600, 909_091)),
        due(offered(without, true, 600, 909_091))
    );
}

#[test]
fn packets_without_ecn_are_dropped_and_the_link_stays_busy() {
    for (ecn, capable) in [(true, false), (false, true)] {
        let seen = offered(link(ecn), capable, 600, 909_091);
        assert!(taken(&seen, Verdict::Mark).is_empty());
        let dropped = taken(&seen, Verdict::Drop);
        assert!(dropped.len() > 5, "{dropped:?}");
        let gone = seen.iter().filter(|out| out.copies == 0).count();
        assert_eq!(gone, dropped.len());
        let carried: Vec<u64> = seen
            .iter()
            .filter(|out| out.copies > 0)
            .map(|out| out.departure)
            .collect();
        // Once it has begun the line is never idle, and never faster than it is.
        assert!(carried.windows(2).all(|pair| pair[1] - pair[0] == MS));
    }
}

#[test]
fn a_wait_that_does_not_last_is_no_congestion() {
    // 40 at once, a wait of 39 ms: gone before the interval is over.
    let mut link = link(true);
    for burst in 0..20 {
        for number in 0..40 {
            let at = burst * 50 * MS;
            link.arrive_capable(at, FRAME, true, number).unwrap();
        }
        let verdicts: Vec<_> = std::iter::from_fn(|| link.deliver((burst + 1) * 50 * MS - 1))
            .filter_map(|out| out.verdict)
            .collect();
        assert!(verdicts.is_empty(), "{verdicts:?}");
    }
}

#[test]
fn a_queue_of_one_frame_is_none() {
    // Slow: each frame waits for 15 ms behind one other.
    let slow = RATE / 16;
    let mut link = link(true);
    link.change(
        0,
        &Change {
            rate_bits: Some(slow),
            ..Change::default()
        },
    );
    let seen = offered(link, true, 100, 16 * MS + 1);
    assert!(taken(&seen, Verdict::Mark).is_empty());
}
