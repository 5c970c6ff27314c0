// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making connections, from the command's side.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use paceline_security as security;
use paceline_security::{Error as SecurityError, FrameError, Protection, Token, PATIENCE};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::control::{BoxedRead, BoxedWrite, Control, SERVICE};
use crate::stream::{prepare, Stream, StreamReader, StreamWriter};
use crate::{Error, Result};
use paceline_transfer::wire::Intent;

/// Credentials for a standing receiver.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Proven to it.
    pub token: Option<Token>,
    /// TLS, and the trust in the receiver.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The name in its certificate; `None`: that of the address.
    pub server_name: Option<String>,
}

/// A standing receiver.
#[derive(Debug, Clone)]
pub struct Standing {
    /// `HOST:PORT`.
    pub address: String,
    /// Credentials for it.
    pub credentials: Credentials,
}

/// A connection before its handshake.
pub struct Raw {
    /// Incoming bytes.
    pub read: BoxedRead,
    /// Outgoing bytes.
    pub write: BoxedWrite,
    /// Protection that the connection has already.
    pub protection: Protection,
    /// None of a pipe.
    pub socket: Option<OwnedFd>,
}

/// The host of `HOST:PORT`.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Host and port as an address.
pub fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Connects.
///
/// # Errors
/// [`Error::Address`] if there is no answer, those of TLS, [`Error::NoAddress`].
pub async fn dial(address: &str, credentials: &Credentials) -> Result<Raw> {
    let failed = |source| Error::Address {
        what: "cannot connect to",
        address: address.to_owned(),
        source,
    };
    let stream = timeout(PATIENCE, TcpStream::connect(address))
        .await
        .map_err(|_| failed(std::io::ErrorKind::TimedOut.into()))?
        .map_err(failed)?;
    let socket = Some(prepare(&stream).map_err(failed)?);
    let Some(config) = &credentials.tls else {
        let (read, write) = stream.into_split();
        return Ok(Raw {
            read: Box::new(read),
            write: Box::new(write),
            protection: Protection::None,
            socket,
        });
    };
    let name = credentials
        .server_name
        .as_deref()
        .unwrap_or(host_of(address));
    let name = ServerName::try_from(name.to_owned()).map_err(|_| Error::NoAddress {
        address: address.to_owned(),
        expected: "a host's name or address",
    })?;
    let connector = TlsConnector::from(Arc::clone(config));
    let stream = timeout(PATIENCE, connector.connect(name, stream))
        .await
        .map_err(|_| FrameError::Slow(PATIENCE))?
        .map_err(|error| match error.kind() {
            // An error of rustls about a certificate; else the connection broke.
            std::io::ErrorKind::InvalidData => Error::from(SecurityError::Handshake(error)),
            _ => failed(error),
        })?;
    let protection = Protection::Tls {
        binding: security::binding(stream.get_ref().1)?,
        known: true,
    };
    let (read, write) = tokio::io::split(stream);
    Ok(Raw {
        read: Box::new(read),
        write: Box::new(write),
        protection,
        socket,
    })
}

/// The command's side of the control connection's handshake. A protected connection does not wait
/// for the server's answer: messages follow the client's at once.
///
/// # Errors
/// Those of the connection, and of the other side's proof.
pub async fn join(raw: Raw, token: Option<&Token>, intent: &Intent) -> Result<Control> {
    let mut reader = security::Reader::new(raw.read);
    let mut writer = security::Writer::new(raw.write);
    let intent = intent.encode();
    let protection = &raw.protection;
    if *protection == Protection::None {
        security::join(
            &mut reader,
            &mut writer,
            &SERVICE,
            token,
            protection,
            &intent,
        )
        .await?;
        return Ok(Control::new(reader, writer));
    }
    let joining = security::begin(
        &mut reader,
        &mut writer,
        &SERVICE,
        token,
        protection,
        &intent,
    )
    .await?;
    let mut control = Control::new(reader, writer);
    control.inbox.join(joining);
    Ok(control)
}

/// The handshake of a data connection; plain ones end their encryption with it. It does not wait
/// for the server's answer where frames need none: within TLS the server is known, and plain frames
/// are bound to the session by their tags.
///
/// # Errors
/// As of [`join`]; [`Error::Unexpected`] of a pipe.
pub async fn attach(
    mut raw: Raw,
    token: Option<&Token>,
    (session, number): ([u8; 16], u16),
    is_plain: bool,
) -> Result<Stream> {
    let intent = Intent::Attach {
        session,
        stream: number,
    }
    .encode();
    let Some(socket) = raw.socket.take() else {
        return Err(Error::Unexpected("a data connection is a socket"));
    };
    let Raw {
        mut read,
        mut write,
        protection,
        ..
    } = raw;
    let is_private = protection == Protection::None && !is_plain;
    let (reader, writer) = if is_private {
        let mut reader = security::Reader::new(read);
        let mut writer = security::Writer::new(write);
        security::join(
            &mut reader,
            &mut writer,
            &SERVICE,
            token,
            &protection,
            &intent,
        )
        .await?;
        (StreamReader::Frames(reader), StreamWriter::Frames(writer))
    } else {
        // They take no byte more than their frames.
        let joining = security::begin(
            &mut security::Reader::new(&mut read),
            &mut security::Writer::new(&mut write),
            &SERVICE,
            token,
            &protection,
            &intent,
        )
        .await?;
        let writer = match is_plain {
            true => StreamWriter::Plain(write),
            false => StreamWriter::Frames(security::Writer::new(write)),
        };
        (
            StreamReader::Joining {
                joining: Box::new(joining),
                read,
                is_plain,
            },
            writer,
        )
    };
    Ok(Stream {
        number,
        reader,
        writer,
        socket,
        guard: None,
    })
}
