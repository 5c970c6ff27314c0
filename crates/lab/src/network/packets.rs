// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records how the packets of one long flow reach the bottleneck: in each millisecond, and
//! in each round trip, as in kamezawa-2004, 2.2 and 2.3.

use std::net::TcpStream;
use std::ops::Range;

use paceline_experiment::record::{PacketRecord, RoundTrip};
use paceline_net::capture::{Packet, Sampler};
use paceline_net::clock::{now_ns, realtime_ns};

use super::topology::Network;
use crate::host::connection::Counters;
use crate::CaseError;

/// The kernel's "none" as a slow-start threshold, segments.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// A recording that is running.
pub struct Recording {
    sampler: Sampler,
    packets: Vec<Packet>,
    start_ns: u64,
    /// CLOCK_REALTIME less the clock of `start_ns`, nanoseconds.
    ahead_ns: u64,
    rtt_ns: u64,
    /// The sender's own link.
    edge_bps: u64,
    /// At the end of each round trip so far.
    slow_start: Vec<bool>,
}

impl Recording {
    /// Begins; the flow starts at `start_ns`, from the first sender over a link of `edge_bps`.
    pub fn start(network: &Network, start_ns: u64, edge_bps: u64) -> Result<Self, CaseError> {
        Ok(Recording {
            sampler: network.capture()?,
            packets: Vec::new(),
            start_ns,
            ahead_ns: realtime_ns().saturating_sub(now_ns()),
            rtt_ns: 2 * network.wanted.one_way_delay_ns,
            edge_bps,
            slow_start: Vec::new(),
        })
    }

    /// When the sender is to be sampled next: the end of a round trip.
    pub fn next_ns(&self) -> u64 {
        self.start_ns + (self.slow_start.len() as u64 + 1) * self.rtt_ns
    }

    /// A round trip is over.
    pub fn look(&mut self, sender: &TcpStream) -> Result<(), CaseError> {
        self.slow_start
            .push(Counters::of(sender)?.ssthresh >= NO_THRESHOLD);
        Ok(self.sampler.drain(&mut self.packets)?)
    }

    /// Ends: of the round trips that are over.
    pub fn stop(self, workload: usize, mss: u32) -> Result<PacketRecord, CaseError> {
        let since_start = |packet: &Packet| {
            let time_ns = packet.time_ns.saturating_sub(self.ahead_ns);
            time_ns.saturating_sub(self.start_ns)
        };
        let packets: Vec<(u64, u64)> = self
            .packets
            .iter()
            .map(|packet| (since_start(packet), packet.wire_bytes(mss)))
            .collect();
        let end_ns = self.slow_start.len() as u64 * self.rtt_ns;
        let mut per_ms = vec![0; usize::try_from(end_ns / 1_000_000).unwrap_or(0)];
        for packet in &self.packets {
            let ms = (since_start(packet) / 1_000_000) as usize;
            if let Some(count) = per_ms.get_mut(ms) {
                // With segmentation offload, the interface's segments.
                *count += u64::from(packet.payload_bytes.div_ceil(mss.max(1)));
            }
        }
        let round_trips = (0..)
            .zip(&self.slow_start)
            .map(|(number, &slow_start)| {
                let within = number * self.rtt_ns..(number + 1) * self.rtt_ns;
                let (wire_bytes, busy_ns) = busy(&packets, within, self.edge_bps);
                RoundTrip {
                    wire_bytes,
                    busy_ns,
                    slow_start,
                }
            })
            .collect();
        Ok(PacketRecord {
            workload,
            per_ms,
            rtt_ns: self.rtt_ns,
            round_trips,
        })
    }
}

/// Bytes of the packets (time, bytes) that came within `round`, and its length without its
/// longest silence, nanoseconds. A packet has come when its last bit has, at `edge_bps`.
fn busy(packets: &[(u64, u64)], round: Range<u64>, edge_bps: u64) -> (u64, u64) {
    let from = packets.partition_point(|packet| packet.0 < round.start);
    let (mut bytes, mut last_ns, mut silence_ns) = (0, round.start, 0);
    for &(time_ns, wire_bytes) in packets[from..].iter().take_while(|p| p.0 < round.end) {
        let takes_ns = wire_bytes * 8_000_000_000 / edge_bps.max(1);
        bytes += wire_bytes;
        silence_ns = silence_ns.max((time_ns - last_ns).saturating_sub(takes_ns));
        last_ns = time_ns;
    }
    silence_ns = silence_ns.max(round.end - last_ns);
    (bytes, round.end - round.start - silence_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_the_longest_silence_leaves() {
        // At 1 Gbit/s a packet takes 8 us. Ten at once, then nothing; and spread evenly.
        let (edge, us) = (1_000_000_000, 1000);
        let burst: Vec<(u64, u64)> = (1..=10).map(|n| ((1000 + 8 * n) * us, 1000)).collect();
        let round = 1000 * us..2000 * us;
        assert_eq!(busy(&burst, round.clone(), edge), (10_000, 80 * us));
        let spread: Vec<(u64, u64)> = (0..10).map(|n| ((1008 + 100 * n) * us, 1000)).collect();
        assert_eq!(busy(&spread, round.clone(), edge), (10_000, 908 * us));
        // One alone is as long as itself. Others belong to other round trips.
        assert_eq!(busy(&spread[..1], round, edge), (1000, 8 * us));
        assert_eq!(busy(&spread, 1200 * us..1500 * us, edge), (3000, 208 * us));
        assert_eq!(busy(&spread, 3000 * us..4000 * us, edge), (0, 0));
    }
}
