// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session's datagrams to and from its QUIC connection, until one of them ends.

use std::convert::Infallible;

use tokio::time::sleep_until;

use super::error::WanError;
use crate::hub::Hub;
use crate::session::{Settings, MOST_DATAGRAM};

/// Datagrams sent before others of this thread have their turn.
const TURN: usize = 64;
/// Headers of UDP and IP, bytes.
const HEADERS: (usize, usize) = (28, 48);
/// Bytes that quinn leaves free beside a largest datagram: it reckons with nine for the frame's
/// type and length, which are three.
const FREE: usize = 6;

/// Adapts a session's settings to its leg.
///
/// # Errors
/// [`WanError::NoDatagrams`].
pub fn fit(
    connection: &quinn::Connection,
    settings: &mut Settings,
    mtu: u16,
) -> Result<(), WanError> {
    let datagram = connection
        .max_datagram_size()
        .ok_or(WanError::NoDatagrams)?;
    let datagram = datagram.min(MOST_DATAGRAM);
    let headers = match connection.remote_address().ip().to_canonical().is_ipv4() {
        true => HEADERS.0,
        false => HEADERS.1,
    };
    settings.datagram = datagram;
    settings.overhead = usize::from(mtu).saturating_sub(datagram + FREE) + headers;
    settings.rtt = connection.rtt().as_nanos() as u64;
    Ok(())
}

/// Carries datagrams.
///
/// # Errors
/// [`WanError`], always: there is no other end.
pub async fn carry(connection: &quinn::Connection, hub: &Hub) -> Result<Infallible, WanError> {
    tokio::select! {
        result = pace(connection, hub) => result,
        result = listen(connection, hub) => result,
        () = hub.over.notified() => Err(WanError::Over),
    }
}

async fn pace(connection: &quinn::Connection, hub: &Hub) -> Result<Infallible, WanError> {
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

async fn listen(connection: &quinn::Connection, hub: &Hub) -> Result<Infallible, WanError> {
    loop {
        let datagram = connection.read_datagram().await?;
        hub.receive(&datagram)?;
    }
}
