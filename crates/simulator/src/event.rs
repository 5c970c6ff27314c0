// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can happen, and the order in which it does.

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// A time that never comes.
pub const NEVER: u64 = u64::MAX;

/// What happens. Of two things at the same nanosecond the one that stands first here
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
    /// The application of a flow has something to say.
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

/// Something that happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the beginning.
    pub time: u64,
    /// When the packet left its sender; an ACK returns that of what it answers.
    pub stamp: u64,
    /// Whose.
    pub flow: u32,
    /// Data: number of the segment. ACK: the next that the receiver waits for.
    pub sequence: u32,
    /// ACK: end of the block that the segment which it answers lies in, exclusive; 0
    /// when that is not beyond `sequence` (RFC 2018, the first block).
    pub block_end: u32,
    /// ACK: segments in that block.
    pub block_len: u16,
    /// What.
    pub kind: Kind,
    /// How many links of its path the packet has behind it.
    pub hop: u8,
}

impl Event {
    /// One that is about a flow and no packet.
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

    /// Earlier is smaller; no two events that differ are equal in it, unless nobody can
    /// tell which came first.
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
