// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The overhead of a packet on an Ethernet.

/// Preamble, frame check sequence and gap, which a kernel queue does not see:
/// with it a link of 500 Mbit/s carries what an Ethernet of that speed would.
pub const FRAMING_BYTES: u32 = 24;
/// Ethernet header, which a kernel queue does see.
pub const ETHERNET_HEADER_BYTES: u32 = 14;
