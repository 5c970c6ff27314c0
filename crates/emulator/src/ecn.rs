// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Explicit congestion notification in the IP header of an Ethernet frame: RFC 3168,
//! section 5.

use etherparse::{IpEcn, LaxNetSlice, LaxSlicedPacket};

/// The place of a frame's IP header, and its ECN field.
fn field(frame: &[u8]) -> Option<(LaxNetSlice<'_>, IpEcn)> {
    let net = LaxSlicedPacket::from_ethernet(frame).ok()?.net?;
    let ecn = match &net {
        LaxNetSlice::Ipv4(packet) => packet.header().ecn(),
        LaxNetSlice::Ipv6(packet) => packet.header().ecn(),
        LaxNetSlice::Arp(_) => return None,
    };
    Some((net, ecn))
}

/// Whether the transport of a frame is ECN-capable: a router may mark it.
pub(crate) fn is_capable(frame: &[u8]) -> bool {
    field(frame).is_some_and(|(_, ecn)| ecn != IpEcn::ZERO)
}

/// Writes Congestion Experienced into a capable frame.
pub(crate) fn mark(frame: &mut [u8]) {
    let Some((net, _)) = field(frame) else {
        return;
    };
    let (at, bytes) = match &net {
        LaxNetSlice::Ipv4(packet) => {
            let mut header = packet.header().to_header();
            header.ecn = IpEcn::THREE;
            header.header_checksum = header.calc_header_checksum();
            (
                offset(frame, packet.header().slice()),
                header.to_bytes().to_vec(),
            )
        }
        LaxNetSlice::Ipv6(packet) => {
            let mut header = packet.header().to_header();
            header.traffic_class |= IpEcn::THREE.value();
            (
                offset(frame, packet.header().slice()),
                header.to_bytes().to_vec(),
            )
        }
        LaxNetSlice::Arp(_) => return,
    };
    frame[at..at + bytes.len()].copy_from_slice(&bytes);
}

/// Of a part of a frame in it.
fn offset(frame: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - frame.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, NetHeaders, PacketBuilder, PacketHeaders};

    use super::*;

    fn v4(ecn: IpEcn) -> Vec<u8> {
        let mut header = Ipv4Header::new(
            0,
            64,
            etherparse::IpNumber::TCP,
            [10, 0, 0, 1],
            [10, 0, 0, 2],
        )
        .unwrap();
        header.ecn = ecn;
        built(IpHeaders::Ipv4(header, Default::default()))
    }

    fn v6(ecn: IpEcn) -> Vec<u8> {
        let header = Ipv6Header {
            traffic_class: 0b1010_1000 | ecn.value(),
            hop_limit: 64,
            ..Ipv6Header::default()
        };
        built(IpHeaders::Ipv6(header, Default::default()))
    }

    fn built(header: IpHeaders) -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ip(header)
            .tcp(1, 2, 3, 4)
            .write(&mut frame, &[7; 100])
            .unwrap();
        frame
    }

    #[test]
    fn a_mark_changes_the_field_and_the_checksum_alone() {
        for ecn in [IpEcn::ONE, IpEcn::TWO, IpEcn::THREE] {
            let mut frame = v4(ecn);
            let before = frame.clone();
            assert!(is_capable(&frame));
            mark(&mut frame);
            let Some(NetHeaders::Ipv4(header, _)) =
                PacketHeaders::from_ethernet_slice(&frame).unwrap().net
            else {
                panic!("no IPv4 header");
            };
            assert_eq!(header.ecn, IpEcn::THREE);
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            let at: Vec<usize> = (0..frame.len())
                .filter(|&at| frame[at] != before[at])
                .collect();
            // Type of service, and the checksum's bytes.
            assert!(at.iter().all(|at| [15, 24, 25].contains(at)), "{at:?}");
        }
        let mut frame = v6(IpEcn::TWO);
        mark(&mut frame);
        assert_eq!(frame, v6(IpEcn::THREE));
    }

    #[test]
    fn packets_without_ecn_are_not_capable() {
        assert!(!is_capable(&v4(IpEcn::ZERO)));
        assert!(!is_capable(&v6(IpEcn::ZERO)));
        assert!(!is_capable(&[0; 60]));
        assert!(!is_capable(b"short"));
    }
}
