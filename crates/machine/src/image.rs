// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's root: this program as `/init`, `ip`, `tc`, `nft` if there is one, their
//! libraries and the kernel's modules. Built once, kept in the cache, built again when an input
//! changes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use paceline_experiment::hash::hash_of;

use super::cpio::Archive;
use super::entry::{libraries_of, Entry};
use super::kernel::{self, Choice, Kernel};
use super::{VirtualError, Wrong};
use crate::guest::{GATEWAY_MODULES, INIT, MODULES};

/// Images of older builds that are kept: another checkout may be using them.
const IMAGES_KEPT: usize = 8;

/// The files that QEMU boots.
#[derive(Clone)]
pub struct Image {
    /// The kernel.
    pub kernel: PathBuf,
    /// The first of the concatenated initial archives; the plan is the second. Its
    /// bytes: the cache may drop the file while an experiment of an older build runs.
    pub initramfs: Vec<u8>,
    /// Why its kernel may not be the one of today.
    pub stale: Option<String>,
}

/// The image for this program and a kernel, from the cache if it is there.
/// Several processes may call this at once: one builds, the others wait.
///
/// # Errors
/// If a kernel cannot be found, a program is missing, or the cache cannot be
/// written.
pub fn prepare(choice: &Choice) -> Result<Image, VirtualError> {
    let cache = cache_directory()?;
    fs::create_dir_all(&cache).wrong("make", &cache)?;
    let lock_path = cache.join("lock");
    let lock_file = File::create(&lock_path).wrong("make", &lock_path)?;
    let _lock = Flock::lock(lock_file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno.into())
        .wrong("lock", &lock_path)?;
    let kernel = kernel::find(&cache, choice)?;
    let contents = contents(&kernel)?;
    let mut parts = Vec::new();
    for entry in &contents {
        parts.extend([
            entry.path().as_bytes(),
            if entry.is_executable() { b"x" } else { b"-" },
            entry.content(),
        ]);
    }
    let images = cache.join("images");
    fs::create_dir_all(&images).wrong("make", &images)?;
    let initramfs = images.join(format!("{:016x}.cpio", hash_of(&parts)));
    if !initramfs.exists() {
        let mut archive = Archive::default();
        for entry in &contents {
            entry.put_into(&mut archive);
        }
        for directory in ["dev", "proc", "sys", "tmp", "run"] {
            archive.directory(directory);
        }
        let mut file = tempfile::NamedTempFile::new_in(&images).wrong("make a file in", &images)?;
        file.write_all(&archive.finish())
            .wrong("write", file.path())?;
        file.persist(&initramfs)
            .map_err(|error| error.error)
            .wrong("make", &initramfs)?;
        remove_old(&images)?;
    }
    Ok(Image {
        kernel: kernel.boot_file(),
        initramfs: fs::read(&initramfs).wrong("read", &initramfs)?,
        stale: kernel.stale,
    })
}

fn cache_directory() -> Result<PathBuf, VirtualError> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("XDG_CACHE_HOME")
        .or_else(|| Some(set("HOME")?.join(".cache")))
        .map(|cache| cache.join("paceline"))
        .ok_or(VirtualError::NoCache)
}

fn remove_old(images: &Path) -> Result<(), VirtualError> {
    let mut found: Vec<_> = fs::read_dir(images)
        .wrong("list", images)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    let excess = found.len().saturating_sub(IMAGES_KEPT);
    for (_, path) in &found[..excess] {
        fs::remove_file(path).wrong("remove", path)?;
    }
    Ok(())
}

fn contents(kernel: &Kernel) -> Result<Vec<Entry>, VirtualError> {
    let program = std::env::current_exe().wrong("find", Path::new("/proc/self/exe"))?;
    let mut entries = Vec::new();
    let mut libraries = BTreeSet::new();
    let mut programs = vec![
        (program, INIT),
        (find_program("ip")?, "/usr/sbin/ip"),
        (find_program("tc")?, "/usr/sbin/tc"),
    ];
    // Only gateways need it, and report its absence.
    programs.extend(find_program("nft").map(|nft| (nft, "/usr/sbin/nft")));
    for (path, name) in &programs {
        libraries.extend(libraries_of(path)?);
        entries.push(Entry::copy(path, name)?);
    }
    for library in libraries {
        entries.push(Entry::copy(&library, &library.to_string_lossy())?);
    }
    for (from, to) in [("modules", MODULES), ("gateway-modules", GATEWAY_MODULES)] {
        for module in kernel.modules(from)? {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            let content = fs::read(&module).wrong("read", &module)?;
            entries.push(Entry::file(format!("/{to}/{name}"), content));
        }
    }
    Ok(entries)
}

/// Where a program of this machine is.
///
/// # Errors
/// If it is nowhere in `PATH` and the system's directories.
pub fn find_program(name: &str) -> Result<PathBuf, VirtualError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A user's PATH often lacks the system's directories.
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| VirtualError::Start {
            program: name.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })
}
