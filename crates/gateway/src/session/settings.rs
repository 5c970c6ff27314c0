// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings, events and statistics of a session.

use super::rate::Rate;
use super::time::{Nanos, MS, SECOND};

/// The two sides: numbers of streams depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Began the session; its streams are even.
    Client,
    /// Its streams are odd.
    Server,
}

/// Limits that a peer needs before the first stream; part of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Streams that the peer may have open at a time.
    pub streams: u64,
    /// Credit of each new stream, bytes.
    pub credit: u64,
}

/// A session's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// This side.
    pub side: Side,
    /// Rate on the wire.
    pub rate: Rate,
    /// Largest datagram, bytes.
    pub datagram: usize,
    /// Bytes of each datagram on the wire beside its own.
    pub overhead: usize,
    /// Burst, bytes on the wire: so much, or [`Settings::catch_up`] if that is more.
    pub burst: u64,
    /// Burst of a late timer, as time at the rate in force: a learned rate may be many times the
    /// first one.
    pub catch_up: Nanos,
    /// Memory for bytes of streams, both directions together.
    pub memory: u64,
    /// Streams that each side may have open at a time.
    pub streams: u64,
    /// First guess of the round-trip time, for example the handshake's.
    pub rtt: Nanos,
    /// Silence of the peer after which the session is over: longer than the longest outage
    /// that connections shall survive.
    pub patience: Nanos,
    /// The path delivers all, and in order: TCP, which repeats by itself. Silence is no sign
    /// of loss there.
    pub is_ordered: bool,
    /// The peer's limits.
    pub peer: Limits,
}

/// Largest first credit of a stream, bytes.
const MOST_CREDIT: u64 = 256 << 10;
/// Smallest, bytes: with less a stream takes many round trips to get going.
const LEAST_CREDIT: u64 = 4 << 10;
/// Least memory of a session, bytes.
pub const LEAST_MEMORY: u64 = 4 << 20;

impl Limits {
    /// Of a side with so much memory (bytes) and so many streams: a quarter of the memory is
    /// for first credits, so that a new stream always has its own.
    pub fn new(memory: u64, streams: u64) -> Self {
        let memory = memory.max(LEAST_MEMORY);
        let streams = streams.clamp(1, memory / 4 / LEAST_CREDIT);
        Self {
            streams,
            credit: (memory / 4 / streams).min(MOST_CREDIT),
        }
    }
}

impl Settings {
    /// A session with defaults: 1,024 streams, 64 MiB, 90 s of patience.
    pub fn new(side: Side, rate: Rate) -> Self {
        let (memory, streams) = (64 << 20, 1_024);
        Self {
            side,
            rate,
            datagram: 1_350,
            overhead: 60,
            burst: 16 << 10,
            catch_up: 0,
            memory,
            streams,
            rtt: 100 * MS,
            patience: 90 * SECOND,
            is_ordered: false,
            peer: Limits::new(memory, streams),
        }
    }

    /// This side's limits.
    pub fn limits(&self) -> Limits {
        Limits::new(self.memory, self.streams)
    }
}

/// Events for the owner of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// Its number.
        stream: u64,
        /// Its target.
        target: Vec<u8>,
    },
    /// The target of a stream has answered.
    Accepted(u64),
    /// There is something to read, or the end.
    Readable(u64),
    /// There is room again, after a write that took less than it was given.
    Writable(u64),
    /// The peer ended both directions at once.
    Reset {
        /// The stream.
        stream: u64,
        /// The reason.
        reason: u8,
    },
    /// Both directions ended in order, and all of it was confirmed.
    Closed(u64),
    /// The breaker ended the reservation: the rate is learned from now on.
    Broken,
    /// Nothing arrived for [`Settings::patience`]: the session is over.
    Silent,
}

/// Counts of a session, from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Statistics {
    /// Datagrams sent, with reports.
    pub sent: u64,
    /// Bytes sent on the wire.
    pub sent_bytes: u64,
    /// Bytes of streams sent for the first time.
    pub new_bytes: u64,
    /// Bytes of streams sent again.
    pub again_bytes: u64,
    /// Datagrams with a content that counted as lost.
    pub lost: u64,
    /// Of those, the ones that had arrived.
    pub spurious: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// Datagrams that came twice, or too late.
    pub duplicates: u64,
    /// Datagrams that were dropped, because there were too many pieces out of order.
    pub refused: u64,
}
