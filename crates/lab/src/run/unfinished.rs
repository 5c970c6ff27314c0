// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of an interrupted run: the records of the cases that came to their end. The same
//! run takes them from there; each file is named by a hash of all that goes into a case.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use paceline_experiment::hash::hash_of;
use paceline_experiment::plan::Plan;
use paceline_experiment::record::Record;

/// In the directory that the results go to.
const DIRECTORY: &str = "unfinished";

/// The saved records could not be read, written or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct UnfinishedError {
    /// The action that failed.
    action: &'static str,
    /// To which file.
    path: PathBuf,
    /// The system's error.
    source: io::Error,
}

/// Names the file in an error.
trait Wrong<T> {
    fn wrong(self, action: &'static str, path: &Path) -> Result<T, UnfinishedError>;
}

impl<T> Wrong<T> for io::Result<T> {
    fn wrong(self, action: &'static str, path: &Path) -> Result<T, UnfinishedError> {
        self.map_err(|source| UnfinishedError {
            action,
            path: path.to_owned(),
            source,
        })
    }
}

/// The cases of one run that are done, on disk until [`forget`].
pub struct Unfinished {
    directory: PathBuf,
    /// Of everything but the plan and its repetition.
    inputs: u64,
}

impl Unfinished {
    /// Looks below `out` for cases with these inputs. Makes nothing yet.
    pub fn within(out: &Path, inputs: u64) -> Self {
        Unfinished {
            directory: out.join(DIRECTORY),
            inputs,
        }
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn file(&self, plan: &Plan, repetition: u32) -> Result<PathBuf, UnfinishedError> {
        let plan = serde_json::to_vec(plan)
            .map_err(io::Error::from)
            .wrong("encode the plan for", &self.directory)?;
        let hash = hash_of(&[&self.inputs.to_le_bytes(), &repetition.to_le_bytes(), &plan]);
        Ok(self.directory.join(format!("{hash:016x}.json")))
    }

    /// The records of `plan`, if this repetition of it, from 0, was done before.
    ///
    /// # Errors
    /// If they are there and cannot be read.
    pub fn find(
        &self,
        plan: &Plan,
        repetition: u32,
    ) -> Result<Option<Vec<Record>>, UnfinishedError> {
        let path = self.file(plan, repetition)?;
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(io::Error::from)
                .wrong("read", &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).wrong("read", &path),
        }
    }

    /// Keeps the records of `plan`: whole, or not at all.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn keep(
        &self,
        plan: &Plan,
        repetition: u32,
        records: &[Record],
    ) -> Result<(), UnfinishedError> {
        let path = self.file(plan, repetition)?;
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

/// Removes the saved records below `out`, after the results are written.
///
/// # Errors
/// If it cannot be removed.
pub fn forget(out: &Path) -> Result<(), UnfinishedError> {
    let directory = out.join(DIRECTORY);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).wrong("remove", &directory)
        }
        _ => Ok(()),
    }
}
