// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Temporary files beside their targets, until all of a file is there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{
    fallocate, fstat, ftruncate, openat, renameat, seek, unlinkat, AtFlags, FallocateFlags,
    FileType, Mode, OFlags, SeekFrom,
};
use rustix::io::Errno;

use super::root::Root;
use crate::chunk::CV;

/// Longest name of a file (NAME_MAX), and what a temporary's name adds to it.
const MOST_NAME: usize = 255;
const ADDED: usize = 1 + 10 + 16;
/// Hexadecimal digits of the hash in the place of a long name's end.
const DIGITS: usize = 16;

/// `.NAME.paceline-ID`.
pub fn temporary_name(name: &OsStr, id: &str) -> OsString {
    let mut own = name.as_bytes().to_vec();
    if own.len() + ADDED > MOST_NAME {
        let hash = blake3::hash(&own).to_hex();
        own.truncate(MOST_NAME - ADDED - 1 - DIGITS);
        own.push(b'~');
        own.extend_from_slice(&hash.as_bytes()[..DIGITS]);
    }
    let bytes = [b".", &own[..], b".paceline-", id.as_bytes()].concat();
    OsString::from_vec(bytes)
}

/// A temporary file: mode 600 until the end.
#[derive(Debug)]
pub struct Temporary {
    place: Placement,
    file: File,
}

/// A temporary file's name, and the one that it will have.
#[derive(Debug)]
pub struct Placement {
    directory: Arc<OwnedFd>,
    name: OsString,
    target: OsString,
    /// It is written in place, and has no other name.
    is_device: bool,
}

const OPEN: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Temporary {
    /// A new one for the file at `path`. One of an earlier run is removed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(root: &Root, path: &[u8], id: &str) -> io::Result<Self> {
        let (directory, target) = root.parent(path)?;
        let name = temporary_name(target, id);
        let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::from_raw_mode(0o600);
        let file = match openat(&directory, &name, flags, mode) {
            Err(Errno::EXIST) => {
                unlinkat(&directory, &name, AtFlags::empty())?;
                openat(&directory, &name, flags, mode)?
            }
            opened => opened?,
        };
        Ok(Self {
            place: Placement {
                directory,
                name,
                target: target.to_owned(),
                is_device: false,
            },
            file: file.into(),
        })
    }

    /// The one that an earlier run left; `None` if there is none of `size` bytes, or it is not
    /// ours alone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn resume(root: &Root, path: &[u8], id: &str, size: u64) -> io::Result<Option<Self>> {
        let (directory, target) = root.parent(path)?;
        let name = temporary_name(target, id);
        let file = match openat(&directory, &name, OPEN | OFlags::NONBLOCK, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&file)?;
        let good = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_nlink == 1
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_size as u64 == size;
        Ok(good.then(|| Self {
            place: Placement {
                directory,
                name,
                target: target.to_owned(),
                is_device: false,
            },
            file: file.into(),
        }))
    }

    /// One that other sessions of the same transfer write, too: the one that is there, or a new
    /// one. Its content is unknown where no session has written.
    ///
    /// # Errors
    /// The kernel's; EEXIST if what has its name is not ours alone.
    pub fn share(root: &Root, path: &[u8], id: &str, size: u64, dense: bool) -> io::Result<Self> {
        if let Some(there) = Self::resume(root, path, id, size)? {
            return Ok(there);
        }
        let (directory, target) = root.parent(path)?;
        let name = temporary_name(target, id);
        let flags = OPEN | OFlags::CREATE | OFlags::NONBLOCK;
        let file = openat(&directory, &name, flags, Mode::from_raw_mode(0o600))?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || stat.st_nlink != 1
            || stat.st_uid != rustix::process::geteuid().as_raw()
        {
            return Err(Errno::EXIST.into());
        }
        let own = Self {
            place: Placement {
                directory,
                name,
                target: target.to_owned(),
                is_device: false,
            },
            file: file.into(),
        };
        own.resize(size, dense)?;
        Ok(own)
    }

    /// A block device, which is written in place, and exclusively.
    ///
    /// # Errors
    /// The kernel's: EBUSY if it is mounted or in use otherwise; EINVAL if it is none.
    pub fn device(root: &Root, path: &[u8]) -> io::Result<Self> {
        let (directory, name) = root.parent(path)?;
        // Without CREATE, EXCL is about use by others (open(2)).
        let file = openat(&directory, name, OPEN | OFlags::EXCL, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::BlockDevice {
            return Err(Errno::INVAL.into());
        }
        Ok(Self {
            place: Placement {
                directory,
                name: name.to_owned(),
                target: name.to_owned(),
                is_device: true,
            },
            file: file.into(),
        })
    }

    /// It is a block device.
    pub fn is_device(&self) -> bool {
        self.place.is_device
    }

    /// Gives it `size` bytes. A dense file's blocks are reserved, so that a full disk is
    /// noticed before it is written.
    ///
    /// # Errors
    /// The kernel's: ENOSPC, EDQUOT, EFBIG; of a device, that it has fewer.
    pub fn resize(&self, size: u64, dense: bool) -> io::Result<()> {
        if self.is_device() {
            let own = seek(&self.file, SeekFrom::End(0))?;
            return match own >= size {
                true => Ok(()),
                false => Err(io::Error::other(format!(
                    "the device has {own} bytes, and what is sent {size}"
                ))),
            };
        }
        ftruncate(&self.file, size)?;
        if !dense || size == 0 {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, size) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Makes a hole where an earlier attempt wrote.
    ///
    /// # Errors
    /// The kernel's.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset, length) {
            // EINVAL: no whole blocks of a device.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                let zeros = vec![0; length as usize];
                self.write(&zeros, offset)
            }
            punched => Ok(punched?),
        }
    }

    /// The hash of the data at `offset`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hash(
        &self,
        offset: u64,
        length: u64,
        size: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<CV> {
        buffer.resize(length as usize, 0);
        self.file.read_exact_at(buffer, offset)?;
        Ok(crate::chunk::hash_bite(buffer, offset, size))
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its names.
    pub fn placement(&self) -> &Placement {
        &self.place
    }

    /// Closes it: all is written.
    pub fn close(self) -> Placement {
        self.place
    }
}

