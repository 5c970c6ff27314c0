// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What reaches a host, read from outside.

#![allow(dead_code)] // each test file uses its own part

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

use super::Net;

/// A TCP segment with payload.
pub struct Segment {
    pub sequence: u32,
    pub length: usize,
    /// TSval: milliseconds of the sender's clock; 0 without the option.
    pub sent_ms: u32,
}

/// What reaches a host, from the moment it was made: IPv4 headers and on.
pub struct Capture(File);

impl Capture {
    pub fn start(net: &Net, host: usize) -> Self {
        let namespace = File::open(format!("/run/netns/{}", net.names[host])).unwrap();
        // A thread of its own: the namespace is a thread's.
        let thread = std::thread::spawn(move || {
            const ETH_P_IP: u16 = 0x0800;
            // SAFETY: plain calls; the new descriptor is owned at once.
            let descriptor = unsafe {
                assert_eq!(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET), 0);
                libc::socket(
                    libc::AF_PACKET,
                    libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                    i32::from(ETH_P_IP.to_be()),
                )
            };
            assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: just made, and nobody else's.
            unsafe { File::from_raw_fd(descriptor) }
        });
        Capture(thread.join().unwrap())
    }

    /// TCP segments with payload to `port` since the last call: sequence number and length.
    pub fn data_to(&mut self, port: u16) -> Vec<(u32, usize)> {
        let segments = self.segments_to(port).into_iter();
        segments
            .map(|segment| (segment.sequence, segment.length))
            .collect()
    }

    /// The same with the sender's time.
    pub fn segments_to(&mut self, port: u16) -> Vec<Segment> {
        let mut found = Vec::new();
        let mut packet = [0; 1 << 16];
        while let Ok(length) = self.0.read(&mut packet) {
            let packet = &packet[..length];
            let tcp = &packet[usize::from(packet[0] & 15) * 4..];
            let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let headers = packet.len() - tcp.len() + usize::from(tcp[12] >> 4) * 4;
            if packet[9] == libc::IPPROTO_TCP as u8
                && u16::from_be_bytes([tcp[2], tcp[3]]) == port
                && total > headers
            {
                let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
                found.push(Segment {
                    sequence: word(4),
                    length: total - headers,
                    // Linux's options of a data segment: two NOPs, kind 8, length 10.
                    sent_ms: if tcp[20..24] == [1, 1, 8, 10] {
                        word(24)
                    } else {
                        0
                    },
                });
            }
        }
        found
    }

    /// Pure ACKs from `port` since the last call: what each acknowledges, and the time of
    /// its sender (TSval), milliseconds.
    pub fn acks_from(&mut self, port: u16) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let mut packet = [0; 1 << 16];
        while let Ok(length) = self.0.read(&mut packet) {
            let packet = &packet[..length];
            let tcp = &packet[usize::from(packet[0] & 15) * 4..];
            if packet[9] == libc::IPPROTO_TCP as u8
                && u16::from_be_bytes([tcp[0], tcp[1]]) == port
                && tcp.get(20..24) == Some(&[1, 1, 8, 10])
            {
                let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
                found.push((word(8), word(24)));
            }
        }
        found
    }
}
