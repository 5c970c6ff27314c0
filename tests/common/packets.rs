// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP segments of a host in both directions, in the order in which they passed.

#![allow(dead_code)] // each test file uses its own part

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Net;

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;

/// One segment, or, with offload, several in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// It left this host.
    pub leaves: bool,
    pub source: u16,
    pub target: u16,
    pub sequence: u32,
    pub ack: u32,
    /// Payload, bytes.
    pub length: u32,
    pub flags: u8,
    /// The ECN field of the IP header: 0 is not ECN-capable.
    pub ecn: u8,
    /// Kinds of the options of a SYN, without NOP and end; empty for what is none.
    pub options: Vec<u8>,
}

/// The TCP packets of one host, from the moment it was made.
pub struct Packets(OwnedFd);

impl Packets {
    pub fn start(net: &Net, host: usize) -> Self {
        Self::start_in(&net.names[host])
    }

    /// Of a named network namespace.
    pub fn start_in(name: &str) -> Self {
        let namespace = File::open(format!("/run/netns/{name}")).unwrap();
        // A thread of its own: the namespace is a thread's.
        let thread = std::thread::spawn(move || {
            const ETH_P_ALL: u16 = 0x0003;
            // None is to be lost.
            let buffer: libc::c_int = 256 << 20;
            // SAFETY: plain calls; the new descriptor is owned at once.
            unsafe {
                assert_eq!(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET), 0);
                let descriptor = libc::socket(
                    libc::AF_PACKET,
                    libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                    i32::from(ETH_P_ALL.to_be()),
                );
                assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
                libc::setsockopt(
                    descriptor,
                    libc::SOL_SOCKET,
                    libc::SO_RCVBUFFORCE,
                    (&raw const buffer).cast(),
                    size_of_val(&buffer) as libc::socklen_t,
                );
                OwnedFd::from_raw_fd(descriptor)
            }
        });
        Self(thread.join().unwrap())
    }

    /// Those since the last call.
    pub fn read(&mut self) -> Vec<Packet> {
        const HEADERS: usize = 128;
        let mut found = Vec::new();
        let mut bytes = [0u8; HEADERS];
        loop {
            // SAFETY: zeros are a valid address, and both buffers have room for what the call
            // is told.
            let (length, from) = unsafe {
                let mut from: libc::sockaddr_ll = std::mem::zeroed();
                let mut size = size_of_val(&from) as libc::socklen_t;
                let length = libc::recvfrom(
                    self.0.as_raw_fd(),
                    bytes.as_mut_ptr().cast(),
                    HEADERS,
                    0,
                    (&raw mut from).cast(),
                    &mut size,
                );
                (length, from)
            };
            let Ok(length) = usize::try_from(length) else {
                break;
            };
            let leaves = from.sll_pkttype == libc::PACKET_OUTGOING;
            found.extend(packet(&bytes[..length], leaves));
        }
        self.assert_none_lost();
        found
    }

    fn assert_none_lost(&self) {
        const PACKET_STATISTICS: libc::c_int = 6;
        let mut counts = [0u32; 2];
        let mut size = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: `counts` has room for `size` bytes.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &mut size,
            )
        };
        assert_eq!((result, counts[1]), (0, 0), "the capture lost packets");
    }
}

