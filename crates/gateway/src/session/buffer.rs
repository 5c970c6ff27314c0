// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes of a stream that wait. The heap that they take follows their number: a `VecDeque` left
//! to itself takes up to twice that, and keeps what it had when it was full.

use std::collections::VecDeque;

/// Adds bytes. Grows by a quarter, or by what is needed.
pub fn add(buffer: &mut VecDeque<u8>, bytes: &[u8]) {
    let needed = buffer.len() + bytes.len();
    if needed > buffer.capacity() {
        buffer.reserve_exact(needed.max(buffer.capacity() / 4 * 5) - buffer.len());
    }
    buffer.extend(bytes);
}

/// Gives memory back of which less than half is in use.
pub fn trim(buffer: &mut VecDeque<u8>) {
    if buffer.len() < buffer.capacity() / 2 {
        buffer.shrink_to(buffer.len() / 4 * 5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_waits() {
        let mut buffer = VecDeque::new();
        for _ in 0..1_000 {
            add(&mut buffer, &[7; 1_350]);
            assert!(buffer.capacity() <= buffer.len() / 4 * 5 + 1_350);
        }
        while !buffer.is_empty() {
            buffer.drain(..buffer.len().min(1_350));
            trim(&mut buffer);
            assert!(buffer.capacity() <= 2 * buffer.len() + 8);
        }
    }
}
