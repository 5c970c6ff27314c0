// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host's first segment of a connection, and the packets that answer it.

use std::net::{IpAddr, SocketAddr};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Header, Icmpv4Type};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

/// Where the checksum is in TCP's header.
const CHECKSUM: usize = 16;
/// TTL of packets that the gateway sends from a destination's address.
const HOPS: u8 = 64;
/// Type of ICMPv6's "destination unreachable" (RFC 4443, 3.1).
const UNREACHABLE: u8 = 1;
/// Bytes of a packet that an error of ICMP repeats at most: with its own headers it passes
/// everywhere (RFC 1812, 4.3.2.3; RFC 4443, 2.4).
const REPEATED: usize = 500;

/// ICMP error for a destination that cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// There is no route to its network: ENETUNREACH.
    Network,
    /// It does not answer to its neighbours: EHOSTUNREACH.
    Host,
    /// Administratively prohibited: EHOSTUNREACH, in IPv6 EACCES.
    Prohibited,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syn {
    /// The host.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Its initial sequence number.
    pub sequence: u32,
    /// All of it, from the IP header on, with its checksums.
    pub packet: Vec<u8>,
    /// Bytes of data in it (RFC 7413).
    data: u32,
}

impl Syn {
    /// Reads a packet; `None`: it is no SYN, or is broken.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let sliced = SlicedPacket::from_ip(bytes).ok()?;
        let TransportSlice::Tcp(tcp) = sliced.transport? else {
            return None;
        };
        if !tcp.syn() || tcp.ack() || tcp.rst() || tcp.fin() {
            return None;
        }
        let (from, to, right): (IpAddr, IpAddr, u16) = match sliced.net? {
            NetSlice::Ipv4(ip) => {
                let (from, to) = (ip.header().source(), ip.header().destination());
                let right = tcp.calc_checksum_ipv4(from, to).ok()?;
                (from.into(), to.into(), right)
            }
            NetSlice::Ipv6(ip) => {
                let (from, to) = (ip.header().source(), ip.header().destination());
                let right = tcp.calc_checksum_ipv6(from, to).ok()?;
                (from.into(), to.into(), right)
            }
            NetSlice::Arp(_) => return None,
        };
        // With checksum offload a packet from this machine has the sum of the pseudo-header alone.
        // Any other sum means damage.
        if tcp.checksum() != right && tcp.checksum() != pseudo(from, to, tcp.slice().len()) {
            return None;
        }
        let at = tcp.slice().as_ptr() as usize - bytes.as_ptr() as usize + CHECKSUM;
        let mut packet = bytes.to_vec();
        packet
            .get_mut(at..at + 2)?
            .copy_from_slice(&right.to_be_bytes());
        Some(Self {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
            sequence: tcp.sequence_number(),
            packet,
            data: tcp.payload().len() as u32,
        })
    }

    /// The destination's refusal (RFC 9293, 3.10.7.1), from the IP header on.
    pub fn refusal(&self) -> Vec<u8> {
        let builder = match (self.to.ip(), self.from.ip()) {
            (IpAddr::V4(own), IpAddr::V4(host)) => {
                PacketBuilder::ipv4(own.octets(), host.octets(), HOPS)
            }
            (IpAddr::V6(own), IpAddr::V6(host)) => {
                PacketBuilder::ipv6(own.octets(), host.octets(), HOPS)
            }
            _ => return Vec::new(),
        };
        let ack = self.sequence.wrapping_add(1).wrapping_add(self.data);
        let mut packet = Vec::new();
        let _ = builder
            .tcp(self.to.port(), self.from.port(), 0, 0)
            .rst()
            .ack(ack)
            .write(&mut packet, &[]);
        packet
    }

    /// An error of ICMP, from ICMP's header on. The kernel fills in the checksum of ICMPv6.
    pub fn unreachable(&self, why: Unreachable) -> Vec<u8> {
        let repeated = &self.packet[..self.packet.len().min(REPEATED)];
        if self.from.is_ipv6() {
            let code = match why {
                Unreachable::Network => 0,
                Unreachable::Prohibited => 1,
                Unreachable::Host => 3,
            };
            return [&[UNREACHABLE, code, 0, 0, 0, 0, 0, 0], repeated].concat();
        }
        let kind = match why {
            Unreachable::Network => DestUnreachableHeader::Network,
            Unreachable::Host => DestUnreachableHeader::Host,
            Unreachable::Prohibited => DestUnreachableHeader::FilterProhibited,
        };
        let kind = Icmpv4Type::DestinationUnreachable(kind);
        let header = Icmpv4Header::with_checksum(kind, repeated);
        [&header.to_bytes()[..], repeated].concat()
    }
}

