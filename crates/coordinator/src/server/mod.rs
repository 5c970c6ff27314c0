// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The coordinator: listens, admits clients, and runs the rounds.

mod connection;
mod hub;
mod refusals;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use paceline_security::{self as security, Error as SecurityError, Slots, Token};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::algorithm::Choice;
use crate::{Error, Result};
use connection::Gate;
use hub::Hub;
use refusals::Refusals;

/// Connections for questions at once, beyond the members that are allowed: so many over
/// TCP, and so many over Unix sockets.
const QUESTIONS: usize = 64;
/// Descriptors for all else: listeners, the log, the runtime's own.
const OTHER_FILES: usize = 64;
/// Capacity of the hub's event queue; beyond it a sender waits.
const EVENTS: usize = 64;
/// After an error of `accept` (out of descriptors): it would come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a coordinator listens, or is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Local(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.contains('/') {
            return Ok(Self::Local(text.into()));
        }
        let address = text.parse().map_err(|_| Error::Address {
            address: text.to_owned(),
        })?;
        Ok(Self::Tcp(address))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// Bounds of the clients' resources.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Members at once.
    pub clients: usize,
    /// Streams at once, of all groups.
    pub streams: usize,
    /// Groups at once.
    pub groups: usize,
}

impl Limits {
    /// Descriptors that a server with these limits may hold at once.
    pub fn descriptors(&self) -> usize {
        2 * (self.clients + QUESTIONS) + security::MOST_UNAUTHENTICATED + OTHER_FILES
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 1024,
            streams: 100_000,
            groups: 64,
        }
    }
}

/// A coordinator's settings.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// All of them are listened at.
    pub listen: Vec<Endpoint>,
    /// For new groups.
    pub algorithm: Choice,
    /// Length of a round; `None`: the algorithm's.
    pub period: Option<Duration>,
    /// Groups that are served; none: any.
    pub groups: Vec<String>,
    /// Proven over TCP.
    pub token: Option<Token>,
    /// Spoken over TCP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The TLS side asks clients for certificates.
    pub client_certificates: bool,
    /// Users whose processes may use the Unix socket, besides this user and root.
    pub users: Vec<u32>,
    /// A member that does not report for so long, and for some rounds, is gone.
    pub timeout: Duration,
    /// A line for each round.
    pub log: Option<PathBuf>,
    /// Limits of the clients' resources.
    pub limits: Limits,
}

impl ServerConfig {
    /// The defaults, at one place.
    pub fn new(listen: Vec<Endpoint>, algorithm: Choice) -> Self {
        Self {
            listen,
            algorithm,
            period: None,
            groups: Vec::new(),
            token: None,
            tls: None,
            client_certificates: false,
            users: Vec::new(),
            timeout: Duration::from_secs(3),
            log: None,
            limits: Limits::default(),
        }
    }

    /// Never open: a client on another host needs TLS, and a client that neither the kernel
    /// nor a certificate names needs the token.
    fn check(&self, address: SocketAddr) -> Result<()> {
        let open = |text: String| Err(SecurityError::Open(text).into());
        let loopback = address.ip().to_canonical().is_loopback();
        if !loopback && self.tls.is_none() {
            return open(format!(
                "{address} can be reached from other hosts: it needs TLS (--cert, --key) \
                 and clients with certificates (--ca) or a token (--token-file)"
            ));
        }
        if self.token.is_none() && !(self.tls.is_some() && self.client_certificates) {
            return open(format!(
                "any user can connect to {address}: it needs a token (--token-file), \
                 or TLS with clients' certificates (--cert, --key, --ca)"
            ));
        }
        Ok(())
    }
}

enum Listener {
    Local(UnixListener),
    Tcp(TcpListener),
}

