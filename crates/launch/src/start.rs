// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of a job's command: between fork and exec it moves into the job's cgroup, becomes
//! its user and waits, where that is asked.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use crate::identity::Identity;
use crate::terminal::Filter;

/// Where and as whom a command starts.
#[derive(Debug, Default)]
pub struct Start {
    /// `cgroup.procs` of the cgroup that it moves into; else it stays in its parent's.
    pub procs: Option<OwnedFd>,
    /// Its user; else its parent's.
    pub user: Option<Identity>,
    /// Two pipes: the command writes its process number (i32) to the first, and goes on with a
    /// byte other than 0 from the second.
    pub wait: Option<(RawFd, RawFd)>,
}

impl Start {
    /// Starts the command. Returns once it has been executed.
    ///
    /// # Errors
    /// Of the move, of the change of user, or of the exec. EOPNOTSUPP is the cgroup's.
    pub fn spawn(self, command: &mut Command) -> io::Result<Child> {
        if let Some(user) = &self.user {
            command
                .env("HOME", &user.home)
                .env("USER", &user.name)
                .env("LOGNAME", &user.name);
        }
        let filter = Filter::new();
        let Start { procs, user, wait } = self;
        let descriptor = procs.as_ref().map(AsRawFd::as_raw_fd);
        // SAFETY: `enter` only makes system calls on what was prepared before the
        // fork, and `procs` is open until the spawn below returns.
        unsafe {
            command.pre_exec(move || {
                enter(descriptor, user.as_ref(), &filter)?;
                wait.map_or(Ok(()), wait_inside)
            });
        }
        let spawned = command.spawn();
        drop(procs);
        spawned
    }
}

/// See [`Start::wait`].
fn wait_inside((number, go): (RawFd, RawFd)) -> io::Result<()> {
    // SAFETY: plain system calls on live buffers.
    unsafe {
        let own = libc::getpid().to_ne_bytes();
        let mut may = 0u8;
        if libc::write(number, own.as_ptr().cast(), own.len()) != own.len() as isize
            || libc::read(go, (&raw mut may).cast(), 1) != 1
            || may == 0
        {
            return Err(io::ErrorKind::Other.into());
        }
    }
    Ok(())
}

/// In the child, before its exec: into the job's cgroup, then to its user.
fn enter(procs: Option<RawFd>, user: Option<&Identity>, filter: &Filter) -> io::Result<()> {
    // SAFETY: plain system calls; "0" means the caller itself.
    unsafe {
        if let Some(procs) = procs {
            if libc::write(procs, b"0".as_ptr().cast(), 1) != 1 {
                return Err(io::Error::last_os_error());
            }
        }
        if let Some(user) = user {
            // Before the change of user, as root: root's terminal is not the user's.
            filter.apply()?;
            let failed = libc::setgroups(user.groups.len(), user.groups.as_ptr()) != 0
                || libc::setresgid(user.gid, user.gid, user.gid) != 0
                || libc::setresuid(user.uid, user.uid, user.uid) != 0;
            if failed {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}
