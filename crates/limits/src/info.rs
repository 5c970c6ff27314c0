// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's state of a connection: struct tcp_info of include/uapi/linux/tcp.h.

/// The fields that are judged. A field that an older kernel does not have is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Info {
    /// Timeouts in a row without an ACK between them.
    pub backoff: u8,
    /// Probes of a closed window that are not answered yet.
    pub probes: u8,
    /// Largest segment that it sends, bytes.
    pub mss: u32,
    /// In flight, segments.
    pub unacked: u32,
    /// Since data was last sent, ms.
    pub last_sent_ms: u32,
    /// Smoothed RTT, us.
    pub rtt_us: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Retransmissions so far, segments.
    pub retransmitted: u32,
    /// Pace, bytes per second; all bits set: none.
    pub pacing_rate: u64,
    /// The pace that the program allows (SO_MAX_PACING_RATE); all bits set: any.
    pub most_pacing_rate: u64,
    /// Payload that the peer has acknowledged, bytes.
    pub acked: u64,
    /// Payload that arrived, bytes.
    pub received: u64,
    /// Written by the program and not sent yet, bytes.
    pub unsent: u32,
    /// Minimum RTT of the kernel's window, us; all bits set: none yet.
    pub least_rtt_us: u32,
    /// Segments with payload that were sent, retransmissions too.
    pub sent_segs: u32,
    /// Time with something to send or in flight, us.
    pub busy_us: u64,
    /// Of that, held back by the peer's window, us.
    pub window_us: u64,
    /// Of that, held back because the send buffer had no room for more, us.
    pub buffer_us: u64,
    /// The window that the peer announces, bytes.
    pub peer_window: u32,
    /// Timeouts so far.
    pub timeouts: u16,
}

impl Info {
    /// Out of the bytes that the kernel gave: as many as it knows.
    pub fn parse(bytes: &[u8]) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let half = |at: usize| array(bytes, at).map_or(0, u16::from_ne_bytes);
        let word = |at: usize| array(bytes, at).map_or(0, u32::from_ne_bytes);
        let long = |at: usize| array(bytes, at).map_or(0, u64::from_ne_bytes);
        Self {
            probes: byte(3),
            backoff: byte(4),
            mss: word(16),
            unacked: word(24),
            last_sent_ms: word(44),
            rtt_us: word(68),
            cwnd: word(80),
            retransmitted: word(100),
            pacing_rate: long(104),
            most_pacing_rate: long(112),
            acked: long(120),
            received: long(128),
            unsent: word(144),
            least_rtt_us: word(148),
            sent_segs: word(156),
            busy_us: long(168),
            window_us: long(176),
            buffer_us: long(184),
            peer_window: word(228),
            timeouts: half(240),
        }
    }

    /// In flight, bytes.
    pub fn inflight_bytes(&self) -> u64 {
        u64::from(self.unacked) * u64::from(self.mss)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_knows_less_gives_zeros() {
        let mut bytes = vec![0; 232];
        bytes[80..84].copy_from_slice(&10_u32.to_ne_bytes());
        bytes[228..232].copy_from_slice(&65_535_u32.to_ne_bytes());
        let info = Info::parse(&bytes);
        assert_eq!(
            (info.cwnd, info.peer_window, info.timeouts),
            (10, 65_535, 0)
        );
        assert_eq!(Info::parse(&bytes[..230]).peer_window, 0);
    }
}
