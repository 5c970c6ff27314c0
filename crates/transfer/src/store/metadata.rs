// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times, permissions, and owners: those of the sink's process, unless they are kept.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{
    chmodat, chownat, fchmod, fchown, futimens, openat, utimensat, AtFlags, Mode, OFlags, Stat,
    Timespec, Timestamps, CWD, UTIME_OMIT,
};
use rustix::process::{Gid, Uid};

use crate::wire::{Owner, Stamp};

/// Permission bits that are kept of a file: no setuid and setgid, since the owner is another.
const FILE_BITS: u32 = 0o777;
/// All of them, with the owner.
const ALL_BITS: u32 = 0o7777;
/// And of a directory: the sticky bit, too.
const DIRECTORY_BITS: u32 = 0o1777;

fn times(stamp: &Stamp) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: stamp.mtime.0,
            tv_nsec: stamp.mtime.1.into(),
        },
    }
}

/// The permission bits of a file that are kept.
pub fn file_bits(owner: Option<Owner>) -> u32 {
    match owner {
        Some(_) => ALL_BITS,
        None => FILE_BITS,
    }
}

/// Gives a file or directory its owner, if that is kept. Before its permissions: this takes
/// setuid and setgid from it.
///
/// # Errors
/// The kernel's.
pub fn set_owner(file: impl AsFd, owner: Option<Owner>) -> io::Result<()> {
    let Some((user, group)) = owner else {
        return Ok(());
    };
    fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    Ok(())
}

/// The same, of the name itself, and not of a link's target.
///
/// # Errors
/// The kernel's.
pub fn set_owner_at(parent: impl AsFd, name: &OsStr, owner: Option<Owner>) -> io::Result<()> {
    let Some((user, group)) = owner else {
        return Ok(());
    };
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    chownat(
        parent,
        name,
        Some(user),
        Some(group),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    Ok(())
}

/// Of a file whose data are all written: times first, permissions last.
///
/// # Errors
/// The kernel's.
pub fn set_file(file: impl AsFd, stamp: &Stamp, mode: u32) -> io::Result<()> {
    futimens(&file, &times(stamp))?;
    fchmod(&file, Mode::from_raw_mode(mode & ALL_BITS))?;
    Ok(())
}

/// Of a directory in which nothing changes any more.
///
/// # Errors
/// The kernel's.
pub fn set_directory(
    directory: impl AsFd,
    stamp: &Stamp,
    mode: u32,
    owner: Option<Owner>,
) -> io::Result<()> {
    set_owner(&directory, owner)?;
    let bits = match owner {
        Some(_) => ALL_BITS,
        None => DIRECTORY_BITS,
    };
    fchmod(&directory, Mode::from_raw_mode(mode & bits))?;
    futimens(&directory, &times(stamp))?;
    Ok(())
}

/// Of a symbolic link, which has no permissions.
///
/// # Errors
/// The kernel's.
pub fn set_link(parent: impl AsFd, name: &OsStr, stamp: &Stamp) -> io::Result<()> {
    utimensat(parent, name, &times(stamp), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

/// Gives permissions to the very file that has the name, and not to a link's target.
///
/// # Errors
/// The kernel's.
pub fn set_mode_at(parent: impl AsFd, name: &OsStr, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())?;
    let own = format!("/proc/self/fd/{}", fd.as_raw_fd());
    chmodat(CWD, own, Mode::from_raw_mode(mode), AtFlags::empty())?;
    Ok(())
}

/// A file's state.
pub fn stamp_of(stat: &Stat) -> Stamp {
    Stamp {
        size: stat.st_size as u64,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: (stat.st_ctime, stat.st_ctime_nsec as u32),
        ino: stat.st_ino,
    }
}

/// Size and time of the file are those of the source. A filesystem that keeps whole seconds has no
/// nanoseconds to compare.
pub fn is_same(there: &Stamp, source: &Stamp) -> bool {
    let (seconds, nanoseconds) = there.mtime;
    there.size == source.size
        && seconds == source.mtime.0
        && (nanoseconds == source.mtime.1 || nanoseconds == 0)
}
