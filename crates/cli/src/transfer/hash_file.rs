// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--hash-file`: the input of `b3sum --check`, run in the destination.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// See the module's text.
pub struct HashFile {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
}

impl HashFile {
    /// Makes it, or empties the one that is there.
    pub fn new(path: &Path) -> Result<Self> {
        let what = || format!("--hash-file {}", path.display());
        let file = File::create(path).with_context(what)?;
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(BufWriter::new(file)),
        })
    }

    /// Adds a file.
    pub fn add(&self, path: &str, blake3: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A failure here is a failure at the end, too.
        let _ = file.write_all(line(path, blake3).as_bytes());
    }

    /// All are in it.
    pub fn end(&self) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let what = || format!("--hash-file {}", self.path.display());
        file.flush().with_context(what)
    }
}

/// As b3sum writes it: a name with a line's end or a backslash in it is escaped, which a
/// backslash before the hash says.
fn line(path: &str, blake3: &str) -> String {
    let escaped = path
        .replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('\r', "\\r");
    let mark = if escaped == path { "" } else { "\\" };
    format!("{mark}{blake3}  {escaped}\n")
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn names_are_escaped_as_b3sum_does() {
        for (path, expected) in [
            ("a b", "00  a b\n"),
            ("a\nb", "\\00  a\\nb\n"),
            ("a\\b", "\\00  a\\\\b\n"),
        ] {
            assert_eq!(line(path, "00"), expected);
        }
    }
}
