// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup v2 hierarchy: where it is, the caller's place in it, and the
//! directories of jobs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{getxattr, setxattr, XattrFlags};

use crate::error::{Error, Result};
use crate::lock::{Hold, Lock};

/// Name that every job's directory starts with.
const JOB_PREFIX: &str = "paceline.";
/// Extended attribute of every job's directory, which root alone can set: users may give
/// their directories any name.
const JOB_MARK: &str = "trusted.paceline";

/// A mounted cgroup v2 hierarchy, alone or beside v1 hierarchies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    mount: PathBuf,
    /// The cgroup that the mount point shows; `/` except in bind mounts.
    root: PathBuf,
    read_only: bool,
}

impl Hierarchy {
    /// The hierarchy that contains this process.
    ///
    /// # Errors
    /// [`Error::NoCgroup2`] where none is mounted, [`Error::CgroupOutside`]
    /// where those mounted do not contain this process.
    pub fn find() -> Result<Self> {
        let mountinfo = read("/proc/self/mountinfo")?;
        let mounts = parse_mountinfo(&mountinfo);
        if mounts.is_empty() {
            return Err(Error::NoCgroup2);
        }
        let own = own_path()?;
        mounts
            .iter()
            .filter(|mount| own.starts_with(&mount.root))
            // A writable mount first, then the one that shows the most.
            .min_by_key(|mount| (mount.read_only, mount.root.components().count()))
            .cloned()
            .ok_or_else(|| Error::CgroupOutside {
                own: own.display().to_string(),
            })
    }

    /// Mount point.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Whether jobs cannot be made here.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// The cgroup of the calling process.
    pub fn own(&self) -> Result<Cgroup> {
        Ok(self.at(&own_path()?))
    }

    /// The cgroup of another process.
    pub fn of_process(&self, process: u32) -> Result<Cgroup> {
        let text = read(&format!("/proc/{process}/cgroup"))?;
        Ok(self.at(&parse_own(&text).ok_or(Error::NoCgroup2)?))
    }

    /// The cgroup that is called `name` in /proc/PID/cgroup.
    fn at(&self, name: &Path) -> Cgroup {
        let mut path = self.mount.clone();
        // Part by part: joining an empty path would add a slash.
        path.extend(name.strip_prefix(&self.root).unwrap_or(Path::new("")));
        Cgroup { path }
    }

    /// A cgroup named by the user: a path below the mount point, or the
    /// cgroup's own name as in /proc/PID/cgroup.
    pub fn named(&self, path: &Path) -> Result<Cgroup> {
        let candidates = [
            path.to_path_buf(),
            self.mount.join(
                path.components()
                    .filter(|part| matches!(part, Component::Normal(_)))
                    .collect::<PathBuf>(),
            ),
        ];
        for candidate in candidates {
            if let Ok(path) = candidate.canonicalize() {
                if path.starts_with(&self.mount) && path.join("cgroup.procs").exists() {
                    return Ok(Cgroup { path });
                }
            }
        }
        Err(Error::NotACgroup {
            path: path.to_path_buf(),
            mount: self.mount.clone(),
        })
    }

    /// Waits for the lock that serialises every change of jobs on this host.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn lock(&self) -> Result<Lock> {
        Lock::take(&self.mount)
    }

    /// Directories of jobs anywhere below the mount point, parents first.
    pub fn job_directories(&self) -> Vec<Cgroup> {
        let mut found = Vec::new();
        walk(&self.mount, &mut |path| {
            let cgroup = Cgroup {
                path: path.to_path_buf(),
            };
            if cgroup.is_job() {
                found.push(cgroup);
            }
        });
        found
    }

    /// Whether the cgroup with this id exists, inside this mount or outside.
    pub fn exists(&self, id: u64) -> bool {
        match open_by_id(&self.mount, id) {
            Ok(_) => true,
            // Only a certain answer counts: a job must not be cleaned away
            // because this process lacks the right to read it.
            Err(error) => !matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)),
        }
    }

    /// The cgroup with this id, if it exists and this mount shows it.
    pub fn by_id(&self, id: u64) -> Option<Cgroup> {
        let descriptor = open_by_id(&self.mount, id).ok()?;
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let path = fs::read_link(link).ok()?;
        path.join("cgroup.procs")
            .exists()
            .then_some(Cgroup { path })
    }
}

