// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The endpoint: connections to peers and from them, all of them in one real-time thread.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use paceline_security as security;
use paceline_security::{ServerTrust, Slots, Token};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Endpoint, EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use ring::hmac;
use rustls::pki_types::CertificateDer;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::carry::{carry, session};
use super::error::WanError;
use super::hello::{receive, send, Hello};
use super::ids::RandomIds;
use super::moved::moved;
use super::realtime::become_realtime;
use super::unlimited::Unlimited;
use crate::config::{Config, Peer};
use crate::local::{dial, Dialling};
use crate::peers::Peers;
use crate::rules;
use crate::session::{Limits, Side};

/// What is spoken inside of QUIC.
const ALPN: &[u8] = b"paceline-gateway/1";
/// Silence after which QUIC itself gives up: longer than any session's patience.
const IDLE: Duration = Duration::from_secs(120);
/// Bytes of datagrams that wait in QUIC, in each direction.
const BUFFER: usize = 8 << 20;
/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest UDP payload that is taken.
const MOST_PAYLOAD: u16 = 9_000;
/// A name for servers that are known by their fingerprints: nobody looks at it.
const NAME: &str = "paceline";

/// The thread; it ends when this is dropped.
pub struct Wan {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Where peers are awaited.
    pub address: Option<SocketAddr>,
    /// The thread has real-time priority.
    pub is_realtime: bool,
}

impl Drop for Wan {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Site {
    config: Arc<Config>,
    token: Option<Token>,
    peers: Arc<Peers>,
    slots: Arc<Slots>,
    /// Where connections of programs live.
    local: Handle,
    /// Of connections to peers, by the peer's name.
    dialling: Mutex<HashMap<String, Endpoint>>,
}

impl Site {
    fn dials(&self, peer: &Peer, endpoint: &Endpoint) {
        let mut dialling = self.dialling.lock().unwrap_or_else(PoisonError::into_inner);
        dialling.insert(peer.name.clone(), endpoint.clone());
    }

    /// Resets all connections, and tells the peers.
    async fn stop(&self, mut endpoints: Vec<Endpoint>) {
        self.peers.end();
        {
            let dialling = self.dialling.lock().unwrap_or_else(PoisonError::into_inner);
            endpoints.extend(dialling.values().cloned());
        }
        for endpoint in &endpoints {
            endpoint.close(VarInt::from_u32(0), b"stopped");
        }
        for endpoint in &endpoints {
            // A peer that does not answer is waited for no longer.
            let _ = tokio::time::timeout(AGAIN, endpoint.wait_idle()).await;
        }
    }
}

/// Starts the thread. Connections to destinations at this site run on `local`.
///
/// # Errors
/// [`WanError`] if a key, a certificate, the token or the socket cannot be used.
pub fn start(config: &Arc<Config>, peers: &Arc<Peers>, local: Handle) -> Result<Wan, WanError> {
    let token = config
        .identity
        .token
        .as_deref()
        .map(Token::load)
        .transpose()?;
    let server = match config.listen {
        Some(address) => Some((address, server(config)?)),
        None => None,
    };
    let mut dialled = Vec::new();
    for peer in config.peers.values() {
        if let Some(address) = &peer.address {
            dialled.push((peer.clone(), address.clone(), client(config, peer)?));
        }
    }
    let site = Arc::new(Site {
        config: Arc::clone(config),
        token,
        peers: Arc::clone(peers),
        slots: Arc::default(),
        local,
        dialling: Mutex::default(),
    });
    let stopping = Arc::clone(&site);
    let (stop, stopped) = oneshot::channel();
    let (started, ready) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("paceline-wan".to_owned())
        .spawn(move || {
            let is_realtime = become_realtime();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = started.send(Err(WanError::Thread(error)));
                    return;
                }
            };
            runtime.block_on(async {
                match serve(site, server, dialled) {
                    Ok(endpoints) => {
                        let address = endpoints.first().and_then(|one| one.local_addr().ok());
                        let _ = started.send(Ok((address, is_realtime)));
                        let _ = stopped.await;
                        stopping.stop(endpoints).await;
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            });
        });
    let thread = thread.map_err(WanError::Thread)?;
    let ended = || WanError::Thread(std::io::ErrorKind::Other.into());
    let (address, is_realtime) = ready.recv().map_err(|_| ended())??;
    Ok(Wan {
        stop: Some(stop),
        thread: Some(thread),
        address,
        is_realtime,
    })
}

type Dialled = Vec<(Peer, String, quinn::ClientConfig)>;

/// Begins to listen and to connect. The server's endpoint is the first.
fn serve(
    site: Arc<Site>,
    server: Option<(SocketAddr, quinn::ServerConfig)>,
    dialled: Dialled,
) -> Result<Vec<Endpoint>, WanError> {
    let mut endpoints = Vec::new();
    if let Some((address, config)) = server {
        let endpoint = endpoint(address, Some(config), reset_key(&site.config)?)?;
        endpoints.push(endpoint.clone());
        tokio::spawn(listen(Arc::clone(&site), endpoint));
    }
    for (peer, address, config) in dialled {
        tokio::spawn(connect(Arc::clone(&site), peer, address, config));
    }
    Ok(endpoints)
}

fn endpoint(
    address: SocketAddr,
    server: Option<quinn::ServerConfig>,
    reset: Option<Arc<hmac::Key>>,
) -> Result<Endpoint, WanError> {
    let open = || -> std::io::Result<Endpoint> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        // As far as the kernel allows: a late reader must not lose a burst.
        let _ = socket.set_recv_buffer_size(BUFFER);
        let _ = socket.set_send_buffer_size(BUFFER);
        socket.bind(&address.into())?;
        let mut config = match reset {
            Some(key) => {
                let mut config = EndpointConfig::new(key);
                config.cid_generator(|| Box::new(RandomIds));
                config
            }
            None => EndpointConfig::default(),
        };
        config
            .max_udp_payload_size(MOST_PAYLOAD)
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        let runtime = Arc::new(quinn::TokioRuntime);
        Endpoint::new(config, server, socket.into(), runtime)
    };
    open().map_err(|source| WanError::Socket {
        address: address.to_string(),
        source,
    })
}

