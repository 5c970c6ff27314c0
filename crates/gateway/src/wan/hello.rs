// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of two gateways before the session, on a stream of the QUIC connection or on that of
//! TLS: the handshake of all services, bound to this connection, and each side's name and limits.

use paceline_security as security;
use paceline_security::{Protection, Purpose, Reader, Service, Token, Writer, PATIENCE};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::WanError;
use crate::session::{Limits, MOST_DATAGRAM};

/// This service.
const SERVICE: Service = Service {
    purpose: Purpose::Gateway,
    // 2: full datagrams without a length.
    version: 2,
    // On the TCP leg the session's datagrams are frames, too.
    most_frame: MOST_DATAGRAM,
};
/// Longest name of a gateway, bytes.
const MOST_NAME: usize = 64;

/// The message of each side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its own name.
    pub name: String,
    /// Its limits.
    pub limits: Limits,
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes it")
    }

    fn decode(bytes: &[u8]) -> Result<Self, WanError> {
        let hello: Self = postcard::from_bytes(bytes).map_err(|_| WanError::Malformed)?;
        match hello.name.len() <= MOST_NAME {
            true => Ok(hello),
            false => Err(WanError::Malformed),
        }
    }
}

/// Protection of a QUIC connection. `known`: the client showed a certificate.
///
/// # Errors
/// [`WanError::Quic`].
pub fn protection(connection: &quinn::Connection, known: bool) -> Result<Protection, WanError> {
    let mut binding = vec![0; security::BINDING_BYTES];
    connection
        .export_keying_material(&mut binding, security::BINDING_LABEL, b"")
        .map_err(|_| WanError::Quic("no keying material".to_owned()))?;
    Ok(Protection::Tls { binding, known })
}

/// The server's side. `choose` returns this side's message to the client.
///
/// # Errors
/// [`WanError`].
pub async fn receive<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    protection: &Protection,
    token: Option<&Token>,
    choose: impl FnOnce(&Hello) -> Result<Hello, WanError>,
) -> Result<Hello, WanError> {
    let accepted = security::accept(reader, writer, &SERVICE, token, protection).await;
    let intent = match accepted {
        Ok(intent) => intent,
        Err(error) => {
            security::refuse(writer, &error).await;
            return Err(error.into());
        }
    };
    let theirs = Hello::decode(&intent)?;
    let own = choose(&theirs)?;
    let sent = writer.send(&own.encode(), PATIENCE).await;
    sent.map_err(security::Error::from)?;
    Ok(theirs)
}

/// The client's side.
///
/// # Errors
/// [`WanError`].
pub async fn send<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    protection: &Protection,
    token: Option<&Token>,
    own: &Hello,
) -> Result<Hello, WanError> {
    let intent = own.encode();
    security::join(reader, writer, &SERVICE, token, protection, &intent).await?;
    let answer = reader.next(PATIENCE).await.map_err(security::Error::from)?;
    Hello::decode(answer)
}