/// One cgroup directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The one with this directory.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Whether it is the root of the whole host, which alone has no events.
    pub fn is_hosts(&self) -> bool {
        !self.path.join("cgroup.events").exists()
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes `paceline.<process>.<n>` (mode 0755) below this cgroup.
    ///
    /// # Errors
    /// [`Error::CgroupReadOnly`] on a read-only mount, otherwise the system's.
    pub fn create_job(&self, process: u32) -> Result<Cgroup> {
        for number in 0u32.. {
            let path = self.path.join(format!("{JOB_PREFIX}{process}.{number}"));
            match fs::DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => {
                    let marked = setxattr(&path, JOB_MARK, b"job", XattrFlags::CREATE);
                    return match marked {
                        Ok(()) => Ok(Cgroup { path }),
                        Err(errno) => {
                            let _ = fs::remove_dir(&path);
                            Err(Error::path("mark", &path, errno.into()))
                        }
                    };
                }
                // Another PID namespace may have used the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
                    return Err(Error::CgroupReadOnly {
                        path: self.path.clone(),
                    })
                }
                Err(error) => return Err(Error::path("make the job's cgroup", &path, error)),
            }
        }
        unreachable!("the numbers do not run out before the file system does")
    }

    /// Whether [`Cgroup::create_job`] made it: its name is of that form, and it has the mark.
    pub fn is_job(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        let numbers = name.to_str().and_then(|name| name.strip_prefix(JOB_PREFIX));
        let number = |text: &str| text.parse::<u32>().is_ok_and(|n| n.to_string() == text);
        let named = numbers
            .and_then(|numbers| numbers.split_once('.'))
            .is_some_and(|(process, n)| number(process) && number(n));
        named && getxattr(&self.path, JOB_MARK, &mut [0; 16]).is_ok()
    }

    /// The kernel's id of this cgroup, as BPF programs see it.
    pub fn id(&self) -> Result<u64> {
        id_of(&self.path).map_err(|error| Error::path("read the id of", &self.path, error))
    }

    /// This cgroup and those above it, up to the mount point.
    pub fn and_above(&self, hierarchy: &Hierarchy) -> impl Iterator<Item = Cgroup> {
        let mount = hierarchy.mount().to_path_buf();
        let path = Some(self.path.clone());
        std::iter::successors(path, |path| path.parent().map(Path::to_path_buf))
            .take_while(move |path| path.starts_with(&mount))
            .map(|path| Cgroup { path })
    }

    /// Whether any process lives here or below. A cgroup that is gone has none.
    pub fn populated(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.events"))
            .map(|events| events.lines().any(|line| line == "populated 1"))
            .unwrap_or(self.path.join("cgroup.procs").exists())
    }

    /// Keeps it, a job's, from being cleaned away although no process is left in it.
    pub fn hold(&self) -> Option<Hold> {
        Hold::take(&self.path)
    }

    /// Whether a process holds it.
    pub fn is_held(&self) -> bool {
        Hold::is_held(&self.path)
    }

    /// Ids of the processes here and below, as this PID namespace sees them.
    pub fn processes(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        let mut add = |path: &Path| {
            let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        };
        add(&self.path);
        walk(&self.path, &mut add);
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| *pid > 0);
        pids
    }

    /// Opens `cgroup.events`, which poll(2) reports when the last process has ended.
    pub fn open_events(&self) -> Result<File> {
        let path = self.path.join("cgroup.events");
        File::open(&path).map_err(|error| Error::path("open", &path, error))
    }

    /// Opens the directory, to attach programs to it.
    pub fn open(&self) -> Result<File> {
        File::open(&self.path).map_err(|error| Error::path("open", &self.path, error))
    }

    /// Opens `cgroup.procs` for a process that is about to move in.
    pub fn open_procs(&self) -> Result<File> {
        let path = self.path.join("cgroup.procs");
        File::options()
            .write(true)
            .open(&path)
            .map_err(|error| Error::path("open", &path, error))
    }

    /// Moves a process in.
    pub fn add(&self, pid: u32) -> Result<()> {
        self.open_procs()?
            .write_all(pid.to_string().as_bytes())
            .map_err(|error| Error::path(&format!("move process {pid} into"), &self.path, error))
    }

    /// Removes the directory and empty ones below it. Already gone is success.
    pub fn remove(&self) -> Result<()> {
        let mut directories = vec![self.path.clone()];
        walk(&self.path, &mut |path| directories.push(path.to_path_buf()));
        for path in directories.iter().rev() {
            match fs::remove_dir(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::path("remove", path, error)),
            }
        }
        Ok(())
    }
}

