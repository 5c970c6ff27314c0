// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run that was interrupted leaves: the records of the machines that came to
//! their end. The same run takes them from there, for they follow from a machine's
//! inputs alone; each file is named by a hash of all of these.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::qemu::{Machine, PROGRAM};
use super::{hash_of, VirtualError, Wrong};
use crate::plan::Plan;
use crate::record::Record;

/// In the directory that the results go to.
const DIRECTORY: &str = "unfinished";

/// The machines of one run that are done, on disk until [`forget`].
pub struct Unfinished {
    directory: PathBuf,
    /// Of everything but the plan.
    inputs: u64,
}

impl Unfinished {
    /// Looks below `out`. Makes nothing yet.
    ///
    /// # Errors
    /// If QEMU cannot be asked for its version, or does not say it.
    pub fn within(out: &Path, machine: &Machine) -> Result<Self, VirtualError> {
        let qemu = Command::new(PROGRAM)
            .arg("--version")
            .output()
            .map_err(|source| VirtualError::Start {
                program: PROGRAM.to_owned(),
                source,
            })?;
        if !qemu.status.success() {
            return Err(VirtualError::Program {
                program: format!("{PROGRAM} --version"),
                message: qemu.status.to_string(),
            });
        }
        let image = &machine.image;
        Ok(Unfinished {
            directory: out.join(DIRECTORY),
            inputs: hash_of(&[
                &qemu.stdout,
                image.kernel.as_os_str().as_encoded_bytes(),
                &image.initramfs,
                &machine.shift.to_le_bytes(),
            ]),
        })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn file(&self, plan: &Plan) -> Result<PathBuf, VirtualError> {
        let plan = serde_json::to_vec(plan)
            .map_err(io::Error::from)
            .wrong("encode the plan for", &self.directory)?;
        let hash = hash_of(&[&self.inputs.to_le_bytes(), &plan]);
        Ok(self.directory.join(format!("{hash:016x}.json")))
    }

    /// The records of `plan`'s machine, if it was done before.
    ///
    /// # Errors
    /// If they are there and cannot be read.
    pub fn find(&self, plan: &Plan) -> Result<Option<Vec<Record>>, VirtualError> {
        let path = self.file(plan)?;
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(io::Error::from)
                .wrong("read", &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).wrong("read", &path),
        }
    }

    /// Keeps the records of `plan`'s machine: whole, or not at all.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn keep(&self, plan: &Plan, records: &[Record]) -> Result<(), VirtualError> {
        let path = self.file(plan)?;
        let text = serde_json::to_vec(records)
            .map_err(io::Error::from)
            .wrong("encode the records for", &path)?;
        fs::create_dir_all(&self.directory).wrong("make", &self.directory)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)
            .wrong("make a file in", &self.directory)?;
        file.write_all(&text).wrong("write", file.path())?;
        file.persist(&path)
            .map(drop)
            .map_err(|error| error.error)
            .wrong("make", &path)
    }
}

/// Removes what is kept below `out`: the results are written.
///
/// # Errors
/// If it cannot be removed.
pub fn forget(out: &Path) -> Result<(), VirtualError> {
    let directory = out.join(DIRECTORY);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).wrong("remove", &directory)
        }
        _ => Ok(()),
    }
}
