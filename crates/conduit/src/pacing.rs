// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A socket's rate, and TCP's measurements of it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The kernel sends no faster than this, bytes per second (SO_MAX_PACING_RATE, socket(7)); TCP
/// paces itself, without a queue for it.
///
/// # Errors
/// The kernel's.
#[allow(unsafe_code)] // none of the crates in use has this option
pub fn set_rate(socket: impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let value: u64 = bytes_per_s;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel reads
    // eight bytes of `value` (net/core/sock.c, sk_setsockopt).
    let set = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            std::ptr::from_ref(&value).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// TCP's measurements of a connection (tcp(7), TCP_INFO).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Known to have arrived since the connection began, selectively acknowledged or not, bytes.
    pub delivered: u64,
    /// On their way, bytes.
    pub in_flight: u64,
    /// Not sent yet, bytes.
    pub unsent: u64,
    /// Smoothed round trip, microseconds; 0: not measured yet.
    pub rtt_us: u32,
    /// Least round trip, microseconds.
    pub least_rtt_us: u32,
}

/// Looks at a connection.
///
/// # Errors
/// The kernel's; `Unsupported` before Linux 4.18, which does not count delivered bytes.
#[allow(unsafe_code)] // none of the crates in use has this option
pub fn look(socket: impl AsFd) -> io::Result<Seen> {
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: of numbers only, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel writes no
    // more than `length` bytes of `info`.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &raw mut length,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let end = std::mem::offset_of!(libc::tcp_info, tcpi_delivered) + size_of::<u32>();
    if (length as usize) < end {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let segment = u64::from(info.tcpi_snd_mss);
    let known = info.tcpi_sacked + info.tcpi_lost;
    let in_flight = (info.tcpi_unacked + info.tcpi_retrans).saturating_sub(known);
    Ok(Seen {
        delivered: u64::from(info.tcpi_delivered) * segment,
        in_flight: u64::from(in_flight) * segment,
        unsent: info.tcpi_notsent_bytes.into(),
        rtt_us: info.tcpi_rtt,
        least_rtt_us: match info.tcpi_min_rtt {
            u32::MAX => 0,
            least => least,
        },
    })
}
