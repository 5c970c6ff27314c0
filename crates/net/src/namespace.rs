// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network namespaces that live as long as a descriptor: nothing of them is left
//! when this process ends, however it ends.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{setns, unshare, CloneFlags};

use crate::{Doing, Error};

/// A host of the lab.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    descriptor: OwnedFd,
}

impl Namespace {
    /// A new namespace, its loopback down. `name` is for messages.
    pub fn create(name: &str) -> Result<Self, Error> {
        let opened = std::thread::scope(|scope| {
            scope
                .spawn(|| -> io::Result<OwnedFd> {
                    unshare(CloneFlags::CLONE_NEWNET)?;
                    Ok(File::open("/proc/thread-self/ns/net")?.into())
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let descriptor = opened.doing(format!("making the network namespace {name}"))?;
        Ok(Namespace {
            name: name.to_owned(),
            descriptor,
        })
    }

    /// A namespace that exists already.
    pub fn from_descriptor(name: &str, descriptor: OwnedFd) -> Self {
        Namespace {
            name: name.to_owned(),
            descriptor,
        }
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another descriptor of it.
    pub fn duplicate(&self) -> Result<OwnedFd, Error> {
        self.descriptor
            .try_clone()
            .doing(format!("duplicating the descriptor of {}", self.name))
    }

    /// The form in which `ip link set … netns` takes it.
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.descriptor.as_raw_fd()
        )
    }

    /// Runs `work` in a thread of this namespace. Sockets made there stay in it.
    pub fn enter<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&self.descriptor, CloneFlags::CLONE_NEWNET)
                        .doing(format!("entering the network namespace {}", self.name))?;
                    work()
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs lines of `ip` here.
    pub fn ip(&self, lines: &str) -> Result<(), Error> {
        self.enter(|| batch("ip", lines))
    }

    /// Runs lines of `ip -6` here: rules do not say by their addresses which family's
    /// they are.
    pub fn ip6(&self, lines: &str) -> Result<(), Error> {
        self.enter(|| run("ip", &["-6"], None, lines))
    }

    /// Runs lines of `tc` here.
    pub fn tc(&self, lines: &str) -> Result<(), Error> {
        self.enter(|| batch("tc", lines))
    }

    /// The same; tables of distributions are found in `tables`.
    pub fn tc_with_tables(&self, lines: &str, tables: Option<&Path>) -> Result<(), Error> {
        let tables = tables.map(|tables| ("TC_LIB_DIR", tables));
        self.enter(|| run("tc", &[], tables, lines))
    }

    /// Writes a sysctl, named with dots, as this namespace sees it.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), Error> {
        self.enter(|| {
            let path = format!("/proc/sys/{}", key.replace('.', "/"));
            std::fs::write(&path, value)
                .doing(format!("writing \"{value}\" to {path} in {}", self.name))
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Runs `ip` or `tc` on lines in the calling thread's namespace.
pub fn batch(tool: &'static str, lines: &str) -> Result<(), Error> {
    run(tool, &[], None, lines)
}

/// Runs lines of `ip -4` or `ip -6` in the calling thread's namespace: rules do not say which
/// family's they are.
///
/// # Errors
/// [`Error::Tool`] with the message of `ip`.
pub fn ip_of(is_v6: bool, lines: &str) -> Result<(), Error> {
    run("ip", &[if is_v6 { "-6" } else { "-4" }], None, lines)
}

fn run(
    tool: &'static str,
    options: &[&str],
    variable: Option<(&str, &Path)>,
    lines: &str,
) -> Result<(), Error> {
    let options: Vec<&str> = options.iter().copied().chain(["-batch", "-"]).collect();
    feed(tool, &options, variable, lines)
}

/// Runs a tool that reads its orders from its standard input.
pub(crate) fn feed(
    tool: &'static str,
    options: &[&str],
    variable: Option<(&str, &Path)>,
    lines: &str,
) -> Result<(), Error> {
    let mut child = Command::new(tool)
        .args(options)
        .envs(variable)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .doing(format!("starting {tool}"))?;
    let written = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(lines.as_bytes()));
    let output = child
        .wait_with_output()
        .doing(format!("waiting for {tool}"))?;
    if !output.status.success() {
        return Err(Error::Tool {
            tool,
            status: output.status,
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            input: lines.to_owned(),
        });
    }
    written
        .unwrap_or(Ok(()))
        .doing(format!("writing to {tool}"))
}
