// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of one session, for its data connections: with a certificate of its own, whose
//! fingerprint the control connection carries, and the session's secret as the token.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use paceline_security as security;
use paceline_security::{Error as SecurityError, Greeted, Protection, Slot, Slots, Token};
use ring::digest::{digest, SHA256};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tokio_rustls::TlsAcceptor;

use crate::control::SERVICE;
use crate::stream::{prepare, Stream, StreamReader, StreamWriter};
use crate::{Error, Result};
use paceline_transfer::wire::Intent;

/// The name in the certificates: it is not checked.
pub const NAME: &str = "paceline";

/// Ports to choose from: first and last; `None`: the kernel chooses.
pub type Ports = Option<(u16, u16)>;

/// See the module's text.
pub struct DataPort {
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    /// Of the certificate.
    pub fingerprint: Option<[u8; 32]>,
    /// Listening port.
    pub port: u16,
}

impl DataPort {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::Address`] if no port is free; no certificate can be made.
    pub async fn open(ports: Ports, is_plain: bool) -> Result<Self> {
        let (acceptor, fingerprint) = match is_plain {
            true => (None, None),
            false => {
                let (acceptor, fingerprint) = certificate()?;
                (Some(acceptor), Some(fingerprint))
            }
        };
        let listener = listen(ports).await?;
        let port = listener.local_addr().map(|address| address.port());
        let port = port.map_err(|source| Error::Address {
            what: "cannot listen at",
            address: "any".to_owned(),
            source,
        })?;
        Ok(Self {
            listener,
            acceptor,
            fingerprint,
            port,
        })
    }

    /// Takes in data connections, until `streams` is closed.
    pub async fn serve(self, session: [u8; 16], secret: [u8; 32], streams: mpsc::Sender<Stream>) {
        let slots = Arc::new(Slots::default());
        let token = Token::new(&secret);
        let mut waiting = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = streams.closed() => return,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The cause may be too many open files: try again after a pause.
                    tracing::warn!("cannot accept a data connection: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            let slot = slots.admit(from.ip());
            let (acceptor, token, streams) =
                (self.acceptor.clone(), token.clone(), streams.clone());
            waiting.spawn(async move {
                match admit(stream, slot, acceptor.as_ref(), &token, session).await {
                    Ok(stream) => {
                        let _ = streams.send(stream).await;
                    }
                    Err(error) => tracing::info!("a data connection of {from}: {error}"),
                }
            });
            while waiting.try_join_next().is_some() {}
        }
    }
}

async fn admit(
    stream: TcpStream,
    mut slot: Slot,
    acceptor: Option<&TlsAcceptor>,
    token: &Token,
    own: [u8; 16],
) -> Result<Stream> {
    let io = |error| Error::from(SecurityError::Handshake(error));
    let socket = prepare(&stream).map_err(io)?;
    let (intent, reader, writer) = match acceptor {
        None => {
            let (mut read, mut write) = stream.into_split();
            // They take no byte more than their frames.
            let mut reader = security::Reader::new(&mut read);
            let mut writer = security::Writer::new(&mut write);
            let accept = security::accept(
                &mut reader,
                &mut writer,
                &SERVICE,
                Some(token),
                &Protection::None,
            );
            let intent = slot.within(accept).await?;
            let reader = StreamReader::Plain(Box::new(read), Vec::new());
            (intent, reader, StreamWriter::Plain(Box::new(write)))
        }
        Some(acceptor) => {
            let greeted = Greeted::new(&SERVICE, Some(token), false)?;
            let stream = slot.within(greet(acceptor, stream, &greeted)).await?;
            let protection = Protection::Tls {
                binding: security::binding(stream.get_ref().1)?,
                known: false,
            };
            let (read, write) = tokio::io::split(stream);
            let mut reader = security::Reader::new(Box::new(read) as _);
            let mut writer = security::Writer::new(Box::new(write) as _);
            let accept = security::accept_greeted(
                &mut reader,
                &mut writer,
                &SERVICE,
                Some(token),
                &protection,
                &greeted,
            );
            let intent = slot.within(accept).await?;
            (
                intent,
                StreamReader::Frames(reader),
                StreamWriter::Frames(writer),
            )
        }
    };
    match Intent::decode(&intent)? {
        Intent::Attach { session, stream } if session == own => Ok(Stream {
            number: stream,
            reader,
            writer,
            socket,
            guard: None,
        }),
        _ => Err(Error::Unexpected(
            "this port is for data connections of one session",
        )),
    }
}

/// The server's side of TLS. Its greeting goes with it: see [`Greeted`].
///
/// # Errors
/// Those of the handshake.
pub async fn greet(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    greeted: &Greeted,
) -> std::result::Result<TlsStream<TcpStream>, SecurityError> {
    let frame = greeted.frame();
    let early = |connection: &mut rustls::ServerConnection| {
        // It waits in memory until it may go: there is no way to fail.
        let _ = connection.writer().write_all(&frame);
    };
    let accepted = acceptor.accept_with(stream, early).await;
    accepted.map_err(SecurityError::Handshake)
}

async fn listen(ports: Ports) -> Result<TcpListener> {
    let (first, last) = ports.unwrap_or((0, 0));
    let mut failed = None;
    for port in first..=last {
        // Both families where there is IPv6.
        for any in [
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ] {
            match TcpListener::bind(SocketAddr::new(any, port)).await {
                Ok(listener) => return Ok(listener),
                Err(error) => failed = Some(error),
            }
        }
    }
    Err(Error::Address {
        what: "cannot listen at any port of",
        address: format!("{first}-{last}"),
        source: failed.unwrap_or_else(|| std::io::ErrorKind::InvalidInput.into()),
    })
}

fn certificate() -> Result<(TlsAcceptor, [u8; 32])> {
    let failed = |text: String| Error::stop(paceline_transfer::wire::Reason::Interrupted, text);
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])
        .map_err(|error| failed(format!("cannot make a certificate: {error}")))?;
    let certificate = made.cert.der().clone();
    let fingerprint = digest(&SHA256, &certificate);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(SecurityError::Tls)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key))
        .map_err(SecurityError::Tls)?;
    config.send_half_rtt_data = true;
    let fingerprint = fingerprint
        .as_ref()
        .try_into()
        .expect("SHA-256 has 32 bytes");
    Ok((TlsAcceptor::from(Arc::new(config)), fingerprint))
}
