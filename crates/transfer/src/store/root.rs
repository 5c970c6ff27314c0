// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Below one directory, and nowhere else.
//!
//! The operator chooses the directory itself: it is opened as any program would. A peer's paths go
//! below it, by openat2(2) from held descriptors, which neither leaves the directory nor follows a
//! symbolic link, however names are changed meanwhile. rsync 3.4.3 confined the operator's part,
//! too, and broke its users (rsync#715).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{fstat, mkdirat, openat, openat2, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Directories that are held open.
const HELD: usize = 256;
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// See the module's text.
#[derive(Debug)]
pub struct Root {
    base: Arc<OwnedFd>,
    held: Mutex<HashMap<Vec<u8>, Arc<OwnedFd>>>,
}

impl Root {
    /// The operator's directory. With `make` it is made, with those above it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path, make: bool) -> io::Result<Self> {
        if make {
            std::fs::create_dir_all(path)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self::new(base))
    }

    fn new(base: OwnedFd) -> Self {
        Self {
            base: Arc::new(base),
            held: Mutex::default(),
        }
    }

    /// The directory itself.
    pub fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// A directory below, as a root of its own. With `make` it is made, with those between.
    ///
    /// # Errors
    /// The kernel's: ELOOP for a symbolic link, EXDEV for a way out.
    pub fn below(&self, path: &[u8], make: bool) -> io::Result<Self> {
        if make {
            let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            let ends: Vec<usize> = ends.map(|(at, _)| at).chain([path.len()]).collect();
            for end in ends {
                self.make_directory(&path[..end], 0o777)?;
            }
        }
        let fd = resolve(self.base(), path, DIRECTORY)?;
        Ok(Self::new(fd))
    }

    /// A directory below.
    ///
    /// # Errors
    /// The kernel's.
    pub fn directory(&self, path: &[u8]) -> io::Result<Arc<OwnedFd>> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.base));
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fd) = held.get(path) {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(resolve(self.base(), path, DIRECTORY)?);
        if held.len() >= HELD {
            held.clear();
        }
        held.insert(path.to_vec(), Arc::clone(&fd));
        Ok(fd)
    }

    /// Descriptors of directories are not held any longer: some were removed.
    pub fn forget(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.clear();
    }

    /// The directory that has an entry, and the entry's name in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn parent<'p>(&self, path: &'p [u8]) -> io::Result<(Arc<OwnedFd>, &'p OsStr)> {
        let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        Ok((self.directory(directory)?, OsStr::from_bytes(name)))
    }

    /// Makes a directory unless it is there. False if it is.
    ///
    /// # Errors
    /// The kernel's; ENOTDIR if something else has its name.
    pub fn make_directory(&self, path: &[u8], mode: u32) -> io::Result<bool> {
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                let kind = fstat(openat(
                    &parent,
                    name,
                    OFlags::PATH | OFlags::NOFOLLOW,
                    Mode::empty(),
                )?)?;
                match FileType::from_raw_mode(kind.st_mode) {
                    FileType::Directory => Ok(false),
                    _ => Err(Errno::NOTDIR.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file to read it.
    ///
    /// # Errors
    /// The kernel's; EINVAL if it is no regular file.
    pub fn read(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent(path)?;
        // NONBLOCK: a FIFO must not hold this up.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = openat(&parent, name, flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::RegularFile => Ok(fd),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file any more",
            )),
        }
    }
}

fn resolve(base: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = match path.is_empty() {
        true => OsStr::new("."),
        false => OsStr::from_bytes(path),
    };
    loop {
        match openat2(base, path, flags, Mode::empty(), how) {
            // A rename beside it made the answer uncertain (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(fd) => return Ok(fd),
            Err(error) => return Err(error.into()),
        }
    }
}

/// An entry in the place of a file or link that a rename cannot replace.
///
/// # Errors
/// The kernel's, but that nothing is there.
pub fn other_kind(parent: impl AsFd, name: &OsStr) -> io::Result<Option<rustix::fs::Stat>> {
    match rustix::fs::statat(parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn fails(result: io::Result<impl Sized>, errno: Errno) {
        let error = result.err().expect("an error");
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
    }

    #[test]
    fn nothing_leads_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (directory.path().join("in"), directory.path().join("out"));
        std::fs::create_dir_all(inside.join("a/b")).expect("ours");
        std::fs::create_dir(&outside).expect("ours");
        std::fs::write(outside.join("secret"), "s").expect("ours");
        symlink(&outside, inside.join("absolute")).expect("ours");
        symlink("../../out", inside.join("a/relative")).expect("ours");
        symlink("b", inside.join("a/harmless")).expect("ours");
        symlink("../out/secret", inside.join("file")).expect("ours");
        let root = Root::open(&inside, false).expect("ours");
        root.directory(b"a/b").expect("below");
        for path in [
            &b"absolute"[..],
            b"a/relative",
            b"a/harmless",
            b"a/relative/x",
        ] {
            fails(root.directory(path), Errno::LOOP);
        }
        fails(root.directory(b".."), Errno::XDEV);
        fails(root.directory(b"a/../../out"), Errno::XDEV);
        fails(root.directory(b"/etc"), Errno::XDEV);
        fails(root.read(b"file"), Errno::LOOP);
        fails(root.read(b"absolute/secret"), Errno::LOOP);
        fails(root.make_directory(b"absolute", 0o700), Errno::NOTDIR);
        fails(root.make_directory(b"absolute/x", 0o700), Errno::LOOP);
        fails(root.below(b"absolute/x", true), Errno::NOTDIR);
        assert!(!outside.join("x").exists());
        // Swapped after it was opened: the held one is still below.
        let held = root.directory(b"a/b").expect("below");
        std::fs::rename(inside.join("a"), inside.join("c")).expect("ours");
        symlink(&outside, inside.join("a")).expect("ours");
        root.forget();
        fails(root.directory(b"a"), Errno::LOOP);
        drop(held);
        // The operator's own link is followed.
        Root::open(&inside.join("absolute"), false).expect("the operator's word");
    }

    #[test]
    fn directories_are_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = Root::open(&directory.path().join("x/y"), true).expect("made");
        let below = root.below(b"p/q/r", true).expect("made");
        assert!(below.make_directory(b"s", 0o755).expect("made"));
        assert!(!below.make_directory(b"s", 0o755).expect("there"));
        assert!(directory.path().join("x/y/p/q/r/s").is_dir());
        let error = root.read(b"p").expect_err("a directory");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
