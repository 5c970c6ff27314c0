// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that connections to peers share, and the run of a session.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_security::{Slots, Token};
use quinn::{Endpoint, VarInt};
use tokio::runtime::Handle;

use super::error::WanError;
use super::hello::Hello;
use super::leg::Connection;
use super::moved::moved;
use crate::config::{Config, Peer};
use crate::local::{dial, Dialling};
use crate::peers::Peers;
use crate::rules;
use crate::session::{Limits, Side};

/// Longest wait for a peer to acknowledge the close.
const AGAIN: Duration = Duration::from_secs(1);

/// State that all connections of a gateway share.
pub struct Site {
    /// Of the gateway.
    pub config: Arc<Config>,
    /// Both sides prove it.
    pub token: Option<Token>,
    /// Their sessions.
    pub peers: Arc<Peers>,
    /// Of connections before their proof.
    pub slots: Arc<Slots>,
    /// Runtime of programs' connections.
    pub local: Handle,
    /// Endpoints of connections to peers, by the peer's name.
    pub dialling: Mutex<HashMap<String, Endpoint>>,
}

impl Site {
    /// Registers the endpoint of a connection to a peer.
    pub fn dials(&self, peer: &Peer, endpoint: &Endpoint) {
        let mut dialling = self.dialling.lock().unwrap_or_else(PoisonError::into_inner);
        dialling.insert(peer.name.clone(), endpoint.clone());
    }

    /// Resets all connections, and closes those to the peers.
    pub async fn stop(&self, mut endpoints: Vec<Endpoint>) {
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

    /// This side's message to a peer.
    pub fn hello(&self, peer: &Peer) -> Hello {
        Hello {
            name: self.config.name.clone(),
            limits: Limits::new(peer.memory, peer.connections),
        }
    }
}

/// A session, until its end. `dialled`: this side connected, to this name and address.
///
/// # Errors
/// [`WanError`] if there is none; its end is the value.
pub async fn run(
    site: &Arc<Site>,
    mut connection: Connection,
    dialled: Option<(&str, SocketAddr)>,
    peer: &Peer,
    limits: Limits,
) -> Result<WanError, WanError> {
    let side = match dialled {
        Some(_) => Side::Client,
        None => Side::Server,
    };
    let (hub, mut incoming) = connection.session(side, peer, limits)?;
    site.peers.join(&peer.name, &hub);
    let leg = match &connection {
        Connection::Quic(_) => "UDP",
        Connection::Tcp(_) => "TCP, whose own repairs slow it down on a path that loses",
    };
    tracing::info!(
        "peer {}: connected to {} by {leg}",
        peer.name,
        connection.remote()
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
        None => connection.carry(&hub, peer).await,
        Some((name, address)) => tokio::select! {
            error = connection.carry(&hub, peer) => error,
            () = moved(&hub, name, address) => WanError::Moved(name.to_owned()),
        },
    };
    dials.abort();
    site.peers.leave(&peer.name, &hub);
    connection.close();
    Ok(error)
}
