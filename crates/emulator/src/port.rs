// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of the link: a raw packet socket on an interface, read through a
//! ring that is shared with the kernel.
//!
//! TPACKET_V2 rather than V3: it hands over each packet at once with the time
//! it arrived, where V3 collects blocks and retires them by a timer.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::EmulatorError;

/// Ethernet header, bytes.
pub const ETHERNET_HEADER: u32 = 14;
/// Memory of one receive ring, bytes: 8192 frames of 1500 bytes, a tenth of a
/// second at 1 Gbit/s.
const RING_BYTES: u32 = 16 << 20;
/// Unit of allocation of the ring, bytes; a multiple of the page and frame size.
const BLOCK_BYTES: u32 = 128 << 10;
/// Room before the packet in a ring frame: header, address, alignment.
const FRAME_OVERHEAD: u32 = 128;
/// Send buffer, bytes. Packets leave it as soon as the peer took them.
const SEND_BUFFER: libc::c_int = 8 << 20;
/// Most packets in one system call. Few, so that the first of a batch is not
/// late because of the last.
pub(crate) const SEND_BATCH: usize = 16;

/// A network interface opened as one end of a link. It stays open in the
/// network namespace of the thread that opened it, wherever it is used later.
#[derive(Debug)]
pub struct Port {
    name: String,
    socket: OwnedFd,
    ring: Ring,
    frame_limit: u32,
}

#[derive(Debug)]
struct Ring {
    memory: *mut u8,
    bytes: usize,
    frame_bytes: usize,
    frames: usize,
    next: usize,
}

// SAFETY: the ring is owned by one Port and only touched through &mut self.
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: memory and bytes are what mmap returned, unmapped once.
        unsafe { libc::munmap(self.memory.cast(), self.bytes) };
    }
}

/// A packet as the ring shows it.
pub(crate) struct Received<'a> {
    pub data: &'a [u8],
    /// Length on the wire; above `data.len()` when it was cut.
    pub length: u32,
    /// CLOCK_REALTIME of the arrival, nanoseconds.
    pub realtime_ns: u64,
    pub without_checksum: bool,
}

