// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HTTP CONNECT (RFC 9110, 9.3.6).

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::proxy::{through, Failure, Proxied};
use super::relay::{orderly, relay};
use super::target::{Reason, Target};
use crate::peers::Peers;

/// Longest request, bytes.
const MOST: usize = 8 << 10;
/// Longest wait for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection of a program's.
///
/// # Errors
/// If it breaks.
pub async fn connection(peers: &Peers, peer: &str, mut socket: TcpStream) -> io::Result<()> {
    let head = match timeout(PATIENCE, head(&mut socket)).await {
        Ok(head) => head?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    let Some(target) = target(&head) else {
        return answer(&mut socket, "405 Only CONNECT HOST:PORT is served here").await;
    };
    match through(peers, peer, &target).await {
        Ok(Proxied {
            hub,
            stream,
            signals,
        }) => {
            socket.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
            relay(&hub, stream, &signals, socket).await;
            Ok(())
        }
        Err(failure) => {
            answer(&mut socket, status(failure)).await?;
            orderly(&socket)
        }
    }
}

fn status(failure: Failure) -> &'static str {
    match failure {
        Failure::NoPeer => "503 The other gateway is not connected",
        Failure::Reset(Reason::Forbidden) => "403 The other gateway does not allow this address",
        Failure::Reset(Reason::Refused) => "502 Connection refused",
        Failure::Reset(Reason::Unreachable) => "504 No way to this address",
        Failure::Reset(Reason::Silent) => "504 No answer",
        Failure::Reset(Reason::Unknown) => "502 No such host",
        Failure::Reset(Reason::Full) => "503 Too many connections",
        Failure::Reset(Reason::Broken) => "502 Connection broken",
    }
}

async fn answer(socket: &mut TcpStream, status: &str) -> io::Result<()> {
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    socket.write_all(text.as_bytes()).await
}

/// Reads up to the empty line, and not a byte more: the rest is the program's.
async fn head(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MOST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a request without end",
            ));
        }
        head.push(socket.read_u8().await?);
    }
    Ok(head)
}

fn target(head: &[u8]) -> Option<Target> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let authority = line.strip_prefix("CONNECT ")?.split(' ').next()?;
    if let Ok(address) = authority.parse() {
        return Some(Target::Address(address));
    }
    let (name, port) = authority.rsplit_once(':')?;
    let is_name = (1..=255).contains(&name.len());
    Some(Target::Name(name.to_owned(), port.parse().ok()?)).filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_requests() {
        let target = |line: &str| target(format!("{line}\r\nHost: x\r\n\r\n").as_bytes());
        let address = |text: &str| Some(Target::Address(text.parse().expect("an address")));
        assert_eq!(
            target("CONNECT 10.0.0.1:80 HTTP/1.1"),
            address("10.0.0.1:80")
        );
        assert_eq!(target("CONNECT [::1]:80 HTTP/1.1"), address("[::1]:80"));
        let name = Target::Name("a.example".to_owned(), 443);
        assert_eq!(target("CONNECT a.example:443 HTTP/1.1"), Some(name));
        for wrong in [
            "GET / HTTP/1.1",
            "CONNECT a.example HTTP/1.1",
            "CONNECT :1 HTTP/1.1",
            "",
        ] {
            assert_eq!(target(wrong), None, "{wrong}");
        }
    }
}