fn packet(bytes: &[u8], leaves: bool) -> Option<Packet> {
    let half = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let (protocol, at, total, ecn) = match bytes.first()? >> 4 {
        4 => {
            let at = usize::from(bytes[0] & 15) * 4;
            (*bytes.get(9)?, at, u32::from(half(2)?), bytes.get(1)? & 3)
        }
        6 => (
            *bytes.get(6)?,
            40,
            u32::from(half(4)?) + 40,
            (bytes.get(1)? >> 4) & 3,
        ),
        _ => return None,
    };
    let tcp = bytes.get(at..)?;
    if i32::from(protocol) != libc::IPPROTO_TCP || tcp.len() < 20 {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four bytes"));
    Some(Packet {
        leaves,
        source: half(at)?,
        target: half(at + 2)?,
        sequence: word(4),
        ack: word(8),
        length: total.saturating_sub(at as u32 + u32::from(tcp[12] >> 4) * 4),
        flags: tcp[13],
        ecn,
        options: match tcp[13] & SYN {
            0 => Vec::new(),
            _ => kinds(&tcp[20..tcp.len().min(usize::from(tcp[12] >> 4) * 4)]),
        },
    })
}

fn kinds(mut options: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let Some(kind @ 1..) = options.first() {
        let length = match kind {
            1 => 1,
            _ => usize::from(options[1]).max(2),
        };
        kinds.extend((*kind != 1).then_some(*kind));
        options = options.get(length..).unwrap_or(&[]);
    }
    kinds
}

/// Each pure ACK that came from `port`: its number, and the payload that it covers, bytes.
/// Duplicates are left out.
pub fn covered(packets: &[Packet], port: u16) -> Vec<(u32, u32)> {
    let mut last = None;
    let mut covered = Vec::new();
    for packet in packets.iter().filter(|packet| packet.source == port) {
        if packet.flags & (SYN | FIN) != 0 {
            last = Some(packet.ack);
            continue;
        }
        if let Some(last) = last.filter(|last| *last != packet.ack && packet.length == 0) {
            covered.push((packet.ack, packet.ack.wrapping_sub(last)));
        }
        last = Some(packet.ack);
    }
    covered
}

/// Segments that each ACK covers. Left out are those that come first, when the kernel is
/// quick, and those of what the sender pushed: at the end of a message, and at each half of
/// the largest window (tcp_push).
pub fn segments_per_ack(packets: &[Packet], port: u16, segment: u32) -> Vec<u32> {
    const FIRST: usize = 64;
    let pushed: BTreeSet<u32> = data_to(packets, port)
        .filter(|packet| packet.flags & PSH != 0)
        .map(|packet| packet.sequence.wrapping_add(packet.length))
        .collect();
    let covered = covered(packets, port).into_iter().skip(FIRST);
    covered
        .filter(|(ack, _)| !pushed.contains(ack))
        .map(|(_, bytes)| bytes.div_ceil(segment))
        .collect()
}

/// None of no values: on a busy machine each ACK may be one of those left out.
pub fn most_frequent(values: &[u32]) -> Option<u32> {
    let count = |wanted: u32| values.iter().filter(|value| **value == wanted).count();
    values.iter().copied().max_by_key(|value| count(*value))
}

pub fn share_of(values: &[u32], wanted: u32) -> f64 {
    let count = values.iter().filter(|value| **value == wanted).count();
    count as f64 / values.len() as f64
}

/// Packets with data to `port` that had been sent before, in part or whole.
pub fn sent_again(packets: &[Packet], port: u16) -> usize {
    let mut end = None;
    let mut again = 0;
    for packet in data_to(packets, port) {
        let next = packet.sequence.wrapping_add(packet.length);
        again += usize::from(end.is_some_and(|end| before(packet.sequence, end)));
        if end.is_none_or(|end| before(end, next)) {
            end = Some(next);
        }
    }
    again
}

pub fn data_to(packets: &[Packet], port: u16) -> impl Iterator<Item = &Packet> {
    packets
        .iter()
        .filter(move |packet| packet.target == port && packet.length > 0)
}

/// Bytes in flight, as the sender's packets show it, each time that it has sent to `port` what
/// it could: before the next ACK comes.
pub fn in_flight(packets: &[Packet], port: u16) -> Vec<u32> {
    let (mut acked, mut end): (Option<u32>, Option<u32>) = (None, None);
    let (mut flights, mut sends) = (Vec::new(), false);
    for packet in packets {
        if packet.source == port {
            flights.extend(
                end.zip(acked)
                    .filter(|_| sends)
                    .map(|(end, acked)| end.wrapping_sub(acked)),
            );
            sends = false;
            if acked.is_none_or(|acked| before(acked, packet.ack)) {
                acked = Some(packet.ack);
            }
        }
        let next = packet.sequence.wrapping_add(packet.length);
        let is_new = packet.length > 0 && end.is_none_or(|end| before(end, next));
        if packet.target == port && is_new {
            (end, sends) = (Some(next), true);
        }
    }
    flights
}

pub fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
