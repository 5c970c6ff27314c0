// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link's rate and drop-tail queue: the kernel's tbf.

use crate::ethernet::{ETHERNET_HEADER_BYTES, FRAMING_BYTES};

/// A shaper lets this much through at line rate: nearly two packets, the least with which
/// the kernel's tbf keeps up with its rate. Less than a packet of two segments and framing:
/// tbf cuts a packet that is larger than its bucket into segments, each with framing of its
/// own, and counts a smaller one as one packet. 3040 bytes on an Ethernet.
pub fn shaper_burst_bytes(mtu: u32) -> u32 {
    2 * (mtu + ETHERNET_HEADER_BYTES) + FRAMING_BYTES / 2
}
/// Queue of a host's own link: deep enough never to drop, as a host's own
/// interface does not drop what its TCP sends.
pub const EDGE_QUEUE_BYTES: u32 = 64_000_000;

/// Of a shaper, so that its queue can be named.
pub const SHAPER_HANDLE: &str = "1:";

/// A line of `tc` that limits a device to this rate, behind a drop-tail queue.
pub fn shaper(verb: &str, device: &str, rate_bps: u64, buffer_bytes: u64, mtu: u32) -> String {
    shaper_at("root", verb, device, rate_bps, buffer_bytes, mtu)
}

/// The same at another place than a device's root, such as `parent 2:1`: within another
/// queueing discipline.
pub fn shaper_at(
    place: &str,
    verb: &str,
    device: &str,
    rate_bps: u64,
    buffer_bytes: u64,
    mtu: u32,
) -> String {
    let burst = shaper_burst_bytes(mtu);
    format!(
        "qdisc {verb} dev {device} {place} handle {SHAPER_HANDLE} tbf rate {rate_bps}bit burst {burst} limit {buffer_bytes} overhead {FRAMING_BYTES}\n"
    )
}
