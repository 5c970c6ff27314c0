// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures the headers of packets at an interface of a host. Experiments do it where packets
//! reach the router from the senders: the input of the bottleneck, which is where matsuda-2005
//! (4.2) observed them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{recvmsg, LinkAddr, MsgFlags};

use crate::ethernet::{ETHERNET_HEADER_BYTES, FRAMING_BYTES};
use crate::receive::arrival_ns;
use crate::{Doing, Error, Namespace};

/// Bytes of a packet that are kept: IP and TCP headers.
const KEPT_BYTES: u32 = 128;
/// Room for the headers of a burst of some 100 MB; nothing reads until the end.
const ROOM_BYTES: libc::c_int = 1 << 30;

/// One TCP or UDP packet as it reached the router.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// CLOCK_REALTIME, nanoseconds.
    pub time_ns: u64,
    /// Payload of TCP or UDP.
    pub payload_bytes: u32,
    /// IP header and TCP's or UDP's.
    pub header_bytes: u32,
}

impl Packet {
    /// Bytes on the wire once it is cut into segments of `mss`.
    pub fn wire_bytes(&self, mss: u32) -> u64 {
        let segments = self.payload_bytes.div_ceil(mss.max(1)).max(1);
        u64::from(self.payload_bytes)
            + u64::from(segments)
                * u64::from(self.header_bytes + ETHERNET_HEADER_BYTES + FRAMING_BYTES)
    }
}

/// A capture that is running.
pub struct Sampler {
    socket: OwnedFd,
}

impl Sampler {
    /// Starts a capture of the packets that an interface of a host receives.
    pub fn at(host: &Namespace, interface: &str) -> Result<Self, Error> {
        Self::open(host, interface, true)
    }

    /// Starts a capture of the packets that an interface of a host receives and sends.
    pub fn both_ways(host: &Namespace, interface: &str) -> Result<Self, Error> {
        Self::open(host, interface, false)
    }

    fn open(host: &Namespace, interface: &str, only_in: bool) -> Result<Self, Error> {
        host.enter(|| {
            // A protocol of 0: nothing is captured until the socket is bound.
            // SAFETY: a plain call; the descriptor is owned from here on.
            let descriptor =
                unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
            let descriptor =
                nix::errno::Errno::result(descriptor).doing("opening a packet socket")?;
            // SAFETY: the descriptor was just made and has no other owner.
            let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
            // Classic BPF: return KEPT_BYTES (BPF_RET | BPF_K), which cuts the packet.
            let mut keep = libc::sock_filter {
                code: 0x06,
                jt: 0,
                jf: 0,
                k: KEPT_BYTES,
            };
            let program = libc::sock_fprog {
                len: 1,
                filter: &mut keep,
            };
            option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
            option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &ROOM_BYTES)?;
            option::<libc::c_int>(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
            // With `only_in` no outgoing packet is captured. A captured one keeps its whole
            // data in memory until it is read: eight rounds of 1 MB among 16 hosts filled the
            // guest.
            let ignored = libc::c_int::from(only_in);
            option(
                &socket,
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                &ignored,
            )?;
            // SAFETY: all zero is a valid sockaddr_ll.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex =
                if_nametoindex(interface).doing(format!("looking up {interface}"))? as i32;
            // SAFETY: pointer and length describe `address`.
            let result = unsafe {
                libc::bind(
                    socket.as_raw_fd(),
                    std::ptr::from_ref(&address).cast(),
                    size_of_val(&address) as libc::socklen_t,
                )
            };
            nix::errno::Errno::result(result).doing("binding a packet socket")?;
            Ok(Sampler { socket })
        })
    }

    /// Ends the capture: the packets with payload that came from senders.
    pub fn stop(self) -> Result<Vec<Packet>, Error> {
        let mut packets = Vec::new();
        self.drain(&mut packets)?;
        Ok(packets)
    }

