// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that the gateway sends to hosts from their destinations' addresses, and to itself from
//! the hosts': raw sockets (CAP_NET_RAW).

use std::io;
use std::net::SocketAddr;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::syn::{Syn, Unreachable};

/// Raw sockets for one family.
struct Raw {
    /// Whole packets for this gateway itself: their mark leads them to it.
    own: Socket,
    /// Whole packets for hosts.
    host: Socket,
    /// Errors of ICMP for hosts: the kernel chooses the address that they come from.
    error: Socket,
}

impl Raw {
    fn open(is_v6: bool, mark: u32) -> io::Result<Self> {
        let (domain, icmp) = match is_v6 {
            false => (Domain::IPV4, Protocol::ICMPV4),
            true => (Domain::IPV6, Protocol::ICMPV6),
        };
        let open = |protocol| {
            let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
            // These sockets are not read.
            socket.set_recv_buffer_size(0)?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        let raw = || open(Protocol::from(libc::IPPROTO_RAW));
        let own = raw()?;
        setsockopt(&own, sockopt::Mark, &mark)?;
        Ok(Self {
            own,
            host: raw()?,
            error: open(icmp)?,
        })
    }
}

/// Sockets for both families; `None`: it is not in use.
pub struct Answers {
    four: Option<Raw>,
    six: Option<Raw>,
}

impl Answers {
    /// Opens them. `mark` leads packets to this gateway itself.
    ///
    /// # Errors
    /// Without CAP_NET_RAW.
    pub fn open(families: &[bool], mark: u32) -> io::Result<Self> {
        let open = |is_v6: bool| {
            let is_used = families.contains(&is_v6);
            is_used.then(|| Raw::open(is_v6, mark)).transpose()
        };
        Ok(Self {
            four: open(false)?,
            six: open(true)?,
        })
    }

    fn of(&self, host: SocketAddr) -> Option<&Raw> {
        if host.is_ipv6() {
            self.six.as_ref()
        } else {
            self.four.as_ref()
        }
    }

    /// Passes a SYN on to the listening socket.
    pub fn let_go(&self, syn: &Syn) {
        if let Some(raw) = self.of(syn.from) {
            send_raw(&raw.own, &syn.packet, syn.to);
        }
    }

    /// The destination refused it.
    pub fn refuse(&self, syn: &Syn) {
        if let Some(raw) = self.of(syn.from) {
            send_raw(&raw.host, &syn.refusal(), syn.from);
        }
    }

    /// It cannot be reached.
    pub fn unreachable(&self, syn: &Syn, why: Unreachable) {
        if let Some(raw) = self.of(syn.from) {
            send_raw(&raw.error, &syn.unreachable(why), syn.from);
        }
    }
}

/// Sends a packet. A failure counts as a loss: the host sends its SYN again.
fn send_raw(socket: &Socket, packet: &[u8], mut to: SocketAddr) {
    // Raw sockets interpret a port as a protocol.
    to.set_port(0);
    if let Err(error) = socket.send_to(packet, &to.into()) {
        tracing::warn!("cannot send to {to}: {error}");
    }
}
