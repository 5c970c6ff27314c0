// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends a reservation of which less than four fifths arrives for five seconds.

use super::Sample;
use crate::session::time::{Nanos, SECOND};

/// Seconds in a row that must be bad.
const BAD: u32 = 5;
/// Share of the bytes settled in a second that must arrive, in hundredths.
const LEAST: u64 = 80;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Breaker {
    since: Nanos,
    arrived: u64,
    lost: u64,
    bad: u32,
    was_silent: bool,
}

impl Breaker {
    /// A report. Returns the delivered rate, bits per second, if it ends the reservation.
    pub fn sample(&mut self, sample: &Sample) -> Option<u64> {
        self.arrived += sample.arrived;
        self.lost += sample.lost;
        self.was_silent |= sample.was_silent;
        let elapsed = sample.now.saturating_sub(self.since);
        if elapsed < SECOND {
            return None;
        }
        let all = self.arrived + self.lost;
        // A cut is no sign of a rate too high, nor is a second without much to send.
        let is_bad = all > 0 && self.arrived * 100 < all * LEAST;
        if !self.was_silent && elapsed < 2 * SECOND {
            self.bad = if is_bad { self.bad + 1 } else { 0 };
        }
        let delivered = u128::from(self.arrived) * 8 * u128::from(SECOND) / u128::from(elapsed);
        let bad = self.bad;
        *self = Self {
            since: sample.now,
            bad,
            ..Self::default()
        };
        (bad >= BAD).then_some(delivered as u64)
    }
}
