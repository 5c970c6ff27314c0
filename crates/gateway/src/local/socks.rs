// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SOCKS5 (RFC 1928): CONNECT, without authentication. The answer is given when the far side
//! has one: a refused port is refused.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::proxy::{through, Failure, Proxied};
use super::relay::{orderly, relay};
use super::target::{Reason, Target};
use crate::peers::Peers;

const VERSION: u8 = 5;
const CONNECT: u8 = 1;
/// Longest wait for a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection of a program's.
///
/// # Errors
/// If it breaks, or does not speak SOCKS5.
pub async fn connection(peers: &Peers, peer: &str, mut socket: TcpStream) -> io::Result<()> {
    let target = match timeout(PATIENCE, request(&mut socket)).await {
        Ok(target) => target?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    match through(peers, peer, &target).await {
        Ok(Proxied {
            hub,
            stream,
            signals,
        }) => {
            answer(&mut socket, 0).await?;
            relay(&hub, stream, &signals, socket).await;
            Ok(())
        }
        Err(failure) => {
            answer(&mut socket, code(failure)).await?;
            orderly(&socket)
        }
    }
}

/// RFC 1928, 6.
fn code(failure: Failure) -> u8 {
    match failure {
        Failure::NoPeer => 1,
        Failure::Reset(Reason::Forbidden) => 2,
        Failure::Reset(Reason::Unreachable | Reason::Unknown | Reason::Silent) => 4,
        Failure::Reset(Reason::Refused) => 5,
        Failure::Reset(Reason::Broken | Reason::Full) => 1,
    }
}

async fn answer(socket: &mut TcpStream, code: u8) -> io::Result<()> {
    // The address that the far side dialled from is of no use here.
    let mut answer = [0; 10];
    (answer[0], answer[1], answer[3]) = (VERSION, code, 1);
    socket.write_all(&answer).await
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn request(socket: &mut TcpStream) -> io::Result<Target> {
    if socket.read_u8().await? != VERSION {
        return Err(wrong("not SOCKS5"));
    }
    let mut methods = vec![0; socket.read_u8().await?.into()];
    socket.read_exact(&mut methods).await?;
    if !methods.contains(&0) {
        socket.write_all(&[VERSION, 0xff]).await?;
        return Err(wrong("a client that insists on authentication"));
    }
    socket.write_all(&[VERSION, 0]).await?;
    let mut head = [0; 4];
    socket.read_exact(&mut head).await?;
    if head[0] != VERSION || head[1] != CONNECT {
        answer(socket, 7).await?;
        return Err(wrong("not CONNECT"));
    }
    match head[3] {
        1 => {
            let mut bytes = [0; 4];
            socket.read_exact(&mut bytes).await?;
            let port = socket.read_u16().await?;
            Ok(Target::Address(SocketAddr::new(
                Ipv4Addr::from(bytes).into(),
                port,
            )))
        }
        3 => {
            let mut name = vec![0; socket.read_u8().await?.into()];
            socket.read_exact(&mut name).await?;
            let port = socket.read_u16().await?;
            let name = String::from_utf8(name).map_err(|_| wrong("a name that is no text"))?;
            Ok(Target::Name(name, port))
        }
        4 => {
            let mut bytes = [0; 16];
            socket.read_exact(&mut bytes).await?;
            let port = socket.read_u16().await?;
            Ok(Target::Address(SocketAddr::new(
                Ipv6Addr::from(bytes).into(),
                port,
            )))
        }
        _ => {
            answer(socket, 8).await?;
            Err(wrong("an unknown kind of address"))
        }
    }
}
