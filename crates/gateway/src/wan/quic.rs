// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QUIC: endpoints and their settings.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{AckFrequencyConfig, Endpoint, EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use ring::hmac;

use super::error::WanError;
use super::ids::RandomIds;
use super::unlimited::Unlimited;
use crate::config::Config;

/// Silence after which QUIC itself gives up: longer than any session's patience.
const IDLE: Duration = Duration::from_secs(120);
/// Bytes of datagrams that wait in QUIC, in each direction.
const BUFFER: usize = 8 << 20;
/// Packets that QUIC's own ACK may wait for, if its 25 ms are not over before. The session's
/// reports acknowledge data; an ACK for every second packet, as is usual, would only take time on
/// both sides, and the way back.
const ACK_AFTER: u32 = 64;
/// Largest UDP payload that is taken.
const MOST_PAYLOAD: u16 = 9_000;

/// A UDP socket, and QUIC on it.
///
/// # Errors
/// [`WanError::Socket`].
pub fn endpoint(
    address: SocketAddr,
    server: Option<quinn::ServerConfig>,
    reset: Option<Arc<hmac::Key>>,
) -> Result<Endpoint, WanError> {
    let open = || -> std::io::Result<Endpoint> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        // As far as the kernel allows: a late reader must not lose a burst.
        let _ = socket.set_recv_buffer_size(BUFFER);
        let _ = socket.set_send_buffer_size(BUFFER);
        socket.bind(&address.into())?;
        let mut config = match reset {
            Some(key) => {
                let mut config = EndpointConfig::new(key);
                config.cid_generator(|| Box::new(RandomIds));
                config
            }
            None => EndpointConfig::default(),
        };
        config
            .max_udp_payload_size(MOST_PAYLOAD)
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        let runtime = Arc::new(quinn::TokioRuntime);
        Endpoint::new(config, server, socket.into(), runtime)
    };
    open().map_err(|source| WanError::Socket {
        address: address.to_string(),
        source,
    })
}

/// The key of stateless resets (RFC 9000, 10.3): the same after a restart, so that a peer whose
/// session is gone learns it with its next packet, not after its patience.
///
/// # Errors
/// [`WanError::Key`].
pub fn reset_key(config: &Config) -> Result<Option<Arc<hmac::Key>>, WanError> {
    let Some((_, path)) = &config.identity.certificate else {
        return Ok(None);
    };
    let secret = std::fs::read(path).map_err(|source| WanError::Key {
        path: path.display().to_string(),
        source,
    })?;
    let master = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let derived = hmac::sign(&master, b"paceline gateway stateless reset");
    let key = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
    Ok(Some(Arc::new(key)))
}

/// Settings of a connection. `mtu`: UDP payload of the path, bytes.
pub fn transport(mtu: u16) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_AFTER))
        // Nor one for each packet while one is missing.
        .reordering_threshold(VarInt::from_u32(0));
    let mut transport = TransportConfig::default();
    transport
        .ack_frequency_config(Some(acks))
        // quinn's search for black holes mistakes 1 % loss for one (quinn#2791).
        .initial_mtu(mtu)
        .min_mtu(mtu)
        .mtu_discovery_config(None)
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(Some(BUFFER))
        .datagram_send_buffer_size(BUFFER)
        .congestion_controller_factory(Arc::new(Unlimited));
    transport
}

/// The side that listens.
///
/// # Errors
/// [`WanError::Quic`].
pub fn server(
    config: &Config,
    tls: &rustls::ServerConfig,
) -> Result<quinn::ServerConfig, WanError> {
    let tls = QuicServerConfig::try_from(tls.clone())
        .map_err(|error| WanError::Quic(error.to_string()))?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(tls));
    let mtu = config.peers.values().map(|peer| peer.mtu).min();
    server.transport_config(Arc::new(transport(mtu.unwrap_or(1_232))));
    Ok(server)
}

/// The side that connects. `mtu`: UDP payload of the path, bytes.
///
/// # Errors
/// [`WanError::Quic`].
pub fn client(tls: &rustls::ClientConfig, mtu: u16) -> Result<quinn::ClientConfig, WanError> {
    let tls = QuicClientConfig::try_from(tls.clone())
        .map_err(|error| WanError::Quic(error.to_string()))?;
    let mut client = quinn::ClientConfig::new(Arc::new(tls));
    client.transport_config(Arc::new(transport(mtu)));
    Ok(client)
}
