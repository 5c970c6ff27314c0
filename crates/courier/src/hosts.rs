// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts, and files for them.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use paceline_net::{scratch, Doing, Error, Namespace};

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

/// Prefix of its name.
const PREFIX: &str = "paceline-transfer-";

/// A directory in memory: the disk is not measured. Removes those of killed runs.
pub fn in_memory() -> std::result::Result<tempfile::TempDir, Error> {
    let memory = Path::new("/dev/shm");
    // A guest's root is in memory.
    let place = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    scratch::clean_stale(&place, PREFIX);
    scratch::make(&place, PREFIX).doing("making a directory for the files")
}

/// A file that its owner alone may read.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut options = fs::File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    Ok(written.doing("writing a key")?)
}
