// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sending half of a stream: its bytes from the local socket until the other side has
//! them.

use std::collections::VecDeque;
use std::ops::Range;

use rangemap::RangeSet;

use super::buffer;

/// See the module's text. Offsets are bytes from the stream's beginning.
#[derive(Debug, Default)]
pub struct SendHalf {
    /// From `base` to what was written.
    buffer: VecDeque<u8>,
    /// All below has arrived.
    base: u64,
    /// Arrived, above `base`.
    arrived: RangeSet<u64>,
    /// All below was sent once.
    next: u64,
    /// The peer's credit.
    limit: u64,
    fin: Fin,
}

/// The end of a half.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Fin {
    #[default]
    None,
    Wanted,
    Sent,
    Arrived,
}

impl SendHalf {
    /// With the credit that each stream begins with.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    fn written(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Bytes that the credit still allows to write.
    pub fn room(&self) -> u64 {
        match self.fin {
            Fin::None => self.limit.saturating_sub(self.written()),
            _ => 0,
        }
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// The peer's credit, which never shrinks.
    pub fn credit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Takes bytes: not more than there is room for.
    pub fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() as u64 <= self.room());
        buffer::add(&mut self.buffer, bytes);
    }

    /// Nothing more will be written.
    pub fn finish(&mut self) {
        if self.fin == Fin::None {
            self.fin = Fin::Wanted;
        }
    }

    /// Whether there is something that was never sent.
    pub fn has_new(&self) -> bool {
        self.next < self.written() || self.fin == Fin::Wanted
    }

    /// Bytes that were never sent, and whether the stream ends after them.
    pub fn new_bytes(&self) -> (u64, bool) {
        (self.written() - self.next, self.fin == Fin::Wanted)
    }

    /// Offset of the next byte that was never sent.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes what was never sent: up to `most` bytes, and whether the stream ends after them.
    pub fn take_new(&mut self, most: usize) -> Option<(Range<u64>, bool)> {
        if !self.has_new() {
            return None;
        }
        let end = self.written().min(self.next + most as u64);
        let range = self.next..end;
        let fin = self.fin == Fin::Wanted && end == self.written();
        if range.is_empty() && !fin {
            return None;
        }
        self.next = end;
        if fin {
            self.fin = Fin::Sent;
        }
        Some((range, fin))
    }

    /// The first piece of a lost range that has still not arrived.
    pub fn still_lost(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let start = range.start.max(self.base);
        if start >= range.end {
            return None;
        }
        self.arrived.gaps(&(start..range.end)).next()
    }

    /// Whether the end has arrived.
    pub fn fin_arrived(&self) -> bool {
        self.fin == Fin::Arrived
    }

    /// Copies held bytes.
    pub fn copy(&self, range: Range<u64>, to: &mut Vec<u8>) {
        let (start, end) = (range.start - self.base, range.end - self.base);
        let (start, end) = (start as usize, end as usize);
        let (first, second) = self.buffer.as_slices();
        let middle = first.len();
        to.extend_from_slice(&first[start.min(middle)..end.min(middle)]);
        to.extend_from_slice(&second[start.max(middle) - middle..end.max(middle) - middle]);
    }

    /// The other side has these bytes. Returns how many are freed.
    pub fn arrive(&mut self, range: Range<u64>, fin: bool) -> u64 {
        if fin {
            self.fin = Fin::Arrived;
        }
        let start = range.start.max(self.base);
        if start < range.end {
            self.arrived.insert(start..range.end);
        }
        let first = match self.arrived.first() {
            Some(first) if first.start == self.base => first.clone(),
            _ => return 0,
        };
        self.arrived.remove(first.clone());
        let gone = first.end - self.base;
        self.buffer.drain(..gone as usize);
        self.base = first.end;
        buffer::trim(&mut self.buffer);
        gone
    }

    /// All of it has arrived, and its end.
    pub fn is_done(&self) -> bool {
        self.fin == Fin::Arrived && self.buffer.is_empty()
    }
}
