// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transport of a session: QUIC datagrams, or TCP where UDP is blocked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::VarInt;
use tokio::sync::mpsc::UnboundedReceiver;

use super::carry;
use super::error::WanError;
use super::tcp;
use crate::config::Peer;
use crate::hub::{Hub, Incoming};
use crate::session::{Limits, Nanos, Rate, Settings, Side, MOST_DATAGRAM, MS};

/// Burst of a late timer: tokio's timers have a tick of 1 ms, and a busy machine's are late. A path
/// without a reservation may have short queues.
const CATCH_UP: Nanos = 4 * MS;
const LEARNED_CATCH_UP: Nanos = 2 * MS;
/// Smallest burst, bytes.
const LEAST_BURST: u64 = 16 << 10;

/// An authenticated connection to a peer.
pub enum Connection {
    /// By UDP.
    Quic(quinn::Connection),
    /// By TCP.
    Tcp(Box<tcp::Connection>),
}

impl Connection {
    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        match self {
            Self::Quic(quic) => quic.remote_address(),
            Self::Tcp(tcp) => tcp.remote,
        }
    }

    /// A session for it. The receiver gives the streams that the peer opens.
    ///
    /// # Errors
    /// [`WanError::NoDatagrams`].
    pub fn session(
        &self,
        side: Side,
        peer: &Peer,
        limits: Limits,
    ) -> Result<(Arc<Hub>, UnboundedReceiver<Incoming>), WanError> {
        let mut settings = Settings::new(side, peer.rate);
        settings.catch_up = match peer.rate {
            Rate::Reserve(_) => CATCH_UP,
            Rate::Learned { .. } => LEARNED_CATCH_UP,
        };
        match self {
            Self::Quic(quic) => carry::fit(quic, &mut settings, peer.mtu)?,
            Self::Tcp(tcp) => tcp.fit(&mut settings, usize::from(peer.mtu).min(MOST_DATAGRAM)),
        }
        settings.burst = LEAST_BURST;
        settings.memory = peer.memory;
        settings.streams = peer.connections;
        settings.patience = peer.patience;
        settings.peer = limits;
        Ok(Hub::new(settings))
    }

    /// Carries the session's datagrams, until it or the connection ends.
    pub async fn carry(&mut self, hub: &Hub, peer: &Peer) -> WanError {
        let result = match self {
            Self::Quic(quic) => carry::carry(quic, hub).await,
            Self::Tcp(tcp) => tcp.carry(hub, Duration::from_nanos(peer.patience)).await,
        };
        match result {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// Closes the connection, so that the peer does not wait for its patience.
    pub fn close(self) {
        if let Self::Quic(quic) = self {
            quic.close(VarInt::from_u32(1), b"over");
        }
    }
}
