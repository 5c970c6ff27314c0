// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions in QUIC datagrams (RFC 9221). QUIC gives the handshake, encryption, replay
//! protection and address validation; its congestion control is switched off, for the session
//! paces itself.

mod carry;
mod error;
mod hello;
mod ids;
mod moved;
mod quic;
#[allow(unsafe_code, reason = "scheduling classes")]
mod realtime;
mod unlimited;

pub use error::WanError;
pub use quic::{start, Wan};
