// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the link before any workload runs on it: a plan's values are only requested ones.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use paceline_experiment::plan::Topology;
use paceline_experiment::record::{LinkReading, LEAST_QUEUED};
use paceline_net::clock::{now_ns, realtime_ns, sleep_until};
use paceline_net::connection::Congestion;
use paceline_net::ethernet::{ETHERNET_HEADER_BYTES, FRAMING_BYTES};
use paceline_net::receive::receive;
use paceline_net::Doing;

use super::topology::Network;
use crate::host::connection::{connect, send_sized, serve_bursts};
use crate::CaseError;

/// Packets that a shaper's bucket lets through at once (3,100 bytes).
const BUCKET_PACKETS: usize = 2;
/// Echoes whose minimum round trip counts; the first one also resolves addresses.
const ECHOES: u64 = 6;
/// An echo that takes longer is lost: several times the longest path of any experiment.
const LOST_AFTER: Duration = Duration::from_secs(3);
/// Trains beside the first one where that shows another rate than the requested one.
const MORE_TRAINS: usize = 4;
/// Payload of the train that one write makes: UDP takes up to 64 KB.
const BYTES_PER_WRITE: usize = 60_000;
/// Maximum packets of one write (UDP_MAX_SEGMENTS).
const PACKETS_PER_WRITE: usize = 64;
const SOCKET_ROOM_BYTES: usize = 1 << 30;
/// Payload of the TCP transfer whose packets are checked.
const PROBE_BYTES: u64 = 100_000;

/// A full UDP packet of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Full {
    /// Payload, bytes.
    pub payload: usize,
    /// As a kernel queue counts it, bytes.
    queued: u64,
    /// As the wire carries it, bytes.
    pub wire: u64,
}

impl Full {
    pub fn of(wanted: &Topology) -> Self {
        let headers = if wanted.ip == 6 { 48 } else { 28 };
        let queued = u64::from(wanted.mtu + ETHERNET_HEADER_BYTES);
        Full {
            payload: (wanted.mtu - headers) as usize,
            queued,
            wire: queued + u64::from(FRAMING_BYTES),
        }
    }
}

/// UDP sockets of the first sender and of the receiver, each connected to the other.
pub(super) fn sockets(network: &Network) -> Result<(UdpSocket, UdpSocket), CaseError> {
    let any: IpAddr = match network.wanted.ip {
        6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let socket = || {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).doing("opening a UDP socket")?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)
            .doing("enabling packet timestamps")?;
        setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_ROOM_BYTES)
            .doing("enlarging a UDP socket")?;
        setsockopt(&socket, sockopt::SndBufForce, &SOCKET_ROOM_BYTES)
            .doing("enlarging a UDP socket")?;
        Ok(socket)
    };
    let receiver = network.receiver.enter(socket)?;
    let sender = network.senders[0].enter(socket)?;
    let port = receiver.local_addr().doing("reading the port")?.port();
    sender
        .connect(network.receiver_address(port))
        .doing("connecting to the receiver")?;
    let sender_address = sender.local_addr().doing("reading the sender's address")?;
    receiver
        .connect(sender_address)
        .doing("connecting to the sender")?;
    Ok((sender, receiver))
}

/// Measures rate, round trip and buffer with UDP, and the largest TCP packet.
///
/// A train with another rate than the requested one may have been late itself, on a busy
/// machine. Then several more decide, each by the median spacing of its packets instead of by
/// its two ends: a link of another rate shows that rate again.
pub fn read_back(network: &Network) -> Result<LinkReading, CaseError> {
    let (sender, receiver) = sockets(network)?;
    let wanted = &network.wanted;
    let full = Full::of(wanted);
    let rtt_ns = round_trip(&sender, &receiver)?;
    let first = Train::send((&sender, &receiver), network, rtt_ns)?;
    let mut rate_bps = first.rate(full)?;
    if !wanted.is_rate(rate_bps) {
        let mut slopes = first.slopes();
        for _ in 0..MORE_TRAINS {
            slopes.extend(Train::send((&sender, &receiver), network, rtt_ns)?.slopes());
        }
        rate_bps = usual_rate(slopes, full).unwrap_or(rate_bps);
    }
    Ok(LinkReading {
        rate_bps,
        rtt_ns,
        buffer_bytes: first.buffer(full),
        largest_packet_bytes: largest_packet(network)?,
    })
}

