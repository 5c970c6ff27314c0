// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that a rule of nftables logs to a group (nfnetlink_log), whole, from the IP header on.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::nflog::{
    config_request, ConfigCmd, ConfigMode, PacketNla, ULogMessage,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use nix::sys::socket::{
    bind, recv, send, setsockopt, socket, sockopt, AddressFamily, MsgFlags, NetlinkAddr, SockFlag,
    SockProtocol, SockType,
};
use tokio::io::unix::AsyncFd;

/// Bytes of packets that wait for a late reader. A host sends a dropped SYN again.
const BUFFER: usize = 1 << 20;
/// Longest message: a packet and its attributes.
const MOST: usize = 128 << 10;
/// Bytes of a netlink message's header.
const HEADER: usize = 16;

/// The reader of a group, of which the kernel lets each network namespace have one.
pub struct Log(OwnedFd);

impl Log {
    /// Opens a group.
    ///
    /// # Errors
    /// If the kernel has no nfnetlink_log, another process reads this group, or without
    /// CAP_NET_ADMIN.
    pub fn open(group: u16) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            flags,
            SockProtocol::NetlinkNetFilter,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
        let log = Self(socket);
        let wanted = vec![ConfigCmd::Bind.into(), ConfigMode::PACKET_MAX.into()];
        log.ask(config_request(NetfilterProtoFamily::Unspec, group, wanted))?;
        Ok(log)
    }

    /// The kernel answers within the system call that asks.
    fn ask(&self, message: NetlinkMessage<NetfilterMessage>) -> io::Result<()> {
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut answer = vec![0; MOST];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        match NetlinkMessage::<NetfilterMessage>::deserialize(&answer[..length]) {
            Ok(NetlinkMessage {
                payload: NetlinkPayload::Error(error),
                ..
            }) => match error.code {
                None => Ok(()),
                Some(_) => Err(error.to_io()),
            },
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// To wait for packets. Must be called in a runtime.
    ///
    /// # Errors
    /// Of the runtime.
    pub fn registered(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: a Log has the same open descriptor until it is dropped.
        unsafe { AsyncFd::register(self) }.map_err(io::Error::from)
    }

    /// Packets that have arrived; without any, [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// Of the socket. ENOBUFS, which reports lost packets, is ignored.
    pub fn read(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut bytes = vec![0; MOST];
        let length = match recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
            Ok(length) => length,
            Err(nix::Error::ENOBUFS) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        Ok(packets(&bytes[..length]))
    }
}

impl AsRawFd for Log {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Packets in a netlink datagram.
fn packets(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while bytes.len() >= HEADER {
        let Ok(message) = NetlinkMessage::<NetfilterMessage>::deserialize(bytes) else {
            break;
        };
        let length = message.header.length as usize;
        if let NetlinkPayload::InnerMessage(NetfilterMessage {
            inner: NetfilterMessageInner::ULog(ULogMessage::Packet(attributes)),
            ..
        }) = message.payload
        {
            packets.extend(attributes.into_iter().filter_map(|one| match one {
                PacketNla::Payload(payload) => Some(payload),
                _ => None,
            }));
        }
        let next = length.next_multiple_of(4).clamp(HEADER, bytes.len());
        bytes = &bytes[next..];
    }
    packets
}
