// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lock that serialises every change of jobs on this host.
//!
//! It is `flock` on two things, one after the other:
//!
//! 1. A file in /run that only root can open, so that no other user can hold the lock. The
//!    holder removes it again, and a waiter whose file is gone starts over. Only a killed
//!    process leaves a file behind, and the next process takes and removes it.
//! 2. The directory that the cgroup hierarchy is mounted at: one inode for all mount
//!    namespaces, and so also for a `paceline` in a container with a /run of its own. Any
//!    user can lock it, so `paceline` does not wait for a user's lock. Then containers are
//!    without this lock; processes with the same /run do not need it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{major, minor};

use crate::error::{Error, Result};

/// The lock of processes with this /run.
const FILE: &str = "/run/paceline.lock";
/// Between two attempts at the directory. Its holder loads BPF programs: tenths of a
/// second.
const RETRY: Duration = Duration::from_millis(20);
/// No `paceline` holds it for so long: it is held by a program that a user has made root's.
const PATIENCE: Duration = Duration::from_secs(10);
/// CAP_SYS_ADMIN in a set of capabilities (linux/capability.h).
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Held while jobs are made, ended or cleaned. Released when dropped, and by
/// the kernel when the process dies; a child that has not reached its exec yet
/// keeps it too.
#[derive(Debug)]
pub struct Lock {
    _directory: Option<Flock<File>>,
    file: Option<(PathBuf, Flock<File>)>,
}

impl Lock {
    /// Waits for it.
    ///
    /// # Errors
    /// [`Error::LockFile`], or the system's error.
    pub fn take(directory: &Path) -> Result<Self> {
        Self::take_both(Path::new(FILE), directory)
    }

    fn take_both(file: &Path, directory: &Path) -> Result<Self> {
        let file = lock_file(file)?.map(|locked| (file.to_owned(), locked));
        let _directory = lock_directory(directory)?;
        Ok(Self { _directory, file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held: a waiter for this file then finds another one, or none.
        if let Some((path, _)) = &self.file {
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!("cannot remove {}: {error}", path.display());
            }
        }
    }
}

/// The file that root alone can open; `None` where this process may not make it, or there is
/// no such place.
fn lock_file(path: &Path) -> Result<Option<Flock<File>>> {
    let failed = |error| Error::path("lock", path, error);
    loop {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path);
        let file = match file {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::NotFound
                        | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                tracing::debug!("cannot lock {}: {error}", path.display());
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let opened = file.metadata().map_err(failed)?;
        if opened.uid() != nix::unistd::geteuid().as_raw() || opened.mode() & 0o077 != 0 {
            return Err(Error::LockFile {
                path: path.to_owned(),
            });
        }
        let locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((file, Errno::EWOULDBLOCK)) => {
                tracing::info!("waiting for another paceline process that starts or ends a job");
                wait_for(file).map_err(failed)?
            }
            Err((_, errno)) => return Err(failed(errno.into())),
        };
        // Its former holder may have removed it.
        match fs::symlink_metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (opened.dev(), opened.ino()) => {
                return Ok(Some(locked))
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Keeps a job's cgroup from being cleaned away as a leftover while its `paceline run` lives, which
/// reads the job's counts after the last process has ended. Released when dropped, and by the
/// kernel when the process dies.
///
/// It is `flock` on `cgroup.kill`, which only root can open: any user could lock the directory and
/// so keep ended jobs for ever.
#[derive(Debug)]
pub struct Hold(#[allow(dead_code, reason = "held until dropped")] Flock<File>);

impl Hold {
    /// `None` where the cgroup has no such file, as in threaded ones, or another process holds it.
    pub(crate) fn take(cgroup: &Path) -> Option<Self> {
        // Shared: several may have the same reason.
        Self::lock(cgroup, FlockArg::LockSharedNonblock).ok()
    }

    /// Whether a process holds it.
    pub(crate) fn is_held(cgroup: &Path) -> bool {
        matches!(
            Self::lock(cgroup, FlockArg::LockExclusiveNonblock),
            Err(Errno::EWOULDBLOCK)
        )
    }

    fn lock(cgroup: &Path, how: FlockArg) -> Result<Self, Errno> {
        let file = File::options().write(true).open(cgroup.join("cgroup.kill"));
        let file = file.map_err(|error| {
            error
                .raw_os_error()
                .map_or(Errno::UnknownErrno, Errno::from_raw)
        })?;
        Flock::lock(file, how).map(Self).map_err(|(_, errno)| errno)
    }
}

fn wait_for(mut file: File) -> io::Result<Flock<File>> {
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(locked) => return Ok(locked),
            Err((file, Errno::EINTR)) => file,
            Err((_, errno)) => return Err(errno.into()),
        };
    }
}

/// The directory of the hierarchy; `None` where a user keeps it.
fn lock_directory(directory: &Path) -> Result<Option<Flock<File>>> {
    let mut file = File::open(directory).map_err(|error| Error::path("open", directory, error))?;
    let until = Instant::now() + PATIENCE;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(Some(locked)),
            Err((file, Errno::EWOULDBLOCK)) => file,
            Err((_, errno)) => return Err(Error::path("lock", directory, errno.into())),
        };
        let holders = holders(&file);
        if holders.iter().any(|process| is_unprivileged(*process)) || Instant::now() > until {
            tracing::info!(
                "not waiting for processes {holders:?}, which hold a lock on {}",
                directory.display()
            );
            return Ok(None);
        }
        std::thread::sleep(RETRY);
    }
}

