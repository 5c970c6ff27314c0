// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removes entries that the source does not have, and files of killed runs.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{unlinkat, AtFlags, Dir, FileType};

use super::root::{other_kind, Root};
use crate::wire::{is_temporary, JOURNALS, MOST_DEPTH};

/// An entry to remove: a path below the root, and whether it is a directory.
pub type Deletion = (Vec<u8>, bool);

/// The entries below `top` for which `keep` is false, those in a directory before it. Nothing
/// below a directory that is to be removed is asked for, unless it is kept itself.
///
/// # Errors
/// The kernel's.
pub fn delete(
    root: &Root,
    top: &[u8],
    keep: &dyn Fn(&[u8], bool) -> bool,
) -> io::Result<Vec<Deletion>> {
    let mut found = Vec::new();
    gather(root, top, keep, &mut found, 0)?;
    Ok(found)
}

/// True if something below is kept.
fn gather(
    root: &Root,
    directory: &[u8],
    keep: &dyn Fn(&[u8], bool) -> bool,
    found: &mut Vec<Deletion>,
    depth: usize,
) -> io::Result<bool> {
    let mut kept = false;
    for (path, is_directory) in entries(root, directory)? {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&path);
        if name == JOURNALS.as_bytes() || is_temporary(name) {
            kept |= !is_temporary(name);
            continue;
        }
        let own = keep(&path, is_directory);
        let inside =
            is_directory && depth < MOST_DEPTH && { gather(root, &path, keep, found, depth + 1)? };
        match own || inside {
            true => kept = true,
            false => found.push((path, is_directory)),
        }
    }
    Ok(kept)
}

/// Temporary files of the transfer `id` below `top`.
///
/// # Errors
/// The kernel's.
pub fn temporaries(root: &Root, top: &[u8], id: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut waiting = vec![(top.to_vec(), 0)];
    while let Some((directory, depth)) = waiting.pop() {
        for (path, is_directory) in entries(root, &directory)? {
            if is_directory && depth < MOST_DEPTH {
                waiting.push((path, depth + 1));
                continue;
            }
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&path);
            if is_temporary(name) && name.ends_with(id.as_bytes()) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn entries(root: &Root, directory: &[u8]) -> io::Result<Vec<Deletion>> {
    let fd = root.directory(directory)?;
    let mut all = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let mut path = directory.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let is_directory = match entry.file_type() {
            FileType::Unknown => {
                let stat = other_kind(&fd, OsStr::from_bytes(name))?;
                stat.is_some_and(|stat| {
                    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                })
            }
            kind => kind == FileType::Directory,
        };
        all.push((path, is_directory));
    }
    Ok(all)
}

impl Root {
    /// Removes a file, a link, or an empty directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, path: &[u8], is_directory: bool) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let flags = match is_directory {
            true => AtFlags::REMOVEDIR,
            false => AtFlags::empty(),
        };
        unlinkat(parent.as_fd(), name, flags)?;
        Ok(())
    }
}