/// Calls `visit` for each directory below `path`, parents first.
fn walk(path: &Path, visit: &mut dyn FnMut(&Path)) {
    // Cgroups come and go while this runs: an unreadable one is gone.
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            visit(&entry.path());
            walk(&entry.path(), visit);
        }
    }
}

/// This process's cgroup from /proc/self/cgroup.
fn own_path() -> Result<PathBuf> {
    let text = read("/proc/self/cgroup")?;
    parse_own(&text).ok_or(Error::NoCgroup2)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Error::path("read", Path::new(path), error))
}

fn parse_own(text: &str) -> Option<PathBuf> {
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(PathBuf::from)
}

fn parse_mountinfo(text: &str) -> Vec<Hierarchy> {
    text.lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut kind = after.split(' ');
            if kind.next()? != "cgroup2" {
                return None;
            }
            let super_options = kind.nth(1).unwrap_or("");
            let fields: Vec<&str> = before.split(' ').collect();
            let read_only = |options: &str| options.split(',').any(|option| option == "ro");
            Some(Hierarchy {
                root: unescape(fields.get(3)?),
                mount: unescape(fields.get(4)?),
                read_only: read_only(fields.get(5)?) || read_only(super_options),
            })
        })
        .collect()
}

/// For the fuzzer: /proc/self/mountinfo, and /proc/self/cgroup.
pub fn fuzz(text: &str) {
    parse_mountinfo(text);
    parse_own(text);
}

/// Undoes the octal escapes (`\040`) of /proc/self/mountinfo.
fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .filter(|_| bytes[at] == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&out))
}

/// FILEID_KERNFS of linux/exportfs.h: a cgroup's file handle is its id.
const FILEID_KERNFS: i32 = 0xfe;

/// A `struct file_handle` with room for a cgroup's id.
#[repr(C)]
struct CgroupHandle {
    bytes: u32,
    kind: i32,
    id: [u8; 8],
}

fn id_of(path: &Path) -> io::Result<u64> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut handle = CgroupHandle {
        bytes: 8,
        kind: 0,
        id: [0; 8],
    };
    let mut mount_id = 0;
    // SAFETY: `handle` is laid out as a struct file_handle that announces
    // eight bytes and has them; the path ends with NUL.
    let result = unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            path.as_ptr(),
            (&raw mut handle).cast(),
            &mut mount_id,
            0,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from_ne_bytes(handle.id))
}

fn open_by_id(mount: &Path, id: u64) -> io::Result<OwnedFd> {
    let mount = File::open(mount)?;
    let mut handle = CgroupHandle {
        bytes: 8,
        kind: FILEID_KERNFS,
        id: id.to_ne_bytes(),
    };
    // SAFETY: as in `id_of`; the descriptor returned is ours alone.
    unsafe {
        let descriptor = libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut handle).cast(),
            libc::O_PATH | libc::O_CLOEXEC,
        );
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn finds_v2_beside_v1() {
        let found = parse_mountinfo(HYBRID);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].mount, Path::new("/sys/fs/cgroup/unified"));
        assert!(!found[0].read_only);
    }

    #[test]
    fn sees_a_read_only_mount() {
        let container = "52 40 0:26 /docker/ab /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw";
        let found = parse_mountinfo(container);
        assert!(found[0].read_only);
        assert_eq!(found[0].root, Path::new("/docker/ab"));
    }

    #[test]
    fn decodes_escapes_in_mount_points() {
        let odd = r"52 40 0:26 / /mnt/my\040cgroups rw - cgroup2 cgroup rw";
        assert_eq!(parse_mountinfo(odd)[0].mount, Path::new("/mnt/my cgroups"));
    }

    #[test]
    fn reads_the_v2_line_among_v1_lines() {
        let text = "9:name=systemd:/x\n4:memory:/y\n0::/system.slice/slurmd.service\n";
        assert_eq!(
            parse_own(text).unwrap(),
            Path::new("/system.slice/slurmd.service")
        );
        assert_eq!(parse_own("4:memory:/y\n"), None);
    }
}
