// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Honest connects: a host's connect succeeds when its destination has answered, and is refused
//! when that refuses.
//!
//! A rule of nftables logs the host's SYN to this process and drops it (the design's prototype
//! held it in the kernel by NFQUEUE: fewer kernels have that for nftables, and a killed gateway
//! must not hold packets). When the destination has answered, the same SYN is sent again to the
//! socket that takes connections: by a raw socket, with a mark that leads it over loopback. Else
//! the host gets the answer that the destination, or a router, would give.

mod answer;
#[allow(unsafe_code, reason = "AsyncFd wants a promise")]
mod log;
mod syn;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use super::counts::Counters;
use super::proxy::{through, Failure, Proxied};
use super::target::{Reason, Target};
use crate::peers::Peers;
use answer::Answers;
use log::Log;
use syn::{Syn, Unreachable};

/// Longest time from the destination's answer to the host's last packet of the handshake. The
/// host is near; it sends a lost SYN again after 1 and 3 s.
const UNCLAIMED: Duration = Duration::from_secs(10);

/// A host's address and port, and those that it connects to.
type Ends = ((IpAddr, u16), (IpAddr, u16));

fn ends(from: SocketAddr, to: SocketAddr) -> Ends {
    let end = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    (end(from), end(to))
}

enum State {
    /// The destination has not answered yet.
    Asking,
    /// It has; the host is completing its connect.
    Answered(Proxied),
    /// The connection is carried.
    Carried,
}

struct Held {
    sequence: u32,
    /// Unique: a task checks by it whether the entry is still its own.
    serial: u64,
    state: State,
}

#[derive(Default)]
struct Table {
    held: HashMap<Ends, Held>,
    serial: u64,
}

impl Table {
    fn is_own(&self, ends: &Ends, serial: u64) -> bool {
        self.held.get(ends).is_some_and(|one| one.serial == serial)
    }
}

/// Connects that are held. Their number is bounded by the session's streams: each has one.
pub struct Honest {
    table: Mutex<Table>,
    answers: Answers,
    log: AsyncFd<Log>,
}

/// Keeps a connection in the table until its end.
pub struct Claim {
    honest: Arc<Honest>,
    ends: Ends,
    serial: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.honest.forget(&self.ends, self.serial);
    }
}

impl Honest {
    /// Reads the SYNs that rules log to `group`. `mark` leads packets back to this gateway.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN and CAP_NET_RAW, and where the kernel has no nfnetlink_log.
    pub fn open(group: u16, mark: u32, families: &[bool]) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            table: Mutex::default(),
            answers: Answers::open(families, mark)?,
            log: Log::open(group)?.registered()?,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves hosts until this is dropped.
    pub async fn serve(self: Arc<Self>, peers: Arc<Peers>, peer: String, counters: Arc<Counters>) {
        loop {
            let Ok(mut ready) = self.log.readable().await else {
                return;
            };
            match ready.try_io(|log| log.get_ref().read()) {
                Ok(Ok(packets)) => {
                    for syn in packets.iter().filter_map(|packet| Syn::read(packet)) {
                        self.came(syn, &peers, &peer, &counters);
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!("cannot read the SYNs of hosts: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(_) => {}
            }
        }
    }

    fn came(self: &Arc<Self>, syn: Syn, peers: &Arc<Peers>, peer: &str, counters: &Arc<Counters>) {
        let ends = ends(syn.from, syn.to);
        let mut table = self.lock();
        match table.held.get(&ends) {
            // A retransmission.
            Some(Held {
                sequence,
                state: State::Asking,
                ..
            }) if *sequence == syn.sequence => return,
            // The kernel decides: it has a socket for it.
            Some(Held {
                state: State::Carried,
                ..
            }) => return self.answers.let_go(&syn),
            Some(Held { sequence, .. }) if *sequence == syn.sequence => {
                return self.answers.let_go(&syn)
            }
            _ => {}
        }
        counters.take();
        table.serial += 1;
        let serial = table.serial;
        let state = State::Asking;
        let sequence = syn.sequence;
        let held = Held {
            sequence,
            serial,
            state,
        };
        let before = table.held.insert(ends, held);
        drop(table);
        if let Some(given_up) = before {
            abandon(given_up);
        }
        let (honest, peers) = (Arc::clone(self), Arc::clone(peers));
        let (peer, counters) = (peer.to_owned(), Arc::clone(counters));
        tokio::spawn(async move {
            let target = Target::From {
                to: syn.to,
                from: syn.from,
            };
            let asked = through(&peers, &peer, &target).await;
            honest.answered(syn, &ends, serial, asked, &counters).await;
        });
    }

    async fn answered(
        self: Arc<Self>,
        syn: Syn,
        ends: &Ends,
        serial: u64,
        asked: Result<Proxied, Failure>,
        counters: &Counters,
    ) {
        match asked {
            Ok(proxied) => {
                {
                    let mut table = self.lock();
                    match table.held.get_mut(ends) {
                        Some(one) if one.serial == serial => one.state = State::Answered(proxied),
                        _ => return proxied.abandon(),
                    }
                }
                self.answers.let_go(&syn);
                tokio::time::sleep(UNCLAIMED).await;
                let mut table = self.lock();
                let is_waiting = table.held.get(ends).is_some_and(|one| {
                    one.serial == serial && matches!(one.state, State::Answered(_))
                });
                let left = is_waiting.then(|| table.held.remove(ends)).flatten();
                drop(table);
                if let Some(left) = left {
                    counters.fail();
                    abandon(left);
                }
            }
            Err(failure) => {
                if self.forget(ends, serial) {
                    tracing::info!("{}: {failure:?}", syn.to);
                    counters.count(failure);
                    self.reply(&syn, failure);
                }
            }
        }
    }

    fn reply(&self, syn: &Syn, failure: Failure) {
        match failure {
            Failure::Reset(Reason::Refused) => self.answers.refuse(syn),
            Failure::NoPeer => self.answers.unreachable(syn, Unreachable::Network),
            Failure::Reset(Reason::Forbidden) => {
                self.answers.unreachable(syn, Unreachable::Prohibited);
            }
            Failure::Reset(Reason::Unreachable | Reason::Unknown) => {
                self.answers.unreachable(syn, Unreachable::Host);
            }
            // As if the SYN were lost, as at a full host: the host sends it again.
            Failure::Reset(Reason::Silent | Reason::Full | Reason::Broken) => {}
        }
    }

    /// True if it was still there.
    fn forget(&self, ends: &Ends, serial: u64) -> bool {
        let mut table = self.lock();
        let is_own = table.is_own(ends, serial);
        if is_own {
            table.held.remove(ends);
        }
        is_own
    }

    /// The stream of an accepted connection, if its destination has answered.
    pub fn claim(self: &Arc<Self>, from: SocketAddr, to: SocketAddr) -> Option<(Proxied, Claim)> {
        let ends = ends(from, to);
        let mut table = self.lock();
        let one = table.held.get_mut(&ends)?;
        let serial = one.serial;
        match std::mem::replace(&mut one.state, State::Carried) {
            State::Answered(proxied) => Some((
                proxied,
                Claim {
                    honest: Arc::clone(self),
                    ends,
                    serial,
                },
            )),
            before => {
                one.state = before;
                None
            }
        }
    }
}

/// Ends the stream of an abandoned connect.
fn abandon(held: Held) {
    if let State::Answered(proxied) = held.state {
        proxied.abandon();
    }
}
