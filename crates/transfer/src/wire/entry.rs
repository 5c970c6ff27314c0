// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries that a source announces.

use serde::{Deserialize, Serialize};

use super::{check_path, most, WireError, MOST_ATTRIBUTES, MOST_PATH, MOST_SIZE};
use crate::chunk::CV;

/// A file's state at the source. Another one means another file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// Modification: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Change of the inode.
    pub ctime: (i64, u32),
    /// The inode's number.
    pub ino: u64,
}

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// It has no holes: its blocks are reserved at once.
        dense: bool,
    },
    /// A symbolic link, and its target.
    Link(Vec<u8>),
    /// Another name of a regular file, which is an entry by this path.
    HardLink(Vec<u8>),
    /// Neither: it has no content.
    Special(Special),
}

/// An entry with a name but no content. Numbers of devices are major and minor (makedev(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Special {
    /// A FIFO.
    Fifo,
    /// A Unix socket's name.
    Socket,
    /// A character device.
    Character(u32, u32),
    /// A block device.
    Block(u32, u32),
}

/// Largest numbers of devices: 12 and 20 bits (include/linux/kdev_t.h).
const MOST_MAJOR: usize = 0xfff;
const MOST_MINOR: usize = 0xf_ffff;

/// An entry of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, which all other messages use.
    pub n: u64,
    /// Below the destination; empty: the destination itself.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Its state.
    pub stamp: Stamp,
    /// A file's hash, if the content is to be compared.
    pub root: Option<CV>,
    /// Extended attributes of a file or directory, if they were asked for.
    pub attributes: Vec<Attribute>,
    /// Its owner, if that is kept.
    pub owner: Option<Owner>,
}

/// The numbers of a user and a group.
pub type Owner = (u32, u32);

/// An extended attribute: name and value.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// The name of an attribute that any owner of a file may set.
pub fn is_of_user(name: &[u8]) -> bool {
    name.len() > 5 && name.starts_with(b"user.")
}

/// The name of an access control list.
pub fn is_acl(name: &[u8]) -> bool {
    [&b"system.posix_acl_access"[..], b"system.posix_acl_default"].contains(&name)
}

impl Stamp {
    pub(super) fn check(&self) -> Result<(), WireError> {
        let nanoseconds = self.mtime.1.max(self.ctime.1);
        if self.size > MOST_SIZE {
            return Err(WireError::Beyond {
                what: "a file's size",
                limit: MOST_SIZE,
            });
        }
        most(nanoseconds as usize, "nanoseconds of a time", 999_999_999)
    }
}

impl Entry {
    pub(super) fn check(&self) -> Result<(), WireError> {
        check_path(&self.path)?;
        self.stamp.check()?;
        // To chown(2) this number means none.
        if self
            .owner
            .is_some_and(|(user, group)| user.max(group) == u32::MAX)
        {
            return Err(WireError::Frame("an owner that is none"));
        }
        let own = &self.attributes;
        // Those of other kinds change a file's rights: a peer must not send them.
        let is_good = |name: &[u8]| (is_of_user(name) || is_acl(name)) && !name.contains(&0);
        if !own
            .iter()
            .all(|(name, _)| is_good(name) && name.len() <= 255)
        {
            return Err(WireError::Frame("an extended attribute of another kind"));
        }
        let bytes = own.iter().map(|(name, value)| name.len() + value.len());
        most(bytes.sum(), "bytes of extended attributes", MOST_ATTRIBUTES)?;
        match &self.kind {
            EntryKind::Link(to) => match to.is_empty() || to.contains(&0) {
                true => Err(WireError::Frame("a symbolic link with an invalid target")),
                false => most(to.len(), "bytes of a symbolic link", MOST_PATH),
            },
            EntryKind::HardLink(of) => match of.is_empty() {
                true => Err(WireError::Frame("a hard link to nothing")),
                false => check_path(of),
            },
            EntryKind::Special(Special::Character(major, minor) | Special::Block(major, minor)) => {
                most(*major as usize, "a device's major number", MOST_MAJOR)?;
                most(*minor as usize, "a device's minor number", MOST_MINOR)
            }
            _ => Ok(()),
        }
    }
}
