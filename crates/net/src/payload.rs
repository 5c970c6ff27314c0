// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The payload of measured connections: bytes that mean nothing, sent and received, and threads
//! that do so promptly.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

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
