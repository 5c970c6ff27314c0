// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Encrypted frames, as Noise transport messages.
//!
//! A frame's body and its length are split into messages of at most 65,535 bytes (Noise, 3).
//! Both sides count the messages and use the number as the nonce (Noise, 5.1), so the
//! receiver detects a message that was dropped, repeated or reordered. The length inside
//! detects a frame that was cut (Noise, 13: session termination).

use crate::error::FrameError;
use crate::proof::Keys;

/// Largest transport message, bytes.
const MOST_MESSAGE: usize = 65_535;
/// Bytes of a transport message beside its payload: the tag.
const TAG: usize = 16;
/// Bytes of the length inside.
const LENGTH: usize = 4;

/// One direction of a connection.
pub(crate) struct Cipher {
    keys: Keys,
    /// Number of the next message: the nonce, which must not repeat.
    next: u64,
    plain: Vec<u8>,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cipher")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// Length of a sealed body of `body` bytes.
pub(crate) const fn sealed_length(body: usize) -> usize {
    let plain = body + LENGTH;
    plain + TAG * plain.div_ceil(MOST_MESSAGE - TAG)
}

impl Cipher {
    /// For one direction. A second cipher for the same direction would repeat nonces.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            next: 0,
            plain: Vec::new(),
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Appends the sealed body to a frame.
    ///
    /// # Errors
    /// [`FrameError::Seal`] after 2⁶⁴ - 1 messages (Noise, 5.1).
    pub fn seal(&mut self, body: &[u8], frame: &mut Vec<u8>) -> Result<(), FrameError> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        plain.extend_from_slice(&(body.len() as u32).to_le_bytes());
        plain.extend_from_slice(body);
        let mut at = frame.len();
        frame.resize(at + sealed_length(body.len()), 0);
        for part in plain.chunks(MOST_MESSAGE - TAG) {
            let number = self.number();
            let sealed = self.keys.write_message(number, part, &mut frame[at..]);
            at += sealed.map_err(|_| FrameError::Seal)?;
        }
        self.plain = plain;
        Ok(())
    }

    /// Opens a sealed body. Must not be called again after an error.
    ///
    /// # Errors
    /// [`FrameError::Seal`] if it was changed or cut, or is not the next one.
    pub fn open(&mut self, sealed: &[u8]) -> Result<&[u8], FrameError> {
        self.plain.resize(sealed.len(), 0);
        let mut end = 0;
        for part in sealed.chunks(MOST_MESSAGE) {
            let number = self.number();
            let opened = self.keys.read_message(number, part, &mut self.plain[end..]);
            end += opened.map_err(|_| FrameError::Seal)?;
        }
        let whole = self.plain[..end].split_first_chunk::<LENGTH>();
        let (length, body) = whole.ok_or(FrameError::Seal)?;
        match u32::from_le_bytes(*length) as usize == body.len() {
            true => Ok(body),
            false => Err(FrameError::Seal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::keys_of_a_connection;

    /// A client's outgoing direction, and the server's incoming one.
    fn pair() -> (Cipher, Cipher) {
        let (client, server) = keys_of_a_connection(b"of tests alone");
        (Cipher::new(client), Cipher::new(server))
    }

    fn sealed(cipher: &mut Cipher, body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        cipher.seal(body, &mut frame).expect("a few");
        frame
    }

    #[test]
    fn bodies_of_all_lengths_are_opened() {
        let (mut close, mut open) = pair();
        let most = MOST_MESSAGE - TAG - LENGTH;
        for length in [1, 2, 1000, most - 1, most, most + 1, 3 * most, 512 * 1024] {
            let body: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let frame = sealed(&mut close, &body);
            assert_eq!(frame.len(), sealed_length(length));
            assert!(!frame.windows(16).any(|part| body.ends_with(part)));
            assert_eq!(open.open(&frame).expect("untouched"), body);
        }
    }

    #[test]
    fn a_repeated_changed_missing_cut_or_reflected_frame_is_refused() {
        let refused = |open: &mut Cipher, frame: &[u8]| {
            assert!(matches!(open.open(frame), Err(FrameError::Seal)));
        };
        let (mut close, mut open) = pair();
        let frame = sealed(&mut close, b"hello");
        open.open(&frame).expect("untouched");
        refused(&mut open, &frame);

        for place in 0..frame.len() {
            let (mut close, mut open) = pair();
            let mut frame = sealed(&mut close, b"hello");
            frame[place] ^= 1;
            refused(&mut open, &frame);
        }

        let (mut close, mut open) = pair();
        sealed(&mut close, b"left out");
        refused(&mut open, &sealed(&mut close, b"hello"));

        // Cut where one message ends and the next begins.
        let long = vec![7; 100_000];
        let (mut close, mut open) = pair();
        refused(&mut open, &sealed(&mut close, &long)[..MOST_MESSAGE]);
        // Two frames as one.
        let (mut close, mut open) = pair();
        let mut frame = sealed(&mut close, &vec![7; MOST_MESSAGE - TAG - LENGTH]);
        frame.extend(sealed(&mut close, b"more"));
        refused(&mut open, &frame);

        let (client, _server) = keys_of_a_connection(b"of tests alone");
        let frame = sealed(&mut Cipher::new(client.clone()), b"hello");
        refused(&mut Cipher::new(client), &frame);
        let (_, mut open) = pair();
        refused(&mut open, b"");
        refused(&mut open, b"short");
    }
}
