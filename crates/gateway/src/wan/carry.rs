// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session's datagrams to and from its QUIC connection, until one of them ends.

use std::sync::Arc;

use tokio::time::sleep_until;

use super::error::WanError;
use crate::config::Peer;
use crate::hub::{Hub, Incoming};
use crate::session::{Limits, Settings, Side, MOST_DATAGRAM};

/// Datagrams sent before others of this thread have their turn.
const TURN: usize = 64;
/// Headers of UDP and IP, bytes.
const HEADERS: (usize, usize) = (28, 48);
/// What a late timer may catch up with, nanoseconds: tokio's timers have a tick of 1 ms, and a
/// busy machine's are late. It is the burst that a rate of one second divides into 250.
const CATCH_UP: u64 = 250;
/// Smallest burst, bytes.
const LEAST_BURST: u64 = 16 << 10;

/// A session for a connection. The receiver gives the streams that the peer opens.
///
/// # Errors
/// [`WanError::NoDatagrams`].
pub fn session(
    connection: &quinn::Connection,
    side: Side,
    peer: &Peer,
    limits: Limits,
) -> Result<(Arc<Hub>, tokio::sync::mpsc::UnboundedReceiver<Incoming>), WanError> {
    let datagram = connection
        .max_datagram_size()
        .ok_or(WanError::NoDatagrams)?;
    let datagram = datagram.min(MOST_DATAGRAM);
    let headers = match connection.remote_address().ip().to_canonical().is_ipv4() {
        true => HEADERS.0,
        false => HEADERS.1,
    };
    let mut settings = Settings::new(side, peer.rate);
    let rate = match peer.rate {
        crate::session::Rate::Reserve(rate) => rate,
        crate::session::Rate::Learned { .. } => 0,
    };
    settings.datagram = datagram;
    settings.overhead = usize::from(peer.mtu).saturating_sub(datagram) + headers;
    settings.burst = (rate / 8 / CATCH_UP).max(LEAST_BURST);
    settings.memory = peer.memory;
    settings.streams = peer.connections;
    settings.patience = peer.patience;
    settings.rtt = connection.rtt().as_nanos() as u64;
    settings.peer = limits;
    Ok(Hub::new(settings))
}

/// Carries datagrams.
///
/// # Errors
/// [`WanError`], always: there is no other end.
pub async fn carry(connection: &quinn::Connection, hub: &Hub) -> WanError {
    let result = tokio::select! {
        result = pace(connection, hub) => result,
        result = listen(connection, hub) => result,
        () = hub.over.notified() => Err(WanError::Over),
    };
    match result {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn pace(
    connection: &quinn::Connection,
    hub: &Hub,
) -> Result<std::convert::Infallible, WanError> {
    let mut datagrams = Vec::with_capacity(TURN);
    loop {
        let next = hub.transmit(TURN, &mut datagrams);
        let is_more = datagrams.len() == TURN;
        for datagram in datagrams.drain(..) {
            match connection.send_datagram(datagram.into()) {
                Ok(()) => {}
                Err(quinn::SendDatagramError::ConnectionLost(error)) => return Err(error.into()),
                Err(_) => return Err(WanError::NoDatagrams),
            }
        }
        if is_more {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = hub.work.notified() => {}
            () = sleep_until(next.into()) => {}
        }
    }
}

async fn listen(
    connection: &quinn::Connection,
    hub: &Hub,
) -> Result<std::convert::Infallible, WanError> {
    loop {
        let datagram = connection.read_datagram().await?;
        hub.receive(&datagram)?;
    }
}
