// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A data connection after its handshake.

use std::os::fd::OwnedFd;
use std::time::Duration;

use paceline_security as security;
use paceline_security::FrameError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::control::{BoxedRead, BoxedWrite};
use crate::Result;
use paceline_transfer::wire::{
    Ack, Frame, Header, TagKey, Tags, WireError, ACK, HEADER, MOST_BODY, TRAILER,
};

/// A frame may be long in coming: the control connection says whether the other side lives.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// Unsent bytes in a socket above which it takes no more (TCP_NOTSENT_LOWAT): a stream takes
/// its next bite late, so that a slow one binds little.
const NOT_SENT: u32 = 256 << 10;

/// A data connection.
pub struct Stream {
    /// Its number.
    pub number: u16,
    /// Incoming frames.
    pub reader: StreamReader,
    /// Outgoing frames.
    pub writer: StreamWriter,
    /// The socket, for its options.
    pub socket: OwnedFd,
    /// Reports its end to its maker.
    pub guard: Option<Guard>,
}

/// See [`Stream::guard`].
#[derive(Debug)]
pub struct Guard(u16, mpsc::UnboundedSender<u16>);

impl Guard {
    /// Of the connection with this number.
    pub fn new(number: u16, ended: mpsc::UnboundedSender<u16>) -> Self {
        Self(number, ended)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

/// Incoming frames.
pub enum StreamReader {
    /// Within TLS or Noise.
    Frames(security::Reader<BoxedRead>),
    /// As it is.
    Plain(BoxedRead, Vec<u8>),
    /// The other side has not answered the handshake yet.
    Joining {
        /// The handshake.
        joining: Box<security::Joining>,
        /// The connection.
        read: BoxedRead,
        /// It goes on as it is.
        is_plain: bool,
    },
    /// The handshake failed.
    Failed,
}

/// Outgoing frames.
pub enum StreamWriter {
    /// Within TLS or Noise.
    Frames(security::Writer<BoxedWrite>),
    /// As it is.
    Plain(BoxedWrite),
}

/// Sets the options of a data connection's socket.
///
/// # Errors
/// The kernel's.
pub fn prepare(stream: &TcpStream) -> std::io::Result<OwnedFd> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_notsent_lowat(NOT_SENT)?;
    Ok(OwnedFd::from(socket.try_clone()?))
}

impl StreamReader {
    /// The next frame's bytes, or acknowledgement's: `is_ack`. To be awaited to its end.
    async fn body(&mut self, is_ack: bool) -> Result<&[u8]> {
        if matches!(self, Self::Joining { .. }) {
            self.join().await?;
        }
        match self {
            Self::Joining { .. } | Self::Failed => Err(FrameError::Closed.into()),
            Self::Frames(reader) => Ok(reader.next(PATIENCE).await?),
            Self::Plain(reader, body) => {
                let io = |error: std::io::Error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => FrameError::Closed,
                    _ => FrameError::Io(error),
                };
                body.clear();
                body.resize(if is_ack { ACK } else { HEADER }, 0);
                reader.read_exact(body).await.map_err(io)?;
                if let (false, Some(head)) = (is_ack, body.first_chunk::<HEADER>()) {
                    let rest = Header::decode(head)?.payload as usize + TRAILER;
                    // Grows with the bytes that arrive, not with the announced length.
                    let mut limited = reader.take(rest as u64);
                    limited.read_to_end(body).await.map_err(io)?;
                    if body.len() != HEADER + rest {
                        return Err(FrameError::Closed.into());
                    }
                }
                Ok(body)
            }
        }
    }

    /// Takes the other side's answer.
    async fn join(&mut self) -> Result<()> {
        let Self::Joining {
            joining,
            read,
            is_plain,
        } = std::mem::replace(self, Self::Failed)
        else {
            return Ok(());
        };
        let mut reader = security::Reader::new(read);
        joining.answered(&mut reader).await?;
        *self = match is_plain {
            true => Self::Plain(reader.into_inner(), Vec::new()),
            false => Self::Frames(reader),
        };
        Ok(())
    }

    /// The next frame.
    ///
    /// # Errors
    /// Those of the connection; [`WireError`] for one that is not authentic.
    pub async fn frame(&mut self, tags: &mut Tags) -> Result<Frame<'_>> {
        Ok(Frame::open(self.body(false).await?, tags)?)
    }

    /// The next acknowledgement.
    ///
    /// # Errors
    /// As of frames.
    pub async fn ack(&mut self, tags: &mut Tags) -> Result<Ack> {
        Ok(tags.open_ack(self.body(true).await?)?)
    }
}

impl StreamWriter {
    /// Sends bytes that are a whole frame or acknowledgement.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn send(&mut self, body: &[u8]) -> Result<()> {
        if body.len() > MOST_BODY {
            return Err(WireError::Frame("it is too long").into());
        }
        match self {
            Self::Frames(writer) => Ok(writer.send(body, PATIENCE).await?),
            Self::Plain(writer) => {
                let write = async {
                    writer.write_all(body).await?;
                    writer.flush().await
                };
                Ok(write.await.map_err(FrameError::Io)?)
            }
        }
    }

    /// Ends the connection in this direction.
    pub async fn close(&mut self) {
        if let Self::Plain(writer) = self {
            let _ = writer.shutdown().await;
        }
    }
}

/// Tags of a stream's frames, and of its acknowledgements.
pub fn tags(secret: &[u8; 32], stream: u16) -> (Tags, Tags) {
    let key = |is_ack| Tags::new(TagKey::new(secret, stream, is_ack));
    (key(false), key(true))
}
