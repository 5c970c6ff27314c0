// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How commands reach a lab's keeper: abstract Unix sockets, which are in no file
//! system, belong to a network namespace and go with the process that holds them. The
//! keeper has one in its own namespace and one in each node's, so that commands inside
//! reach it, and no other lab.
//!
//! Any user may connect to such a socket or take its name: each side checks the other one's
//! user.

use std::fs;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::sys::socket::{
    connect as connect_to, getsockopt, recvmsg, sendmsg, socket as new_socket, sockopt,
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    UnixCredentials,
};
use serde::{Deserialize, Serialize};

use super::State;

/// Prefix of the sockets' names.
const PREFIX: &str = "paceline-lab.";
/// Bytes of a lab's name: a socket's name has 107.
pub const LONGEST_NAME: usize = 64;
/// Room for the reply that comes with descriptors.
const SHORT_REPLY_BYTES: usize = 4096;
/// Bytes of a line at most: more than the state of the largest lab.
const LONGEST: u64 = 16 << 20;
/// `SO_ACCEPTCON` in /proc/net/unix: a socket that listens.
const LISTENS: &str = "00010000";

/// A request of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The state of the lab.
    Describe,
    /// The descriptors of a node.
    Enter(String),
}

/// The keeper's answer: one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Describe`].
    State(Box<State>),
    /// To [`Request::Enter`], with three descriptors.
    Node,
    /// There is no such node; these are.
    NoSuchNode(String),
    /// The error.
    Failed(String),
}

/// Whether `name` may be a lab's.
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Listens in the calling thread's network namespace.
pub fn listen(lab: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(lab)?)
}

/// Connects to a lab of the calling thread's network namespace.
pub fn connect(lab: &str) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&address(lab)?)
}

fn address(lab: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{lab}"))
}

/// The labs of this process's network namespace, in the order of their names.
pub fn labs() -> io::Result<Vec<String>> {
    let sockets = fs::read_to_string("/proc/self/net/unix")?;
    let mut labs: Vec<String> = sockets.lines().filter_map(lab_of_line).collect();
    labs.sort();
    labs.dedup();
    Ok(labs)
}

/// `NUMBER: REFERENCES PROTOCOL FLAGS TYPE STATE INODE @NAME`
fn lab_of_line(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, LISTENS, _, _, _, name] = fields[..] else {
        return None;
    };
    let lab = name.strip_prefix('@')?.strip_prefix(PREFIX)?;
    is_name(lab).then(|| lab.to_owned())
}

/// The user of a lab's listening socket, without waiting for an answer, which the process may
/// never give.
pub fn owner(lab: &str) -> io::Result<u32> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let caller = new_socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let name = UnixAddr::new_abstract(format!("{PREFIX}{lab}").as_bytes())?;
    connect_to(caller.as_raw_fd(), &name)?;
    Ok(peer(&UnixStream::from(caller))?.uid())
}

/// The process at the other end; of an outgoing connection, the listening process.
pub fn peer(stream: &UnixStream) -> io::Result<UnixCredentials> {
    Ok(getsockopt(stream, sockopt::PeerCredentials)?)
}

/// Writes a value as a line.
pub fn write<T: Serialize>(mut stream: impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads a line; none if the other side has gone.
pub fn read<T: for<'de> Deserialize<'de>>(stream: impl Read) -> io::Result<Option<T>> {
    let mut line = String::new();
    match BufReader::new(stream.take(LONGEST)).read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

/// Sends a node's descriptors.
pub fn send_node(stream: &UnixStream, descriptors: [BorrowedFd<'_>; 3]) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Reply::Node)?;
    line.push(b'\n');
    let raw = descriptors.map(|descriptor| descriptor.as_raw_fd());
    sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(&line)],
        &[ControlMessage::ScmRights(&raw)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Receives the reply to [`Request::Enter`], with a node's descriptors if it has them.
pub fn receive_node(stream: &UnixStream) -> io::Result<(Option<Reply>, Vec<OwnedFd>)> {
    let mut buffer = [0; SHORT_REPLY_BYTES];
    let mut control = nix::cmsg_space!([i32; 3]);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let message = recvmsg::<()>(
        stream.as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for item in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = item {
            // SAFETY: the kernel has just made them for this process.
            descriptors.extend(
                raw.into_iter()
                    .map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }),
            );
        }
    }
    let length = message.bytes;
    let reply = match length {
        0 => None,
        _ => Some(serde_json::from_slice(&buffer[..length])?),
    };
    Ok((reply, descriptors))
}

/// For the fuzzer: bytes to a keeper, or from one.
pub fn fuzz(bytes: &[u8]) {
    let _ = read::<Request>(bytes);
    if let Ok(Some(reply)) = read::<Reply>(bytes) {
        let mut again = Vec::new();
        write(&mut again, &reply).expect("it was read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_of_labs_are_labs() {
        let listener =
            "0000000000000000: 00000002 00000000 00010000 0001 01 4711 @paceline-lab.two";
        assert_eq!(lab_of_line(listener).as_deref(), Some("two"));
        assert_eq!(lab_of_line(&listener.replace("00010000", "00000000")), None);
        assert_eq!(
            lab_of_line(&listener.replace("@paceline-lab.", "/run/")),
            None
        );
        assert_eq!(lab_of_line(&listener.replace("two", "two@")), None);
    }
}
