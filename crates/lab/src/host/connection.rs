// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections from a sender host to the receiver, and the kernel's information about them.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use paceline_net::connection::{connect_from_here, connect_with_nagle, listen_here, Congestion};
pub use paceline_net::payload::*;
use paceline_net::{Doing, Error, Namespace};

use super::windows::{self, Windows};
use crate::CaseError;

/// The fields of TCP_INFO that the lab uses. Counters are of the connection's life.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    pub cwnd: u32,
    pub ssthresh: u32,
    pub mss: u32,
    pub retransmitted: u32,
    pub data_segments: u32,
    /// Segments that came, and those of them with data.
    pub segments_in: u32,
    pub data_segments_in: u32,
    pub duplicates_reported: u32,
    /// Segments that arrived with Congestion Experienced.
    pub marked: u32,
    pub received_bytes: u64,
    /// Segments sent and not acknowledged.
    pub inflight: u32,
}

impl Counters {
    /// Reads them from the socket.
    pub fn of(stream: &TcpStream) -> Result<Self, CaseError> {
        // struct tcp_info of linux/tcp.h as of 4.19 and later: offsets in bytes.
        const SND_MSS: usize = 16;
        const UNACKED: usize = 24;
        const SND_SSTHRESH: usize = 76;
        const SND_CWND: usize = 80;
        const TOTAL_RETRANS: usize = 100;
        const BYTES_RECEIVED: usize = 128;
        const SEGS_IN: usize = 140;
        const DATA_SEGS_IN: usize = 152;
        const DATA_SEGS_OUT: usize = 156;
        const DELIVERED_CE: usize = 196;
        const DSACK_DUPS: usize = 216;
        let mut info = [0_u8; 256];
        let mut length = info.len() as libc::socklen_t;
        // SAFETY: the buffer is as long as `length` says.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut length,
            )
        };
        nix::errno::Errno::result(result).doing("reading TCP_INFO")?;
        if (length as usize) < DSACK_DUPS + 4 {
            return Err(CaseError::Unexpected(
                "this kernel's TCP_INFO is too old: 4.19 or later is needed",
            ));
        }
        let word =
            |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        let windows = Windows {
            cwnd: word(SND_CWND),
            ssthresh: word(SND_SSTHRESH),
        };
        windows::note(windows);
        Ok(Counters {
            inflight: word(UNACKED),
            cwnd: windows.cwnd,
            ssthresh: windows.ssthresh,
            mss: word(SND_MSS),
            retransmitted: word(TOTAL_RETRANS),
            data_segments: word(DATA_SEGS_OUT),
            segments_in: word(SEGS_IN),
            data_segments_in: word(DATA_SEGS_IN),
            duplicates_reported: word(DSACK_DUPS),
            marked: word(DELIVERED_CE),
            received_bytes: u64::from(word(BYTES_RECEIVED))
                | u64::from(word(BYTES_RECEIVED + 4)) << 32,
        })
    }
}

/// Listens on a host at one of its addresses, port 0 being a free one.
pub fn listen(host: &Namespace, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    host.enter(|| {
        let listener = listen_here(address, None)?;
        let address = listener
            .local_addr()
            .doing("reading the receiver's address")?;
        Ok((listener, address))
    })
}

/// Opens a connection from `host` to `listener`: the sender's end and the
/// receiver's.
pub fn connect(
    host: &Namespace,
    listener: &TcpListener,
    address: SocketAddr,
    congestion: &Congestion,
) -> Result<(TcpStream, TcpStream), Error> {
    let sender = host.enter(|| connect_from_here(address, congestion))?;
    accept(listener, sender)
}

/// The same with a sender that leaves TCP_NODELAY alone.
pub fn connect_nagling(
    host: &Namespace,
    listener: &TcpListener,
    address: SocketAddr,
    congestion: &Congestion,
) -> Result<(TcpStream, TcpStream), Error> {
    let sender = host.enter(|| connect_with_nagle(address, congestion))?;
    accept(listener, sender)
}

fn accept(listener: &TcpListener, sender: TcpStream) -> Result<(TcpStream, TcpStream), Error> {
    let (receiver, _) = listener.accept().doing("accepting a connection")?;
    receiver.set_nodelay(true).doing("setting TCP_NODELAY")?;
    Ok((sender, receiver))
}
