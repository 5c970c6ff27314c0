// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that do not outlive their parent thread.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sched::{setns, CloneFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getppid, Pid};

use crate::{Doing, Error, Namespace};

/// The command's process is killed when the thread that starts it ends, however it ends.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = Pid::this();
    // SAFETY: two system calls, nothing else, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The parent is gone already: the signal would not come.
            if getppid() != parent {
                return Err(Errno::ESRCH.into());
            }
            Ok(())
        });
    }
}

impl Namespace {
    /// Starts a process here, which is killed when the calling thread ends.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, Error> {
        let descriptor = self.duplicate()?;
        end_with_this_thread(command);
        // SAFETY: a system call on a descriptor that is open as long as the command is.
        unsafe {
            command.pre_exec(move || Ok(setns(descriptor.as_fd(), CloneFlags::CLONE_NEWNET)?));
        }
        command.spawn().doing(format!(
            "starting {}",
            command.get_program().to_string_lossy()
        ))
    }
}
