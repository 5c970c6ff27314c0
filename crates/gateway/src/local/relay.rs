// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies bytes between a socket and a stream, both ways, and passes each end on.
//!
//! A socket is closed by RST (SO_LINGER 1, 0) from the first moment on, until both directions
//! ended in order. A gateway that is killed so resets its connections: a plain close would be a
//! FIN, and the peer would take half of a file for all of it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::target::Reason;
use crate::hub::{Hub, Read, Signals};

/// Bytes of one read or write. Each connection has two such buffers beside the session's memory.
const PIECE: usize = 16 << 10;
/// Interval of looks at whether a host has acknowledged its end: the first, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(500);
/// Longest wait for that. The kernel goes on after it, and resets nothing.
const UNCONFIRMED: Duration = Duration::from_secs(60);

/// Bytes that the kernel may hold for a host beside what is under way. Left to itself it holds
/// up to 4 MiB (tcp_wmem) for each that stopped reading, with credit returned for all of it.
const UNSENT: u32 = 256 << 10;

/// Makes a close before the end a reset, and sends small segments at once: the program has already
/// made its own choice. Bounds the bytes that the kernel holds.
///
/// # Errors
/// If the kernel refuses.
pub fn harden(socket: &TcpStream) -> io::Result<()> {
    let options = socket2::SockRef::from(socket);
    options.set_linger(Some(Duration::ZERO))?;
    options.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_nodelay(true)
}

/// Makes the close of this socket orderly, not a reset.
///
/// # Errors
/// If the kernel refuses.
pub fn orderly(socket: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(socket).set_linger(None)
}

/// Carries a connection until both directions ended, or one of them broke.
pub async fn relay(hub: &Hub, stream: u64, signals: &Arc<Signals>, mut socket: TcpStream) {
    let result = {
        let (mut from, mut to) = socket.split();
        let both = async {
            tokio::try_join!(
                up(hub, stream, signals, &mut from),
                down(hub, stream, signals, &mut to)
            )
        };
        tokio::select! {
            result = both => result.map(drop),
            // The peer reset it: the socket is reset by its close.
            _ = signals.ended() => return,
        }
    };
    match result {
        Ok(()) => {
            // Both ends are in order.
            let _ = orderly(&socket);
            hub.receipt(acknowledged(&socket).await);
        }
        Err(_) => hub.reset(stream, Reason::Broken as u8),
    }
}

/// Waits until the host's kernel has acknowledged all bytes and the end; false: it broke, or is
/// silent for too long.
async fn acknowledged(socket: &TcpStream) -> bool {
    let begun = Instant::now();
    let mut pause = FIRST_LOOK;
    loop {
        match (is_closed(socket), socket.take_error()) {
            (true, Ok(None)) => return true,
            (false, Ok(None)) if begun.elapsed() < UNCONFIRMED => {}
            _ => return false,
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LAST_LOOK);
    }
}

/// Both sides have each other's end: the kernel's TCP_CLOSE, for TIME-WAIT is no longer the
/// socket's. A socket that broke is closed, too, and has an error.
fn is_closed(socket: &TcpStream) -> bool {
    // tcp_states.h; the first byte of struct tcp_info of linux/tcp.h.
    const TCP_CLOSE: u8 = 7;
    let mut state = 0u8;
    let mut size = size_of_val(&state) as libc::socklen_t;
    // SAFETY: `state` has room for `size` bytes, and the kernel copies no more.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast(),
            &raw mut size,
        )
    };
    result == 0 && state == TCP_CLOSE
}

/// From the socket. Without credit it is not read, so its sender's window closes.
async fn up(
    hub: &Hub,
    stream: u64,
    signals: &Signals,
    from: &mut (impl AsyncReadExt + Unpin),
) -> io::Result<()> {
    let mut bytes = vec![0; PIECE];
    loop {
        let room = hub.room(stream).min(PIECE);
        if room == 0 {
            signals.writable.notified().await;
            continue;
        }
        let count = from.read(&mut bytes[..room]).await?;
        if count == 0 {
            hub.finish(stream);
            return Ok(());
        }
        let mut rest = &bytes[..count];
        loop {
            rest = &rest[hub.write(stream, rest)..];
            if rest.is_empty() {
                break;
            }
            signals.writable.notified().await;
        }
    }
}

/// To the socket. Credit returns for the bytes that it took.
async fn down(
    hub: &Hub,
    stream: u64,
    signals: &Signals,
    to: &mut (impl AsyncWriteExt + Unpin),
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(PIECE);
    loop {
        bytes.clear();
        match hub.read(stream, signals, PIECE, &mut bytes) {
            Read::Bytes(0) => signals.readable.notified().await,
            Read::Bytes(count) => {
                to.write_all(&bytes).await?;
                hub.consume(stream, count as u64);
            }
            Read::End => {
                to.shutdown().await?;
                hub.consume(stream, 0);
                return Ok(());
            }
            Read::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}
