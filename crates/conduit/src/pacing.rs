// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A socket's rate.

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