/// The key of stateless resets (RFC 9000, 10.3): the same after a restart, so that a peer whose
/// session is gone learns it with its next packet, not after its patience.
fn reset_key(config: &Config) -> Result<Option<Arc<hmac::Key>>, WanError> {
    let Some((_, path)) = &config.identity.certificate else {
        return Ok(None);
    };
    let secret = std::fs::read(path).map_err(|source| WanError::Key {
        path: path.display().to_string(),
        source,
    })?;
    let master = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let derived = hmac::sign(&master, b"paceline gateway stateless reset");
    let key = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
    Ok(Some(Arc::new(key)))
}

fn transport(mtu: u16) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        // Its search for a black hole takes 1 % loss for one (quinn#2791).
        .initial_mtu(mtu)
        .min_mtu(mtu)
        .mtu_discovery_config(None)
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(Some(BUFFER))
        .datagram_send_buffer_size(BUFFER)
        .congestion_controller_factory(Arc::new(Unlimited));
    Arc::new(transport)
}

fn server(config: &Config) -> Result<quinn::ServerConfig, WanError> {
    let Some((certificate, key)) = &config.identity.certificate else {
        return Err(WanError::Quic("no certificate".to_owned()));
    };
    let tls = match &config.identity.authorities {
        Some(path) => security::server_tls(certificate, key, Some(path))?,
        None => {
            let known = config.peers.values().filter_map(|peer| peer.fingerprint);
            security::server_tls_pinned(certificate, key, known.collect())?
        }
    };
    let mut tls = (*tls).clone();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.max_early_data_size = 0;
    let tls = QuicServerConfig::try_from(tls).map_err(|error| WanError::Quic(error.to_string()))?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(tls));
    let mtu = config.peers.values().map(|peer| peer.mtu).min();
    server.transport_config(transport(mtu.unwrap_or(1_232)));
    Ok(server)
}

fn client(config: &Config, peer: &Peer) -> Result<quinn::ClientConfig, WanError> {
    let trust = match (peer.fingerprint, &config.identity.authorities) {
        (Some(fingerprint), _) => ServerTrust::Pinned(fingerprint),
        (None, Some(path)) => ServerTrust::Authorities(path.clone()),
        (None, None) => return Err(WanError::Stranger(peer.name.clone())),
    };
    let own = config.identity.certificate.as_ref();
    let own = own.map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    let mut tls = (*security::client_tls(&trust, own)?).clone();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.enable_early_data = false;
    let tls = QuicClientConfig::try_from(tls).map_err(|error| WanError::Quic(error.to_string()))?;
    let mut client = quinn::ClientConfig::new(Arc::new(tls));
    client.transport_config(transport(peer.mtu));
    Ok(client)
}

async fn listen(site: Arc<Site>, endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        // An address that has not shown that it is its own costs us one packet (RFC 9000, 8.1).
        if !incoming.remote_address_validated() && incoming.may_retry() {
            let _ = incoming.retry();
            continue;
        }
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            let from = incoming.remote_address();
            if let Err(error) = welcome(&site, incoming).await {
                tracing::info!("{from}: {error}");
            }
        });
    }
}