impl Placement {
    /// The directory that has it.
    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }

    /// Opens the temporary file to read it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &self.name, flags, Mode::empty())?.into())
    }

    /// Gives it its name, in place of whatever file has it.
    ///
    /// # Errors
    /// The kernel's: EISDIR if a directory has the name.
    pub fn place(&self) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        renameat(&self.directory, &self.name, &self.directory, &self.target)?;
        Ok(())
    }

    /// Removes it.
    pub fn discard(&self) {
        if self.is_device {
            return;
        }
        // It may have its name already, or be gone with its directory.
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

/// Writes to the disk all of the filesystem that has this descriptor.
///
/// # Errors
/// The kernel's: EIO, ENOSPC.
pub fn sync_where_it_lies(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fd)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::is_temporary;

    const ID: &str = "0123456789abcdef";

    #[test]
    fn names_fit_and_are_known() {
        for name in ["a".to_owned(), "b".repeat(255), "ä".repeat(127)] {
            let temporary = temporary_name(OsStr::new(&name), ID);
            assert!(temporary.len() <= MOST_NAME, "{}", temporary.len());
            assert!(is_temporary(temporary.as_bytes()));
        }
        let long = |end: &str| temporary_name(OsStr::new(&("c".repeat(254) + end)), ID);
        assert_ne!(long("x"), long("y"));
    }

    #[test]
    fn a_temporary_is_resumed_only_if_it_is_ours_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = Root::open(directory.path(), false).expect("ours");
        let made = Temporary::create(&root, b"f", ID).expect("made");
        made.resize(10, true).expect("room");
        made.write(b"hello", 0).expect("room");
        let resumed = |size| Temporary::resume(&root, b"f", ID, size).expect("no error");
        assert!(resumed(11).is_none());
        assert!(resumed(10).is_some());
        let name = directory.path().join(temporary_name(OsStr::new("f"), ID));
        std::fs::hard_link(&name, directory.path().join("other")).expect("ours");
        assert!(resumed(10).is_none(), "it has another name");
        std::fs::remove_file(&name).expect("ours");
        std::os::unix::fs::symlink("other", &name).expect("ours");
        assert!(resumed(10).is_none(), "a planted link");
        // A new one does not write through the link.
        let made = Temporary::create(&root, b"f", ID).expect("made");
        made.write(b"new", 0).expect("room");
        made.close().place().expect("placed");
        let read = |name| std::fs::read(directory.path().join(name)).expect("there");
        assert_eq!(read("f"), b"new");
        assert_eq!(read("other"), b"hello\0\0\0\0\0");
    }
}
