// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on a connection.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::error::FrameError;
use crate::token::{Seal, TAG_BYTES};

/// Largest frame of somebody who has not proven anything yet, bytes.
pub const MOST_GREETING: usize = 1024;

/// One direction of a connection: frames come in.
#[derive(Debug)]
pub struct Reader<R> {
    stream: R,
    seal: Option<Seal>,
    most: usize,
    body: Vec<u8>,
}

/// The other direction.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
    seal: Option<Seal>,
    body: Vec<u8>,
    frame: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Short frames only, until [`trust`](Self::trust).
    pub fn new(stream: R) -> Self {
        Self {
            stream,
            seal: None,
            most: MOST_GREETING,
            body: Vec::new(),
        }
    }

    /// From now on frames of up to `most` bytes, with tags if there is a seal.
    pub fn trust(&mut self, seal: Option<Seal>, most: usize) {
        self.most = most;
        self.seal = seal;
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
        let mut body = self.body.as_slice();
        if let Some(seal) = &mut self.seal {
            body = seal.open(body).ok_or(FrameError::Seal)?;
        }
        Ok(body)
    }

    async fn frame(&mut self) -> Result<(), FrameError> {
        let io = |error: std::io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => FrameError::Closed,
            _ => FrameError::Io(error),
        };
        let length = self.stream.read_u32_le().await.map_err(io)? as usize;
        let tag = self.seal.as_ref().map_or(0, |_| TAG_BYTES);
        if length < 1 + tag || length > self.most + tag {
            return Err(FrameError::Length {
                length,
                most: self.most,
            });
        }
        // Grows with what arrives, not with what was announced.
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
    /// Without tags, until [`trust`](Self::trust).
    pub fn new(stream: W) -> Self {
        Self {
            stream,
            seal: None,
            body: Vec::new(),
            frame: Vec::new(),
        }
    }

    /// From now on with tags, if there is a seal.
    pub fn trust(&mut self, seal: Option<Seal>) {
        self.seal = seal;
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`FrameError::Io`]; [`FrameError::Slow`] if the other side has not taken it within
    /// `patience`.
    pub async fn send(&mut self, body: &[u8], patience: Duration) -> Result<(), FrameError> {
        self.body.clear();
        self.body.extend_from_slice(body);
        if let Some(seal) = &mut self.seal {
            seal.close(&mut self.body);
        }
        self.frame.clear();
        self.frame
            .extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        self.frame.extend_from_slice(&self.body);
        let write = async {
            self.stream.write_all(&self.frame).await?;
            self.stream.flush().await
        };
        match timeout(patience, write).await {
            Ok(written) => written.map_err(FrameError::Io),
            Err(_) => Err(FrameError::Slow(patience)),
        }
    }
}
