// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file in the guest, copied from this machine.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpio::{Archive, DIRECTORY, EXECUTABLE, FILE, LINK};
use super::elf;
use super::{VirtualError, Wrong};

/// A file in the guest.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its path, absolute.
    path: String,
    mode: u32,
    /// Seconds since the epoch.
    modified: u32,
    content: Vec<u8>,
}

impl Entry {
    /// A plain file.
    pub fn file(path: String, content: Vec<u8>) -> Self {
        Entry {
            path,
            mode: FILE,
            modified: 0,
            content,
        }
    }

    /// A directory, for what may be made in it.
    pub(super) fn directory(path: String) -> Self {
        Entry {
            path,
            mode: DIRECTORY,
            modified: 0,
            content: Vec::new(),
        }
    }

    /// A symbolic link to `target`.
    pub fn link(path: String, target: &Path) -> Self {
        Entry {
            path,
            mode: LINK,
            modified: 0,
            content: target.as_os_str().as_encoded_bytes().into(),
        }
    }

    /// A file of this machine as `name` in the guest, without a debugger's parts.
    pub(super) fn copy(path: &Path, name: &str) -> Result<Self, VirtualError> {
        let mut content = fs::read(path).wrong("read", path)?;
        let mode = fs::metadata(path).wrong("look at", path)?.permissions();
        elf::strip(&mut content);
        Ok(Entry {
            path: name.to_owned(),
            mode: match mode.mode() & 0o111 {
                0 if !content.starts_with(b"\x7fELF") => FILE,
                _ => EXECUTABLE,
            },
            modified: 0,
            content,
        })
    }

    /// With this machine's time of its last change: Python compiles each module again whose
    /// time is not the one in its compiled file.
    pub(super) fn dated(mut self, path: &Path) -> Result<Self, VirtualError> {
        let modified = fs::metadata(path).wrong("look at", path)?.mtime();
        self.modified = u32::try_from(modified).unwrap_or_default();
        Ok(self)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn is_executable(&self) -> bool {
        self.mode == EXECUTABLE
    }

    pub(super) fn is_program(&self) -> bool {
        self.content.starts_with(b"\x7fELF")
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Adds it to an archive.
    pub fn put_into(&self, archive: &mut Archive) {
        let path = self.path.trim_start_matches('/');
        match self.mode {
            DIRECTORY => archive.directory(path),
            mode => archive.dated(path, mode, self.modified, &self.content),
        }
    }
}

/// Shared libraries, loader included, under the names by which they are looked for.
pub(super) fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, VirtualError> {
    let output = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .map_err(|source| VirtualError::Start {
            program: "ldd".to_owned(),
            source,
        })?;
    // A static program makes ldd fail: no libraries.
    Ok(parse_ldd(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_ldd(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let path = line.split_once("=>").map_or(line, |(_, path)| path).trim();
            let path = path.split(" (0x").next()?;
            path.starts_with('/').then(|| PathBuf::from(path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libz.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ]
        .map(PathBuf::from);
        assert_eq!(parse_ldd(text), expected);
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }
}
