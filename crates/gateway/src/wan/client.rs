// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connects to peers, again and again, and chooses the leg.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use paceline_security::{Reader, Writer};
use tokio::time::timeout;

use super::error::WanError;
use super::hello::{protection, send, Hello};
use super::leg::Connection;
use super::quic::{self, endpoint};
use super::site::{run, Site};
use super::tcp;
use crate::config::{Leg, Peer};

/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for an answer by UDP where TCP may be tried after it.
const ANSWER: Duration = Duration::from_secs(5);
/// A name for servers that are known by their fingerprints: it is not checked.
const NAME: &str = "paceline";

/// A peer to connect to.
pub struct Dialled {
    /// Of the configuration.
    pub peer: Peer,
    /// Its name and port.
    pub address: String,
    /// For both legs.
    pub tls: Arc<rustls::ClientConfig>,
}

/// Connects to a peer, again and again.
pub async fn connect(site: Arc<Site>, dialled: Dialled) {
    loop {
        if let Err(error) = once(&site, &dialled).await {
            tracing::warn!("peer {}: {error}", dialled.peer.name);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn once(site: &Arc<Site>, dialled: &Dialled) -> Result<(), WanError> {
    let Dialled { peer, address, .. } = dialled;
    let remote = resolve(address).await?;
    let (connection, hello) = match peer.leg {
        Some(Leg::Udp) => by_quic(site, dialled, remote, PATIENCE).await?,
        Some(Leg::Tcp) => by_tcp(site, dialled, remote).await?,
        None => by_either(site, dialled, remote).await?,
    };
    let dialled = Some((address.as_str(), remote));
    Err(run(site, connection, dialled, peer, hello.limits).await?)
}

/// Connects by TCP only if UDP gets no answer while the peer's host answers by TCP: a peer that
/// starts a moment later must not stay on the slower leg.
async fn by_either(
    site: &Site,
    dialled: &Dialled,
    remote: SocketAddr,
) -> Result<(Connection, Hello), WanError> {
    match by_quic(site, dialled, remote, ANSWER).await {
        Err(WanError::Unanswered(_)) => {}
        other => return other,
    }
    let silent = || WanError::Unanswered(dialled.address.clone());
    match timeout(ANSWER, tcp::dial(remote)).await {
        Ok(Ok(_there)) => {}
        _ => return Err(silent()),
    }
    match by_quic(site, dialled, remote, ANSWER).await {
        Err(WanError::Unanswered(_)) => {}
        other => return other,
    }
    tracing::warn!(
        "peer {}: {remote} answers by TCP and not by UDP: it is connected to by TCP",
        dialled.peer.name
    );
    by_tcp(site, dialled, remote).await
}

/// The first address of a name and port.
///
/// # Errors
/// [`WanError::NoAddress`].
pub async fn resolve(address: &str) -> Result<SocketAddr, WanError> {
    let found = tokio::net::lookup_host(address).await.ok();
    found
        .and_then(|mut found| found.next())
        .ok_or_else(|| WanError::NoAddress(address.to_owned()))
}

/// The name that the peer's certificate must have.
pub fn server_name<'a>(peer: &Peer, address: &'a str) -> &'a str {
    let name = match peer.fingerprint {
        Some(_) => NAME,
        None => address.rsplit_once(':').map_or(address, |(host, _)| host),
    };
    name.trim_matches(['[', ']'])
}

/// Wildcard address for a socket that connects there.
pub fn any(remote: SocketAddr) -> SocketAddr {
    match remote.is_ipv4() {
        true => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        false => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

async fn by_quic(
    site: &Site,
    dialled: &Dialled,
    remote: SocketAddr,
    patience: Duration,
) -> Result<(Connection, Hello), WanError> {
    let endpoint = endpoint(any(remote), None, None)?;
    let peer = &dialled.peer;
    site.dials(peer, &endpoint);
    let config = quic::client(&dialled.tls, peer.mtu)?;
    let connecting =
        endpoint.connect_with(config, remote, server_name(&dialled.peer, &dialled.address));
    let connecting = connecting.map_err(|error| WanError::Quic(error.to_string()))?;
    let introduced = timeout(patience, async {
        let connection = connecting.await?;
        let protection = protection(&connection, true)?;
        let (sending, receiving) = connection.accept_bi().await?;
        let (mut reader, mut writer) = (Reader::new(receiving), Writer::new(sending));
        let token = site.token.as_ref();
        let own = site.hello(peer);
        let hello = send(&mut reader, &mut writer, &protection, token, &own).await?;
        Ok::<_, WanError>((Connection::Quic(connection), hello))
    });
    introduced
        .await
        .map_err(|_| WanError::Unanswered(dialled.address.clone()))?
}

async fn by_tcp(
    site: &Site,
    dialled: &Dialled,
    remote: SocketAddr,
) -> Result<(Connection, Hello), WanError> {
    let introduced = timeout(PATIENCE, async {
        let socket = tcp::dial(remote).await?;
        let mut connection = tcp::connect(
            socket,
            &dialled.tls,
            server_name(&dialled.peer, &dialled.address),
        )
        .await?;
        let tcp::Connection {
            reader,
            writer,
            protection,
            ..
        } = &mut connection;
        let own = site.hello(&dialled.peer);
        let hello = send(reader, writer, protection, site.token.as_ref(), &own).await?;
        Ok::<_, WanError>((Connection::Tcp(Box::new(connection)), hello))
    });
    introduced
        .await
        .map_err(|_| WanError::Unanswered(dialled.address.clone()))?
}
