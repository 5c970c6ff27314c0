// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices as sources.

use std::fs::File;
use std::io;

use rustix::fs::{fstat, major, minor, openat, seek, FileType, Mode, OFlags, SeekFrom, Stat};

use super::walk::Place;
use crate::store::stamp_of;
use crate::wire::Stamp;

/// Of the numbers in a device's `stat`: sectors that were written
/// (Documentation/block/stat.rst).
const WRITTEN: usize = 6;

/// Opens a block device, and its state then.
///
/// # Errors
/// The kernel's; EINVAL if it is no block device.
pub(super) fn open_device(place: &Place) -> io::Result<(File, Stamp, u32)> {
    let (parent, name) = place.root.parent(&place.path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(&parent, name, flags, Mode::empty())?;
    let stat = fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a block device any more",
        ));
    }
    let size = seek(&fd, SeekFrom::End(0))?;
    Ok((fd.into(), state(&stat, size), stat.st_mode & 0o777))
}

/// The times of a device's name do not change when it is written. The kernel's counts do, in their
/// place: sectors written since the start of the machine, and a number that each new medium gets
/// (diskseq, from Linux 5.15 on). A write is seen when it reaches the device.
fn state(stat: &Stat, size: u64) -> Stamp {
    let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
    let read = |name: &str| {
        let path = format!("/sys/dev/block/{major}:{minor}/{name}");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let counts = read("stat");
    let written = counts.split_whitespace().nth(WRITTEN);
    Stamp {
        size,
        ctime: (written.and_then(|n| n.parse().ok()).unwrap_or_default(), 0),
        ino: read("diskseq").trim().parse().unwrap_or(stat.st_rdev),
        ..stamp_of(stat)
    }
}
