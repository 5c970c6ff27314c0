// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many filters an interface's clsact has: libbpf knows only its own.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    recv, send, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType,
};

/// include/uapi/linux/pkt_sched.h: TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS or _EGRESS).
const PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
/// Room for an answer, bytes: NLMSG_GOODSIZE is at most 8 KB, dumps are up to 32 KB.
const ANSWER_BYTES: usize = 1 << 16;

#[repr(C)]
struct Request {
    header: libc::nlmsghdr,
    /// struct tcmsg of include/uapi/linux/rtnetlink.h.
    family: u32,
    index: u32,
    handle: u32,
    parent: u32,
    info: u32,
}

/// Number of filters of any owner on both sides of the interface.
///
/// # Errors
/// When the kernel does not answer.
pub(crate) fn filters(index: u32) -> io::Result<usize> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    PARENTS
        .iter()
        .map(|parent| dump(&socket, index, *parent))
        .sum()
}

fn dump(socket: &OwnedFd, index: u32, parent: u32) -> io::Result<usize> {
    let request = Request {
        header: libc::nlmsghdr {
            nlmsg_len: size_of::<Request>() as u32,
            nlmsg_type: libc::RTM_GETTFILTER,
            nlmsg_flags: (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16,
            nlmsg_seq: parent,
            nlmsg_pid: 0,
        },
        family: libc::AF_UNSPEC as u32,
        index,
        handle: 0,
        parent,
        info: 0,
    };
    // SAFETY: plain integers without padding, read as bytes.
    let bytes = unsafe {
        std::slice::from_raw_parts(
            std::ptr::from_ref(&request).cast::<u8>(),
            size_of::<Request>(),
        )
    };
    send(socket.as_raw_fd(), bytes, MsgFlags::empty())?;
    let mut count = 0;
    let mut answer = vec![0_u8; ANSWER_BYTES];
    loop {
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let mut rest = &answer[..length];
        while rest.len() >= size_of::<libc::nlmsghdr>() {
            let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().expect("four"));
            let (length, kind) = (word(0) as usize, word(4) as u16);
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(count),
                libc::NLMSG_ERROR => {
                    let error = rest.get(16..20).map_or(libc::EIO, |bytes| {
                        -i32::from_ne_bytes(bytes.try_into().expect("four"))
                    });
                    return Err(io::Error::from_raw_os_error(error));
                }
                kind if kind == i32::from(libc::RTM_NEWTFILTER) => count += 1,
                _ => {}
            }
            rest = rest
                .get(length.next_multiple_of(4).max(16)..)
                .unwrap_or(&[]);
        }
    }
}
