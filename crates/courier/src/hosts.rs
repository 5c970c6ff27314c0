// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts, and processes on them.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};

use paceline_net::{Doing, Error, Namespace};

use crate::Result;

/// This program, also after its file was replaced.
pub fn program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// A host of the experiment's network.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Its network.
    pub network: &'a Namespace,
    /// Its address there.
    pub address: IpAddr,
}

impl Host<'_> {
    /// Starts a process here.
    pub(crate) fn spawn(&self, command: &mut Command) -> Result<Child> {
        let start = || command.spawn().doing("starting paceline");
        Ok(self.network.enter(start)?)
    }
}

/// A directory in memory: a disk is not what is measured.
pub fn in_memory() -> std::result::Result<tempfile::TempDir, Error> {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("paceline-transfer-");
    // A guest's root is in memory.
    let made = match memory.is_dir() {
        true => builder.tempdir_in(memory),
        false => builder.tempdir(),
    };
    made.doing("making a directory for the files")
}

/// A file that its owner alone may read.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut options = fs::File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    Ok(written.doing("writing a key")?)
}