    /// Moves the captured packets to the end of `packets`. A captured packet keeps its whole
    /// data in memory until then.
    pub fn drain(&self, packets: &mut Vec<Packet>) -> Result<(), Error> {
        self.each(|headers, kind, time_ns| {
            let lengths = lengths(headers).filter(|_| kind == libc::PACKET_HOST);
            let Some((payload_bytes, header_bytes)) = lengths else {
                return;
            };
            if payload_bytes > 0 {
                packets.push(Packet {
                    time_ns,
                    payload_bytes,
                    header_bytes,
                });
            }
        })
    }

    /// Passes on the captured packets: each from its IP header on, with its direction
    /// (PACKET_HOST: in) and time (CLOCK_REALTIME, nanoseconds).
    pub fn each(&self, mut see: impl FnMut(&[u8], u8, u64)) -> Result<(), Error> {
        let mut buffer = [0_u8; KEPT_BYTES as usize];
        let mut control = nix::cmsg_space!(libc::timespec);
        loop {
            let (length, from, time_ns) = {
                let mut slices = [io::IoSliceMut::new(&mut buffer)];
                let message = match recvmsg::<LinkAddr>(
                    self.socket.as_raw_fd(),
                    &mut slices,
                    Some(&mut control),
                    MsgFlags::MSG_DONTWAIT,
                ) {
                    Ok(message) => message,
                    Err(nix::errno::Errno::EAGAIN) => return Ok(()),
                    Err(errno) => return Err(errno).doing("reading captured packets"),
                };
                let time_ns = arrival_ns(&message)?;
                (message.bytes, message.address, time_ns)
            };
            if let (Some(from), Some(time_ns)) = (from, time_ns) {
                see(&buffer[..length], from.pkttype(), time_ns);
            }
        }
    }
}

/// Bytes on the wire in each millisecond since `start_ns` (CLOCK_REALTIME).
pub fn per_millisecond(packets: &[Packet], start_ns: u64, mss: u32) -> Vec<u64> {
    let mut bins = Vec::new();
    for packet in packets {
        let bin = (packet.time_ns.saturating_sub(start_ns) / 1_000_000) as usize;
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        bins[bin] += packet.wire_bytes(mss);
    }
    bins
}

fn option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> Result<(), Error> {
    // SAFETY: pointer and length describe `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(result)
        .map(drop)
        .doing(format!("setting option {name} of a packet socket"))
}

/// Payload and header bytes of a TCP or UDP packet that begins with its IP header.
pub fn lengths(packet: &[u8]) -> Option<(u32, u32)> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let half = |at: usize| {
        Some(u32::from(u16::from_be_bytes([
            *packet.get(at)?,
            *packet.get(at + 1)?,
        ])))
    };
    let (total, protocol, ip_header) = match packet.first()? >> 4 {
        4 => (half(2)?, *packet.get(9)?, usize::from(packet[0] & 0xf) * 4),
        6 => (half(4)? + 40, *packet.get(6)?, 40),
        _ => return None,
    };
    let headers = ip_header as u32
        + match protocol {
            TCP => u32::from(packet.get(ip_header + 12)? >> 4) * 4,
            UDP => 8,
            _ => return None,
        };
    Some((total.checked_sub(headers)?, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lengths_of_both_families() {
        let mut four = vec![0x45, 0, 0x05, 0xdc, 0, 0, 0, 0, 64, 6];
        four.resize(20, 0);
        four.extend([0; 12]);
        four.push(8 << 4);
        assert_eq!(lengths(&four), Some((1448, 52)));
        let mut six = vec![0x60, 0, 0, 0, 0x05, 0xb4, 6];
        six.resize(40, 0);
        six.extend([0; 12]);
        six.push(8 << 4);
        assert_eq!(lengths(&six), Some((1460 - 32, 72)));
        assert_eq!(lengths(&[0x45, 0, 0]), None);
    }

    #[test]
    fn bins_count_what_the_wire_carries() {
        let packet = |time_ns, payload_bytes| Packet {
            time_ns,
            payload_bytes,
            header_bytes: 52,
        };
        let packets = [
            packet(100, 1448),
            packet(999_999, 2896),
            packet(2_000_100, 100),
        ];
        assert_eq!(per_millisecond(&packets, 100, 1448), vec![1538 * 3, 0, 190]);
    }
}
