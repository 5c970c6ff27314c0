// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries that are a name and no content of their own: hard links, devices, FIFOs, sockets.
//! Like files they are made under a temporary name.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{
    fstat, linkat, major, makedev, minor, mknodat, openat, renameat, unlinkat, AtFlags, FileType,
    Mode, OFlags, CWD,
};
use rustix::io::Errno;

use super::file::temporary_name;
use super::metadata::{set_link, set_mode_at, set_owner_at};
use super::root::{other_kind, Root};
use crate::wire::{Owner, Special, Stamp};

/// Result of making an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was made.
    New,
    /// It was there.
    Before,
}

/// Makes `path` another name of the regular file at `of`.
///
/// # Errors
/// The kernel's: ENOENT if there is no such file, EXDEV if it is in another filesystem, EISDIR
/// if a directory has the name; EINVAL if `of` is no regular file.
pub fn hard_link(root: &Root, of: &[u8], path: &[u8], id: &str) -> io::Result<Made> {
    let (parent, name) = root.parent(of)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&parent, name, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL.into());
    }
    let (parent, name) = root.parent(path)?;
    if let Some(there) = other_kind(&parent, name)? {
        // rename(2) does nothing between two names of one file, and would leave both.
        if (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino) {
            return Ok(Made::Before);
        }
    }
    // The very file that was opened, even if another has its name by now.
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    place(&parent, name, id, |temporary| {
        linkat(CWD, &own, &parent, temporary, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    })
}

/// Makes a device, FIFO or socket, or gives the one that is there owner, permissions and time.
///
/// # Errors
/// The kernel's: EPERM for a device without CAP_MKNOD, EISDIR if a directory has the name.
pub fn make_special(
    root: &Root,
    path: &[u8],
    special: Special,
    (mode, owner, stamp): (u32, Option<Owner>, &Stamp),
    id: &str,
) -> io::Result<Made> {
    let (kind, device) = match special {
        Special::Fifo => (FileType::Fifo, 0),
        Special::Socket => (FileType::Socket, 0),
        Special::Character(major, minor) => (FileType::CharacterDevice, makedev(major, minor)),
        Special::Block(major, minor) => (FileType::BlockDevice, makedev(major, minor)),
    };
    let (parent, name) = root.parent(path)?;
    let set = |name: &OsStr| {
        set_owner_at(&parent, name, owner)?;
        set_mode_at(&parent, name, mode & 0o777)?;
        set_link(&parent, name, stamp)
    };
    if let Some(there) = other_kind(&parent, name)? {
        let is_device = matches!(special, Special::Character(..) | Special::Block(..));
        if FileType::from_raw_mode(there.st_mode) == kind && (!is_device || there.st_rdev == device)
        {
            set(name)?;
            return Ok(Made::Before);
        }
    }
    place(&parent, name, id, |temporary| {
        mknodat(&parent, temporary, kind, Mode::from_raw_mode(0o600), device)?;
        set(temporary)
    })
}

/// Kind of a special file.
pub fn special_of(kind: FileType, device: u64) -> Option<Special> {
    Some(match kind {
        FileType::Fifo => Special::Fifo,
        FileType::Socket => Special::Socket,
        FileType::CharacterDevice => Special::Character(major(device), minor(device)),
        FileType::BlockDevice => Special::Block(major(device), minor(device)),
        _ => return None,
    })
}

/// Under its temporary name first, which does not stay when something fails.
fn place(
    parent: impl AsFd,
    name: &OsStr,
    id: &str,
    make: impl FnOnce(&OsStr) -> io::Result<()>,
) -> io::Result<Made> {
    let temporary = temporary_name(name, id);
    let _ = unlinkat(&parent, &temporary, AtFlags::empty());
    let made = make(&temporary).and_then(|()| {
        renameat(&parent, &temporary, &parent, name)?;
        Ok(Made::New)
    });
    if made.is_err() {
        let _ = unlinkat(&parent, &temporary, AtFlags::empty());
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{symlink, MetadataExt};

    const ID: &str = "0123456789abcdef";

    #[test]
    fn a_link_is_to_a_regular_file_below() {
        let directory = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (directory.path().join("in"), directory.path().join("out"));
        fs::create_dir_all(inside.join("d")).expect("ours");
        fs::write(&outside, "outside").expect("ours");
        fs::write(inside.join("f"), "file").expect("ours");
        fs::write(inside.join("d/g"), "other").expect("ours");
        symlink(&outside, inside.join("s")).expect("ours");
        let root = Root::open(&inside, false).expect("ours");
        let link = |of: &str, path: &str| hard_link(&root, of.as_bytes(), path.as_bytes(), ID);
        assert_eq!(link("f", "d/g").expect("a file"), Made::New);
        assert_eq!(link("f", "d/g").expect("a file"), Made::Before);
        assert_eq!(fs::read(inside.join("d/g")).expect("there"), b"file");
        for (of, path) in [
            ("s", "x"),
            ("d", "x"),
            ("none", "x"),
            ("../out", "x"),
            ("f", "d"),
        ] {
            link(of, path).expect_err(of);
        }
        assert_eq!(fs::metadata(&outside).expect("there").nlink(), 1);
        assert_eq!(fs::metadata(inside.join("f")).expect("there").nlink(), 2);
        assert_eq!(fs::read_dir(&inside).expect("there").count(), 3);
    }

    #[test]
    fn special_files_are_made_in_the_place_of_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = Root::open(directory.path(), false).expect("ours");
        let stamp = Stamp {
            mtime: (1_000_000_000, 5),
            ..Stamp::default()
        };
        fs::write(directory.path().join("x"), "file").expect("ours");
        let is_root = rustix::process::geteuid().is_root();
        // As /dev/null is: it does no harm.
        for special in [Special::Fifo, Special::Socket, Special::Character(1, 3)] {
            let make = || make_special(&root, b"x", special, (0o640, None, &stamp), ID);
            let made = match make() {
                Err(error) if !is_root => {
                    assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
                    continue;
                }
                // Also root may lack CAP_MKNOD, as in a container.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    println!("skipped: {special:?}: {error}");
                    continue;
                }
                made => made.expect("made"),
            };
            assert_eq!(made, Made::New);
            assert_eq!(make().expect("there"), Made::Before);
            let state = fs::symlink_metadata(directory.path().join("x")).expect("there");
            let kind = FileType::from_raw_mode(state.mode());
            assert_eq!(special_of(kind, state.rdev()), Some(special));
            assert_eq!(
                (state.mode() & 0o7777, state.mtime()),
                (0o640, 1_000_000_000)
            );
        }
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 1);
    }
}
