// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Delivery rate of each stream, by its acknowledgements.

use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes delivered so long ago count 1/e: longer than a round trip, and short enough to see that a
/// stream's share of the path has changed.
const MEMORY_S: f64 = 0.5;

#[derive(Debug, Clone, Copy)]
struct Delivered {
    bytes: f64,
    at: Duration,
}

/// See the module's text. Pure: the time is passed in.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<usize, Delivered>);

impl Rates {
    /// A stream has delivered so many bytes.
    pub fn add(&mut self, stream: usize, bytes: u64, now: Duration) {
        let before = self.of(stream, now).unwrap_or(0.0) * MEMORY_S;
        let bytes = before + bytes as f64;
        self.0.insert(stream, Delivered { bytes, at: now });
    }

    /// A stream is gone.
    pub fn remove(&mut self, stream: usize) {
        self.0.remove(&stream);
    }

    /// Bytes per second; `None` if it has delivered nothing yet.
    pub fn of(&self, stream: usize, now: Duration) -> Option<f64> {
        let Delivered { bytes, at } = self.0.get(&stream)?;
        let age_s = now.saturating_sub(*at).as_secs_f64();
        Some(bytes * (-age_s / MEMORY_S).exp() / MEMORY_S)
    }

    /// Of all streams that have delivered something.
    pub fn all(&self, now: Duration) -> f64 {
        self.0
            .keys()
            .filter_map(|stream| self.of(*stream, now))
            .sum()
    }
}
