// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of this machine must be as it was.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// All of the host's settings under net/ that can be read.
pub fn settings() -> BTreeMap<PathBuf, String> {
    fn walk(directory: &Path, into: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, into);
            } else if let Ok(text) = fs::read_to_string(&path) {
                into.insert(path, text);
            }
        }
    }
    let mut found = BTreeMap::new();
    for directory in ["ipv4", "ipv6/conf/all", "core"] {
        walk(&Path::new("/proc/sys/net").join(directory), &mut found);
    }
    // What others register meanwhile, and what counts by itself.
    found.retain(|path, _| {
        let name = path.file_name().unwrap().to_string_lossy();
        !name.contains("congestion_control") && !name.starts_with("netdev_rss_key")
    });
    found
}

/// Interfaces of this network namespace.
pub fn interfaces() -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names
}
