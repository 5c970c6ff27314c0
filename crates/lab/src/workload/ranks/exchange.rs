// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes to each of several sockets and bytes from each, all at once, as the progress engine
//! of an MPI library does it: it receives from any socket with data. A rank that waited for
//! one after the other would let the rest fill its receive buffers; their windows close, and
//! where the ACK that opens one again is lost, the sender waits for its next window probe,
//! for seconds.

use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{recv, send, MsgFlags};
use paceline_net::Doing;

use super::messages::{Mesh, PIECE_BYTES};
use crate::CaseError;

/// Bytes that remain to exchange over one socket.
pub(super) struct Left<'s> {
    pub stream: &'s TcpStream,
    pub to_send: u64,
    pub to_receive: u64,
}

impl Left<'_> {
    fn events(&self) -> PollFlags {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLOUT, self.to_send > 0);
        events.set(PollFlags::POLLIN, self.to_receive > 0);
        events
    }

    fn go_on(&mut self, events: PollFlags, buffer: &mut [u8]) -> Result<(), CaseError> {
        if self.to_receive > 0 && events.intersects(!PollFlags::POLLOUT) {
            let most = buffer.len().min(self.to_receive as usize);
            match take(self.stream, &mut buffer[..most])? {
                Some(0) => return Err(CaseError::Unexpected("a rank ended in an exchange")),
                Some(count) => self.to_receive -= count,
                None => {}
            }
        }
        if events.contains(PollFlags::POLLOUT) {
            self.to_send -= give(self.stream, self.to_send)?;
        }
        Ok(())
    }
}

/// Receives without waiting: `None` without data, 0 at the end of the stream.
pub(super) fn take(stream: &TcpStream, buffer: &mut [u8]) -> Result<Option<u64>, CaseError> {
    match recv(stream.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
        Ok(count) => Ok(Some(count as u64)),
        Err(Errno::EAGAIN) => Ok(None),
        Err(error) => Ok(Err(error).doing("receiving from a rank")?),
    }
}

/// Hands a piece of `bytes` to the socket, without waiting: how many it took.
pub(super) fn give(stream: &TcpStream, bytes: u64) -> Result<u64, CaseError> {
    static PIECE: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
    let piece = PIECE_BYTES.min(bytes as usize);
    match send(stream.as_raw_fd(), &PIECE[..piece], MsgFlags::MSG_DONTWAIT) {
        Ok(count) => Ok(count as u64),
        Err(Errno::EAGAIN) => Ok(0),
        Err(error) => Ok(Err(error).doing("sending to a rank")?),
    }
}

/// Exchanges all that is left. `promptly` gets true when only receives are left.
pub(super) fn exchange(
    left: &mut Vec<Left>,
    buffer: &mut [u8],
    mut promptly: impl FnMut(bool),
) -> Result<(), CaseError> {
    while !left.is_empty() {
        // To hand bytes over takes its time; other hosts' links must not wait for it.
        promptly(left.iter().all(|one| one.to_send == 0));
        for (place, events) in wait_for_any(left)? {
            left[place].go_on(events, buffer)?;
        }
        left.retain(|one| one.to_send > 0 || one.to_receive > 0);
    }
    Ok(())
}

/// Places in `left` of the ready ones, and their events.
fn wait_for_any(left: &[Left]) -> Result<Vec<(usize, PollFlags)>, CaseError> {
    let sources = left
        .iter()
        .map(|one| PollFd::new(one.stream.as_fd(), one.events()));
    ready(sources.collect())
}

/// Waits for any of `sources`: the places of the ready ones, and their events.
pub(super) fn ready(mut sources: Vec<PollFd>) -> Result<Vec<(usize, PollFlags)>, CaseError> {
    poll(&mut sources, PollTimeout::NONE).doing("waiting for any rank")?;
    let events = sources
        .iter()
        .map(|source| source.revents().unwrap_or(PollFlags::empty()));
    Ok(events
        .enumerate()
        .filter(|(_, events)| !events.is_empty())
        .collect())
}

impl Mesh {
    /// Sends `bytes` to every other rank and receives as many from each.
    pub fn exchange_with_all(&mut self, bytes: u64) -> Result<(), CaseError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut promptly = self.promptly;
        let outcome = (1..self.size())
            .map(|step| {
                Ok(Left {
                    stream: self.stream((self.rank() + step) % self.size())?,
                    to_send: bytes,
                    to_receive: bytes,
                })
            })
            .collect::<Result<Vec<Left>, CaseError>>()
            .and_then(|mut left| {
                exchange(&mut left, &mut buffer, |so| run_promptly(&mut promptly, so))
            });
        self.buffer = buffer;
        self.promptly = promptly;
        outcome?;
        self.received_bytes += bytes * (self.size() as u64 - 1);
        Ok(())
    }
}

/// Changes the priority of this thread where it is another one.
pub(super) fn run_promptly(is: &mut bool, promptly: bool) {
    if *is != promptly {
        *is = promptly;
        crate::host::connection::run_promptly(promptly);
    }
}
