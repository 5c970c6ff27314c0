// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events and their order.

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// A time that never comes.
pub const NEVER: u64 = u64::MAX;

/// Kind of event. Of two events at the same nanosecond the one that stands first here
/// happens first, and of two alike the one of the lower flow: a run's order depends on
/// nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A packet of data reaches a node: [`Event::hop`] is the link that it goes to
    /// next, or the end of the flow's path, which is the receiver.
    Data,
    /// An ACK does, on the way back.
    Ack,
    /// The application of a flow writes.
    Source,
    /// The next paced packet may leave.
    Pace,
    /// A sender's timer: retransmission, probe or reordering.
    Timer,
    /// A receiver's delayed ACK is due.
    Delayed,
    /// A coordinator's round: [`Event::flow`] is its number.
    Round,
    /// A trace takes its next sample.
    Sample,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the beginning.
    pub time: u64,
    /// When the packet left its sender; an ACK returns that of the segment that it acknowledges.
    pub stamp: u64,
    /// The flow.
    pub flow: u32,
    /// Data: number of the segment. ACK: the next one that the receiver expects.
    pub sequence: u32,
    /// ACK: end of the block that contains the acknowledged segment, exclusive; 0
    /// when that is not beyond `sequence` (RFC 2018, the first block).
    pub block_end: u32,
    /// ACK: segments in that block.
    pub block_len: u16,
    /// Its kind.
    pub kind: Kind,
    /// Links of its path that the packet has passed.
    pub hop: u8,
}

impl Event {
    /// An event of a flow without a packet.
    pub fn plain(time: u64, kind: Kind, flow: u32) -> Self {
        Event {
            time,
            stamp: 0,
            flow,
            sequence: 0,
            block_end: 0,
            block_len: 0,
            kind,
            hop: 0,
        }
    }

    /// Earlier is smaller. Two events that differ compare equal only if their order has no
    /// effect.
    pub fn order(&self) -> (u64, Kind, u32, u64, u32, u8) {
        (
            self.time,
            self.kind,
            self.flow,
            self.stamp,
            self.sequence,
            self.hop,
        )
    }
}
