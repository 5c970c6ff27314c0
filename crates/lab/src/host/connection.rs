// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections from a sender host to the receiver, and the kernel's information about them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use paceline_net::connection::{connect_from_here, connect_with_nagle, listen_here, Congestion};
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

/// Bytes of a request: the length that follows, or the length asked for.
pub const REQUEST_BYTES: usize = 8;
/// Largest piece handed to the kernel at once.
const PIECE_BYTES: usize = 256 * 1024;

/// A receiver reads in pieces of this size: to wake a thread for each segment
/// costs the guest's one CPU as much as the segment itself.
const AWAITED_BYTES: usize = 16 * 1024;

/// Sends `size` bytes, at least [`REQUEST_BYTES`]: their number, then whatever.
pub fn send_sized(stream: &mut TcpStream, size: u64) -> io::Result<()> {
    // Number and payload in one write, or the number would travel in a packet of
    // its own.
    let mut first = vec![0; PIECE_BYTES.min(usize::try_from(size).unwrap_or(PIECE_BYTES))];
    first[..REQUEST_BYTES].copy_from_slice(&size.to_be_bytes());
    stream.write_all(&first)?;
    send(stream, size - first.len() as u64)
}

/// The same in two writes, of which the first has `header` bytes, at least
/// [`REQUEST_BYTES`]; with a header of 0 in as many as a large write takes.
pub fn send_headed(stream: &mut TcpStream, size: u64, header: usize) -> io::Result<()> {
    if header == 0 {
        return send_sized(stream, size);
    }
    let mut first = vec![0; header];
    first[..REQUEST_BYTES].copy_from_slice(&size.to_be_bytes());
    stream.write_all(&first)?;
    send(stream, size - header as u64)
}

/// Sends `size` bytes, whatever they are.
pub fn send(stream: &mut TcpStream, size: u64) -> io::Result<()> {
    static PIECE: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
    let mut left = size;
    while left > 0 {
        let piece = left.min(PIECE_BYTES as u64) as usize;
        left -= stream.write(&PIECE[..piece])? as u64;
    }
    Ok(())
}

/// Receives the data that [`send_sized`] sent. Returns its size; `None` at the end of the
/// stream.
pub fn receive_sized(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<u64>> {
    let mut number = [0; REQUEST_BYTES];
    match stream.read_exact(&mut number) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let size = u64::from_be_bytes(number);
    receive_into(stream, size.saturating_sub(REQUEST_BYTES as u64), buffer)?;
    Ok(Some(size))
}

/// Receives `size` bytes, by way of `buffer`, and forgets them.
pub fn receive_into(stream: &mut TcpStream, size: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut left = size;
    let mut awaited = 0;
    while left > 0 {
        let most = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        if awaited != most.min(AWAITED_BYTES) {
            awaited = most.min(AWAITED_BYTES);
            await_bytes(stream, awaited)?;
        }
        // A read that had taken a part would sleep until as much came again.
        wait_readable(stream)?;
        match stream.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left -= count as u64,
        }
    }
    await_bytes(stream, 1)
}

fn wait_readable(stream: &TcpStream) -> io::Result<()> {
    let mut events = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    poll(&mut events, PollTimeout::NONE)?;
    Ok(())
}

/// Says that the stream is readable only when this much has come (SO_RCVLOWAT).
fn await_bytes(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    // SAFETY: pointer and length describe `bytes`.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(result)?;
    Ok(())
}

/// Lets this thread run before others, where that is allowed, or as usual again. In
/// the guest one CPU stands for all hosts: a receiver that had to wait for the sender's
/// long writes would delay its ACKs, which hosts of their own do not.
pub fn run_promptly(promptly: bool) {
    let (policy, sched_priority) = match promptly {
        true => (libc::SCHED_FIFO, 1),
        false => (libc::SCHED_OTHER, 0),
    };
    let priority = libc::sched_param { sched_priority };
    // SAFETY: the call reads one properly initialised struct. A refusal, outside
    // the guest, changes nothing.
    unsafe { libc::sched_setscheduler(0, policy, &priority) };
}

/// Answers sized requests with one byte until the other side closes. Returns the
/// payload received.
pub fn serve_bursts(mut stream: TcpStream) -> io::Result<u64> {
    run_promptly(true);
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    while let Some(size) = receive_sized(&mut stream, &mut buffer)? {
        stream.write_all(&[1])?;
        total += size;
    }
    Ok(total)
}
