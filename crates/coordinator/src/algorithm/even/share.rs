// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Divides a route's budget in proportion to each stream's remaining data.

use super::member::{mss, Member, State};
use crate::algorithm::{Limits, Stream};

/// Least window of a stream that has something to send, segments, where the budget has
/// so many: fast retransmission needs three later packets.
const LEAST_SEGS: f64 = 4.0;
/// Window of an idle stream's start, segments: TCP's initial window (RFC 6928).
const IDLE_SEGS: u32 = 10;
/// A stream may have this many times a route's mean, or be this many times below it.
const FURTHEST: f64 = 6.0;
/// Share of a slow stream beyond its use: it may become faster.
const SLOW_ROOM: f64 = 1.25;
/// Where no total was declared: all streams aim beyond the leading stream, by this share of
/// its bytes, and by this many bytes at least. So a stream that is behind catches up in the
/// next quarter of the transfer, whenever it ends.
const AHEAD: f64 = 0.25;
const AHEAD_BYTES: f64 = 1e6;

/// Segments that each stream still has to send. Without a declared total all streams send
/// equally much.
pub(super) fn demands(streams: &[Stream], members: &[Member]) -> Vec<f64> {
    let most = streams.iter().map(|s| s.sample.acked_bytes).max();
    let most = most.unwrap_or(0) as f64;
    let mark = most + (most * AHEAD).max(AHEAD_BYTES);
    let demand = |(stream, member): (&Stream, &Member)| {
        let sample = &stream.sample;
        let left = match sample.total_bytes {
            0 => mark - sample.acked_bytes as f64,
            total => total.saturating_sub(sample.acked_bytes) as f64,
        };
        match member.state {
            State::Idle => 0.0,
            _ => (left / mss(stream)).max(1.0),
        }
    };
    streams.iter().zip(members).map(demand).collect()
}

/// Windows for the streams `here`, which are those of a route, from its budget.
pub(super) fn divide(
    budget_segs: f64,
    streams: &[Stream],
    members: &mut [Member],
    demands: &[f64],
    here: &[usize],
    limits: &mut [Limits],
) {
    let windows = windows(budget_segs, members, demands, here);
    // The next stream gets the rest of a rounding.
    let mut rest = 0.0;
    for (number, window) in here.iter().zip(windows) {
        let (sample, member) = (&streams[*number].sample, &mut members[*number]);
        let whole = (window + rest).floor().max(1.0);
        rest += window - whole;
        let segs = whole as u32;
        member.given_segs = whole;
        limits[*number] = match member.state {
            State::Idle => {
                member.given_segs = 0.0;
                Limits {
                    min_segs: 0,
                    max_segs: segs.max(IDLE_SEGS),
                }
            }
            // The kernel side would not lift it either.
            _ if sample.recovering => Limits {
                min_segs: 0,
                max_segs: segs,
            },
            _ => Limits {
                min_segs: segs,
                max_segs: segs,
            },
        };
    }
}

/// Fills the windows like vessels: the slow ones are full early, and the rest is divided
/// among the others.
fn windows(budget: f64, members: &[Member], demands: &[f64], here: &[usize]) -> Vec<f64> {
    let active = here.iter().filter(|n| demands[**n] > 0.0).count() as f64;
    if active == 0.0 {
        return vec![0.0; here.len()];
    }
    let mean = here.iter().map(|n| demands[*n]).sum::<f64>() / active;
    let weight = |n: usize| match demands[n] {
        0.0 => 0.0,
        demand => demand.clamp(mean / FURTHEST, mean * FURTHEST),
    };
    let least = LEAST_SEGS.min(budget / active);
    let mut left = budget;
    let mut weights: f64 = here.iter().map(|n| weight(*n)).sum();
    let mut windows = vec![f64::NAN; here.len()];
    // A vessel that is full raises the level of the others, which fills more of them.
    loop {
        let level = (left / weights).max(0.0);
        let mut changed = false;
        for (window, number) in windows.iter_mut().zip(here) {
            if !window.is_nan() {
                continue;
            }
            let share = level * weight(*number);
            let fixed = match members[*number].state {
                State::Slow(uses) if share > (uses * SLOW_ROOM).max(least) => {
                    Some((uses * SLOW_ROOM).max(least))
                }
                State::Idle => Some(0.0),
                _ if share < least => Some(least),
                _ => None,
            };
            if let Some(fixed) = fixed {
                *window = fixed;
                left -= fixed;
                weights -= weight(*number);
                changed = true;
            }
        }
        if !changed || weights <= 0.0 {
            for (window, number) in windows.iter_mut().zip(here) {
                if window.is_nan() {
                    *window = level * weight(*number);
                }
            }
            return windows;
        }
    }
}
