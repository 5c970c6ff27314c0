// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses as the ABI has them.

use std::net::{IpAddr, Ipv6Addr};

/// An address of the ABI: network order, IPv4 mapped.
pub(crate) fn address(words: &[u32; 4]) -> IpAddr {
    let mut octets = [0; 16];
    for (four, word) in octets.chunks_exact_mut(4).zip(words) {
        four.copy_from_slice(&word.to_ne_bytes());
    }
    Ipv6Addr::from(octets).to_canonical()
}
