// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions in QUIC datagrams (RFC 9221). QUIC gives the handshake, encryption, replay
//! protection and address validation; its congestion control is switched off, for the session
//! paces itself. Where UDP is blocked, the same in TLS over TCP (`tcp`).

mod carry;
mod client;
mod error;
mod hello;
mod ids;
mod leg;
mod moved;
mod path;
mod quic;
#[allow(unsafe_code, reason = "scheduling classes")]
mod realtime;
mod server;
mod site;
#[allow(unsafe_code, reason = "a socket option")]
mod tcp;
mod thread;
mod tls;
mod unlimited;

pub use error::WanError;
pub use path::{path_mtu, PathMtu};
pub use thread::{start, Wan};
