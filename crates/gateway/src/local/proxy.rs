// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common part of both proxies: listens, and opens streams to destinations at the peer's site.

use std::io;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use super::relay::harden;
use super::target::{Reason, Target};
use super::{http, socks};
use crate::hub::{Hub, Signals};
use crate::peers::Peers;

/// A protocol that programs speak to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 1928.
    Socks,
    /// CONNECT.
    Http,
}

/// A connection whose destination has answered.
pub struct Proxied {
    /// The session.
    pub hub: Arc<Hub>,
    /// The stream.
    pub stream: u64,
    /// Its events.
    pub signals: Arc<Signals>,
}

impl Proxied {
    /// Gives the connection up.
    pub fn abandon(self) {
        self.hub.reset(self.stream, Reason::Broken as u8);
    }
}

/// Reason of a failed connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer is not connected.
    NoPeer,
    /// It ended the stream.
    Reset(Reason),
}

/// Opens a stream, and waits for the answer of its destination.
///
/// # Errors
/// [`Failure`].
pub async fn through(peers: &Peers, peer: &str, target: &Target) -> Result<Proxied, Failure> {
    let hub = peers.hub(peer).ok_or(Failure::NoPeer)?;
    let weight = match target {
        Target::Address(to) | Target::From { to, .. } => peers.weight(peer, to.ip()),
        // The far side resolves it.
        Target::Name(..) => 1,
    };
    let open = hub.open(&target.encode(), weight);
    let (stream, signals) = open.ok_or(Failure::Reset(Reason::Full))?;
    match signals.accepted().await {
        Ok(()) => Ok(Proxied {
            hub,
            stream,
            signals,
        }),
        Err(reason) => Err(Failure::Reset(reason.into())),
    }
}

/// Serves programs until this is dropped.
pub async fn serve(listener: TcpListener, protocol: Protocol, peers: Arc<Peers>, peer: String) {
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                // The cause may be too many open files: try again after a pause.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let (peers, peer) = (Arc::clone(&peers), peer.clone());
        tokio::spawn(async move {
            if let Err(error) = one(socket, protocol, &peers, &peer).await {
                tracing::info!("a program's connection: {error}");
            }
        });
    }
}

async fn one(socket: TcpStream, protocol: Protocol, peers: &Peers, peer: &str) -> io::Result<()> {
    harden(&socket)?;
    match protocol {
        Protocol::Socks => socks::connection(peers, peer, socket).await,
        Protocol::Http => http::connection(peers, peer, socket).await,
    }
}