impl Port {
    /// Opens `interface` of the calling thread's network namespace. Needs
    /// CAP_NET_RAW and CAP_NET_ADMIN. `mtu` is the largest IP packet, bytes.
    pub fn open(interface: &str, mtu: u32) -> Result<Port, EmulatorError> {
        let fail = |step: &'static str| {
            let interface = interface.to_owned();
            move |source: io::Error| EmulatorError::Port {
                interface,
                step,
                source,
            }
        };
        let index = CString::new(interface)
            .map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
            // SAFETY: the name is a NUL-terminated string.
            .and_then(
                |name| match unsafe { libc::if_nametoindex(name.as_ptr()) } {
                    0 => Err(io::Error::last_os_error()),
                    index => Ok(index as libc::c_int),
                },
            )
            .map_err(fail("find"))?;
        // Protocol 0: nothing arrives before the ring is ready and bound.
        // SAFETY: plain system call; the descriptor is owned from here on.
        let socket = unsafe {
            let fd = check(libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            ))
            .map_err(fail("open a packet socket on"))?;
            OwnedFd::from_raw_fd(fd)
        };
        let fd = socket.as_raw_fd();
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version).map_err(fail("set up"))?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
            .map_err(fail("set up"))?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1).map_err(fail("set up"))?;
        set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
            .map_err(fail("set up"))?;
        let frame_limit = mtu + ETHERNET_HEADER;
        let ring = Ring::map(fd, frame_limit).map_err(fail("map a receive ring for"))?;
        // SAFETY: sockaddr_ll is plain data; zero is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        // SAFETY: address and its length belong together.
        check(unsafe {
            libc::bind(
                fd,
                ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        })
        .map_err(fail("bind to"))?;
        // Across a link packets reach this interface under a foreign hardware
        // address; promiscuous mode lasts as long as the socket.
        let membership = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &membership,
        )
        .map_err(fail("make promiscuous"))?;
        Ok(Port {
            name: interface.to_owned(),
            socket,
            ring,
            frame_limit,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Largest frame that fits the MTU, bytes.
    pub(crate) fn frame_limit(&self) -> u32 {
        self.frame_limit
    }

    /// Hands the next packet of the ring to `use_packet`; false when there is none.
    pub(crate) fn receive(&mut self, use_packet: impl FnOnce(Received<'_>)) -> bool {
        let ring = &mut self.ring;
        // SAFETY: next < frames, so header and packet lie inside the mapping.
        // The kernel does not touch the frame between setting TP_STATUS_USER
        // (acquired here) and our setting TP_STATUS_KERNEL (released below).
        unsafe {
            let frame = ring.memory.add(ring.next * ring.frame_bytes);
            let header = frame.cast::<libc::tpacket2_hdr>();
            let status = AtomicU32::from_ptr(ptr::addr_of_mut!((*header).tp_status));
            let flags = status.load(Ordering::Acquire);
            if flags & libc::TP_STATUS_USER == 0 {
                return false;
            }
            let offset = usize::from((*header).tp_mac);
            let captured = ((*header).tp_snaplen as usize).min(ring.frame_bytes - offset);
            use_packet(Received {
                data: std::slice::from_raw_parts(frame.add(offset), captured),
                length: (*header).tp_len,
                realtime_ns: u64::from((*header).tp_sec) * 1_000_000_000
                    + u64::from((*header).tp_nsec),
                without_checksum: flags & libc::TP_STATUS_CSUMNOTREADY != 0,
            });
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        ring.next = (ring.next + 1) % ring.frames;
        true
    }

    /// Sends up to [`SEND_BATCH`] frames; returns how many went out. An error
    /// concerns the first of them.
    pub(crate) fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        // SAFETY: iovec and mmsghdr are plain data; zero is a valid value.
        let mut parts: [libc::iovec; SEND_BATCH] = unsafe { zeroed() };
        let mut messages: [libc::mmsghdr; SEND_BATCH] = unsafe { zeroed() };
        let mut count = 0;
        for frame in frames.take(SEND_BATCH) {
            parts[count].iov_base = frame.as_ptr().cast_mut().cast();
            parts[count].iov_len = frame.len();
            messages[count].msg_hdr.msg_iov = &mut parts[count];
            messages[count].msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the first `count` messages point to live parts and frames.
        check(unsafe {
            libc::sendmmsg(
                self.fd(),
                messages.as_mut_ptr(),
                count as u32,
                libc::MSG_DONTWAIT,
            )
        })
        .map(|sent| sent as usize)
    }

    /// Packets the kernel could not put into the ring since the last call.
    pub(crate) fn take_missed(&self) -> u64 {
        // SAFETY: tpacket_stats is plain data and its size is passed along.
        unsafe {
            let mut stats: libc::tpacket_stats = zeroed();
            let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
            // Cannot fail on a packet socket with a live buffer; if it did, the
            // counters would stay zero.
            libc::getsockopt(
                self.fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                ptr::from_mut(&mut stats).cast(),
                &mut length,
            );
            u64::from(stats.tp_drops)
        }
    }
}

/// The largest IP packet of an interface of the calling thread's network namespace, bytes.
///
/// # Errors
/// When there is no such interface.
pub fn interface_mtu(interface: &str) -> Result<u32, EmulatorError> {
    let find = || -> io::Result<u32> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        // SAFETY: ifreq is plain data; the name is copied with its NUL left in place.
        unsafe {
            let mut request: libc::ifreq = zeroed();
            if interface.len() >= request.ifr_name.len() {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
            for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
                *to = from as libc::c_char;
            }
            check(libc::ioctl(
                socket.as_raw_fd(),
                libc::SIOCGIFMTU,
                &mut request,
            ))?;
            Ok(request.ifr_ifru.ifru_mtu.try_into().unwrap_or(0))
        }
    };
    find().map_err(|source| EmulatorError::Port {
        interface: interface.to_owned(),
        step: "find",
        source,
    })
}

impl Ring {
    fn map(fd: RawFd, frame_limit: u32) -> io::Result<Ring> {
        let frame_bytes = (frame_limit + FRAME_OVERHEAD).next_power_of_two();
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES,
            tp_block_nr: RING_BYTES / BLOCK_BYTES,
            tp_frame_size: frame_bytes,
            tp_frame_nr: RING_BYTES / frame_bytes,
        };
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: maps the ring just requested; checked below.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                RING_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring {
            memory: memory.cast(),
            bytes: RING_BYTES as usize,
            frame_bytes: frame_bytes as usize,
            frames: (RING_BYTES / frame_bytes) as usize,
            next: 0,
        })
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn set_option<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: value is a live T and its size is passed along.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}
