// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files for launchers: a remote shell, and the list of hosts.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::memfd::{memfd_create, MFdFlags};

/// The program of the process that holds the nodes, under a path without spaces that outlives
/// the file. Launchers take a program without arguments: `/proc/HOLDER/fd/N` is the path of
/// this script in all of the lab's namespaces.
const SHELL: &str = "#!/bin/sh\nexec /proc/HOLDER/exe lab shell \"$@\"\n";

/// Files that only this process has.
#[derive(Debug)]
pub struct Launching {
    shell: OwnedFd,
    hosts: OwnedFd,
}

/// Where launchers find them.
#[derive(Debug, Clone)]
pub struct LaunchPaths {
    /// See [`State::remote_shell`](super::State::remote_shell).
    pub shell: String,
    /// See [`State::host_list`](super::State::host_list).
    pub hosts: String,
}

impl Launching {
    /// For launchers that are to start ranks on `hosts`.
    pub fn new(hosts: impl Iterator<Item = String>) -> io::Result<Self> {
        let hosts: String = hosts.map(|name| name + "\n").collect();
        let shell = SHELL.replace("HOLDER", &std::process::id().to_string());
        Ok(Launching {
            shell: memory_file(c"shell", &shell)?,
            hosts: memory_file(c"hosts", &hosts)?,
        })
    }

    /// Valid on all nodes, as long as this process lives.
    pub fn paths(&self) -> LaunchPaths {
        let path = |file: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        LaunchPaths {
            shell: path(&self.shell),
            hosts: path(&self.hosts),
        }
    }
}

fn memory_file(name: &CStr, text: &str) -> io::Result<OwnedFd> {
    let name = CString::from(name);
    let descriptor = memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC)?;
    File::from(descriptor.try_clone()?).write_all(text.as_bytes())?;
    Ok(descriptor)
}