/// A packet train that has passed the link.
struct Train {
    /// When each packet reached the router.
    came_in: Vec<u64>,
    /// Number and time of each packet that came out.
    arrivals: Vec<(u64, u64)>,
}

impl Train {
    /// Sends one from one socket to the other.
    fn send(
        sockets: (&UdpSocket, &UdpSocket),
        network: &Network,
        rtt_ns: u64,
    ) -> Result<Self, CaseError> {
        let wanted = &network.wanted;
        let sampler = network.capture()?;
        let mut arrivals = train(sockets, wanted, train_length(wanted), 2 * rtt_ns)?;
        // Of two ways with lines of their own half of the round trip lies behind the queue.
        let behind_ns = match wanted.has_two_ways() {
            true => rtt_ns / 2,
            false => 0,
        };
        for (_, time_ns) in &mut arrivals {
            *time_ns = time_ns.saturating_sub(behind_ns);
        }
        let packets = sampler.stop()?;
        Ok(Train {
            came_in: packets.iter().map(|packet| packet.time_ns).collect(),
            arrivals,
        })
    }

    /// The arrivals that show the link's rate: of the part that was still queued when all
    /// had come in, as far as there is one, because a machine that takes packets in at the
    /// edge's rate has little time left for the bottleneck.
    fn steady(&self) -> &[(u64, u64)] {
        let last_in_ns = self.came_in.last().copied().unwrap_or_default();
        let arrivals = &self.arrivals;
        let queued_from = arrivals.partition_point(|arrival| arrival.1 <= last_in_ns);
        let from = if arrivals.len() - queued_from >= LEAST_QUEUED {
            queued_from
        } else {
            0
        };
        // The shaper's bucket passes the first packets at once: they do not count.
        arrivals.get(from + BUCKET_PACKETS..).unwrap_or_default()
    }

    /// Rate at which the train came out, framing included.
    fn rate(&self, full: Full) -> Result<u64, CaseError> {
        let steady = self.steady();
        match (steady.first(), steady.last()) {
            (Some(first), Some(last)) if last.1 > first.1 => {
                Ok((steady.len() as u64 - 1) * full.wire * 8 * SECOND_NS / (last.1 - first.1))
            }
            _ => Err(CaseError::Unexpected(
                "the packet train that measures the link did not arrive",
            )),
        }
    }

    /// Nanoseconds per packet, each over half of the train: a packet that came late spoils
    /// the two that it is an end of.
    fn slopes(&self) -> Vec<f64> {
        let steady = self.steady();
        let half = steady.len() / 2;
        let pairs = steady.iter().zip(steady.iter().skip(half));
        let slope = |(first, last): (&(u64, u64), &(u64, u64))| {
            last.1.saturating_sub(first.1) as f64 / half as f64
        };
        pairs.filter(|_| half > 0).map(slope).collect()
    }

    /// Bytes that were queued when the first packet was dropped, to within a packet: arrivals
    /// until then less departures.
    fn buffer(&self, full: Full) -> Option<u64> {
        let accepted = (0..)
            .zip(&self.arrivals)
            .find(|(expected, arrival)| arrival.0 != *expected)?
            .0;
        let dropped_ns = *self.came_in.get(usize::try_from(accepted).ok()?)?;
        let gone = self
            .arrivals
            .iter()
            .take_while(|arrival| arrival.1 <= dropped_ns)
            .count() as u64;
        Some(accepted.saturating_sub(gone) * full.queued)
    }
}

/// The rate of which half of the slopes (nanoseconds per packet) are above, framing included.
fn usual_rate(mut slopes: Vec<f64>, full: Full) -> Option<u64> {
    slopes.sort_unstable_by(f64::total_cmp);
    let packet_ns = *slopes.get(slopes.len() / 2)?;
    (packet_ns > 0.0).then(|| (full.wire as f64 * 8e9 / packet_ns) as u64)
}

