// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The algorithms that set the windows of a group's streams. Each is a pure function of its
//! inputs so far: it reads no clock and does no I/O.

mod choice;
mod even;
mod naive;
mod scoreboard;

use std::time::Duration;

pub use choice::{Choice, ChoiceError, CHOICES};
pub use even::{Even, EvenConfig};
pub use naive::{Naive, Side, Value};
pub use scoreboard::{Round, Scoreboard, ScoreboardConfig};

use crate::local::StreamSample;

/// A stream of the group: the client that reported it, and the socket on its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// A number that the server gave the client's session.
    pub client: u32,
    /// [`StreamSample::cookie`].
    pub cookie: u64,
}

/// A stream's latest report.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Which stream it is.
    pub id: StreamId,
    /// When its host took the sample, by the clock of the client's session. Only
    /// differences between samples of one stream have a meaning.
    pub taken: Duration,
    /// The sample.
    pub sample: StreamSample,
}

/// Bounds of a window in segments; 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// A smaller cwnd is lifted to this.
    pub min_segs: u32,
    /// A larger cwnd is held at this.
    pub max_segs: u32,
}

impl Limits {
    /// Leaves the stream to its own congestion control.
    pub const FREE: Self = Self {
        min_segs: 0,
        max_segs: 0,
    };

    /// An upper limit alone, of one segment at least.
    pub fn upper(segs: f64) -> Self {
        Self {
            min_segs: 0,
            max_segs: whole(segs),
        }
    }

    /// A lower limit alone, of one segment at least.
    pub fn lower(segs: f64) -> Self {
        Self {
            min_segs: whole(segs),
            max_segs: 0,
        }
    }

    /// One window, neither less nor more.
    pub fn exact(segs: f64) -> Self {
        Self {
            min_segs: whole(segs),
            max_segs: whole(segs),
        }
    }
}

/// The largest window that TCP can have: 2³⁰ bytes of 1 byte segments (RFC 7323, 2.3).
const MOST_SEGS: f64 = (1 << 30) as f64;

fn whole(segs: f64) -> u32 {
    segs.round().clamp(1.0, MOST_SEGS) as u32
}

/// Decides the windows of a group.
pub trait Algorithm: Send {
    /// Called once a round with all streams of the group, in any order. `now` counts
    /// from any moment and never goes back. Returns bounds for each, in the same order.
    fn round(&mut self, now: Duration, streams: &[Stream]) -> Vec<Limits>;

    /// Length of the next round, unless the user sets one.
    fn period(&self) -> Duration {
        // kamezawa-2004, 5.5.
        Duration::from_secs(1)
    }

    /// Its current estimates, one line each, for `status`.
    fn beliefs(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Rounds that a window holds without a new one, and bounds of that.
const LEASE_ROUNDS: u32 = 4;
const LEASE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(240));

/// How long the bounds of a round of this length hold without new ones.
pub fn lease(period: Duration) -> Duration {
    (LEASE_ROUNDS * period).clamp(LEASE.0, LEASE.1)
}

/// Each stream is left to its own congestion control; only observed.
#[derive(Debug, Default)]
pub struct Free;

impl Algorithm for Free {
    fn round(&mut self, _now: Duration, streams: &[Stream]) -> Vec<Limits> {
        vec![Limits::FREE; streams.len()]
    }
}
