// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The TCP sockets of the calling thread's network namespace, by sock_diag(7). Needs no
//! privilege.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla as _, NLM_F_DUMP, NLM_F_REQUEST,
};
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_packet_sock_diag::SockDiagMessage;
use nix::sys::socket::{
    recv, send, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType,
};

use crate::info::Info;

/// Room for an answer, bytes: the kernel writes dumps in parts of up to 32 KB.
const ANSWER_BYTES: usize = 1 << 16;
/// Bytes of a netlink message's header.
const HEADER: usize = 16;
/// include/uapi/linux/inet_diag.h: INET_DIAG_CGROUP_ID, from Linux 5.9 on.
const CGROUP_ID: u16 = 21;

/// One socket, now.
#[derive(Debug, Clone)]
pub struct Socket {
    /// The kernel's cookie, which is never another's while the host runs.
    pub cookie: u64,
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// Arrived and not read by the program yet, bytes.
    pub unread: u32,
    /// Memory of written data that is not acknowledged, bytes.
    pub queued: u32,
    /// Most that this may be, bytes.
    pub send_buffer: u32,
    /// Congestion control.
    pub congestion: String,
    /// Id of the cgroup that it was made in; 0: not known.
    pub cgroup: u64,
    /// The kernel's other values.
    pub info: Info,
}

/// Those that are established, or still have something to send.
///
/// # Errors
/// Where the kernel has no tcp_diag.
pub fn sockets() -> io::Result<Vec<Socket>> {
    let diag = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let mut found = dump(&diag, AF_INET, SocketId::new_v4())?;
    found.extend(dump(&diag, AF_INET6, SocketId::new_v6())?);
    Ok(found)
}

fn dump(diag: &OwnedFd, family: u8, socket_id: SocketId) -> io::Result<Vec<Socket>> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO | ExtensionFlags::CONG | ExtensionFlags::SKMEMINFO,
        states: StateFlags::ESTABLISHED
            | StateFlags::CLOSE_WAIT
            | StateFlags::FIN_WAIT1
            | StateFlags::CLOSING
            | StateFlags::LAST_ACK,
        socket_id,
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    send(diag.as_raw_fd(), &bytes, MsgFlags::empty())?;

    let mut found = Vec::new();
    let mut answer = vec![0; ANSWER_BYTES];
    loop {
        let length = recv(diag.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let mut rest = &answer[..length];
        while rest.len() >= HEADER {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let length = message.header.length as usize;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    found.push(of(&response));
                }
                _ => {}
            }
            let next = length.next_multiple_of(4).clamp(HEADER, rest.len());
            rest = &rest[next..];
        }
    }
}

fn of(response: &InetResponse) -> Socket {
    let id = &response.header.socket_id;
    let mut socket = Socket {
        cookie: u64::from_ne_bytes(id.cookie),
        local: SocketAddr::new(id.source_address.to_canonical(), id.source_port),
        remote: SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
        unread: response.header.recv_queue,
        queued: 0,
        send_buffer: 0,
        congestion: String::new(),
        cgroup: 0,
        info: Info::default(),
    };
    for attribute in &response.nlas {
        match attribute {
            Nla::TcpInfo(bytes) => socket.info = Info::parse(bytes),
            Nla::MemInfo(memory) => {
                (socket.queued, socket.send_buffer) = (memory.send_queue, memory.send_queue_max);
            }
            Nla::Congestion(name) => socket.congestion.clone_from(name),
            Nla::Other(other) if other.kind() == CGROUP_ID => {
                let mut bytes = [0; 8];
                if other.value_len() == bytes.len() {
                    other.emit_value(&mut bytes);
                    socket.cgroup = u64::from_ne_bytes(bytes);
                }
            }
            _ => {}
        }
    }
    socket
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_of_this_process_is_found_with_what_it_did() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (_server, _) = listener.accept().unwrap();
        client.write_all(&[7; 100]).unwrap();
        let all = sockets().unwrap();
        let by = |local| all.iter().find(|socket| socket.local == local).unwrap();
        let ours = by(client.local_addr().unwrap());
        assert_eq!(ours.remote, address);
        assert_ne!(ours.cookie, 0);
        assert!(!ours.congestion.is_empty());
        assert!(ours.send_buffer > 0, "{ours:?}");
        assert!(ours.info.mss > 0 && ours.info.cwnd > 0, "{ours:?}");
        let theirs = all
            .iter()
            .find(|socket| socket.local == address && socket.remote == ours.local)
            .unwrap();
        assert_eq!((theirs.unread, theirs.info.received), (100, 100));
    }
}
