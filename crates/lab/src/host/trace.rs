// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first packets of a connection, there and back, as they pass the router beside the
//! sender: the data of a time-sequence ladder.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use paceline_experiment::record::TracedPacket;
use paceline_net::{Error, Namespace};

use paceline_net::capture::{lengths, Sampler};

/// Interval of reads of the capture: waiting packets keep their whole data in memory.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// TCP's number in an IP header, and where that is in either version.
const TCP: u8 = 6;
const PROTOCOL_OF_4: usize = 9;
const PROTOCOL_OF_6: usize = 6;
/// In a TCP header: where its numbers are.
const SEQ: usize = 4;
const ACK: usize = 8;

/// A trace that is being taken.
pub struct Trace {
    ended: Arc<AtomicBool>,
    taking: JoinHandle<Result<Vec<TracedPacket>, Error>>,
}

impl Trace {
    /// Begins with the next packet that passes `interface` of `router`, beyond which the
    /// sender is, and takes `most`. There must be no other TCP connection.
    pub fn start(router: &Namespace, interface: &str, most: u32) -> Result<Self, Error> {
        let sampler = Sampler::both_ways(router, interface)?;
        let ended = Arc::new(AtomicBool::new(false));
        let to_end = ended.clone();
        let taking = std::thread::spawn(move || {
            let mut packets = Vec::new();
            loop {
                let last = to_end.load(Ordering::Relaxed);
                sampler.each(|headers, kind, time_ns| {
                    packets.extend(packet(headers, kind, time_ns));
                })?;
                packets.truncate(most as usize);
                if last || packets.len() == most as usize {
                    return Ok(relative(packets));
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Ok(Self { ended, taking })
    }

    /// Ends it, if it has not ended by itself.
    pub fn stop(self) -> Result<Vec<TracedPacket>, Error> {
        self.ended.store(true, Ordering::Relaxed);
        self.taking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// With the numbers that it has; `None` if it is no TCP.
fn packet(headers: &[u8], kind: u8, time_ns: u64) -> Option<TracedPacket> {
    let ip_header = match headers.first()? >> 4 {
        4 if *headers.get(PROTOCOL_OF_4)? == TCP => usize::from(headers[0] & 0xf) * 4,
        6 if *headers.get(PROTOCOL_OF_6)? == TCP => 40,
        _ => return None,
    };
    let (bytes, _) = lengths(headers)?;
    let word = |at: usize| {
        let bytes = headers.get(ip_header + at..ip_header + at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    Some(TracedPacket {
        time_ns,
        back: kind == libc::PACKET_OUTGOING,
        seq: word(SEQ)?,
        bytes,
        ack: word(ACK)?,
    })
}

/// The same, counted from the first packet of the sender's on.
fn relative(mut packets: Vec<TracedPacket>) -> Vec<TracedPacket> {
    packets.sort_by_key(|packet| packet.time_ns);
    let Some(start) = packets.iter().position(|packet| !packet.back) else {
        return Vec::new();
    };
    packets.drain(..start);
    let first = packets[0];
    for packet in &mut packets {
        let (of_seq, of_ack) = match packet.back {
            false => (first.seq, first.ack),
            true => (first.ack, first.seq),
        };
        packet.time_ns -= first.time_ns;
        packet.seq = packet.seq.wrapping_sub(of_seq);
        packet.ack = packet.ack.wrapping_sub(of_ack);
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of IPv4 without options.
    fn headers(seq: u32, ack: u32, payload: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, TCP]);
        packet.resize(24, 0);
        packet.extend(seq.to_be_bytes());
        packet.extend(ack.to_be_bytes());
        packet.extend([5 << 4, 0x10]);
        packet
    }

    #[test]
    fn numbers_count_from_the_first_segment_on() {
        let (seq, ack) = (u32::MAX - 99, 7_000);
        let seen = [
            (headers(ack, seq, 0), libc::PACKET_OUTGOING, 900),
            (headers(seq, ack, 100), libc::PACKET_HOST, 1_000),
            (headers(0, ack, 50), libc::PACKET_HOST, 1_500),
            (headers(ack, 50, 0), libc::PACKET_OUTGOING, 2_000),
        ];
        let packets = seen
            .iter()
            .filter_map(|(headers, kind, at)| packet(headers, *kind, *at));
        let fields: Vec<_> = relative(packets.collect())
            .iter()
            .map(|one| (one.time_ns, one.back, one.seq, one.bytes, one.ack))
            .collect();
        let expected = [
            (0, false, 0, 100, 0),
            (500, false, 100, 50, 0),
            (1_000, true, 0, 0, 150),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn other_protocols_are_skipped() {
        let mut udp = headers(1, 2, 0);
        udp[PROTOCOL_OF_4] = 17;
        assert_eq!(packet(&udp, libc::PACKET_HOST, 0), None);
        assert_eq!(packet(&udp[..3], libc::PACKET_HOST, 0), None);
    }
}
