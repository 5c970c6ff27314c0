// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets and bytes, counted.

use serde::Serialize;

/// Packets and their bytes (frames with Ethernet header, without framing).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}