fn round_trip(sender: &UdpSocket, receiver: &UdpSocket) -> Result<u64, CaseError> {
    for socket in [sender, receiver] {
        socket
            .set_read_timeout(Some(LOST_AFTER))
            .doing("setting a timeout")?;
    }
    let mut least = u64::MAX;
    for number in 0..ECHOES {
        let sent_ns = realtime_ns();
        sender
            .send(&number.to_be_bytes())
            .doing("sending an echo request")?;
        // A packet may be lost while addresses are still being resolved.
        let Some(came_ns) = receive_number(receiver, number)? else {
            continue;
        };
        // The time that the receiving program takes to wake is not the link's.
        let answered_ns = realtime_ns();
        receiver
            .send(&number.to_be_bytes())
            .doing("answering an echo request")?;
        let Some(arrived_ns) = receive_number(sender, number)? else {
            continue;
        };
        let away_ns = arrived_ns.saturating_sub(sent_ns);
        least = least.min(away_ns.saturating_sub(answered_ns.saturating_sub(came_ns)));
    }
    if least == u64::MAX {
        return Err(CaseError::Unexpected("no echo returned over the link"));
    }
    Ok(least)
}

/// When the packet with this number arrived; `None` if it is lost. Skips late packets with
/// other numbers, which counted as lost.
fn receive_number(socket: &UdpSocket, number: u64) -> Result<Option<u64>, CaseError> {
    let mut packet = [0; 8];
    while let Some((_, time_ns)) = receive(socket, &mut packet, true)? {
        if packet == number.to_be_bytes() {
            return Ok(Some(time_ns));
        }
    }
    Ok(None)
}

/// Packets over which a rate beside the bottleneck's is measured, at least and at most.
const LEAST_PASSING: u64 = 400;
const MOST_PASSING: u64 = 4_000;
/// Between two packets, or two lots of packets, of that at least, nanoseconds.
const LEAST_PAUSE_NS: u64 = 100_000;
const SECOND_NS: u64 = 1_000_000_000;
/// More than these would overflow the queue of the sender's own link.
const MOST_PACKETS: u64 = 40_000;

/// Packets that overflow the bottleneck, if the edge is faster.
fn train_length(wanted: &Topology) -> u64 {
    let full = Full::of(wanted);
    let spare = wanted
        .edge_rate_bps
        .saturating_sub(wanted.rate_bps)
        .max(wanted.edge_rate_bps / 100);
    let to_overflow = (wanted.buffer_bytes / full.queued + 2) * wanted.edge_rate_bps / spare;
    match to_overflow + to_overflow / 4 + 100 {
        count if count <= MOST_PACKETS => count,
        // So large a queue stays unmeasured; the rate shows long before.
        _ => MOST_PACKETS / 5,
    }
}

/// Sends a packet train from one socket to the other: number and time of each packet that
/// arrived. Once all of it has passed the link, the last packet needs `settled_ns`.
fn train(
    (sender, receiver): (&UdpSocket, &UdpSocket),
    wanted: &Topology,
    count: u64,
    settled_ns: u64,
) -> Result<Vec<(u64, u64)>, CaseError> {
    let full = Full::of(wanted);
    let payload = full.payload;
    // The kernel cuts each write into packets: a write for each packet would be
    // slower than the link.
    setsockopt(sender, sockopt::UdpGsoSegment, &(payload as i32))
        .doing("enabling UDP segmentation")?;
    let begun_ns = now_ns();
    let numbers: Vec<u64> = (0..count).collect();
    for numbers in numbers.chunks((BYTES_PER_WRITE / payload).clamp(1, PACKETS_PER_WRITE)) {
        let mut packets = vec![0; numbers.len() * payload];
        for (packet, number) in packets.chunks_mut(payload).zip(numbers) {
            packet[..8].copy_from_slice(&number.to_be_bytes());
        }
        sender.send(&packets).doing("sending a packet train")?;
    }
    // All of it has arrived, or been dropped, by then; nothing reads meanwhile,
    // so that the reader does not take the CPU from the packets.
    let slowest_bps = wanted.rate_bps.min(wanted.edge_rate_bps);
    let longest_ns = count * full.wire * 8 * 1_000_000_000 / slowest_bps;
    sleep_until(begun_ns + longest_ns + settled_ns + Duration::from_millis(20).as_nanos() as u64);
    let mut packet = vec![0; payload];
    let mut arrivals = Vec::new();
    while let Some((length, time_ns)) = receive(receiver, &mut packet, false)? {
        if length == payload {
            let number = packet[..8]
                .try_into()
                .map(u64::from_be_bytes)
                .unwrap_or_default();
            arrivals.push((number, time_ns));
        }
    }
    Ok(arrivals)
}

