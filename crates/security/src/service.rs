// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: a purpose, and the version of its messages.

use crate::error::{Error, Result};
use crate::purpose::Purpose;

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
