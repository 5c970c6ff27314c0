// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A block to every other rank and one from each, all at once, as the progress engine
//! of an MPI library does it: whatever has come is taken, from whomever. A rank that
//! waited for one after the other would let the rest fill its receive buffers; their
//! windows close, and where the ACK that opens one again is lost, the sender waits for
//! its next window probe, for seconds.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{recv, send, MsgFlags};
use paceline_net::Doing;

use super::messages::{Mesh, PIECE_BYTES};
use crate::CaseError;

/// Bytes that remain to exchange with one rank.
struct Left {
    rank: usize,
    to_send: u64,
    to_receive: u64,
}

impl Left {
    fn events(&self) -> PollFlags {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLOUT, self.to_send > 0);
        events.set(PollFlags::POLLIN, self.to_receive > 0);
        events
    }
}

impl Mesh {
    /// Sends `bytes` to every other rank and receives as many from each.
    pub fn exchange_with_all(&mut self, bytes: u64) -> Result<(), CaseError> {
        let mut left: Vec<Left> = (1..self.size())
            .map(|step| Left {
                rank: (self.rank() + step) % self.size(),
                to_send: bytes,
                to_receive: bytes,
            })
            .collect();
        while !left.is_empty() {
            // To hand bytes over takes its time; other hosts' links must not wait for it.
            self.run_promptly(left.iter().all(|one| one.to_send == 0));
            for (place, events) in self.wait_for_any(&left)? {
                self.go_on_with(&mut left[place], events)?;
            }
            left.retain(|one| one.to_send > 0 || one.to_receive > 0);
        }
        Ok(())
    }

    /// Places in `left` of those with which something can be done, and what.
    fn wait_for_any(&mut self, left: &[Left]) -> Result<Vec<(usize, PollFlags)>, CaseError> {
        let mut sources = Vec::with_capacity(left.len());
        for one in left {
            sources.push(PollFd::new(self.stream(one.rank)?.as_fd(), one.events()));
        }
        poll(&mut sources, PollTimeout::NONE).doing("waiting for any rank")?;
        let events = sources
            .iter()
            .map(|source| source.revents().unwrap_or(PollFlags::empty()));
        Ok(events
            .enumerate()
            .filter(|(_, events)| !events.is_empty())
            .collect())
    }

    fn go_on_with(&mut self, one: &mut Left, events: PollFlags) -> Result<(), CaseError> {
        static PIECE: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
        if one.to_receive > 0 && events.intersects(!PollFlags::POLLOUT) {
            let mut buffer = std::mem::take(&mut self.buffer);
            let most = buffer.len().min(one.to_receive as usize);
            let socket = self.stream(one.rank)?.as_raw_fd();
            let received = recv(socket, &mut buffer[..most], MsgFlags::MSG_DONTWAIT);
            self.buffer = buffer;
            match received {
                Ok(0) => return Err(CaseError::Unexpected("a rank ended in an exchange")),
                Ok(count) => {
                    one.to_receive -= count as u64;
                    self.received_bytes += count as u64;
                }
                Err(Errno::EAGAIN) => {}
                Err(error) => Err(error).doing("receiving from a rank")?,
            }
        }
        if events.contains(PollFlags::POLLOUT) {
            let piece = PIECE_BYTES.min(one.to_send as usize);
            let socket = self.stream(one.rank)?.as_raw_fd();
            match send(socket, &PIECE[..piece], MsgFlags::MSG_DONTWAIT) {
                Ok(count) => one.to_send -= count as u64,
                Err(Errno::EAGAIN) => {}
                Err(error) => Err(error).doing("sending to a rank")?,
            }
        }
        Ok(())
    }
}