/// Rate that passes of a train at twice `rate_bps` from one socket to the other, bits per
/// second, framing included, after `burst_bytes`; `None` if hardly anything passes.
pub(super) fn passed_bps(
    (from, to): (&UdpSocket, &UdpSocket),
    wanted: &Topology,
    rate_bps: u64,
    burst_bytes: u64,
    settled_ns: u64,
) -> Result<Option<u64>, CaseError> {
    let full = Full::of(wanted);
    let packet_ns = (full.wire * 8_000_000_000 / rate_bps.max(1)).max(1);
    // A second of the rate, and the burst twice: half of it passes while that empties.
    let passing = (SECOND_NS / packet_ns).clamp(LEAST_PASSING, MOST_PASSING);
    let sent = 2 * (passing + 2 * burst_bytes / full.wire);
    let at_once = (LEAST_PAUSE_NS * 2).div_ceil(packet_ns);
    let mut packet = vec![0; full.payload];
    let begun_ns = now_ns();
    for number in 0..sent {
        if number % at_once == 0 {
            sleep_until(begun_ns + number * packet_ns / 2);
        }
        // One by one: not every interface of a host here segments larger packets.
        from.send(&packet).doing("sending a packet train")?;
    }
    let queued_ns = wanted.buffer_bytes * 8_000_000_000 / rate_bps.min(wanted.rate_bps).max(1);
    sleep_until(now_ns() + settled_ns + queued_ns);
    let mut arrivals = Vec::new();
    while let Some((length, time_ns)) = receive(to, &mut packet, false)? {
        if length == full.payload {
            arrivals.push(time_ns);
        }
    }
    let steady = arrivals.get(arrivals.len() / 2..).unwrap_or_default();
    Ok(match (steady.first(), steady.last()) {
        (Some(first), Some(last)) if last > first => {
            let bits = (steady.len() as u64 - 1) * full.wire * 8;
            Some(bits * SECOND_NS / (last - first))
        }
        _ => None,
    })
}

/// Payload of the largest packet that the first sender's TCP hands to its link.
fn largest_packet(network: &Network) -> Result<u64, CaseError> {
    let (listener, address) = network.listen()?;
    let (mut sender, receiver) =
        connect(&network.senders[0], &listener, address, &Congestion::ANY)?;
    let serving = std::thread::spawn(move || serve_bursts(receiver));
    let sampler = network.capture()?;
    send_sized(&mut sender, PROBE_BYTES).doing("sending a probe")?;
    io::Read::read_exact(&mut sender, &mut [0]).doing("waiting for a probe's reply")?;
    let packets = sampler.stop()?;
    drop(sender);
    serving
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .doing("receiving a probe")?;
    packets
        .iter()
        .map(|packet| u64::from(packet.payload_bytes))
        .max()
        .ok_or(CaseError::Unexpected("no packet was seen on the router"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Full = Full {
        payload: 1472,
        queued: 1514,
        wire: 1538,
    };
    /// 100 Mbit/s.
    const PACKET_NS: u64 = FULL.wire * 80;

    /// A train of 100 packets of which those `late` left so many nanoseconds late.
    fn train(packet_ns: u64, late: impl Fn(u64) -> u64) -> Train {
        Train {
            came_in: vec![0],
            arrivals: (1..=100)
                .map(|number| (number, number * packet_ns + late(number)))
                .collect(),
        }
    }

    #[test]
    fn late_packets_change_the_ends_and_not_what_is_usual() {
        // The first packets wait for the emulator and leave at once, as do the last ones.
        for late in [3, 100] {
            let held = |number: u64| match number.abs_diff(late) {
                distance @ ..=4 => (4 - distance) * PACKET_NS,
                _ => 0,
            };
            let train = train(PACKET_NS, held);
            assert!(train.rate(FULL).unwrap().abs_diff(100_000_000) > 1_000_000);
            let usual = usual_rate(train.slopes(), FULL).unwrap();
            assert!(usual.abs_diff(100_000_000) < 10_000, "{usual}");
        }
    }

    #[test]
    fn another_rate_is_another_rate_to_both() {
        let train = train(PACKET_NS * 98 / 100, |_| 0);
        for rate in [
            train.rate(FULL).unwrap(),
            usual_rate(train.slopes(), FULL).unwrap(),
        ] {
            assert!(rate.abs_diff(102_040_816) < 10_000, "{rate}");
        }
        assert_eq!(usual_rate(Vec::new(), FULL), None);
    }
}
