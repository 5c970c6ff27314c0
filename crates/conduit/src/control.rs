// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control connection: messages in both directions, and a sign of life.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use paceline_security as security;
use paceline_security::{FrameError, Purpose, Service};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::{Error, Result};
use paceline_transfer::wire::{Message, Ready, Reason, MOST_BODY, MOST_TEXT};

/// The service, and the version of its messages.
pub const SERVICE: Service = Service {
    purpose: Purpose::Move,
    version: 4,
    most_frame: MOST_BODY,
};

/// A side that sends nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Interval of each side's signs of life.
const PING: Duration = Duration::from_secs(5);
/// Longest wait for the other side to read a message: it may wait for its disk.
const WRITE_PATIENCE: Duration = Duration::from_secs(600);
/// Messages that wait go together, up to so many bytes.
const TOGETHER: usize = 64 << 10;
/// And the last one.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Half a connection.
pub type BoxedRead = Box<dyn AsyncRead + Unpin + Send>;
/// The other half.
pub type BoxedWrite = Box<dyn AsyncWrite + Unpin + Send>;

/// The control connection after its handshake.
pub struct Control {
    /// Incoming messages.
    pub inbox: Inbox,
    /// Outgoing messages.
    pub outbox: Outbox,
    /// Ends when all messages were sent.
    pub sender: Sender,
}

/// The task that sends messages. Dropped, it ends at once, and with it the connection.
pub struct Sender(JoinHandle<Result<()>>);

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Incoming messages.
pub struct Inbox {
    reader: security::Reader<BoxedRead>,
    /// The handshake, until the other side has answered.
    joining: Option<security::Joining>,
    /// Waits for `Ready`.
    ready: Option<OnReady>,
}

/// Action when the other side takes the transfer.
type OnReady = Box<dyn FnOnce(Ready) -> Result<()> + Send>;

/// Outgoing messages. They wait in memory: the other side's requests bound their number.
#[derive(Clone)]
pub struct Outbox(mpsc::UnboundedSender<Message>, Arc<AtomicU64>);

impl Control {
    /// From a connection's halves.
    pub fn new(reader: security::Reader<BoxedRead>, writer: security::Writer<BoxedWrite>) -> Self {
        let (outbox, messages) = mpsc::unbounded_channel();
        let backlog = Arc::new(AtomicU64::new(0));
        Self {
            inbox: Inbox {
                reader,
                joining: None,
                ready: None,
            },
            outbox: Outbox(outbox, Arc::clone(&backlog)),
            sender: Sender(tokio::spawn(send_all(writer, messages, backlog))),
        }
    }

    /// Sends this side's reason to end, and waits until it is sent. After an error of the
    /// connection itself, or the other side's own, it sends none.
    pub async fn end(self, result: &Result<impl Sized>) {
        let Self { outbox, sender, .. } = self;
        outbox.end(sender, result).await;
    }
}

impl Outbox {
    /// Sends a message, if the connection still is.
    pub fn send(&self, message: Message) {
        self.1.fetch_add(1, Ordering::Relaxed);
        // The reader finds out that it is not.
        let _ = self.0.send(message);
    }

    /// Messages that are not sent yet.
    pub fn backlog(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// The connection is gone: messages are lost.
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// See [`Control::end`].
    pub async fn end(self, mut sender: Sender, result: &Result<impl Sized>) {
        match result {
            Ok(_) | Err(Error::Stopped { .. } | Error::Frame(_)) => {}
            Err(error) => self.send(Message::Stop {
                reason: match error {
                    // The other side caused it.
                    Error::Wire(_) | Error::Unexpected(_) => Reason::Refused,
                    error => error.reason(),
                },
                text: short(&error.to_string()),
            }),
        }
        drop(self);
        let _ = tokio::time::timeout(LAST_PATIENCE, &mut sender.0).await;
    }
}

/// Text as it fits a message.
pub fn short(text: &str) -> String {
    text.chars().take(MOST_TEXT / 4).collect()
}

async fn send_all(
    mut writer: security::Writer<BoxedWrite>,
    mut messages: mpsc::UnboundedReceiver<Message>,
    backlog: Arc<AtomicU64>,
) -> Result<()> {
    let mut ping = tokio::time::interval(PING);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            message = messages.recv() => match message {
                Some(message) => message,
                None => return Ok(()),
            },
            _ = ping.tick() => {
                writer.send(&Message::Ping.encode()?, WRITE_PATIENCE).await?;
                continue;
            }
        };
        writer.hold(&message.encode()?)?;
        let mut count = 1;
        while writer.held() < TOGETHER {
            let Ok(message) = messages.try_recv() else {
                break;
            };
            writer.hold(&message.encode()?)?;
            count += 1;
        }
        writer.flush(WRITE_PATIENCE).await?;
        backlog.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Inbox {
    /// The other side has not answered the handshake yet.
    pub fn join(&mut self, joining: security::Joining) {
        self.joining = Some(joining);
    }

    /// The next message is to be `Ready`, without a wait for it: `then` is called with it.
    pub fn on_ready(&mut self, then: impl FnOnce(Ready) -> Result<()> + Send + 'static) {
        self.ready = Some(Box::new(then));
    }

    /// The next message that is not a sign of life alone. To be awaited to its end.
    ///
    /// # Errors
    /// [`Error::Frame`], [`Error::Wire`], [`Error::Stopped`] if the other side ends it.
    pub async fn next(&mut self) -> Result<Message> {
        if let Some(joining) = self.joining.take() {
            joining.answered(&mut self.reader).await?;
        }
        loop {
            let body = self
                .reader
                .next(SILENCE)
                .await
                .map_err(|error| match error {
                    FrameError::Slow(_) => Error::stop(
                        Reason::Interrupted,
                        format!("no message from the other side for {} s", SILENCE.as_secs()),
                    ),
                    error => Error::Frame(error),
                })?;
            match Message::decode(body)? {
                Message::Ping => {}
                Message::Stop { reason, text } => return Err(Error::Stopped { reason, text }),
                message => match (self.ready.take(), message) {
                    (None, message) => return Ok(message),
                    (Some(then), Message::Ready(ready)) => then(ready)?,
                    _ => return Err(Error::Unexpected("Start is answered with Ready")),
                },
            }
        }
    }
}