/// Sum of the pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1), as the kernel leaves it.
fn pseudo(from: IpAddr, to: IpAddr, length: usize) -> u16 {
    let mut sum = length as u32 + libc::IPPROTO_TCP as u32;
    for address in [from, to] {
        let bytes = match address {
            IpAddr::V4(four) => four.octets().to_vec(),
            IpAddr::V6(six) => six.octets().to_vec(),
        };
        for pair in bytes.chunks_exact(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(is_v6: bool, data: &[u8]) -> Vec<u8> {
        let builder = match is_v6 {
            false => PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 60),
            true => PacketBuilder::ipv6([1; 16], [2; 16], 60),
        };
        let mut packet = Vec::new();
        let tcp = builder.tcp(40_000, 80, u32::MAX, 1_000).syn();
        tcp.write(&mut packet, data).expect("memory takes it");
        packet
    }

    #[test]
    fn a_refusal_acknowledges_what_the_host_sent() {
        for (is_v6, data, ack) in [(false, &b""[..], 0), (true, b"", 0), (false, b"early", 5)] {
            let packet = made(is_v6, data);
            let syn = Syn::read(&packet).expect("one");
            assert_eq!((syn.packet == packet, syn.sequence), (true, u32::MAX));
            assert_eq!((syn.from.port(), syn.to.port()), (40_000, 80));
            let refusal = syn.refusal();
            let read = SlicedPacket::from_ip(&refusal).expect("a packet");
            let Some(TransportSlice::Tcp(tcp)) = read.transport else {
                panic!("{read:?}");
            };
            assert!(tcp.rst() && tcp.ack() && !tcp.syn());
            assert_eq!(tcp.acknowledgment_number(), ack);
            assert_eq!((tcp.source_port(), tcp.destination_port()), (80, 40_000));
        }
    }

    #[test]
    fn a_checksum_that_was_left_to_others_is_filled_in_and_a_wrong_one_is_none() {
        for (is_v6, from) in [(false, 20), (true, 40)] {
            let packet = made(is_v6, b"");
            let right = Syn::read(&packet).expect("one");
            let mut left = packet.clone();
            let sum = pseudo(right.from.ip(), right.to.ip(), 20);
            left[from + CHECKSUM..from + CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
            assert_ne!(left, packet);
            assert_eq!(Syn::read(&left), Some(right));
            let mut wrong = packet;
            wrong[from + 4] ^= 1;
            assert_eq!(Syn::read(&wrong), None);
        }
    }

    #[test]
    fn errors_repeat_the_packet() {
        let syn = Syn::read(&made(false, b"")).expect("one");
        let error = syn.unreachable(Unreachable::Host);
        assert_eq!((error[0], error[1], &error[8..]), (3, 1, &syn.packet[..]));
        let syn = Syn::read(&made(true, b"")).expect("one");
        let error = syn.unreachable(Unreachable::Network);
        assert_eq!((error[0], error[1], &error[8..]), (1, 0, &syn.packet[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_syn_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            is_v6: bool,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = if is_v6 { 0x60 } else { 0x45 };
            }
            if let Some(syn) = Syn::read(&bytes) {
                syn.refusal();
                syn.unreachable(Unreachable::Host);
            }
        }
    }
}
