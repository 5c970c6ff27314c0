// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended attributes, and access control lists, which are some (acl(5)). Their bytes go as
//! they are: a list's entries are numbers of users and groups.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{fgetxattr, flistxattr, fremovexattr, fsetxattr, XattrFlags};
use rustix::io::Errno;

use crate::wire::{is_acl, is_of_user, Attribute, MOST_ATTRIBUTES};

/// Which of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Which {
    /// `user.*`.
    pub of_user: bool,
    /// `system.posix_acl_access` and `system.posix_acl_default`.
    pub acls: bool,
}

impl Which {
    /// None.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    fn takes(self, name: &[u8]) -> bool {
        (self.of_user && is_of_user(name)) || (self.acls && is_acl(name))
    }
}

/// A file system without any has none.
fn or_none<T: Default>(result: rustix::io::Result<T>) -> io::Result<T> {
    match result {
        Err(Errno::OPNOTSUPP | Errno::NODATA) => Ok(T::default()),
        result => Ok(result?),
    }
}

fn names(fd: impl AsFd, which: Which) -> io::Result<Vec<Vec<u8>>> {
    // Longest list that the kernel gives (limits.h, XATTR_LIST_MAX).
    let mut list = vec![0; 65_536];
    let length = or_none(flistxattr(fd, &mut list[..]))?;
    let names = list[..length].split(|byte| *byte == 0);
    let taken = names.filter(|name| which.takes(name));
    Ok(taken.map(<[u8]>::to_vec).collect())
}

/// Those of a file or directory, in the order of their names.
///
/// # Errors
/// The kernel's; more bytes than a message may have.
pub fn read_attributes(fd: impl AsFd, which: Which) -> io::Result<Vec<Attribute>> {
    let mut found = Vec::new();
    let mut room = MOST_ATTRIBUTES;
    for name in names(&fd, which)? {
        // Longest value (XATTR_SIZE_MAX).
        let mut value = vec![0; 65_536];
        let length = or_none(fgetxattr(&fd, &name[..], &mut value[..]))?;
        value.truncate(length);
        room = room
            .checked_sub(name.len() + length)
            .ok_or_else(|| io::Error::other("its extended attributes have more than 64 KiB"))?;
        found.push((name, value));
    }
    found.sort();
    Ok(found)
}

/// Gives a file or directory these, and takes others of the kind from it.
///
/// # Errors
/// The kernel's: EOPNOTSUPP if the file system has none.
pub fn set_attributes(fd: impl AsFd, which: Which, wanted: &[Attribute]) -> io::Result<()> {
    let there = read_attributes(&fd, which)?;
    if there == wanted {
        return Ok(());
    }
    for (name, _) in &there {
        if !wanted.iter().any(|(own, _)| own == name) {
            fremovexattr(&fd, &name[..])?;
        }
    }
    for (name, value) in wanted.iter().filter(|(name, _)| which.takes(name)) {
        fsetxattr(&fd, &name[..], value, XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_the_requested_ones() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let pair = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let which = Which {
            of_user: true,
            acls: false,
        };
        let wanted = [pair(b"user.a", b"\0\xff"), pair(b"user.b", b"")];
        match set_attributes(&file, which, &wanted) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                println!("skipped: no extended attributes here");
                return;
            }
            set => set.expect("ours"),
        }
        assert_eq!(read_attributes(&file, which).expect("ours"), wanted);
        assert_eq!(read_attributes(&file, Which::default()).expect("ours"), []);
        set_attributes(&file, which, &wanted[..1]).expect("ours");
        assert_eq!(read_attributes(&file, which).expect("ours"), wanted[..1]);
        // Of a kind that was not asked for.
        set_attributes(&file, Which::default(), &wanted).expect("nothing to do");
        set_attributes(&file, which, &[pair(b"security.x", b"1")]).expect("left out");
        assert_eq!(read_attributes(&file, which).expect("ours"), []);
        let large = pair(b"user.large", &[1; 2000]);
        set_attributes(&file, which, std::slice::from_ref(&large)).expect("ours");
        assert_eq!(read_attributes(&file, which).expect("ours"), [large]);
    }
}
