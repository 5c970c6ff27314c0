// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for a job's command while passing on the signals meant for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::{Error, Result};

/// The outcome of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    status: ExitStatus,
}

impl Outcome {
    /// The command's exit code, or 128 plus the signal that ended it.
    pub fn code(self) -> u8 {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => code as u8,
            (None, Some(signal)) => 128u8.saturating_add(signal as u8),
            (None, None) => u8::MAX,
        }
    }

    /// The status as the system gave it.
    pub fn status(self) -> ExitStatus {
        self.status
    }
}

/// The signals of this thread that belong to the job's command, held back
/// until [`Signals::wait`] passes them on.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: SignalFd,
    former: SigSet,
}

impl Signals {
    /// Holds the signals back.
    ///
    /// # Errors
    /// Where it fails, or the system denies a pidfd, which the wait for the command needs.
    pub fn take() -> Result<Self> {
        pidfd(std::process::id()).map_err(|error| {
            let why = "cannot open a pidfd for the command: a seccomp filter denies pidfd_open, as in older container runtimes, or too many files are open";
            Error::system(why, error)
        })?;
        let set: SigSet = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ]
        .into_iter()
        .collect();
        let former = set
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .map_err(|errno| Error::system("cannot hold back signals", errno.into()))?;
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(|errno| Error::system("cannot make a signalfd", errno.into()))?;
        Ok(Self { descriptor, former })
    }

    /// Makes the command start with the signal mask that the caller had.
    pub fn give_back_in(&self, command: &mut Command) {
        let former = self.former;
        // SAFETY: setting the signal mask is allowed between fork and exec.
        unsafe {
            command.pre_exec(move || former.thread_set_mask().map_err(io::Error::from));
        }
    }

    /// Waits until the command ends.
    pub fn wait(self, mut child: Child) -> Result<Outcome> {
        let failed = |error| Error::system("cannot wait for the command", error);
        let process = pidfd(child.id()).map_err(failed)?;
        // Signals from before the command's start are for it, from any sender.
        while let Ok(Some(signal)) = self.descriptor.read_signal() {
            send(&process, signal.ssi_signo);
        }
        loop {
            let mut sources = [
                PollFd::new(process.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut sources, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
            while let Ok(Some(signal)) = self.descriptor.read_signal() {
                pass_on(&process, &signal);
            }
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(Outcome { status });
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The caller's mask again; it was valid before.
        let _ = self.former.thread_set_mask();
    }
}

fn pass_on(process: &OwnedFd, signal: &nix::sys::signalfd::siginfo) {
    // The terminal signals the whole foreground process group: the command,
    // which is in it, has had this one.
    if signal.ssi_code != libc::SI_KERNEL {
        send(process, signal.ssi_signo);
    }
}

fn send(process: &OwnedFd, signal: u32) {
    // SAFETY: the descriptor is open; no further information is passed. ESRCH
    // means that the command has just ended, which the caller sees next.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal as libc::c_int,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        );
    }
}

/// Becomes readable when the process ends.
pub(crate) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor returned is ours alone.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor as i32))
    }
}
