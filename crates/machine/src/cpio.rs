// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Archives in the `newc` format, the one that Linux unpacks as its initial
//! root (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;

/// Mode bits of an executable file.
pub const EXECUTABLE: u32 = 0o100_755;
/// Mode bits of a plain file.
pub const FILE: u32 = 0o100_644;
/// Mode bits of a symbolic link, whose content is where it leads.
pub const LINK: u32 = 0o120_777;
/// Mode bits of a directory.
pub const DIRECTORY: u32 = 0o040_755;
const TRAILER: &str = "TRAILER!!!";

/// An archive being written. Owners and inode numbers are the same in each run, and times are
/// those of the files that have one, so that equal contents give equal bytes.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    inode: u32,
}

impl Archive {
    /// Adds a file and the directories above it. `path` has no leading slash.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.dated(path, mode, 0, content);
    }

    /// The same, last modified so many seconds after the epoch.
    pub fn dated(&mut self, path: &str, mode: u32, modified: u32, content: &[u8]) {
        self.parents(path);
        self.entry(path, mode, modified, content);
    }

    /// Adds a directory and the directories above it.
    pub fn directory(&mut self, path: &str) {
        self.parents(path);
        if self.directories.insert(path.to_owned()) {
            self.entry(path, DIRECTORY, 0, &[]);
        }
    }

    /// Ends the archive. Linux unpacks several such archives one after the other
    /// when they are concatenated.
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry(TRAILER, 0, 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            if self.directories.insert(parent.to_owned()) {
                self.entry(parent, DIRECTORY, 0, &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, modified: u32, content: &[u8]) {
        self.inode += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // magic, inode, mode, uid, gid, links, mtime, size, four device numbers,
        // length of the name with its NUL, checksum (unused in newc)
        let header = [
            self.inode,
            mode,
            0,
            0,
            links,
            modified,
            u32::try_from(content.len()).expect("a file in the guest is below 4 GiB"),
            0,
            0,
            0,
            0,
            u32::try_from(path.len() + 1).expect("a path is short"),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_give_equal_bytes() {
        let make = || {
            let mut archive = Archive::default();
            archive.file("lib/modules/veth.ko", FILE, b"module");
            archive.file("lib/modules/tbf.ko", FILE, b"other");
            archive.directory("proc");
            archive.finish()
        };
        assert_eq!(make(), make());
    }

    #[test]
    fn cpio_reads_it_back() {
        let mut archive = Archive::default();
        archive.file("init", EXECUTABLE, b"#!/bin/true\n");
        archive.file("etc/deep/file", FILE, b"abc");
        archive.directory("proc");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).expect("this one is all ASCII");
        for path in [
            "init\0",
            "etc\0",
            "etc/deep\0",
            "etc/deep/file\0",
            "proc\0",
            "TRAILER!!!\0",
        ] {
            assert_eq!(
                text.matches(&format!("{:08x}00000000{path}", path.len()))
                    .count(),
                1,
                "{path:?}"
            );
        }
        // Size of etc/deep/file in its header, seven fields before the name.
        let header = &text[text.find("etc/deep/file\0").expect("present") - 110..];
        assert_eq!(&header[..6], "070701");
        assert_eq!(&header[54..62], "00000003");
        assert_eq!(&header[14..22], "000081a4");
    }
}