/// A coordinator that listens.
pub struct Server {
    config: Arc<ServerConfig>,
    listeners: Vec<Listener>,
    /// Removed in the end.
    sockets: Vec<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        for path in &self.sockets {
            // Gone already, or it cannot be helped.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Server {
    /// Listens, so that clients can connect; they are served by [`run`](Self::run).
    ///
    /// # Errors
    /// [`Error::Security`] for settings that would leave it open and for sockets that
    /// cannot be made, [`Error::Listen`], [`Error::Log`].
    pub async fn bind(config: ServerConfig) -> Result<Self> {
        let mut server = Self {
            config: Arc::new(config),
            listeners: Vec::new(),
            sockets: Vec::new(),
        };
        for endpoint in server.config.listen.clone() {
            let listener = match endpoint {
                Endpoint::Local(path) => {
                    let listener = security::bind(&path, !server.config.users.is_empty())?;
                    server.sockets.push(path);
                    Listener::Local(listener)
                }
                Endpoint::Tcp(address) => {
                    server.config.check(address)?;
                    let listener = TcpListener::bind(address).await;
                    Listener::Tcp(listener.map_err(|source| Error::Listen {
                        address: address.to_string(),
                        source,
                    })?)
                }
            };
            server.listeners.push(listener);
        }
        Ok(server)
    }

    /// The TCP addresses, with the ports that port 0 became.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |listener: &Listener| match listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Local(_) => None,
        };
        self.listeners.iter().filter_map(address).collect()
    }

    /// Serves until `stop`. Clients see the connection end; their windows expire.
    ///
    /// # Errors
    /// [`Error::Log`] if the log cannot be made.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<()> {
        let (events, incoming) = mpsc::channel(EVENTS);
        let refusals = Arc::new(Refusals::default());
        let hub = Hub::new(Arc::clone(&self.config), Arc::clone(&refusals))?;
        let own = nix::unistd::geteuid().as_raw();
        let mut users = vec![own, 0];
        users.extend(&self.config.users);
        let most = self.config.limits.clients + QUESTIONS;
        let gate = Arc::new(Gate {
            token: self.config.token.clone(),
            tls: self.config.tls.clone().map(TlsAcceptor::from),
            client_certificates: self.config.client_certificates,
            users,
            known: Semaphore::new(most),
            most_known: most,
            events,
        });
        let places = Places {
            local: Arc::new(Semaphore::new(most)),
            unauthenticated: Arc::default(),
        };
        // Dropped with this function, whatever ends it; so are the connections.
        let mut tasks = JoinSet::new();
        for listener in self.listeners.drain(..) {
            tasks.spawn(listen(
                listener,
                Arc::clone(&gate),
                places.clone(),
                Arc::clone(&refusals),
            ));
        }
        drop(gate);
        tokio::select! {
            () = hub.run(incoming) => {}
            () = stop => {}
        }
        Ok(())
    }
}

/// Slots of waiting connections. Connections on this host, unauthenticated and authenticated
/// ones over TCP have separate slots: no kind can take another kind's.
#[derive(Clone)]
struct Places {
    /// Of this host, identified by the kernel.
    local: Arc<Semaphore>,
    unauthenticated: Arc<Slots>,
}

async fn listen(listener: Listener, gate: Arc<Gate>, places: Places, refusals: Arc<Refusals>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (gate, refusals) = (Arc::clone(&gate), Arc::clone(&refusals));
        let failed = match &listener {
            Listener::Local(listener) => {
                // With all places taken new ones wait in the kernel's queue.
                let Ok(place) = Arc::clone(&places.local).acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        connections.spawn(async move {
                            let ended = gate.local(stream).await;
                            refusals.ended("local", ended);
                            drop(place);
                        });
                        continue;
                    }
                    Err(error) => error,
                }
            }
            Listener::Tcp(listener) => match listener.accept().await {
                Ok((stream, peer)) => {
                    let slot = places.unauthenticated.admit(peer.ip());
                    connections.spawn(async move {
                        let ended = gate.tcp(stream, slot).await;
                        refusals.ended(&peer.to_string(), ended);
                    });
                    continue;
                }
                Err(error) => error,
            },
        };
        tracing::warn!("cannot accept a connection: {failed}");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
