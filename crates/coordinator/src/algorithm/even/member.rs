// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of one stream from round to round.

use std::time::Duration;

use super::RouteId;
use crate::algorithm::Stream;

/// Payload of a segment where it was not reported, bytes (Ethernet, timestamps).
const USUAL_MSS: f64 = 1448.0;
/// Round trips without a retransmission that end a recovery: a segment that is lost
/// again is missed after one, and more for the jitter.
const REPAIR_RTTS: f64 = 1.5;
/// A stream without progress for this long, and two round trips at least, is stalled:
/// its share goes to others.
const STALLED_AFTER: Duration = Duration::from_millis(50);
/// Rounds in which a stream uses too little of its window until it counts as slow: its
/// program, its receiver or its buffer is the limit.
const SLOW_ROUNDS: u32 = 12;

#[derive(Debug)]
pub(super) struct Member {
    pub route: Option<RouteId>,
    delivered_total: u32,
    acked_bytes: u64,
    retransmitted_segs: u64,
    was_recovering: bool,
    /// When it was last seen to retransmit.
    repaired: Duration,
    progress: Duration,
    /// The least window of the last round.
    pub given_segs: f64,
    slow_rounds: u32,
    /// Since the last round.
    pub delivered_segs: f64,
    pub lost: bool,
    pub state: State,
}

/// The use that a stream can make of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    /// Fills it.
    Busy,
    /// Fills so many segments of it.
    Slow(f64),
    /// Has nothing to send, or its receiver takes nothing.
    Idle,
}

impl Member {
    pub fn new(now: Duration, stream: &Stream) -> Self {
        Self {
            route: None,
            delivered_total: stream.sample.delivered_segs,
            acked_bytes: stream.sample.acked_bytes,
            retransmitted_segs: stream.sample.retransmitted_segs,
            was_recovering: stream.sample.recovering,
            repaired: Duration::ZERO,
            progress: now,
            given_segs: 0.0,
            slow_rounds: 0,
            delivered_segs: 0.0,
            lost: false,
            state: State::Busy,
        }
    }

    pub fn update(&mut self, now: Duration, stream: &Stream) {
        let sample = &stream.sample;
        let acked = sample.acked_bytes.saturating_sub(self.acked_bytes);
        // Data acknowledged at the end of a recovery had arrived before.
        let arrived = sample.delivered_segs.wrapping_sub(self.delivered_total);
        self.delivered_segs = arrived.into();
        self.delivered_total = sample.delivered_segs;
        // One loss event for each recovery, as TCP has it: retransmissions that follow
        // one another belong to one. A short recovery may have begun and ended between
        // two rounds.
        let rtt = Duration::from_micros(sample.srtt_us.into());
        let repairs = sample.retransmitted_segs > self.retransmitted_segs || sample.recovering;
        let pause = now.saturating_sub(self.repaired) > rtt.mul_f64(REPAIR_RTTS);
        self.lost = repairs && !self.was_recovering && pause;
        if repairs {
            self.repaired = now;
        }
        self.acked_bytes = sample.acked_bytes;
        self.retransmitted_segs = sample.retransmitted_segs;
        self.was_recovering = sample.recovering;
        if arrived > 0 || acked > 0 || sample.recovering {
            self.progress = now;
        }
        let inflight = f64::from(sample.inflight_segs);
        // In Recovery a stream may not use its share.
        let used = inflight >= 0.6 * self.given_segs || sample.recovering;
        self.slow_rounds = match used {
            true => 0,
            false => self.slow_rounds + 1,
        };
        let patience = STALLED_AFTER.max(2 * Duration::from_micros(sample.srtt_us.into()));
        let stalled = now.saturating_sub(self.progress) > patience;
        let nothing = sample.unsent_bytes == 0 && sample.inflight_segs == 0;
        self.state = if nothing || stalled {
            self.slow_rounds = 0;
            State::Idle
        } else if self.slow_rounds >= SLOW_ROUNDS {
            State::Slow(inflight)
        } else {
            State::Busy
        };
    }
}

/// Payload of a stream's segments, bytes.
pub(super) fn mss(stream: &Stream) -> f64 {
    match stream.sample.mss_bytes {
        0 => USUAL_MSS,
        bytes => bytes.into(),
    }
}
