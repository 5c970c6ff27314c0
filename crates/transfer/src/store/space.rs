// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room on the sink's disk.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

/// A lack of room on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Of data.
    Bytes(u64),
    /// A file needs one, however small it is.
    Inodes(u64),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(count) => write!(f, "{count} bytes are missing"),
            Self::Inodes(count) => write!(f, "{count} inodes are missing"),
        }
    }
}

/// Room that so many bytes and files more lack; `None` if there is enough, or it is unknown:
/// statvfs(3) does not know a user's quota.
pub fn missing(directory: impl AsFd, bytes: u64, files: u64) -> Option<Missing> {
    let stat = rustix::fs::fstatvfs(directory).ok()?;
    let (blocks, inodes) = match rustix::process::geteuid().is_root() {
        true => (stat.f_bfree, stat.f_ffree),
        false => (stat.f_bavail, stat.f_favail),
    };
    let room = blocks.saturating_mul(stat.f_frsize);
    // Some of FUSE have no blocks, btrfs has no inodes: zero means unknown.
    if stat.f_blocks > 0 && bytes > room {
        return Some(Missing::Bytes(bytes - room));
    }
    (stat.f_files > 0 && files > inodes).then(|| Missing::Inodes(files - inodes))
}

fn is_one_of<const N: usize>(error: &io::Error, errnos: [Errno; N]) -> bool {
    let own = error.raw_os_error();
    own.is_some() && errnos.iter().any(|errno| own == Some(errno.raw_os_error()))
}

/// The error is that there is no room: of the disk, the user's quota, or inodes.
pub fn is_full(error: &io::Error) -> bool {
    is_one_of(error, [Errno::NOSPC, Errno::DQUOT])
}

/// The error is the disk's: it concerns all files.
pub fn is_broken(error: &io::Error) -> bool {
    is_one_of(error, [Errno::IO, Errno::ROFS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bytes_are_counted() {
        let here = std::fs::File::open("/").expect("a directory");
        assert_eq!(missing(&here, 0, 0), None);
        let far_too_much = missing(&here, u64::MAX, 0).expect("no disk is so large");
        assert!(matches!(far_too_much, Missing::Bytes(count) if count > 1 << 60));
        let full = |errno: Errno| is_full(&io::Error::from(errno));
        let broken = |errno: Errno| is_broken(&io::Error::from(errno));
        assert!(full(Errno::NOSPC) && full(Errno::DQUOT) && !full(Errno::IO));
        assert!(broken(Errno::IO) && broken(Errno::ROFS));
        // That of a planted socket, for one.
        assert!(!broken(Errno::ACCESS) && !broken(Errno::NXIO));
        assert!(!is_full(&io::Error::other("no number")));
        assert!(!is_broken(&io::Error::other("no number")));
    }
}
