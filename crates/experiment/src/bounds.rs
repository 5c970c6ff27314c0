// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The physical limit of each metric: the result of a sender that knows the path
//! from the start.

/// Preamble, Ethernet header, frame check sequence and gap.
const ETHERNET_BYTES: u64 = 38;

/// A full packet of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Payload of a full segment, bytes: without IP and TCP headers and timestamps.
    pub payload: u64,
    /// All else that a segment costs on the wire, bytes: preamble, Ethernet header, IP and
    /// TCP headers with timestamps, frame check sequence, gap.
    pub overhead: u64,
}

impl Frame {
    /// That of TCP over IP version 4 or 6, whose packets have up to `mtu` bytes.
    pub fn of(ip: u8, mtu: u32) -> Self {
        let headers = if ip == 6 { 72 } else { 52 };
        Frame {
            payload: u64::from(mtu) - headers,
            overhead: headers + ETHERNET_BYTES,
        }
    }

    /// Bytes on the wire for `payload` on one connection.
    pub fn wire_bytes(self, payload: u64) -> u64 {
        payload + payload.div_ceil(self.payload) * self.overhead
    }

    /// Seconds from the first write to the reply for `connections` that share
    /// `payload` evenly: all of it at the link's rate, and one round trip.
    pub fn completion_s(self, payload: u64, connections: u64, rate_bps: u64, rtt_ns: u64) -> f64 {
        let share = payload / connections;
        let larger = payload % connections;
        let wire =
            larger * self.wire_bytes(share + 1) + (connections - larger) * self.wire_bytes(share);
        (wire * 8) as f64 / rate_bps as f64 + rtt_ns as f64 / 1e9
    }

    /// Payload that a link carries, bits per second.
    pub fn goodput_bps(self, rate_bps: u64) -> f64 {
        rate_bps as f64 * self.payload as f64 / (self.payload + self.overhead) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: Frame = Frame {
        payload: 1448,
        overhead: 90,
    };

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn a_burst_costs_headers_framing_and_one_round_trip() {
        // 70 segments for 100,000 bytes: 106,300 bytes at 500 Mbit/s, and 20 ms.
        assert!(near(
            ETHERNET.completion_s(100_000, 1, 500_000_000, 20_000_000),
            0.021_700_8
        ));
        assert!(near(
            ETHERNET.completion_s(1_000_000, 1, 500_000_000, 20_000_000),
            0.036_995_04
        ));
    }

    #[test]
    fn shares_are_rounded_up_to_segments_each() {
        // Two connections of one byte and a half: one segment each.
        assert!(near(ETHERNET.completion_s(3, 2, 8_000_000, 0), 183e-6));
        assert!(near(
            ETHERNET.completion_s(16 * 32_000, 16, 200_000_000, 200_000),
            0.022_004_8
        ));
    }

    #[test]
    fn a_segment_of_either_family_fills_the_same_frame() {
        assert_eq!(ETHERNET.wire_bytes(1448), 1538);
        assert_eq!(Frame::of(6, 1500).wire_bytes(1428), 1538);
        assert_eq!(Frame::of(6, 1500).wire_bytes(1429), 1429 + 220);
        assert!(near(ETHERNET.goodput_bps(1_538_000), 1_448_000.0));
    }

    #[test]
    fn a_jumbo_frame_costs_the_same_headers() {
        let jumbo = Frame::of(4, 9000);
        assert_eq!((jumbo.payload, jumbo.overhead), (8948, 90));
        // 12 segments for 100,000 bytes: 101,080 bytes at 500 Mbit/s, and 20 ms.
        let bound = jumbo.completion_s(100_000, 1, 500_000_000, 20_000_000);
        assert!(near(bound, 0.021_617_28), "{bound}");
        assert_eq!(Frame::of(4, 1500), ETHERNET);
    }
}