/// The processes that took the lock on `file`, as far as this process may see.
fn holders(file: &File) -> Vec<u32> {
    let Ok(metadata) = file.metadata() else {
        return Vec::new();
    };
    let (device, inode) = (metadata.dev(), metadata.ino());
    let inode = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    holders_in(&locks, &inode)
}

/// `1: FLOCK ADVISORY WRITE PROCESS DEVICE:INODE 0 EOF`; waiters have `->` before FLOCK.
fn holders_in(locks: &str, inode: &str) -> Vec<u32> {
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, of, ..] if of == inode => process.parse().ok(),
            _ => None,
        }
    };
    locks.lines().filter_map(holder).collect()
}

/// Whether a process could not have started a job. False for one that is gone, or that this
/// process may not inspect.
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
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 700 00:1c:1 0 EOF
2: FLOCK  ADVISORY  WRITE 801 00:1c:11 0 EOF
3: FLOCK  ADVISORY  WRITE 812 00:1c:1 0 EOF
3: -> FLOCK  ADVISORY  WRITE 900 00:1c:1 0 EOF
";

    #[test]
    fn only_the_holder_of_a_lock_is_listed() {
        assert_eq!(holders_in(LOCKS, "00:1c:1"), [812]);
        assert!(holders_in(LOCKS, "00:1d:1").is_empty());
        let waiting = &LOCKS[LOCKS.find("3: ->").unwrap()..];
        assert!(holders_in(waiting, "00:1c:1").is_empty());
    }

    #[test]
    fn one_at_a_time_has_it_and_nothing_is_left() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("lock");
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let locked = Lock::take_both(&file, place.path()).unwrap();
                        let others = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(others, 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(locked);
                    }
                });
            }
        });
        assert!(!file.exists());
    }

    #[test]
    fn a_file_that_others_can_open_is_refused_and_one_that_a_killed_process_left_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("lock");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let refused = lock_file(&file).unwrap_err().to_string();
        assert!(refused.contains("lock"), "{refused}");
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        drop(Lock::take_both(&file, place.path()).unwrap());
        assert!(!file.exists());
        std::os::unix::fs::symlink("elsewhere", &file).unwrap();
        assert!(lock_file(&file).is_err());
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
