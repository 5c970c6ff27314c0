// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on a connection: a length of four bytes, little-endian, and a body.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::cipher::{sealed_length, Cipher};
use crate::error::FrameError;
use crate::proof::Keys;

/// Largest frame before authentication, bytes.
pub const MOST_GREETING: usize = 1024;

/// One direction of a connection: frames come in.
#[derive(Debug)]
pub struct Reader<R> {
    stream: R,
    cipher: Option<Cipher>,
    most: usize,
    body: Vec<u8>,
}

/// The other direction.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
    cipher: Option<Cipher>,
    /// Frames that were not sent yet.
    frames: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Short frames only, until the handshake is over.
    pub fn new(stream: R) -> Self {
        Self {
            stream,
            cipher: None,
            most: MOST_GREETING,
            body: Vec::new(),
        }
    }

    /// The connection below, from which no byte more than the frames was taken.
    pub fn into_inner(self) -> R {
        self.stream
    }

    /// From now on frames of up to `most` bytes, encrypted if there are keys.
    pub(crate) fn trust(&mut self, keys: Option<Keys>, most: usize) {
        self.most = most;
        self.cipher = keys.map(Cipher::new);
    }

    /// The next frame's body. Not to be called again after an error, nor after it was
    /// dropped before it ended.
    ///
    /// # Errors
    /// All of [`FrameError`]; [`FrameError::Slow`] if it is not here within `patience`.
    pub async fn next(&mut self, patience: Duration) -> Result<&[u8], FrameError> {
        match timeout(patience, self.frame()).await {
            Ok(frame) => frame?,
            Err(_) => return Err(FrameError::Slow(patience)),
        }
        match &mut self.cipher {
            Some(cipher) => cipher.open(&self.body),
            None => Ok(&self.body),
        }
    }

    async fn frame(&mut self) -> Result<(), FrameError> {
        let io = |error: std::io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => FrameError::Closed,
            _ => FrameError::Io(error),
        };
        let length = self.stream.read_u32_le().await.map_err(io)? as usize;
        let (least, most) = match self.cipher {
            Some(_) => (sealed_length(1), sealed_length(self.most)),
            None => (1, self.most),
        };
        if length < least || length > most {
            return Err(FrameError::Length {
                length,
                least,
                most,
            });
        }
        // Grows with the bytes that arrive, not with the announced length.
        self.body.clear();
        let mut limited = (&mut self.stream).take(length as u64);
        limited.read_to_end(&mut self.body).await.map_err(io)?;
        match self.body.len() == length {
            true => Ok(()),
            false => Err(FrameError::Closed),
        }
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// As it is, until the handshake gives keys.
    pub fn new(stream: W) -> Self {
        Self {
            stream,
            cipher: None,
            frames: Vec::new(),
        }
    }

    /// From now on encrypted, if there are keys.
    pub(crate) fn trust(&mut self, keys: Option<Keys>) {
        self.cipher = keys.map(Cipher::new);
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`FrameError::Io`]; [`FrameError::Slow`] if the other side has not taken it within
    /// `patience`.
    pub async fn send(&mut self, body: &[u8], patience: Duration) -> Result<(), FrameError> {
        self.hold(body)?;
        self.flush(patience).await
    }

    /// Keeps a frame for the next [`Writer::flush`]: short frames that go together need fewer
    /// packets, of which a new connection may send ten.
    ///
    /// # Errors
    /// [`FrameError`] of a frame that cannot be encrypted.
    pub fn hold(&mut self, body: &[u8]) -> Result<(), FrameError> {
        let length = match self.cipher {
            Some(_) => sealed_length(body.len()),
            None => body.len(),
        };
        self.frames
            .extend_from_slice(&(length as u32).to_le_bytes());
        match &mut self.cipher {
            Some(cipher) => cipher.seal(body, &mut self.frames)?,
            None => self.frames.extend_from_slice(body),
        }
        Ok(())
    }

    /// Bytes of the frames that wait for [`Writer::flush`].
    pub fn held(&self) -> usize {
        self.frames.len()
    }

    /// Sends the frames that wait.
    ///
    /// # Errors
    /// As of [`Writer::send`].
    pub async fn flush(&mut self, patience: Duration) -> Result<(), FrameError> {
        let write = async {
            self.stream.write_all(&self.frames).await?;
            self.stream.flush().await
        };
        let written = timeout(patience, write).await;
        self.frames.clear();
        match written {
            Ok(written) => written.map_err(FrameError::Io),
            Err(_) => Err(FrameError::Slow(patience)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn frames_that_are_held_go_together() {
        let mut sent = Vec::new();
        let mut writer = Writer::new(&mut sent);
        writer.hold(b"one").unwrap();
        writer.hold(b"two").unwrap();
        let held = writer.held();
        writer.send(b"three", SOON).await.unwrap();
        assert_eq!(writer.held(), 0);
        writer.flush(SOON).await.unwrap();
        assert_eq!(sent.len(), held + 4 + b"three".len());
        let mut reader = Reader::new(&sent[..]);
        for body in [&b"one"[..], b"two", b"three"] {
            assert_eq!(reader.next(SOON).await.unwrap(), body);
        }
        assert!(matches!(reader.next(SOON).await, Err(FrameError::Closed)));
    }
}
