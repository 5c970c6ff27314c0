// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jacobi's method on a matrix in striped files (ligon-1999, 4.3.3): each rank's host also
//! serves a part of the file to all ranks, over connections of their own, as an I/O daemon of
//! PVFS does. A host's part of a rank's slab is read and written in one request; a rank's own
//! host needs no network for its part. Files are in the hosts' memory: no disk takes any time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags};
use paceline::Phases;
use paceline_experiment::plan::OutOfCore;
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::connection::{connect_from_here, listen_here, Congestion};
use paceline_net::Doing;

use super::exchange::{exchange, give, ready, take, Left};
use super::messages::{Mesh, Sent};
use super::rank::{enter, leave};
use crate::CaseError;

/// I/O servers listen here on their hosts.
const PORT: u16 = 7001;
/// A request: its kind, and bytes of the data.
const REQUEST_BYTES: usize = 16;
const READ: u64 = 1;
const WRITE: u64 = 2;
/// Reply to a write: it is done.
const DONE_BYTES: u64 = 16;
/// Received at once, at most.
const BUFFER_BYTES: usize = 256 * 1024;
/// Phase classes: reading and writing slabs are all-to-all, rows are not.
const SLABS: u32 = 1;

/// The I/O server of a host before it serves.
pub struct Server {
    listener: TcpListener,
}

/// The file as a rank has it: connections to the servers of all other hosts, and its own
/// host's part.
pub struct Files {
    servers: Vec<TcpStream>,
    served: Vec<TcpStream>,
    serving: JoinHandle<Result<u64, CaseError>>,
    received_bytes: u64,
}

impl Server {
    /// Listens for the other ranks.
    pub fn listen(at: SocketAddr, congestion: &Congestion) -> Result<Self, CaseError> {
        let at = SocketAddr::new(at.ip(), PORT);
        let listener = listen_here(at, congestion.asked.as_deref())?;
        Ok(Self { listener })
    }

    /// Connects `rank` to the servers of all others and begins to serve them.
    pub fn serve(
        self,
        rank: usize,
        addresses: &[SocketAddr],
        congestion: &Congestion,
    ) -> Result<Files, CaseError> {
        let others = || (0..addresses.len()).filter(|other| *other != rank);
        let servers = others()
            .map(|other| {
                let at = SocketAddr::new(addresses[other].ip(), PORT);
                Ok(connect_from_here(at, congestion)?)
            })
            .collect::<Result<Vec<_>, CaseError>>()?;
        let mut served = Vec::new();
        for _ in others() {
            let (stream, _) = self.listener.accept().doing("accepting a rank")?;
            stream.set_nodelay(true).doing("setting TCP_NODELAY")?;
            congestion.check(&stream)?;
            served.push(stream);
        }
        let clients = served
            .iter()
            .map(|stream| stream.try_clone().doing("duplicating a socket"))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Files {
            servers,
            served,
            serving: std::thread::spawn(move || serve(clients)),
            received_bytes: 0,
        })
    }
}

impl Files {
    /// Reads `bytes` from each server, or writes as many to each, all at once.
    fn transfer(&mut self, what: u64, bytes: u64) -> Result<(), CaseError> {
        let mut request = [0; REQUEST_BYTES];
        request[..8].copy_from_slice(&what.to_be_bytes());
        request[8..].copy_from_slice(&bytes.to_be_bytes());
        for mut server in &self.servers {
            server.write_all(&request).doing("asking a file server")?;
        }
        let (to_send, to_receive) = match what {
            READ => (0, bytes),
            _ => (bytes, DONE_BYTES),
        };
        let mut left: Vec<Left> = self
            .servers
            .iter()
            .map(|stream| Left {
                stream,
                to_send,
                to_receive,
            })
            .collect();
        exchange(&mut left, &mut vec![0; BUFFER_BYTES], |_| {})?;
        self.received_bytes += to_receive * self.servers.len() as u64;
        Ok(())
    }

    /// Segments that this host sent as a client and as a server.
    pub fn sent(&self) -> Result<Sent, CaseError> {
        Sent::over(self.servers.iter().chain(&self.served))
    }

