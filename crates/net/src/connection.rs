// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP connections of the host that the calling thread is on, and their congestion control.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::{Doing, Error};

/// Listens on the host that the calling thread is on. Accepted connections have the
/// congestion control.
pub fn listen_here(address: SocketAddr, congestion: Option<&str>) -> Result<TcpListener, Error> {
    let doing = || format!("listening at {address}");
    let listener = TcpListener::bind(address).doing(doing())?;
    if let Some(name) = congestion {
        set_congestion(&listener, name)?;
    }
    // std asks for a backlog of 128; more senders than that may come at once.
    // SAFETY: a plain call on an open socket.
    let result = unsafe { libc::listen(listener.as_raw_fd(), 1024) };
    nix::errno::Errno::result(result).doing(doing())?;
    Ok(listener)
}

/// Connects from the host that the calling thread is on, with TCP_NODELAY.
pub fn connect_from_here(address: SocketAddr, congestion: &Congestion) -> Result<TcpStream, Error> {
    connect_new(address, congestion, true)
}

/// The same as a program that leaves TCP_NODELAY alone, so that a policy may set it.
pub fn connect_with_nagle(
    address: SocketAddr,
    congestion: &Congestion,
) -> Result<TcpStream, Error> {
    connect_new(address, congestion, false)
}

fn connect_new(
    address: SocketAddr,
    congestion: &Congestion,
    nodelay: bool,
) -> Result<TcpStream, Error> {
    let stream = socket(address)?;
    if let Some(name) = &congestion.asked {
        set_congestion(&stream, name)?;
    }
    if nodelay {
        stream.set_nodelay(true).doing("setting TCP_NODELAY")?;
    }
    connect_socket(&stream, address).doing(format!("connecting to {address}"))?;
    congestion.check(&stream)?;
    Ok(stream)
}

/// A socket that is not connected yet: the congestion control has to be set
/// before the handshake, or the first window is another's.
fn socket(address: SocketAddr) -> Result<TcpStream, Error> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: a plain call; the descriptor is owned from here on.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    let descriptor = nix::errno::Errno::result(descriptor).doing("making a socket")?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
}

/// The congestion control of a connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Congestion {
    /// TCP_CONGESTION is set to it before the handshake; absent: the kernel's default.
    pub asked: Option<String>,
    /// Expected of an established connection; absent: any.
    pub expected: Option<String>,
}

impl Congestion {
    /// Whatever the kernel has.
    pub const ANY: Self = Self {
        asked: None,
        expected: None,
    };

    /// Whether an established connection has the expected one. A kernel that lacks it
    /// falls back without a word where a BPF program chooses.
    ///
    /// # Errors
    /// [`Error::Congestion`] if it has another one.
    pub fn check(&self, stream: &TcpStream) -> Result<(), Error> {
        let Some(expected) = &self.expected else {
            return Ok(());
        };
        let found = congestion_of(stream)?;
        if found == *expected {
            return Ok(());
        }
        Err(Error::Congestion {
            found,
            expected: expected.clone(),
        })
    }
}

/// The congestion control that a connection has.
pub fn congestion_of(stream: &TcpStream) -> Result<String, Error> {
    let name = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::TcpCongestion)
        .doing("asking for the congestion control")?;
    let found = name.to_string_lossy();
    Ok(found.trim_end_matches('\0').to_owned())
}

fn set_congestion(socket: &impl AsRawFd, name: &str) -> Result<(), Error> {
    // SAFETY: pointer and length describe `name`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(result)
        .map(drop)
        .doing(format!("choosing the congestion control \"{name}\""))
}

fn connect_socket(stream: &TcpStream, address: SocketAddr) -> io::Result<()> {
    let storage = nix::sys::socket::SockaddrStorage::from(address);
    nix::sys::socket::connect(stream.as_raw_fd(), &storage)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_congestion_control_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let with = |asked: &str, expected: &str| {
            let congestion = Congestion {
                asked: Some(asked.to_owned()),
                expected: Some(expected.to_owned()),
            };
            connect_from_here(address, &congestion).map(drop)
        };
        assert!(with("reno", "reno").is_ok());
        let error = with("reno", "paceline_reno").unwrap_err().to_string();
        assert!(error.contains("reno instead of paceline_reno"), "{error}");
    }
}
