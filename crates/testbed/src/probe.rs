// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a link when it is new, from one of its routers to the other: how long a
//! small packet takes, and how far apart a train of full ones arrives. All routers
//! have one clock, so each direction is measured by itself.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use paceline_net::clock::realtime_ns;
use paceline_net::ethernet::{ETHERNET_HEADER_BYTES, FRAMING_BYTES};
use paceline_net::receive::receive;
use paceline_net::{Doing, Error, Namespace};

use super::topology::Line;

/// Single packets whose least time counts; before the first, addresses are resolved.
const SINGLES: u64 = 4;
/// Payload of a full UDP packet on IPv4 over Ethernet, bytes.
const FULL_PAYLOAD: usize = 1472;
/// Beside the payload, on the wire: UDP, IPv4, Ethernet, framing; bytes.
const HEADERS: u64 = 28 + ETHERNET_HEADER_BYTES as u64 + FRAMING_BYTES as u64;
/// A single packet's payload fills the least frame and no more, bytes.
const SINGLE_PAYLOAD: usize = 18;
/// Longest train, packets; the queue must take all of it.
const MOST_PACKETS: u64 = 256;
/// Time that a train may take on a slow line, nanoseconds.
const TRAIN_NS: u64 = 500_000_000;
/// Time that the single packets may be on their way, nanoseconds: how busy this machine
/// is matters less on a longer line, so there one is enough.
const SINGLES_NS: u64 = 200_000_000;
/// Nothing is lost on an empty link. Packets are late where the machine is busy.
const LATE: Duration = Duration::from_secs(3);

/// One direction of a link as it was found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    /// Bits per second with framing; none if this machine sends more slowly than the
    /// line, or the line is too slow or its queue too short for a train.
    pub rate_bps: Option<u64>,
    /// Propagation, nanoseconds.
    pub one_way_delay_ns: Option<u64>,
}

/// Sends from one router to the other; each with its own address on the link.
pub fn measure(
    line: Line,
    (from, source): (&Namespace, Ipv4Addr),
    (to, target): (&Namespace, Ipv4Addr),
) -> Result<Measured, Error> {
    let receiver = to.enter(|| bind(target))?;
    let sender = from.enter(|| bind(source))?;
    let reached = receiver.local_addr().doing("reading the port")?;
    sender
        .connect(reached)
        .doing("connecting to a link's far end")?;
    let longest = LATE + Duration::from_nanos(line.one_way_delay_ns);
    receiver
        .set_read_timeout(Some(longest))
        .doing("setting a timeout")?;
    let one_way_delay_ns = one_way(&sender, &receiver, line)?;
    let rate_bps = match one_way_delay_ns {
        Some(_) => rate(&sender, &receiver, line)?,
        None => None,
    };
    Ok(Measured {
        rate_bps,
        one_way_delay_ns,
    })
}

fn bind(address: Ipv4Addr) -> Result<UdpSocket, Error> {
    let socket =
        UdpSocket::bind((address, 0)).doing(format!("opening a UDP socket at {address}"))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).doing("enabling packet timestamps")?;
    Ok(socket)
}

fn one_way(sender: &UdpSocket, receiver: &UdpSocket, line: Line) -> Result<Option<u64>, Error> {
    let mut least = None;
    let count = 1 + SINGLES_NS / line.one_way_delay_ns.max(1);
    for _ in 0..SINGLES.min(count) {
        let sent_ns = realtime_ns();
        sender.send(&[0; SINGLE_PAYLOAD]).doing("sending a probe")?;
        let Some((_, came_ns)) = receive(receiver, &mut [0; SINGLE_PAYLOAD], true)? else {
            continue;
        };
        let taken = came_ns.saturating_sub(sent_ns);
        least = Some(least.map_or(taken, |least: u64| least.min(taken)));
    }
    let on_the_line = wire_ns(SINGLE_PAYLOAD, line.rate_bps);
    Ok(least.map(|least| least.saturating_sub(on_the_line)))
}

fn rate(sender: &UdpSocket, receiver: &UdpSocket, line: Line) -> Result<Option<u64>, Error> {
    let packet_ns = wire_ns(FULL_PAYLOAD, line.rate_bps).max(1);
    let queue = line.buffer_bytes / (FULL_PAYLOAD as u64 + HEADERS);
    let count = MOST_PACKETS.min(queue).min(TRAIN_NS / packet_ns);
    if count < 2 {
        return Ok(None);
    }
    let begun_ns = realtime_ns();
    for _ in 0..count {
        match sender.send(&[0; FULL_PAYLOAD]) {
            // The interface's own queue is full: all the same to the train.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            sent => drop(sent.doing("sending a packet train")?),
        }
    }
    let sending_ns = realtime_ns() - begun_ns;
    let mut times = Vec::new();
    while times.len() < count as usize {
        match receive(receiver, &mut [0; FULL_PAYLOAD], true)? {
            Some((_, time_ns)) => times.push(time_ns),
            None => break,
        }
    }
    if times.len() < count as usize {
        return Ok(None);
    }
    let interval_ns = interval(&times, packet_ns);
    // A train that came in no faster than it came out shows the sender's rate.
    if interval_ns <= 0.0 || sending_ns as f64 >= 0.9 * interval_ns * count as f64 {
        return Ok(None);
    }
    let bits = (FULL_PAYLOAD as f64 + HEADERS as f64) * 8.0;
    Ok(Some((bits / interval_ns * 1e9).round() as u64))
}

/// Time from packet to packet, between the two that were least late: of the first third
/// and of the last. Packets are never early, but late where the machine is busy.
/// `expected` is the time to judge lateness by; it does not enter the result.
fn interval(times: &[u64], expected: u64) -> f64 {
    let lateness = |&at: &usize| times[at] as i128 - (at as u64 * expected) as i128;
    let third = times.len().div_ceil(3);
    let first = (0..third).min_by_key(lateness).unwrap_or_default();
    let last = (times.len() - third..times.len())
        .rev()
        .min_by_key(lateness)
        .unwrap_or_default();
    match last.checked_sub(first) {
        Some(packets) if packets > 0 => {
            times[last].saturating_sub(times[first]) as f64 / packets as f64
        }
        _ => 0.0,
    }
}

/// Time of a packet on the line.
fn wire_ns(payload: usize, rate_bps: u64) -> u64 {
    (payload as u64 + HEADERS) * 8 * 1_000_000_000 / rate_bps
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn late_packets_do_not_change_the_rate() {
        let mut times: Vec<u64> = (0..60).map(|number| 1_000_000 + number * 25_000).collect();
        for late in [0, 1, 2, 17, 40, 58, 59] {
            times[late] += 90_000;
        }
        for expected in [24_000, 25_000, 26_000] {
            let measured = interval(&times, expected);
            assert!((24_000.0..26_000.0).contains(&measured), "{measured}");
        }
        assert!((interval(&times, 25_000) - 25_000.0).abs() < 1e-9);
        assert!((interval(&[5, 105], 90) - 100.0).abs() < 1e-9);
    }
}
