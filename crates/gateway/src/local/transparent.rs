// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections of hosts that are unaware of the gateway, and are routed through it (TPROXY): the
//! accepted socket's own address is the host's destination.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::counts::Counters;
use super::dial::own_addresses;
use super::honest::Honest;
use super::proxy::{through, Proxied};
use super::relay::{harden, relay};
use super::target::Target;
use crate::peers::Peers;

/// Connections that wait to be accepted; the kernel's net.core.somaxconn bounds it.
const BACKLOG: i32 = 4_096;

/// A socket that takes connections to any address.
///
/// # Errors
/// If the kernel refuses: it takes CAP_NET_ADMIN, and the port must be free.
pub fn listen(is_v6: bool, port: u16) -> io::Result<TcpListener> {
    let (domain, any): (_, SocketAddr) = match is_v6 {
        false => (Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port).into()),
        true => (Domain::IPV6, (Ipv6Addr::UNSPECIFIED, port).into()),
    };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    match is_v6 {
        false => socket.set_ip_transparent_v4(true)?,
        true => {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
        }
    }
    // A killed gateway's connections do not hold the port; a living one's listener does.
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it: a gateway that is killed between an accept and the next line
    // resets, too.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_nonblocking(true)?;
    socket.bind(&any.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves hosts until this is dropped.
pub async fn serve(
    listener: TcpListener,
    port: u16,
    peers: Arc<Peers>,
    peer: String,
    counters: Arc<Counters>,
    honest: Option<Arc<Honest>>,
) {
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                // The cause may be too many open files: try again after a pause.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (peers, peer, counters) = (Arc::clone(&peers), peer.clone(), Arc::clone(&counters));
        let honest = honest.clone();
        tokio::spawn(async move {
            let honest = honest.as_ref();
            if let Err(error) = one(socket, port, &peers, &peer, &counters, honest).await {
                tracing::info!("a host's connection: {error}");
            }
        });
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

async fn one(
    socket: TcpStream,
    port: u16,
    peers: &Peers,
    peer: &str,
    counters: &Counters,
    honest: Option<&Arc<Honest>>,
) -> io::Result<()> {
    harden(&socket)?;
    let (from, local) = (socket.peer_addr()?, socket.local_addr()?);
    if let Some((proxied, claim)) = honest.and_then(|honest| honest.claim(from, local)) {
        let Proxied {
            hub,
            stream,
            signals,
        } = proxied;
        relay(&hub, stream, &signals, socket).await;
        drop(claim);
        return Ok(());
    }
    counters.take();
    let to = canonical(local);
    // A connection to the listener itself would come back to it.
    if to.port() == port && own_addresses().contains(&to.ip()) {
        counters.loop_back();
        return Err(io::Error::other(format!("{to} is this gateway's own")));
    }
    let target = Target::From {
        to,
        from: canonical(from),
    };
    match through(peers, peer, &target).await {
        Ok(Proxied {
            hub,
            stream,
            signals,
        }) => relay(&hub, stream, &signals, socket).await,
        // The close is a reset.
        Err(failure) => {
            counters.count(failure);
            tracing::info!("{to}: {failure:?}");
        }
    }
    Ok(())
}
