// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the next datagram may leave (the generic cell rate algorithm, ITU-T I.371): in any
//! time `t` at most `rate * t` and one burst.

use super::time::{Nanos, SECOND};

/// See the module's text.
#[derive(Debug)]
pub struct Pacer {
    /// Bits per second.
    rate: u64,
    /// Least burst, bytes.
    least: u64,
    /// The same as time at the rate.
    catch_up: Nanos,
    /// All that was sent has left at this time, at the rate.
    busy_until: Nanos,
}

impl Pacer {
    /// Bits per second; burst: bytes at least, and as time at the rate.
    pub fn new(rate: u64, least: u64, catch_up: Nanos) -> Self {
        Self {
            rate: rate.max(1),
            least,
            catch_up,
            busy_until: 0,
        }
    }

    /// Another rate, bits per second.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
    }

    /// Bits per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Time at which the next datagram may leave, if it has so many bytes.
    pub fn ready_at(&self, bytes: usize) -> Nanos {
        let bytes = self.time(bytes as u64);
        let burst = self.time(self.least).max(self.catch_up);
        let slack = burst.saturating_sub(bytes);
        self.busy_until.saturating_sub(slack)
    }

    /// One leaves.
    pub fn sent(&mut self, now: Nanos, bytes: usize) {
        self.busy_until = self.busy_until.max(now) + self.time(bytes as u64);
    }

    fn time(&self, bytes: u64) -> Nanos {
        (u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(self.rate)) as Nanos
    }
}
