// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections to peers and from them, all of them in one real-time thread.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use paceline_security::Token;
use quinn::Endpoint;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::client::{connect, Dialled};
use super::error::WanError;
use super::quic::{self, endpoint, reset_key};
use super::realtime::become_realtime;
use super::server::{listen, listen_tcp};
use super::site::Site;
use super::{tcp, tls};
use crate::config::Config;
use crate::peers::Peers;

/// Attempts to find a port that is free for UDP and for TCP, where any will do.
const PORTS: usize = 16;

/// The thread; it ends when this is dropped.
pub struct Wan {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Listen address for peers.
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
        Some(address) => Some((address, Arc::new(tls::server(config)?))),
        None => None,
    };
    let mut dialled = Vec::new();
    for peer in config.peers.values() {
        if let Some(address) = &peer.address {
            dialled.push(Dialled {
                peer: peer.clone(),
                address: address.clone(),
                tls: Arc::new(tls::client(config, peer)?),
            });
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

/// Begins to listen and to connect. The server's endpoint is the first.
fn serve(
    site: Arc<Site>,
    server: Option<(SocketAddr, Arc<rustls::ServerConfig>)>,
    dialled: Vec<Dialled>,
) -> Result<Vec<Endpoint>, WanError> {
    let mut endpoints = Vec::new();
    if let Some((address, tls)) = server {
        let (endpoint, listener) = open(&site.config, address, &tls)?;
        endpoints.push(endpoint.clone());
        tokio::spawn(listen(Arc::clone(&site), endpoint));
        tokio::spawn(listen_tcp(Arc::clone(&site), listener, tls));
    }
    for one in dialled {
        tokio::spawn(connect(Arc::clone(&site), one));
    }
    Ok(endpoints)
}

/// Both sockets of a server, at the same port.
fn open(
    config: &Config,
    address: SocketAddr,
    tls: &rustls::ServerConfig,
) -> Result<(Endpoint, TcpListener), WanError> {
    let mut tries = if address.port() == 0 { PORTS } else { 1 };
    loop {
        tries -= 1;
        let server = quic::server(config, tls)?;
        let endpoint = endpoint(address, Some(server), reset_key(config)?)?;
        let own = endpoint.local_addr().unwrap_or(address);
        match tcp::listen(own) {
            Ok(listener) => return Ok((endpoint, listener)),
            Err(_) if tries > 0 => {}
            Err(source) => {
                return Err(WanError::Listen {
                    address: own.to_string(),
                    source,
                });
            }
        }
    }
}
