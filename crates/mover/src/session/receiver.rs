// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The standing receiver: takes transfers into directories below its root.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_security as security;
use paceline_security::{Error as SecurityError, Greeted, Protection, Slot, Slots, Token};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::counts::Counts;
use super::server::{serve, Place, Role, Way, STREAMS};
use super::sink::Bounds;
use paceline_conduit::control::{BoxedRead, BoxedWrite, Control, SERVICE};
use paceline_conduit::data_port::greet;
use paceline_conduit::stream::{prepare, Stream, StreamReader, StreamWriter};
use paceline_conduit::{Error, Result};
use paceline_transfer::wire::{Intent, Reason};

/// Transfers at once.
const TRANSFERS: usize = 64;
/// Longest wait of a data connection for its session.
const SOON: Duration = Duration::from_secs(1);
/// Too many open files: a pause before the next connection is accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// A standing receiver's settings.
#[derive(Debug, Clone)]
pub struct ReceiverConfig {
    /// Listen address: `ADDRESS:PORT`.
    pub listen: String,
    /// All that is received comes below it.
    pub root: PathBuf,
    /// Bounds of each transfer.
    pub bounds: Bounds,
    /// Clients must prove it.
    pub token: Option<Token>,
    /// TLS of connections.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Clients show certificates.
    pub client_certificates: bool,
    /// Its counts.
    pub counts: Arc<Counts>,
}

/// Sessions whose data connections are handed over.
type Sessions = Mutex<HashMap<[u8; 16], mpsc::Sender<Stream>>>;

/// See the module's text.
pub struct Receiver {
    listener: TcpListener,
    gate: Arc<Gate>,
}

struct Gate {
    root: PathBuf,
    bounds: Bounds,
    token: Option<Token>,
    acceptor: Option<TlsAcceptor>,
    client_certificates: bool,
    sessions: Sessions,
    /// Another session began.
    begins: Notify,
    transfers: Semaphore,
    counts: Arc<Counts>,
}

impl Receiver {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Io`] for a root that is no directory, and settings that
    /// would admit anybody.
    pub async fn bind(config: ReceiverConfig) -> Result<Self> {
        if config.token.is_none() && !(config.tls.is_some() && config.client_certificates) {
            let text = "anybody could write here: give --token-file, or --cert, --key and --ca";
            return Err(Error::stop(Reason::Usage, text));
        }
        paceline_transfer::store::Root::open(&config.root, false).map_err(|source| Error::Io {
            path: config.root.display().to_string(),
            source,
        })?;
        let listener = TcpListener::bind(&config.listen).await;
        let listener = listener.map_err(|source| Error::Address {
            what: "cannot listen at",
            address: config.listen.clone(),
            source,
        })?;
        let gate = Gate {
            root: config.root,
            bounds: config.bounds,
            token: config.token,
            acceptor: config.tls.map(TlsAcceptor::from),
            client_certificates: config.client_certificates,
            sessions: Mutex::default(),
            begins: Notify::new(),
            transfers: Semaphore::new(TRANSFERS),
            counts: config.counts,
        };
        Ok(Self {
            listener,
            gate: Arc::new(gate),
        })
    }

    /// Listen address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves until `stop`. Transfers that are under way end there, too, and go on with the
    /// same command.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let slots = Arc::new(Slots::default());
        let mut running = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => return,
            };
            match accepted {
                Ok((stream, from)) => {
                    let (gate, slot) = (Arc::clone(&self.gate), slots.admit(from.ip()));
                    running.spawn(async move {
                        if let Err(error) = gate.connection(stream, slot).await {
                            if matches!(error, Error::Security(_)) {
                                gate.counts.refuse();
                            }
                            tracing::warn!("{from}: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            while running.try_join_next().is_some() {}
        }
    }
}

impl Gate {
    async fn connection(&self, stream: TcpStream, mut slot: Slot) -> Result<()> {
        let io = |error| Error::from(SecurityError::Handshake(error));
        let socket = prepare(&stream).map_err(io)?;
        let token = self.token.as_ref();
        let greeted = Greeted::new(&SERVICE, token, false)?;
        let (read, write, protection): (BoxedRead, BoxedWrite, _) = match &self.acceptor {
            None => {
                let (read, mut write) = stream.into_split();
                let sent = async {
                    let sent = write.write_all(&greeted.frame()).await;
                    sent.map_err(SecurityError::Handshake)
                };
                slot.within(sent).await?;
                (Box::new(read), Box::new(write), Protection::None)
            }
            Some(acceptor) => {
                let stream = slot.within(greet(acceptor, stream, &greeted)).await?;
                let protection = Protection::Tls {
                    binding: security::binding(stream.get_ref().1)?,
                    known: self.client_certificates,
                };
                let (read, write) = tokio::io::split(stream);
                (Box::new(read), Box::new(write), protection)
            }
        };
        let (mut reader, mut writer) = (security::Reader::new(read), security::Writer::new(write));
        let accept = security::accept_greeted(
            &mut reader,
            &mut writer,
            &SERVICE,
            token,
            &protection,
            &greeted,
        );
        let intent = match slot.within(accept).await {
            Ok(intent) => intent,
            Err(error) => {
                security::refuse(&mut writer, &error).await;
                return Err(error.into());
            }
        };
        drop(slot);
        match Intent::decode(&intent)? {
            Intent::Control { session } => {
                self.transfer(Control::new(reader, writer), session).await
            }
            Intent::Attach { session, stream } => {
                // Its control connection may be a moment behind.
                let streams = tokio::time::timeout(SOON, self.begun(&session)).await;
                let Ok(streams) = streams else {
                    return Err(Error::Unexpected("a data connection of no session"));
                };
                let stream = Stream {
                    number: stream,
                    reader: StreamReader::Frames(reader),
                    writer: StreamWriter::Frames(writer),
                    socket,
                    guard: None,
                };
                // The session may have ended meanwhile.
                let _ = streams.send(stream).await;
                Ok(())
            }
        }
    }

    /// The session, as soon as it has begun.
    async fn begun(&self, session: &[u8; 16]) -> mpsc::Sender<Stream> {
        loop {
            let another = self.begins.notified();
            tokio::pin!(another);
            another.as_mut().enable();
            match self.session(session) {
                Some(streams) => return streams,
                None => another.await,
            }
        }
    }

    fn session(&self, session: &[u8; 16]) -> Option<mpsc::Sender<Stream>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(session).cloned()
    }

    async fn transfer(&self, control: Control, session: [u8; 16]) -> Result<()> {
        let Ok(_place) = self.transfers.try_acquire() else {
            let text = format!("the receiver is full: {TRANSFERS} transfers are under way");
            let refused: Result<()> = Err(Error::stop(Reason::Interrupted, text));
            control.end(&refused).await;
            return refused;
        };
        let (handed, streams) = mpsc::channel(STREAMS);
        let lock = || self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().insert(session, handed).is_some() {
            return Err(Error::Unexpected("a session's number is taken"));
        }
        self.begins.notify_waiters();
        let place = Place::Below {
            root: self.root.clone(),
            bounds: self.bounds.clone(),
            counts: Arc::clone(&self.counts),
        };
        let served = serve(control, session, Role::Receive, Way::Handed(streams), place).await;
        lock().remove(&session);
        served
    }
}
