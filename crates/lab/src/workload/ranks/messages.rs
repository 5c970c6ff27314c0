// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between ranks over plain blocking sockets, sent eagerly: a send hands its
//! bytes to the socket, a receive waits for the next bytes of that rank.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use paceline_net::connection::{connect_from_here, listen_here, Congestion};
use paceline_net::Doing;
use serde::{Deserialize, Serialize};

use super::exchange::run_promptly;
use crate::host::connection::{receive_into, Counters};
use crate::CaseError;

/// Handed to the kernel at once. While a write copies, the socket is locked and no paced
/// packet leaves; with buffers of megabytes, a whole message would be copied in one go.
pub(super) const PIECE_BYTES: usize = 16 * 1024;

/// Read from the kernel at once, at most.
const RECEIVED_AT_ONCE_BYTES: usize = 256 * 1024;

const NO_SUCH_PEER: CaseError = CaseError::Unexpected("a rank has no such peer");

/// The data that one rank has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Data segments, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that a receiver reported as arrived twice.
    pub spurious: u64,
}

impl Sent {
    /// Over all of `streams`, since they were made.
    pub fn over<'s>(streams: impl Iterator<Item = &'s TcpStream>) -> Result<Self, CaseError> {
        let mut sent = Sent::default();
        for stream in streams {
            let counters = Counters::of(stream)?;
            sent.segments += u64::from(counters.data_segments);
            sent.retransmitted += u64::from(counters.retransmitted);
            sent.spurious += u64::from(counters.duplicates_reported);
        }
        Ok(sent)
    }
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, more: Self) {
        self.segments += more.segments;
        self.retransmitted += more.retransmitted;
        self.spurious += more.spurious;
    }
}

/// One rank's connections to all others.
pub struct Mesh {
    rank: usize,
    /// `None` is the rank itself.
    peers: Vec<Option<TcpStream>>,
    pub(super) received_bytes: u64,
    /// Buffer of received data.
    pub(super) buffer: Vec<u8>,
    /// This rank waits for messages and runs before others.
    pub(super) promptly: bool,
}

impl Mesh {
    /// Listens for the ranks after this one.
    pub fn listen(address: SocketAddr, congestion: &Congestion) -> Result<TcpListener, CaseError> {
        Ok(listen_here(address, congestion.asked.as_deref())?)
    }

    /// Connects to the ranks before this one and accepts those after it.
    pub fn connect(
        rank: usize,
        addresses: &[SocketAddr],
        listener: &TcpListener,
        congestion: &Congestion,
    ) -> Result<Self, CaseError> {
        let mut peers: Vec<Option<TcpStream>> = (0..addresses.len()).map(|_| None).collect();
        for (other, &address) in addresses.iter().enumerate().take(rank) {
            let mut stream = connect_from_here(address, congestion)?;
            stream
                .write_all(&(rank as u64).to_be_bytes())
                .doing("greeting a rank")?;
            peers[other] = Some(stream);
        }
        for _ in rank + 1..addresses.len() {
            let (mut stream, _) = listener.accept().doing("accepting a rank")?;
            stream.set_nodelay(true).doing("setting TCP_NODELAY")?;
            congestion.check(&stream)?;
            let mut number = [0; 8];
            stream
                .read_exact(&mut number)
                .doing("waiting for a rank's greeting")?;
            let place =
                peers
                    .get_mut(u64::from_be_bytes(number) as usize)
                    .ok_or(CaseError::Unexpected(
                        "an unknown process connected as a rank",
                    ))?;
            *place = Some(stream);
        }
        Ok(Self {
            rank,
            peers,
            received_bytes: 0,
            buffer: vec![0; RECEIVED_AT_ONCE_BYTES],
            promptly: false,
        })
    }

    /// The rank that this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks, this one included.
    pub fn size(&self) -> usize {
        self.peers.len()
    }

    /// Payload received so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Hands `bytes` to the socket.
    pub fn send(&mut self, to: usize, bytes: u64) -> Result<(), CaseError> {
        self.run_promptly(false);
        static PIECE: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
        let peer = self.peer(to)?;
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE_BYTES as u64) as usize;
            peer.write_all(&PIECE[..piece]).doing("sending to a rank")?;
            left -= piece as u64;
        }
        Ok(())
    }

    /// Waits for `bytes` of a rank.
    pub fn receive(&mut self, from: usize, bytes: u64) -> Result<(), CaseError> {
        self.run_promptly(true);
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = receive_into(self.peer(from)?, bytes, &mut buffer);
        self.buffer = buffer;
        outcome.doing("receiving from a rank")?;
        self.received_bytes += bytes;
        Ok(())
    }

    /// The kernel's information about the connection to a rank.
    pub fn counters(&mut self, of: usize) -> Result<Counters, CaseError> {
        Counters::of(self.peer(of)?)
    }

    /// Of all connections together, since they were made.
    pub fn sent(&self) -> Result<Sent, CaseError> {
        Sent::over(self.peers.iter().flatten())
    }

    fn run_promptly(&mut self, promptly: bool) {
        run_promptly(&mut self.promptly, promptly);
    }

    fn peer(&mut self, rank: usize) -> Result<&mut TcpStream, CaseError> {
        self.peers
            .get_mut(rank)
            .and_then(Option::as_mut)
            .ok_or(NO_SUCH_PEER)
    }

    pub(super) fn stream(&self, rank: usize) -> Result<&TcpStream, CaseError> {
        let peer = self.peers.get(rank).and_then(Option::as_ref);
        peer.ok_or(NO_SUCH_PEER)
    }
}
