// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories for a run's files: removed with it, or by the next one if it was killed.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// A new directory in `parent`, whose name identifies its process.
///
/// # Errors
/// The system's.
pub fn make(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("{prefix}{}-", std::process::id()))
        .tempdir_in(parent)
}

/// Removes those in `parent` whose processes are gone.
pub fn clean_stale(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix)?.split('-').next()?.parse().ok());
        if owner.is_some_and(|pid: u32| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another user's, or another process was faster: not ours to report.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leftovers_of_killed_runs_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let ours = make(place.path(), "paceline-x-").unwrap();
        // No process has a number above the kernel's highest, 2^22.
        let kept = ["paceline-y-4194305-a", "paceline-x-", "paceline-x-old"];
        for name in ["paceline-x-4194305-a"].iter().chain(&kept) {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        clean_stale(place.path(), "paceline-x-");
        let mut left: Vec<_> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        left.sort();
        let mut expected: Vec<_> = kept.iter().map(|name| place.path().join(name)).collect();
        expected.push(ours.path().to_owned());
        expected.sort();
        assert_eq!(left, expected);
    }
}
