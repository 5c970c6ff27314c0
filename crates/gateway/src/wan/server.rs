// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that connect, by either leg.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use paceline_security as security;
use paceline_security::{Reader, Writer};
use quinn::Endpoint;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};

use super::error::WanError;
use super::hello::{protection, receive, Hello};
use super::leg::Connection;
use super::site::{run, Site};
use super::tcp;
use crate::config::Peer;

/// Pause after an error of a listening socket: too many files may be open.
const AGAIN: Duration = Duration::from_millis(100);

/// An authenticated peer.
type Known = (Connection, Peer, Hello);

/// By UDP.
pub async fn listen(site: Arc<Site>, endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        // An unvalidated address costs this side one packet (RFC 9000, 8.1).
        if !incoming.remote_address_validated() && incoming.may_retry() {
            let _ = incoming.retry();
            continue;
        }
        let from = incoming.remote_address().ip();
        let known = by_quic(Arc::clone(&site), incoming);
        tokio::spawn(welcome(Arc::clone(&site), from, known));
    }
}

/// By TCP.
pub async fn listen_tcp(site: Arc<Site>, listener: TcpListener, tls: Arc<rustls::ServerConfig>) {
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                let known = by_tcp(Arc::clone(&site), socket, Arc::clone(&tls));
                tokio::spawn(welcome(Arc::clone(&site), from.ip(), known));
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection of a peer's: {error}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn welcome(
    site: Arc<Site>,
    from: IpAddr,
    known: impl Future<Output = Result<Known, WanError>>,
) {
    let mut slot = site.slots.admit(from);
    let known = slot.within(known).await;
    drop(slot);
    let (connection, peer, hello) = match known {
        Ok(known) => known,
        Err(error) => {
            tracing::info!("{from}: {error}");
            return;
        }
    };
    match run(&site, connection, None, &peer, hello.limits).await {
        Ok(error) => tracing::warn!("peer {}: {error}", peer.name),
        Err(error) => tracing::info!("{from}: {error}"),
    }
}

async fn by_quic(site: Arc<Site>, incoming: quinn::Incoming) -> Result<Known, WanError> {
    let connection = incoming.await?;
    let presented = connection
        .peer_identity()
        .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok())
        .and_then(|chain| chain.first().map(security::fingerprint));
    let protection = protection(&connection, presented.is_some())?;
    // The server speaks first, so it opens the stream.
    let (send, receiving) = connection.open_bi().await?;
    let (mut reader, mut writer) = (Reader::new(receiving), Writer::new(send));
    let mut chosen = None;
    let choose = |hello: &Hello| choose(&site, presented, hello, &mut chosen);
    let token = site.token.as_ref();
    let hello = receive(&mut reader, &mut writer, &protection, token, choose).await?;
    let peer = chosen.ok_or(WanError::Malformed)?;
    Ok((Connection::Quic(connection), peer, hello))
}

async fn by_tcp(
    site: Arc<Site>,
    socket: TcpStream,
    tls: Arc<rustls::ServerConfig>,
) -> Result<Known, WanError> {
    let (mut connection, presented) = tcp::accept(socket, &tls).await?;
    let mut chosen = None;
    let choose = |hello: &Hello| choose(&site, presented, hello, &mut chosen);
    let tcp::Connection {
        reader,
        writer,
        protection,
        ..
    } = &mut connection;
    let hello = receive(reader, writer, protection, site.token.as_ref(), choose).await?;
    let peer = chosen.ok_or(WanError::Malformed)?;
    Ok((Connection::Tcp(Box::new(connection)), peer, hello))
}

/// The peer of that name, if the certificate that it showed is its own.
fn choose(
    site: &Site,
    presented: Option<[u8; 32]>,
    hello: &Hello,
    chosen: &mut Option<Peer>,
) -> Result<Hello, WanError> {
    let peer = site.config.peers.get(&hello.name);
    let is_right = |peer: &&Peer| peer.fingerprint.is_none() || peer.fingerprint == presented;
    let peer = peer
        .filter(is_right)
        .ok_or_else(|| WanError::Stranger(hello.name.clone()))?;
    *chosen = Some(peer.clone());
    Ok(site.hello(peer))
}
