// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiving half of a stream: orders arriving bytes, and grants credit for bytes that the far
//! socket took.

use std::collections::{BTreeMap, VecDeque};

use super::buffer;
use super::error::SessionError;
use super::time::Nanos;

/// See the module's text. Offsets are bytes from the stream's beginning.
#[derive(Debug)]
pub struct ReceiveHalf {
    /// In order, and not yet read.
    ordered: VecDeque<u8>,
    /// Read by the owner of the session.
    read: u64,
    /// Written to the far socket.
    consumed: u64,
    /// Out of order: offset and bytes, which do not overlap.
    early: BTreeMap<u64, Vec<u8>>,
    /// Where the stream ends.
    end: Option<u64>,
    /// Credit that was granted.
    limit: u64,
    window: u64,
    /// When the first bytes after `grown_from` were consumed, where `consumed` last passed a
    /// window.
    grown_at: Nanos,
    grown_from: u64,
}

impl ReceiveHalf {
    /// With the credit that each stream begins with.
    pub fn new(window: u64) -> Self {
        Self {
            ordered: VecDeque::new(),
            read: 0,
            consumed: 0,
            early: BTreeMap::new(),
            end: None,
            limit: window,
            window,
            grown_at: 0,
            grown_from: 0,
        }
    }

    /// All below has arrived.
    pub fn in_order(&self) -> u64 {
        self.read + self.ordered.len() as u64
    }

    /// Pieces that wait for earlier bytes.
    pub fn pieces(&self) -> usize {
        self.early.len()
    }

    /// Granted to the peer.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Most bytes that it may have to hold.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Whether bytes at this place would be another piece that waits.
    pub fn is_early(&self, offset: u64) -> bool {
        offset > self.in_order()
    }

    /// Takes bytes in.
    ///
    /// # Errors
    /// [`SessionError::Credit`], [`SessionError::End`].
    pub fn receive(&mut self, offset: u64, bytes: &[u8], fin: bool) -> Result<(), SessionError> {
        let end = offset + bytes.len() as u64;
        if end > self.limit {
            return Err(SessionError::Credit);
        }
        let highest = self.early.last_key_value();
        let highest = highest.map_or(self.in_order(), |(at, piece)| at + piece.len() as u64);
        let is_end_wrong = self.end.is_some_and(|own| end > own || (fin && end != own));
        if is_end_wrong || (fin && highest > end) {
            return Err(SessionError::End);
        }
        if fin {
            self.end = Some(end);
        }
        let in_order = self.in_order();
        if end <= in_order {
            return Ok(());
        }
        if offset <= in_order {
            buffer::add(&mut self.ordered, &bytes[(in_order - offset) as usize..]);
            self.join();
        } else {
            self.keep(offset, bytes);
        }
        Ok(())
    }

    /// Moves early pieces that are in order now.
    fn join(&mut self) {
        while let Some(first) = self.early.first_entry() {
            let in_order = self.read + self.ordered.len() as u64;
            if *first.key() > in_order {
                break;
            }
            let (at, piece) = first.remove_entry();
            let known = (in_order - at) as usize;
            if known < piece.len() {
                buffer::add(&mut self.ordered, &piece[known..]);
            }
        }
    }

    /// Keeps the new bytes of these.
    fn keep(&mut self, mut offset: u64, mut bytes: &[u8]) {
        if let Some((at, piece)) = self.early.range(..=offset).next_back() {
            let known = (at + piece.len() as u64).saturating_sub(offset) as usize;
            let known = known.min(bytes.len());
            offset += known as u64;
            bytes = &bytes[known..];
        }
        while !bytes.is_empty() {
            let next = self.early.range(offset..).next();
            let next = next.map(|(at, piece)| (*at, at + piece.len() as u64));
            let end = offset + bytes.len() as u64;
            let (until, after) = match next {
                Some((at, after)) if at < end => (at, after.min(end)),
                _ => (end, end),
            };
            if until > offset {
                let piece = &bytes[..(until - offset) as usize];
                self.early.insert(offset, piece.to_vec());
            }
            bytes = &bytes[(after - offset) as usize..];
            offset = after;
        }
    }

