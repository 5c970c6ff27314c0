// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services and their purposes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a connection is for. Services may share a token, but a proof for one purpose is
/// invalid for any other: see [`crate::proof`].
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

/// A service, in the version that this side speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Its purpose.
    pub purpose: Purpose,
    /// Version of its messages. A peer with another one is refused.
    pub version: u8,
    /// Largest frame after the handshake, bytes.
    pub most_frame: usize,
}

impl Service {
    /// Compares the peer's service with this one.
    ///
    /// # Errors
    /// [`Error::Purpose`], [`Error::Version`].
    pub(crate) fn check(&self, purpose: Purpose, version: u8) -> Result<()> {
        if purpose != self.purpose {
            return Err(Error::Purpose {
                theirs: purpose,
                ours: self.purpose,
            });
        }
        if version != self.version {
            return Err(Error::Version {
                of: self.purpose.name(),
                theirs: version,
                ours: self.version,
            });
        }
        Ok(())
    }
}
