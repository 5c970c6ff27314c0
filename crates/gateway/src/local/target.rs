// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The destination in a stream's opening, and the reasons of resets.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Longest name (RFC 1035, 2.3.4).
const MOST_NAME: usize = 255;

/// Destination of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// A name, which the far side resolves, and a port.
    Name(String, u16),
    /// An address, and the host's that connects to it.
    From {
        /// The destination.
        to: SocketAddr,
        /// The host.
        from: SocketAddr,
    },
}

impl Target {
    /// As the session carries it.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes it")
    }

    /// Decodes the peer's bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (target, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        let is_good = match &target {
            Self::Address(_) | Self::From { .. } => true,
            Self::Name(name, _) => (1..=MOST_NAME).contains(&name.len()),
        };
        (rest.is_empty() && is_good).then_some(target)
    }
}

/// Reason of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The connection broke.
    Broken = 0,
    /// Its destination refused it.
    Refused = 1,
    /// There is no route to it.
    Unreachable = 2,
    /// The peer does not allow it.
    Forbidden = 3,
    /// There is no such name.
    Unknown = 4,
    /// Too many connections.
    Full = 5,
    /// It does not answer.
    Silent = 6,
}

impl From<u8> for Reason {
    fn from(reason: u8) -> Self {
        match reason {
            1 => Self::Refused,
            2 => Self::Unreachable,
            3 => Self::Forbidden,
            4 => Self::Unknown,
            5 => Self::Full,
            6 => Self::Silent,
            _ => Self::Broken,
        }
    }
}