    /// Ends the connections to the servers, and waits until all others have ended theirs:
    /// payload received by this host.
    pub fn close(self) -> Result<u64, CaseError> {
        drop(self.servers);
        drop(self.served);
        let written = self.serving.join();
        let written = written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(self.received_bytes + written)
    }
}

/// When this rank completed each iteration: CLOCK_MONOTONIC, nanoseconds.
pub fn run(
    mesh: &mut Mesh,
    files: &mut Files,
    plan: &OutOfCore,
    phases: Option<&Phases>,
    begins: impl Fn() -> Result<(), CaseError>,
) -> Result<Vec<u64>, CaseError> {
    let share = plan.share_bytes(mesh.size() as u32);
    let last = mesh.size() - 1;
    let rank = mesh.rank();
    let neighbours: Vec<usize> = [rank.checked_sub(1), (rank < last).then_some(rank + 1)]
        .into_iter()
        .flatten()
        .collect();
    let mut done_ns = Vec::new();
    for _ in 0..plan.iterations {
        begins()?;
        enter(phases, SLABS)?;
        files.transfer(READ, share)?;
        leave(phases)?;
        // The rows at the edges of a slab are needed on both sides of it.
        for &other in &neighbours {
            mesh.send(other, plan.row_bytes())?;
        }
        for &other in &neighbours {
            mesh.receive(other, plan.row_bytes())?;
        }
        sleep_until(now_ns() + plan.compute_ns);
        enter(phases, SLABS)?;
        files.transfer(WRITE, share)?;
        leave(phases)?;
        done_ns.push(now_ns());
        // For the windows that they show (`windows::note`).
        files.sent()?;
    }
    Ok(done_ns)
}

/// One rank, as its server has it.
struct Client {
    stream: TcpStream,
    to_send: u64,
    to_receive: u64,
    gone: bool,
}

/// Serves until all ranks have ended their connections: the payload that they wrote.
fn serve(streams: Vec<TcpStream>) -> Result<u64, CaseError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut written = 0;
    let mut clients: Vec<Client> = streams
        .into_iter()
        .map(|stream| Client {
            stream,
            to_send: 0,
            to_receive: 0,
            gone: false,
        })
        .collect();
    while !clients.is_empty() {
        let sources = clients.iter().map(|client| {
            let wanted = match client.to_send {
                0 => PollFlags::POLLIN,
                _ => PollFlags::POLLOUT,
            };
            PollFd::new(client.stream.as_fd(), wanted)
        });
        for (place, _) in ready(sources.collect())? {
            written += clients[place].go_on(&mut buffer)?;
        }
        clients.retain(|client| !client.gone);
    }
    Ok(written)
}

impl Client {
    /// Bytes that it wrote.
    fn go_on(&mut self, buffer: &mut [u8]) -> Result<u64, CaseError> {
        if self.to_send > 0 {
            self.to_send -= give(&self.stream, self.to_send)?;
            return Ok(0);
        }
        if self.to_receive == 0 {
            self.next_request()?;
            return Ok(0);
        }
        let most = buffer.len().min(self.to_receive as usize);
        let count = match take(&self.stream, &mut buffer[..most])? {
            Some(0) => return Err(CaseError::Unexpected("a rank ended in a write")),
            count => count.unwrap_or(0),
        };
        self.to_receive -= count;
        if count > 0 && self.to_receive == 0 {
            self.to_send = DONE_BYTES;
        }
        Ok(count)
    }

    fn next_request(&mut self) -> Result<(), CaseError> {
        let mut request = [0; REQUEST_BYTES];
        match take(&self.stream, &mut request)? {
            None => return Ok(()),
            Some(0) => {
                self.gone = true;
                return Ok(());
            }
            // A request is one small segment; the rest of one that is not comes at once.
            Some(count) => self
                .stream
                .read_exact(&mut request[count as usize..])
                .doing("reading a file request")?,
        }
        let (what, bytes) = request.split_at(8);
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        match (number(what), number(bytes)) {
            (READ, bytes) => self.to_send = bytes,
            (WRITE, bytes) => self.to_receive = bytes,
            _ => {
                return Err(CaseError::Unexpected(
                    "a file server received an unknown request",
                ))
            }
        }
        Ok(())
    }
}
