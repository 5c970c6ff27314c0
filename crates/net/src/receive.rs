// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets with the time at which the kernel received them.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::sys::socket::{recvmsg, ControlMessageOwned, MsgFlags, RecvMsg};

use crate::{Doing, Error};

/// One packet's length and arrival (CLOCK_REALTIME); `None` if there is none.
pub fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    wait: bool,
) -> Result<Option<(usize, u64)>, Error> {
    let mut control = nix::cmsg_space!(libc::timespec);
    let mut slices = [io::IoSliceMut::new(buffer)];
    let flags = if wait {
        MsgFlags::empty()
    } else {
        MsgFlags::MSG_DONTWAIT
    };
    let message = match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags) {
        Ok(message) => message,
        Err(nix::errno::Errno::EAGAIN) => return Ok(None),
        Err(errno) => return Err(errno).doing("receiving a packet"),
    };
    Ok(arrival_ns(&message)?.map(|time_ns| (message.bytes, time_ns)))
}

/// When a received packet arrived (CLOCK_REALTIME, nanoseconds), if the socket asked
/// for that (SO_TIMESTAMPNS).
pub fn arrival_ns<S>(message: &RecvMsg<'_, '_, S>) -> Result<Option<u64>, Error> {
    let mut items = message.cmsgs().doing("reading a packet's time")?;
    Ok(items.find_map(|item| match item {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        }
        _ => None,
    }))
}
