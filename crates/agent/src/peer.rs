// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that requests a job or a page of phases, identified by the kernel alone.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Component;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::UnixCredentials;
use paceline_cgroup::{Cgroup, Hierarchy};

use crate::error::{Error, Result};
use crate::supervise::pidfd;

/// Since Linux 6.5 (asm-generic/socket.h): a pidfd of the process that connected.
const SO_PEERPIDFD: libc::c_int = 77;
/// NGROUPS_MAX of linux/limits.h.
const MOST_GROUPS: usize = 65536;

/// The process at the other end of a socket, as it was when it connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub process: u32,
    pub user: u32,
    /// Its primary group and the supplementary ones.
    pub groups: Vec<libc::gid_t>,
    lives: OwnedFd,
}

impl Peer {
    /// # Errors
    /// [`Error::PeerGone`], [`Error::PeerOutside`].
    pub fn of(stream: &UnixStream, credentials: &UnixCredentials) -> Result<Self> {
        let failed = |error| Error::system("cannot identify the requesting process", error);
        if credentials.pid() <= 0 {
            return Err(Error::PeerOutside {
                what: "the requesting process",
            });
        }
        let process = credentials.pid() as u32;
        let lives = match option(stream, SO_PEERPIDFD, &mut [-1 as RawFd]) {
            // SAFETY: the kernel has just installed it for us alone.
            Ok(descriptors) => unsafe { OwnedFd::from_raw_fd(descriptors[0]) },
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                by_number(process, credentials.uid())?
            }
            // The kernel has none for a process that is gone.
            Err(_) => return Err(Error::PeerGone { process }),
        };
        let groups = groups_of(stream, credentials).map_err(failed)?;
        let peer = Self {
            process,
            user: credentials.uid(),
            groups,
            lives,
        };
        peer.check()?;
        Ok(peer)
    }

    /// Fails where the process has ended: its number may be another's by now.
    pub fn check(&self) -> Result<()> {
        check(self.process, &self.lives)
    }

    /// Becomes readable when the process ends.
    pub fn into_pidfd(self) -> OwnedFd {
        self.lives
    }

    /// The process's own cgroup.
    pub fn cgroup(&self, hierarchy: &Hierarchy) -> Result<Cgroup> {
        let cgroup = hierarchy.of_process(self.process)?;
        self.check()?;
        let climbs = |part: Component| part == Component::ParentDir;
        if cgroup.path().components().any(climbs) {
            return Err(Error::PeerOutside {
                what: "the cgroup of the requesting process",
            });
        }
        Ok(cgroup)
    }

    /// Moves the process into its job. `former` is where it was.
    pub fn move_into(&self, cgroup: &Cgroup, former: &Cgroup) -> Result<()> {
        self.check()?;
        cgroup.add(self.process)?;
        self.check().inspect_err(|_| {
            // It ended in between: another process may have its number now.
            for process in cgroup.processes() {
                if let Err(error) = former.add(process as u32) {
                    tracing::warn!("{error}");
                }
            }
        })
    }
}

/// # Errors
/// [`Error::PeerGone`] if `process`, of which `lives` is the pidfd, has ended.
pub(crate) fn check(process: u32, lives: &OwnedFd) -> Result<()> {
    let mut source = [PollFd::new(lives.as_fd(), PollFlags::POLLIN)];
    match poll(&mut source, PollTimeout::ZERO) {
        Ok(0) => Ok(()),
        _ => Err(Error::PeerGone { process }),
    }
}

/// The caller's groups: the primary one and the supplementary ones.
pub(crate) fn groups_of(
    stream: &UnixStream,
    credentials: &UnixCredentials,
) -> io::Result<Vec<libc::gid_t>> {
    let mut groups = vec![0; MOST_GROUPS];
    let mut groups = option(stream, libc::SO_PEERGROUPS, &mut groups)?.to_vec();
    groups.push(credentials.gid());
    Ok(groups)
}

/// Before Linux 6.5 the number must do. If the process has ended and another one has it,
/// that one is at least of the same user.
fn by_number(process: u32, user: u32) -> Result<OwnedFd> {
    let gone = |_| Error::PeerGone { process };
    let lives = pidfd(process).map_err(gone)?;
    let directory = File::open(format!("/proc/{process}")).map_err(gone)?;
    let owner = directory.metadata().map_err(gone)?.uid();
    if owner == user {
        Ok(lives)
    } else {
        Err(Error::PeerGone { process })
    }
}

/// An option of a socket: as much of `values` as the kernel has filled.
fn option<'v, T>(
    stream: &UnixStream,
    name: libc::c_int,
    values: &'v mut [T],
) -> io::Result<&'v [T]> {
    let mut length = size_of_val(values) as libc::socklen_t;
    // SAFETY: `values` has room for `length` bytes; the options asked for hold plain
    // integers.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            values.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(&values[..length as usize / size_of::<T>()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{getsockopt, sockopt};

    #[test]
    fn a_peer_is_identified_by_the_kernel() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let credentials = getsockopt(&ours, sockopt::PeerCredentials).expect("credentials");
        let peer = Peer::of(&ours, &credentials).expect("we live");
        assert_eq!(peer.process, std::process::id());
        assert_eq!(peer.user, nix::unistd::geteuid().as_raw());
        assert!(peer.groups.contains(&nix::unistd::getegid().as_raw()));
        let lives = by_number(peer.process, peer.user);
        assert!(lives.is_ok());
        assert!(by_number(peer.process, peer.user + 1).is_err());
    }
    #[test]
    fn a_process_that_has_ended_is_gone() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let (ours, its) = (pidfd(std::process::id()), pidfd(child.id()));
        child.wait().expect("it ends");
        assert!(check(std::process::id(), &ours.expect("a pidfd")).is_ok());
        assert!(check(child.id(), &its.expect("a pidfd")).is_err());
    }
}
