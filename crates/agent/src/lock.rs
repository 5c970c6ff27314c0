// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lock that serialises every change of jobs on this host.
//!
//! It is on the directory that the cgroup hierarchy is mounted at: one inode for all
//! mount namespaces, which is there anyway, so that nothing is left behind. Everybody
//! may lock it. A holder without Paceline's privileges is therefore not waited for, or
//! any user could stop all commands.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{major, minor};

use crate::error::{Error, Result};

/// Between two attempts. Whoever holds the lock loads BPF programs: tenths of a second.
const RETRY: Duration = Duration::from_millis(20);
/// CAP_SYS_ADMIN in a set of capabilities (linux/capability.h).
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Held while jobs are made, ended or cleaned. Released when dropped, and by
/// the kernel when the process dies; a child that has not reached its exec yet
/// keeps it too.
#[derive(Debug)]
pub struct Lock {
    _directory: Flock<File>,
}

impl Lock {
    /// Waits for it.
    ///
    /// # Errors
    /// [`Error::LockedByUser`], or what the system says.
    pub(crate) fn take(directory: &Path) -> Result<Self> {
        let mut file =
            File::open(directory).map_err(|error| Error::path("open", directory, error))?;
        let mut told = false;
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => return Ok(Lock { _directory: locked }),
                Err((file, Errno::EWOULDBLOCK)) => file,
                Err((_, errno)) => return Err(Error::path("lock", directory, errno.into())),
            };
            if let Some(process) = holder(&file).filter(|process| is_unprivileged(*process)) {
                return Err(Error::LockedByUser {
                    process,
                    directory: directory.to_owned(),
                });
            }
            if !told {
                tracing::info!("waiting for another paceline that starts or ends a job");
                told = true;
            }
            std::thread::sleep(RETRY);
        }
    }
}

/// The process that took the lock on `file`, as far as this process may know.
fn holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let inode = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    holder_in(&fs::read_to_string("/proc/locks").ok()?, &inode)
}

/// `1: FLOCK ADVISORY WRITE PROCESS DEVICE:INODE 0 EOF`; who waits has `->` before FLOCK.
fn holder_in(locks: &str, inode: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, of, ..] if of == inode => process.parse().ok(),
            _ => None,
        }
    })
}

/// Whether a process could not have started a job. One that is gone, or that this process
/// may not look at, is not known to be.
fn is_unprivileged(process: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let capabilities = fs::read_to_string(format!("/proc/{process}/status"))
        .ok()
        .and_then(|status| effective(&status));
    match (
        capabilities,
        namespace(&process.to_string()),
        namespace("self"),
    ) {
        (Some(held), Some(its), Some(ours)) => held & CAP_SYS_ADMIN == 0 || its != ours,
        _ => false,
    }
}

/// The effective capabilities in /proc/PID/status.
fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{effective, holder_in};

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 700 00:1c:1 0 EOF
2: FLOCK  ADVISORY  WRITE 801 00:1c:11 0 EOF
3: FLOCK  ADVISORY  WRITE 812 00:1c:1 0 EOF
3: -> FLOCK  ADVISORY  WRITE 900 00:1c:1 0 EOF
";

    #[test]
    fn the_holder_is_told_from_those_who_wait() {
        assert_eq!(holder_in(LOCKS, "00:1c:1"), Some(812));
        assert_eq!(holder_in(LOCKS, "00:1d:1"), None);
        let waiting = &LOCKS[LOCKS.find("3: ->").unwrap()..];
        assert_eq!(holder_in(waiting, "00:1c:1"), None);
    }

    #[test]
    fn capabilities_are_read() {
        assert_eq!(
            effective("Name:\tx\nCapEff:\t0000000000200000\n"),
            Some(1 << 21)
        );
        assert_eq!(effective("Name:\tx\n"), None);
    }
}