    /// Whether there are bytes, or the end, to read.
    pub fn is_readable(&self) -> bool {
        !self.ordered.is_empty() || self.is_finished()
    }

    /// All was read.
    pub fn is_finished(&self) -> bool {
        self.end == Some(self.read)
    }

    /// All has arrived, and is written to the far socket.
    pub fn is_done(&self) -> bool {
        self.end == Some(self.consumed)
    }

    /// Bytes in order, to the end of `to`.
    pub fn read(&mut self, most: usize, to: &mut Vec<u8>) -> usize {
        let count = most.min(self.ordered.len());
        // Slices, for `drain` gives one byte after the other.
        let (first, second) = self.ordered.as_slices();
        let middle = first.len().min(count);
        to.extend_from_slice(&first[..middle]);
        to.extend_from_slice(&second[..count - middle]);
        self.ordered.drain(..count);
        self.read += count as u64;
        buffer::trim(&mut self.ordered);
        count
    }

    /// The far socket took so many of the bytes that were read. The window doubles if the reader
    /// takes one in less than `often`, and becomes four times as large if it takes one in less than
    /// half of that: a stream that is read as fast as it arrives gets the window that the path
    /// needs, up to `most`, and one that is not read stays small.
    pub fn consume(&mut self, now: Nanos, bytes: u64, often: Nanos, most: u64) {
        // A connection that was idle is not slow.
        if self.consumed == self.grown_from {
            self.grown_at = now;
        }
        self.consumed = (self.consumed + bytes).min(self.read);
        if self.consumed - self.grown_from < self.window {
            return;
        }
        let elapsed = now - self.grown_at;
        let times = match (elapsed < often / 2, elapsed < often) {
            (true, _) => 4,
            (false, true) => 2,
            (false, false) => 1,
        };
        self.window = self.window.max((self.window * times).min(most));
        self.grown_from = self.consumed;
    }

    /// Grants more than the window, once.
    pub fn lend(&mut self, bytes: u64) {
        self.limit += bytes;
    }

    /// Whether the window covers all that is granted.
    pub fn is_covered(&self) -> bool {
        self.limit <= self.consumed + self.window
    }

    /// More credit, if there is enough of it to be worth a record. Returns by how much.
    pub fn grant(&mut self) -> u64 {
        let limit = self.consumed + self.window;
        let more = limit.saturating_sub(self.limit);
        // After the end there is nothing to grant.
        if self.end.is_some() || more < self.window / 8 {
            return 0;
        }
        self.limit = limit;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_in_any_order_give_the_bytes(
            cuts in proptest::collection::vec((0usize..1_000, 0usize..60), 0..200),
        ) {
            let bytes: Vec<u8> = (0..1_000u32).map(|n| (n * 7 % 251) as u8).collect();
            let mut half = ReceiveHalf::new(1_000);
            let mut got = Vec::new();
            for (at, length) in cuts {
                let end = (at + length).min(1_000);
                half.receive(at as u64, &bytes[at..end], end == 1_000).expect("within its credit");
                half.read(100, &mut got);
            }
            half.receive(0, &bytes, true).expect("within its credit");
            half.read(1_000, &mut got);
            prop_assert_eq!(got, bytes);
            prop_assert!(half.is_finished() && half.pieces() == 0);
        }
    }

    #[test]
    fn data_beyond_the_credit_or_the_end_is_an_error() {
        let mut half = ReceiveHalf::new(10);
        assert_eq!(half.receive(5, b"123456", false), Err(SessionError::Credit));
        half.receive(0, b"1234", true).expect("an end");
        assert_eq!(half.receive(4, b"5", false), Err(SessionError::End));
        assert_eq!(half.receive(0, b"123", true), Err(SessionError::End));
        half.receive(0, b"1234", true).expect("the same end");
        let mut half = ReceiveHalf::new(10);
        half.receive(5, b"12", false).expect("in the credit");
        assert_eq!(half.receive(0, b"1234", true), Err(SessionError::End));
    }
}
