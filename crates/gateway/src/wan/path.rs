// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The largest datagram that reaches a peer, found by QUIC's own probes (RFC 9000, 14.3): the
//! peer's QUIC acknowledges them, so no router need answer, and no token is proven.

use std::sync::Arc;
use std::time::Duration;

use quinn::{MtuDiscoveryConfig, VarInt};
use tokio::time::{sleep, timeout, Instant};

use super::client::{any, resolve, server_name};
use super::error::WanError;
use super::{quic, tls};
use crate::config::{Config, Peer};

/// UDP payload that each path of QUIC carries (RFC 9000, 14).
const LEAST: u16 = 1_200;
/// Longest search.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between looks; packets as often show which probes are lost.
const LOOK: Duration = Duration::from_millis(50);

/// MTU of the path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    /// UDP payload that arrived, bytes: at most what is configured.
    pub bytes: u16,
}

/// Searches for it.
///
/// # Errors
/// The error of the connection.
pub async fn path_mtu(config: &Config, peer: &Peer) -> Result<PathMtu, String> {
    search(config, peer)
        .await
        .map_err(|error| error.to_string())
}

async fn search(config: &Config, peer: &Peer) -> Result<PathMtu, WanError> {
    let address = peer.address.clone().unwrap_or_default();
    let remote = resolve(&address).await?;
    let mut search = MtuDiscoveryConfig::default();
    search.upper_bound(peer.mtu);
    let mut client = quic::client(&tls::client(config, peer)?, LEAST)?;
    let mut transport = quic::transport(LEAST);
    transport
        .mtu_discovery_config(Some(search))
        .keep_alive_interval(Some(LOOK));
    client.transport_config(Arc::new(transport));
    let endpoint = quic::endpoint(any(remote), None, None)?;
    let connecting = endpoint.connect_with(client, remote, server_name(peer, &address));
    let connecting = connecting.map_err(|error| WanError::Quic(error.to_string()))?;
    let connection = timeout(PATIENCE, connecting)
        .await
        .map_err(|_| WanError::Unanswered(address.clone()))??;
    let end = Instant::now() + PATIENCE;
    let mut bytes = LEAST;
    while bytes < peer.mtu && Instant::now() < end && connection.close_reason().is_none() {
        sleep(LOOK).await;
        bytes = bytes.max(connection.stats().path.current_mtu);
    }
    connection.close(VarInt::from_u32(0), b"looked");
    // The close need not arrive.
    let _ = timeout(LOOK, endpoint.wait_idle()).await;
    Ok(PathMtu { bytes })
}
