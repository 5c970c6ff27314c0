// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Authentication and encryption for Paceline's services.
//!
//! | connection | authentication | encryption |
//! |---|---|---|
//! | Unix socket | the kernel names the peer's user (SO_PEERCRED) | none needed |
//! | TLS 1.3 | certificates on both sides, or the server's certificate and a token | TLS |
//! | TCP without TLS, on loopback | a token on both sides | Noise |
//!
//! - [`Service`], [`Purpose`]: the service that a connection is for;
//! - [`Token`], [`proof`]: a shared secret, and the proof of it;
//! - [`server_tls`], [`client_tls`], [`binding`]: TLS;
//! - [`bind`], [`connect`]: Unix sockets;
//! - [`Reader`], [`Writer`]: frames;
//! - [`accept`], [`join`]: the handshake;
//! - [`Slots`]: a bound on connections before their proof.
//!
//! This crate implements no primitive. TLS is rustls on ring; Noise is snow on RustCrypto
//! and curve25519-dalek; keys are derived by ring's HKDF. It compares no secrets either:
//! a message under another key fails the AEAD's tag check, which takes constant time.

#![forbid(unsafe_code)]

mod cipher;
mod error;
mod frame;
pub mod fuzz;
mod greeting;
mod handshake;
mod local_socket;
pub mod proof;
mod purpose;
mod service;
mod tls;
mod token;
mod unauthenticated;

pub use error::{Error, FrameError, Result};
pub use frame::{Reader, Writer, MOST_GREETING};
pub use handshake::{
    accept, accept_greeted, begin, join, refuse, Greeted, Joining, Protection, PATIENCE,
};
pub use local_socket::{bind, check_peer, connect, default_socket};
pub use purpose::{Purpose, VERSION};
pub use service::Service;
pub use tls::{
    binding, client_tls, fingerprint, fingerprint_of, server_tls, server_tls_pinned, ServerTrust,
    BINDING_BYTES, BINDING_LABEL,
};
pub use token::Token;
pub use unauthenticated::{Slot, Slots, MOST as MOST_UNAUTHENTICATED};
