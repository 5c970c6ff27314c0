// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The physical limit of each metric: what a sender that knew the path from the
//! start could do.

/// Payload of a full segment: MTU 1500, IP and TCP headers, timestamps.
pub fn segment_payload(ip: u8) -> u64 {
    if ip == 6 {
        1428
    } else {
        1448
    }
}

/// Everything else that a full segment costs on the wire: preamble, Ethernet
/// header, IP and TCP headers with timestamps, frame check sequence, gap. With
/// the payload 1538 bytes in either family.
pub fn segment_overhead(ip: u8) -> u64 {
    1538 - segment_payload(ip)
}

/// Bytes on the wire for `payload` on one connection.
pub fn wire_bytes(payload: u64, ip: u8) -> u64 {
    payload + payload.div_ceil(segment_payload(ip)) * segment_overhead(ip)
}

/// Seconds from the first write to the reply for `connections` that share
/// `payload` evenly: all of it at the link's rate, and one round trip.
pub fn completion_s(payload: u64, connections: u64, rate_bps: u64, rtt_ns: u64, ip: u8) -> f64 {
    let share = payload / connections;
    let larger = payload % connections;
    let wire = larger * wire_bytes(share + 1, ip) + (connections - larger) * wire_bytes(share, ip);
    (wire * 8) as f64 / rate_bps as f64 + rtt_ns as f64 / 1e9
}

/// Payload that a link carries, bits per second.
pub fn goodput_bps(rate_bps: u64, ip: u8) -> f64 {
    rate_bps as f64 * segment_payload(ip) as f64 / 1538.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn a_burst_costs_headers_framing_and_one_round_trip() {
        // 70 segments for 100,000 bytes: 106,300 bytes at 500 Mbit/s, and 20 ms.
        assert!(near(
            completion_s(100_000, 1, 500_000_000, 20_000_000, 4),
            0.021_700_8
        ));
        assert!(near(
            completion_s(1_000_000, 1, 500_000_000, 20_000_000, 4),
            0.036_995_04
        ));
    }

    #[test]
    fn shares_are_rounded_up_to_segments_each() {
        // Two connections of one byte and a half: one segment each.
        assert!(near(completion_s(3, 2, 8_000_000, 0, 4), 183e-6));
        assert!(near(
            completion_s(16 * 32_000, 16, 200_000_000, 200_000, 4),
            0.022_004_8
        ));
    }

    #[test]
    fn a_segment_of_either_family_fills_the_same_frame() {
        assert_eq!(wire_bytes(1448, 4), 1538);
        assert_eq!(wire_bytes(1428, 6), 1538);
        assert_eq!(wire_bytes(1429, 6), 1429 + 220);
        assert!(near(goodput_bps(1_538_000, 4), 1_448_000.0));
    }
}
