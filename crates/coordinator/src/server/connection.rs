// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection, from its first byte to its last.

use std::time::Duration;

use paceline_security::{
    self as security, accept, binding, check_peer, refuse, Error as SecurityError, FrameError,
    Protection, Slot, Token,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::hub::{Event, Place};
use crate::protocol::{Join, Message, Reader, Role, Writer, SERVICE};
use crate::{Error, Result};

/// Messages that wait for a slow client. One that does not take four rounds is gone.
const WAITING: usize = 8;
/// How long a client may take to read one.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);
/// Members report each round, and the hub checks that; control may be quiet, but not
/// for ever.
const READ_PATIENCE: Duration = Duration::from_secs(300);

/// Decides which connections are admitted.
pub(super) struct Gate {
    pub token: Option<Token>,
    pub tls: Option<TlsAcceptor>,
    pub client_certificates: bool,
    pub users: Vec<u32>,
    /// Slots of authenticated TCP connections.
    pub known: Semaphore,
    /// How many there are.
    pub most_known: usize,
    pub events: mpsc::Sender<Event>,
}

impl Gate {
    pub async fn local(&self, stream: UnixStream) -> Result<()> {
        let checked = check_peer(&stream, &self.users);
        let (read, write) = stream.into_split();
        if let Err(error) = checked {
            refuse(&mut security::Writer::new(write), &error).await;
            return Err(error.into());
        }
        self.serve(read, write, Protection::Kernel, None).await
    }

    pub async fn tcp(&self, stream: TcpStream, mut slot: Slot) -> Result<()> {
        // Rounds are short messages.
        stream
            .set_nodelay(true)
            .map_err(|error| Error::Frame(FrameError::Io(error)))?;
        let Some(acceptor) = &self.tls else {
            let (read, write) = stream.into_split();
            return self.serve(read, write, Protection::None, Some(slot)).await;
        };
        let accept = async {
            let accepted = acceptor.accept(stream).await;
            accepted.map_err(SecurityError::Handshake)
        };
        let stream = slot.within(accept).await?;
        let protection = Protection::Tls {
            binding: binding(stream.get_ref().1)?,
            known: self.client_certificates,
        };
        let (read, write) = tokio::io::split(stream);
        self.serve(read, write, protection, Some(slot)).await
    }

    async fn serve<R, W>(
        &self,
        read: R,
        write: W,
        protection: Protection,
        slot: Option<Slot>,
    ) -> Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (mut reader, mut writer) = (security::Reader::new(read), security::Writer::new(write));
        let token = self.token.as_ref();
        let accept = accept(&mut reader, &mut writer, &SERVICE, token, &protection);
        let (accepted, over_tcp) = match slot {
            None => (accept.await, false),
            Some(mut slot) => (slot.within(accept).await, true),
        };
        let intent = match accepted {
            Ok(intent) => intent,
            Err(error) => {
                refuse(&mut writer, &error).await;
                return Err(error.into());
            }
        };
        let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
        let served = self
            .admitted(&mut reader, &mut writer, &intent, over_tcp)
            .await;
        if let Err(error) = &served {
            // Best effort: it may be the other side that broke.
            let _ = writer.send(&refusal(error), WRITE_PATIENCE).await;
        }
        served
    }

    async fn admitted<R, W>(
        &self,
        reader: &mut Reader<R>,
        writer: &mut Writer<W>,
        intent: &[u8],
        over_tcp: bool,
    ) -> Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let full = |_| Error::Full {
            what: "connections",
            limit: self.most_known,
        };
        let place = over_tcp.then(|| self.known.try_acquire().map_err(full));
        let _place = place.transpose()?;
        let joined = Join::decode(intent)?;
        match joined.role {
            Role::Member => self.member(reader, writer, joined).await,
            Role::Control => self.control(reader, writer).await,
        }
    }

    async fn member<R, W>(
        &self,
        reader: &mut Reader<R>,
        writer: &mut Writer<W>,
        joined: Join,
    ) -> Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (messages, mut outgoing) = mpsc::channel(WAITING);
        let (answer, place) = oneshot::channel();
        let event = Event::Join {
            joined,
            messages,
            answer,
        };
        self.send(event).await?;
        let place: Place = place.await.map_err(|_| FrameError::Closed)??;
        let write = async {
            while let Some(message) = outgoing.recv().await {
                writer.send(&message, WRITE_PATIENCE).await?;
                if let Message::Refused { text, for_good } = message {
                    return Err(Error::Refused { for_good, text });
                }
            }
            // The hub has closed the channel.
            Ok(())
        };
        let read = async {
            loop {
                match reader.next(READ_PATIENCE).await? {
                    Message::Report {
                        round,
                        taken_us,
                        streams,
                    } => {
                        let event = Event::Report {
                            place: place.clone(),
                            round,
                            taken_us,
                            streams,
                        };
                        self.send(event).await?;
                    }
                    Message::Leave => return Ok(()),
                    _ => return Err(Error::Unexpected("a member only reports or leaves")),
                }
            }
        };
        let ended = tokio::select! {
            ended = write => ended,
            ended = read => ended,
        };
        self.send(Event::Leave { place }).await?;
        match ended {
            // The member has the reason.
            Err(Error::Refused { text, .. }) => {
                tracing::info!("a member was refused: {text}");
                Ok(())
            }
            ended => ended,
        }
    }

    async fn control<R, W>(&self, reader: &mut Reader<R>, writer: &mut Writer<W>) -> Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            match reader.next(READ_PATIENCE).await? {
                Message::Request { number, request } => {
                    let (answer, result) = oneshot::channel();
                    self.send(Event::Request { request, answer }).await?;
                    let result = result.await.map_err(|_| FrameError::Closed)?;
                    let answer = Message::Answer { number, result };
                    writer.send(&answer, WRITE_PATIENCE).await?;
                }
                Message::Leave => return Ok(()),
                _ => return Err(Error::Unexpected("control only asks or leaves")),
            }
        }
    }

    async fn send(&self, event: Event) -> Result<()> {
        // Closed: the server ends.
        let sent = self.events.send(event).await;
        sent.map_err(|_| FrameError::Closed.into())
    }
}

/// An error as an admitted client receives it.
fn refusal(error: &Error) -> Message {
    Message::Refused {
        for_good: matches!(error, Error::NoSuchGroup { .. }),
        text: error.to_string(),
    }
}
