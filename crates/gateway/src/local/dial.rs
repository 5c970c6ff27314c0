// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connects to a destination at this site for the peer.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Mark;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::allow::Allow;
use super::relay::{harden, relay};
use super::target::{Reason, Target};
use crate::hub::{Hub, Incoming};

/// Longest wait for a destination's answer: the first SYN and three more.
const PATIENCE: Duration = Duration::from_secs(16);

/// Settings for connections to destinations at this site.
#[derive(Debug)]
pub struct Dialling {
    /// Allowed destinations.
    pub allow: Allow,
    /// Mark of the packets: rules recognize a gateway's packets by it.
    pub mark: Option<u32>,
    /// Destinations see the connecting host, which must be in one of these networks; `None`: they
    /// see this gateway.
    pub sources: Option<Vec<IpNet>>,
}

/// Connects a stream that the peer opened, and carries it.
pub async fn dial(hub: &Hub, incoming: Incoming, dialling: &Dialling) {
    let Incoming {
        stream,
        target,
        signals,
    } = incoming;
    let connected = tokio::select! {
        connected = connect(&target, dialling) => connected,
        _ = signals.ended() => return,
    };
    match connected {
        Ok(socket) => {
            hub.accept(stream);
            relay(hub, stream, &signals, socket).await;
        }
        Err(reason) => {
            tracing::info!("a connection of the peer's: {reason:?}");
            hub.reset(stream, reason as u8);
        }
    }
}

async fn connect(target: &[u8], dialling: &Dialling) -> Result<TcpStream, Reason> {
    let mut source = None;
    let addresses = match Target::decode(target).ok_or(Reason::Unknown)? {
        Target::Address(address) => vec![address],
        Target::From { to, from } => {
            if let Some(networks) = &dialling.sources {
                // A peer must not use addresses of hosts outside its site.
                if !networks.iter().any(|network| network.contains(&from.ip())) {
                    return Err(Reason::Forbidden);
                }
                source = Some(from);
            }
            vec![to]
        }
        Target::Name(name, port) => {
            let found = tokio::net::lookup_host((name, port)).await;
            found.map_err(|_| Reason::Unknown)?.collect()
        }
    };
    let own = own_addresses();
    let mut reason = Reason::Unknown;
    for address in addresses {
        // The dialled address, not the name: a name may resolve to any address.
        if !dialling.allow.allows(address, &own) {
            reason = Reason::Forbidden;
            continue;
        }
        match timeout(PATIENCE, dial_one(address, dialling.mark, source)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                reason = Reason::Refused;
            }
            Ok(Err(error)) if error.kind() != ErrorKind::TimedOut => reason = Reason::Unreachable,
            _ => reason = Reason::Silent,
        }
    }
    Err(reason)
}

async fn dial_one(
    address: SocketAddr,
    mark: Option<u32>,
    source: Option<SocketAddr>,
) -> std::io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(mark) = mark {
        setsockopt(&socket, Mark, &mark)?;
    }
    if let Some(source) = source {
        let own = SockRef::from(&socket);
        match source {
            SocketAddr::V4(_) => own.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => own.set_ip_transparent_v6(true)?,
        }
        socket.set_reuseaddr(true)?;
        // The host's port, too, unless an earlier connection still occupies it.
        if socket.bind(source).is_err() {
            socket.bind(SocketAddr::new(source.ip(), 0))?;
        }
    }
    let socket = socket.connect(address).await?;
    harden(&socket)?;
    Ok(socket)
}

/// All addresses of this host.
pub fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
    };
    interfaces.filter_map(address).collect()
}
