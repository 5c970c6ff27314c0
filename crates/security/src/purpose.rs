// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Purposes of connections, and the handshake's version: what errors name, too.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Version of the handshake. Version 1 was the coordinator's own and had no purposes.
pub const VERSION: u8 = 2;

/// Purpose of a connection. Services may share a token, but a proof for one purpose is invalid for
/// any other: see [`crate::proof`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The coordinator: windows of parallel streams, agreed between hosts.
    Coordinate,
    /// The mover: files and devices between hosts.
    Move,
    /// The gateway: other programs' connections between two sites.
    Gateway,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Coordinate, Self::Move, Self::Gateway];

    /// The purpose in one word. Socket names and key derivation use it: it must not change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coordinate => "coordinate",
            Self::Move => "move",
            Self::Gateway => "gateway",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
