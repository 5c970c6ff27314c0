// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds on a peer's messages.

/// Longest path, bytes (include/uapi/linux/limits.h, PATH_MAX).
pub const MOST_PATH: usize = 4096;
/// Entries in a message.
pub const MOST_ENTRIES: usize = 1024;
/// Bytes of the paths in a message's entries, so that it fits into a frame.
pub const MOST_ENTRIES_BYTES: usize = 256 << 10;
/// Ranges of one file that are asked for with one message. Where more are missing, those
/// between are sent again.
pub const MOST_RANGES: usize = 4096;
/// Entries that the sink has not answered yet, and files that are not done: a transfer of any
/// number of files has these in memory. In a round trip of a second it is more than a disk takes.
pub const MOST_PENDING: u64 = 16_384;
/// Longest text, bytes.
pub const MOST_TEXT: usize = 4096;
/// Patterns and sources of a transfer.
pub const MOST_PATTERNS: usize = 1024;
/// Files up to this size are sent in packs, bytes.
pub const MOST_SMALL: u64 = 256 << 10;
/// Where several sessions write one destination, they share files above this size, bytes: below
/// it, a message per part costs more than it brings.
pub const LEAST_SHARED: u64 = 8 << 20;
/// Largest message on the control connection, bytes.
pub const MOST_MESSAGE: usize = 1 << 20;
/// Streams of a transfer.
pub const MOST_STREAMS: usize = 256;
/// Largest file, bytes: what off_t holds.
pub const MOST_SIZE: u64 = i64::MAX as u64;
/// Bytes of an entry's extended attributes, names and values.
pub const MOST_ATTRIBUTES: usize = 64 << 10;