/// A peer that connects.
async fn welcome(site: &Arc<Site>, incoming: quinn::Incoming) -> Result<(), WanError> {
    let mut slot = site.slots.admit(incoming.remote_address().ip());
    let mut chosen = None;
    let introduced = slot.within(introduce(site, incoming, &mut chosen)).await;
    drop(slot);
    let ((connection, hello), Some(peer)) = (introduced?, chosen) else {
        return Err(WanError::Malformed);
    };
    let error = run(site, &connection, None, &peer, hello.limits).await?;
    tracing::warn!("peer {}: {error}", peer.name);
    Ok(())
}

async fn introduce(
    site: &Site,
    incoming: quinn::Incoming,
    chosen: &mut Option<Peer>,
) -> Result<(quinn::Connection, Hello), WanError> {
    let connection = incoming.await?;
    let presented = connection
        .peer_identity()
        .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok())
        .and_then(|chain| chain.first().map(security::fingerprint));
    let hello = receive(&connection, site.token.as_ref(), |hello| {
        let peer = site.config.peers.get(&hello.name);
        let is_right = |peer: &&Peer| peer.fingerprint.is_none() || peer.fingerprint == presented;
        let peer = peer
            .filter(is_right)
            .ok_or_else(|| WanError::Stranger(hello.name.clone()))?;
        *chosen = Some(peer.clone());
        Ok(own_hello(site, peer))
    })
    .await?;
    Ok((connection, hello))
}

fn own_hello(site: &Site, peer: &Peer) -> Hello {
    Hello {
        name: site.config.name.clone(),
        limits: Limits::new(peer.memory, peer.connections),
    }
}

/// Connects to a peer, again and again.
async fn connect(site: Arc<Site>, peer: Peer, address: String, config: quinn::ClientConfig) {
    loop {
        if let Err(error) = once(&site, &peer, &address, &config).await {
            tracing::warn!("peer {}: {error}", peer.name);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn once(
    site: &Arc<Site>,
    peer: &Peer,
    address: &str,
    config: &quinn::ClientConfig,
) -> Result<(), WanError> {
    let unknown = || WanError::NoAddress(address.to_owned());
    let found = tokio::net::lookup_host(address).await.ok();
    let remote = found
        .and_then(|mut found| found.next())
        .ok_or_else(unknown)?;
    let any = match remote.is_ipv4() {
        true => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        false => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    };
    let endpoint = endpoint(any, None, None)?;
    site.dials(peer, &endpoint);
    let name = match peer.fingerprint {
        Some(_) => NAME,
        None => address.rsplit_once(':').map_or(address, |(host, _)| host),
    };
    let name = name.trim_matches(['[', ']']);
    let connecting = endpoint.connect_with(config.clone(), remote, name);
    let connecting = connecting.map_err(|error| WanError::Quic(error.to_string()))?;
    let introduced = tokio::time::timeout(PATIENCE, async {
        let connection = connecting.await?;
        let hello = send(&connection, site.token.as_ref(), &own_hello(site, peer)).await?;
        Ok::<_, WanError>((connection, hello))
    });
    let (connection, hello) = introduced
        .await
        .map_err(|_| WanError::Unanswered(address.to_owned()))??;
    let dialled = Some((address, remote));
    Err(run(site, &connection, dialled, peer, hello.limits).await?)
}

/// A session, until its end. `dialled`: this side connected, to this name and address.
async fn run(
    site: &Arc<Site>,
    connection: &quinn::Connection,
    dialled: Option<(&str, SocketAddr)>,
    peer: &Peer,
    limits: Limits,
) -> Result<WanError, WanError> {
    let side = match dialled {
        Some(_) => Side::Client,
        None => Side::Server,
    };
    let (hub, mut incoming) = session(connection, side, peer, limits)?;
    site.peers.join(&peer.name, &hub);
    tracing::info!(
        "peer {}: connected to {}",
        peer.name,
        connection.remote_address()
    );
    let config = &site.config;
    let dialling = Arc::new(Dialling {
        allow: config.allow.clone(),
        mark: config.transparent.as_ref().map(|_| rules::LOOP_MARK),
        sources: config.sources(&peer.name),
    });
    let opened = Arc::clone(&hub);
    let dials = site.local.spawn(async move {
        while let Some(one) = incoming.recv().await {
            let (dialling, hub) = (Arc::clone(&dialling), Arc::clone(&opened));
            tokio::spawn(async move { dial(&hub, one, &dialling).await });
        }
    });
    let error = match dialled {
        None => carry(connection, &hub).await,
        Some((name, address)) => tokio::select! {
            error = carry(connection, &hub) => error,
            () = moved(&hub, name, address) => WanError::Moved(name.to_owned()),
        },
    };
    dials.abort();
    site.peers.leave(&peer.name, &hub);
    connection.close(VarInt::from_u32(1), b"over");
    Ok(error)
}
