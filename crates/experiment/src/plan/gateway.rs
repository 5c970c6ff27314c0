// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline gateway serve` at both ends of a link.

use serde::{Deserialize, Serialize};

/// Settings of both gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Bits per second, counted from the IP header on.
    pub rate_bps: u64,
    /// The rate is learned, up to that; else it is reserved.
    pub is_learned: bool,
    /// For data of connections, bytes.
    pub memory_bytes: u64,
    /// UDP payload of a full datagram, bytes.
    pub mtu: u16,
}
