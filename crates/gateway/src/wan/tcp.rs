// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where UDP is blocked: a session's datagrams as frames in TLS over one TCP connection.
//!
//! TCP delivers in order and repeats losses itself, at its own rate: the session's pacer bounds the
//! bytes that it gets, and bytes that it does not take wait in the session. After a cut it goes on
//! when its own timer expires.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use paceline_security as security;
use paceline_security::{Protection, Reader, Writer};
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep_until;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::error::WanError;
use crate::hub::Hub;
use crate::session::Settings;

/// Bytes of a frame beside a datagram: its length, and the TLS record's header, type and tag.
const FRAME: usize = 4 + 5 + 1 + 16;
/// Headers of TCP and IP, bytes.
const HEADERS: (usize, usize) = (52, 72);
/// Datagrams given to the socket before others of this thread have their turn.
const TURN: usize = 64;
/// Unsent bytes that wait in the kernel: a small message must not wait for many.
const UNSENT: u32 = 64 << 10;
/// TCP's timer backs off to this at most, milliseconds, where the kernel can (Linux 6.15): after
/// a long cut it would be silent for as long again.
static MOST_TIMER: libc::c_int = 1_000;
/// linux/tcp.h; libc does not have it yet.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// Silence after which TCP breaks by itself: longer than any session's patience.
const IDLE: Duration = Duration::from_secs(120);
/// Fewest bytes of a datagram.
const LEAST: usize = 512;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// One direction of a connection.
type Reading = Reader<ReadHalf<TlsStream<TcpStream>>>;
type Writing = Writer<WriteHalf<TlsStream<TcpStream>>>;

/// A connection after its TLS handshake.
pub struct Connection {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Binding of the handshake of all services.
    pub protection: Protection,
    /// Frames of the peer's.
    pub reader: Reading,
    /// Frames to it.
    pub writer: Writing,
    /// Largest segment, bytes.
    segment: usize,
}

/// A socket for peers.
///
/// # Errors
/// If the kernel refuses.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A killed gateway's connections do not hold the port; a living one's listener does.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Connects, and sends nothing.
///
/// # Errors
/// [`WanError::Tcp`].
pub async fn dial(remote: SocketAddr) -> Result<TcpStream, WanError> {
    TcpStream::connect(remote).await.map_err(WanError::Tcp)
}

/// The client's TLS.
///
/// # Errors
/// [`WanError::Tcp`], [`WanError::Security`].
pub async fn connect(
    socket: TcpStream,
    tls: &Arc<rustls::ClientConfig>,
    name: &str,
) -> Result<Connection, WanError> {
    let name =
        ServerName::try_from(name.to_owned()).map_err(|_| WanError::NoAddress(name.to_owned()))?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(name, socket)
        .await
        .map_err(WanError::Tcp)?;
    let binding = security::binding(stream.get_ref().1)?;
    Connection::new(TlsStream::Client(stream), binding, true)
}

/// The server's TLS. Gives the fingerprint of the certificate that the client shows, too.
///
/// # Errors
/// [`WanError::Tcp`], [`WanError::Security`].
pub async fn accept(
    socket: TcpStream,
    tls: &Arc<rustls::ServerConfig>,
) -> Result<(Connection, Option<[u8; 32]>), WanError> {
    let stream = TlsAcceptor::from(Arc::clone(tls))
        .accept(socket)
        .await
        .map_err(WanError::Tcp)?;
    let tls = stream.get_ref().1;
    let binding = security::binding(tls)?;
    let chain = tls.peer_certificates();
    let presented = chain.and_then(|chain| chain.first().map(security::fingerprint));
    let connection = Connection::new(TlsStream::Server(stream), binding, presented.is_some())?;
    Ok((connection, presented))
}

impl Connection {
    fn new(stream: TlsStream<TcpStream>, binding: Vec<u8>, known: bool) -> Result<Self, WanError> {
        let socket = stream.get_ref().0;
        let prepared = || -> std::io::Result<(SocketAddr, u32)> {
            let options = SockRef::from(socket);
            options.set_tcp_nodelay(true)?;
            options.set_tcp_notsent_lowat(UNSENT)?;
            // BBR keeps a rate on a path that loses; a kernel may not have it.
            let _ = options.set_tcp_congestion(b"bbr");
            // With a bound for its timer TCP would give up sooner.
            options.set_tcp_user_timeout(Some(IDLE))?;
            bound_timer(socket);
            Ok((socket.peer_addr()?, options.tcp_mss()?))
        };
        let (remote, segment) = prepared().map_err(WanError::Tcp)?;
        let (read, write) = tokio::io::split(stream);
        Ok(Self {
            remote,
            protection: Protection::Tls { binding, known },
            reader: Reader::new(read),
            writer: Writer::new(write),
            segment: segment as usize,
        })
    }
}

impl Connection {
    /// Adapts a session's settings to its leg. `mtu`: bytes of a datagram at most.
    pub fn fit(&self, settings: &mut Settings, mtu: usize) {
        // A datagram fills a segment.
        settings.datagram = self.segment.saturating_sub(FRAME).clamp(LEAST, mtu);
        let headers = match self.remote.ip().to_canonical().is_ipv4() {
            true => HEADERS.0,
            false => HEADERS.1,
        };
        settings.overhead = FRAME + headers;
        settings.is_ordered = true;
    }

    /// Carries datagrams, until one of the sides ends. `patience`: of the session.
    ///
    /// # Errors
    /// [`WanError`], always: there is no other end.
    pub async fn carry(&mut self, hub: &Hub, patience: Duration) -> Result<Infallible, WanError> {
        let Self { reader, writer, .. } = self;
        tokio::select! {
            result = pace(writer, hub, patience) => result,
            result = receive(reader, hub, patience) => result,
            () = hub.over.notified() => Err(WanError::Over),
        }
    }
}

/// Bytes that the socket does not take at once wait in the session, not here.
async fn pace(writer: &mut Writing, hub: &Hub, patience: Duration) -> Result<Infallible, WanError> {
    let mut datagrams = Vec::with_capacity(TURN);
    loop {
        let next = hub.transmit(TURN, &mut datagrams);
        let is_more = datagrams.len() == TURN;
        for datagram in datagrams.drain(..) {
            let sent = writer.send(&datagram, patience).await;
            sent.map_err(security::Error::from)?;
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

async fn receive(
    reader: &mut Reading,
    hub: &Hub,
    patience: Duration,
) -> Result<Infallible, WanError> {
    loop {
        let datagram = reader.next(patience).await.map_err(security::Error::from)?;
        hub.receive(datagram)?;
    }
}

/// Bounds TCP's timer. An older kernel does not know the option.
fn bound_timer(socket: &TcpStream) {
    // SAFETY: pointer and length describe a constant; the descriptor is open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const MOST_TIMER).cast(),
            size_of_val(&MOST_TIMER) as libc::socklen_t,
        )
    };
    if result != 0 {
        tracing::debug!("TCP_RTO_MAX_MS: {}", std::io::Error::last_os_error());
    }
}
