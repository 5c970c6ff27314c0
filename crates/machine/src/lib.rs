// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `virtual` backend: a stock kernel in QEMU, whose clock counts instructions.
//! The same run gives the same bytes on any machine, busy or idle; it needs no
//! root and touches nothing outside its cache and its temporary directory.
//!
//! [`guest`] is its inside: the same program, as the first process of that kernel. Its
//! caller passes in the work by a plan.

#![deny(unsafe_code)]

mod carried;
mod cpio;
mod elf;
mod entry;
#[allow(unsafe_code, reason = "the first process of a guest")]
pub mod guest;
mod image;
mod kernel;
#[allow(unsafe_code, reason = "scheduling of QEMU")]
mod processor;
#[allow(unsafe_code, reason = "what is done between fork and exec")]
mod qemu;

use std::io;
use std::path::{Path, PathBuf};

pub use carried::files_for_guest;
pub use entry::Entry;
pub use image::{find_program, prepare, Image};
pub use kernel::{Choice, Suite, UnknownKernel, SUITES};
pub use qemu::{clean_stale, execute, inputs, run, Machine};

/// Why a virtual machine could not be made or did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum VirtualError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program is missing.
    #[error("cannot start {program}: {source}; the virtual backend needs qemu-system-x86, iproute2, apt and dpkg (sudo apt-get install qemu-system-x86 iproute2)")]
    Start {
        /// Its name.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {message}")]
    Program {
        /// Its name.
        program: String,
        /// Its standard error.
        message: String,
    },
    /// No package could be looked up or fetched, and none is in the cache.
    #[error("the cache holds no kernel, and \"{command}\" failed: {message}\nrun \"sudo apt-get update\" first, or give a directory with a linux-image package: --kernel DIR")]
    Apt {
        /// The command.
        command: String,
        /// Its standard error.
        message: String,
    },
    /// The meta-package leads nowhere.
    #[error("package {meta} depends on no kernel: give a directory with a linux-image package: --kernel DIR")]
    NoKernelPackage {
        /// Its name.
        meta: String,
    },
    /// The user's directory has no kernel.
    #[error("{} holds no linux-image-*.deb or linux-binary-*.deb", directory.display())]
    NoImagePackage {
        /// As given.
        directory: PathBuf,
    },
    /// Packages without a file for the bootloader.
    #[error("no vmlinuz in {}", packages.join(", "))]
    NoBootFile {
        /// Their files' names.
        packages: Vec<String>,
    },
    /// Only one architecture is supported.
    #[error("the virtual backend runs on x86_64 only, and this is {0}; use --backend live")]
    Architecture(&'static str),
    /// Neither XDG_CACHE_HOME nor HOME is set.
    #[error("the cache has no directory: set XDG_CACHE_HOME or HOME")]
    NoCache,
    /// The guest does not go on.
    #[error(
        "{shard}: no output from the guest for {seconds} s; the console's last lines:\n{console}"
    )]
    Silent {
        /// Which shard.
        shard: String,
        /// How long.
        seconds: u64,
        /// Last output of the guest's kernel.
        console: String,
    },
    /// The guest stopped before its last record.
    #[error("{shard}: the guest stopped early ({status}); the console's last lines:\n{console}")]
    Died {
        /// Which shard.
        shard: String,
        /// QEMU's exit.
        status: std::process::ExitStatus,
        /// Last output of the guest's kernel or QEMU.
        console: String,
    },
    /// The guest reported an error.
    #[error("{shard}: {message}")]
    Guest {
        /// Which shard.
        shard: String,
        /// Its message.
        message: String,
    },
    /// A record is not JSON.
    #[error("{shard}: cannot parse the guest's record \"{line}\": {source}")]
    Record {
        /// Which shard.
        shard: String,
        /// The line.
        line: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
}

/// Names the file in an error.
trait Wrong<T> {
    fn wrong(self, action: &'static str, path: &Path) -> Result<T, VirtualError>;
}

impl<T> Wrong<T> for io::Result<T> {
    fn wrong(self, action: &'static str, path: &Path) -> Result<T, VirtualError> {
        self.map_err(|source| VirtualError::File {
            action,
            path: path.to_owned(),
            source,
        })
    }
}
