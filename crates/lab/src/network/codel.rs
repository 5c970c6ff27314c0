// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures CoDel: under a train a little faster than the link the queueing delay rises
//! slowly, and the marked or dropped packets show when it exceeded the target.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::sys::socket::{recvmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags};

use paceline_experiment::plan::{Codel, Topology};
use paceline_net::clock::{now_ns, realtime_ns, sleep_until};
use paceline_net::receive::arrival_ns;
use paceline_net::Doing;

use super::calibrate::Full;
use crate::CaseError;

/// ECN-capable, and Congestion Experienced: RFC 3168, section 5.
const CAPABLE: u8 = 0b10;
const EXPERIENCED: u8 = 0b11;
/// How much faster than the link the train is at most.
const MOST_EXCESS: f64 = 0.25;
/// Share of the queue that the train fills: drops of a full queue would count as
/// CoDel's.
const FILLED: f64 = 0.8;
/// Intervals that the train lasts once the delay exceeds the target: one until the first
/// packet, one more until the second, and half of one as a margin.
const INTERVALS: f64 = 2.5;
const SECOND_NS: f64 = 1e9;

/// One packet of the train.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    number: u64,
    /// How long it took, and when it arrived, nanoseconds.
    late_ns: u64,
    at_ns: u64,
    marked: bool,
}

/// The target and the interval of the CoDel in front of a link, nanoseconds; `None` where
/// it did nothing twice.
pub(super) fn measure(
    (sender, receiver): (&UdpSocket, &UdpSocket),
    wanted: &Topology,
    codel: Codel,
    settled_ns: u64,
) -> Result<Option<(u64, u64)>, CaseError> {
    if codel.ecn {
        set_capable(sender, wanted.ip)?;
    }
    let arrivals = train((sender, receiver), wanted, codel, settled_ns)?;
    Ok(read(&arrivals, codel, wanted.one_way_delay_ns))
}

fn set_capable(sender: &UdpSocket, ip: u8) -> Result<(), CaseError> {
    let value = i32::from(CAPABLE);
    let set = match ip {
        6 => setsockopt(sender, sockopt::Ipv6TClass, &value),
        _ => setsockopt(sender, sockopt::Ipv4Tos, &value),
    };
    Ok(set.doing("making packets ECN-capable")?)
}

fn train(
    (sender, receiver): (&UdpSocket, &UdpSocket),
    wanted: &Topology,
    codel: Codel,
    settled_ns: u64,
) -> Result<Vec<Arrival>, CaseError> {
    match wanted.ip {
        6 => setsockopt(receiver, sockopt::Ipv6RecvTClass, &true),
        _ => setsockopt(receiver, sockopt::IpRecvTos, &true),
    }
    .doing("enabling the ECN field of received packets")?;
    let full = Full::of(wanted);
    let packet_ns = full.wire as f64 * 8.0 * SECOND_NS / wanted.rate_bps as f64;
    let room_ns = FILLED * wanted.queue_ns() as f64 - codel.target_ns as f64;
    let excess = (room_ns / (INTERVALS * codel.interval_ns as f64)).min(MOST_EXCESS);
    let lasting_ns = codel.target_ns as f64 / excess + INTERVALS * codel.interval_ns as f64;
    let gap_ns = packet_ns / (1.0 + excess);
    let count = (lasting_ns / gap_ns) as u64;
    let mut packet = vec![0; full.payload];
    let begun_ns = now_ns();
    for number in 0..count {
        sleep_until(begun_ns + (number as f64 * gap_ns) as u64);
        packet[..8].copy_from_slice(&number.to_be_bytes());
        packet[8..16].copy_from_slice(&realtime_ns().to_be_bytes());
        sender.send(&packet).doing("sending a packet train")?;
    }
    sleep_until(now_ns() + settled_ns + wanted.queue_ns());
    let mut arrivals = Vec::new();
    while let Some(arrival) = receive(receiver, &mut packet)? {
        arrivals.push(arrival);
    }
    Ok(arrivals)
}

/// The next packet of a train that has arrived.
fn receive(socket: &UdpSocket, packet: &mut [u8]) -> Result<Option<Arrival>, CaseError> {
    let mut control = nix::cmsg_space!(libc::timespec, i32);
    loop {
        let mut slices = [io::IoSliceMut::new(packet)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let received = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags);
        let message = match received {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN) => return Ok(None),
            Err(errno) => return Ok(Err(errno).doing("receiving a packet")?),
        };
        let Some(at_ns) = arrival_ns(&message)? else {
            return Ok(None);
        };
        let mut items = message.cmsgs().doing("reading a packet's ECN field")?;
        let field = items.find_map(|item| match item {
            ControlMessageOwned::Ipv4Tos(field) => Some(field),
            ControlMessageOwned::Ipv6TClass(field) => u8::try_from(field).ok(),
            _ => None,
        });
        let whole = message.bytes == packet.len();
        // An echo of the measurement before may still come.
        if !whole {
            continue;
        }
        let word = |at: usize| {
            let bytes = packet[at..at + 8].try_into().unwrap_or_default();
            u64::from_be_bytes(bytes)
        };
        return Ok(Some(Arrival {
            number: word(0),
            late_ns: at_ns.saturating_sub(word(8)),
            at_ns,
            marked: field.is_some_and(|field| field & EXPERIENCED == EXPERIENCED),
        }));
    }
}

/// Target and interval by a train: CoDel takes the second packet an interval after the first,
/// and the first an interval after a packet has waited for the target.
fn read(arrivals: &[Arrival], codel: Codel, delay_ns: u64) -> Option<(u64, u64)> {
    let mut taken = (1..arrivals.len()).filter(|&at| match codel.ecn {
        true => arrivals[at].marked,
        false => arrivals[at].number > arrivals[at - 1].number + 1,
    });
    let (first, second) = (arrivals[taken.next()?].at_ns, arrivals[taken.next()?].at_ns);
    let interval_ns = second - first;
    let over_ns = first.checked_sub(interval_ns)?;
    let over = arrivals.iter().find(|arrival| arrival.at_ns >= over_ns)?;
    Some((over.late_ns.saturating_sub(delay_ns), interval_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A packet each millisecond, each 0.1 ms later than the one before.
    fn rising(marked: &[u64]) -> Vec<Arrival> {
        let arrival = |number| Arrival {
            number,
            late_ns: 10 * MS + number * MS / 10,
            at_ns: number * MS,
            marked: marked.contains(&number),
        };
        (0..400).map(arrival).collect()
    }

    #[test]
    fn marks_give_target_and_interval() {
        let codel = Codel {
            target_ns: 5 * MS,
            interval_ns: 100 * MS,
            ecn: true,
        };
        let arrivals = rising(&[150, 250, 321]);
        assert_eq!(read(&arrivals, codel, 10 * MS), Some((5 * MS, 100 * MS)));
        assert_eq!(read(&rising(&[150]), codel, 10 * MS), None);
    }

    #[test]
    fn drops_give_target_and_interval() {
        let codel = Codel {
            target_ns: 5 * MS,
            interval_ns: 100 * MS,
            ecn: false,
        };
        let mut arrivals = rising(&[]);
        arrivals.retain(|arrival| ![149, 249].contains(&arrival.number));
        assert_eq!(read(&arrivals, codel, 10 * MS), Some((5 * MS, 100 * MS)));
    }
}
