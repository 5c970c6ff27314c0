// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where root may write files that a command line names.
//!
//! In a directory that another user may change, a name can become a symbolic link to any file
//! of the system between a check and its use. So root writes only where no other user could
//! place a link. As with sshd's StrictModes, each directory on the path belongs to root or to a
//! user that root trusts anyway. Then no special way to open files is needed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{bail, Context, Result};
use nix::unistd::geteuid;

/// As the kernel's own limit (MAXSYMLINKS).
const MOST_LINKS: usize = 40;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Makes the directory, if it is not there, for this process to write into.
///
/// # Errors
/// Where it cannot be created, or this is root and another user can change its path.
pub fn make_directory(path: &Path) -> Result<()> {
    check(path)?;
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    check(path)
}

/// Whether this process may write a file there: always, unless it is root.
///
/// # Errors
/// As [`make_directory`].
pub fn check(path: &Path) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let path =
        std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
    Trusted::here().check(&path)
}

/// Users and groups that root trusts.
struct Trusted {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
}

impl Trusted {
    /// Root, the user behind sudo, and users who could replace the program that root runs here.
    fn here() -> Self {
        let number = |name| std::env::var(name).ok()?.parse().ok();
        let mut users: BTreeSet<u32> = [Some(0), number("SUDO_UID")]
            .into_iter()
            .flatten()
            .collect();
        let program = std::env::current_exe().ok();
        for place in program
            .iter()
            .flat_map(|program| program.ancestors().take(2))
        {
            users.extend(fs::metadata(place).map(|found| found.uid()));
        }
        Self {
            users,
            groups: [Some(0), number("SUDO_GID")]
                .into_iter()
                .flatten()
                .collect(),
        }
    }

    /// Each name on the path, and the target of a link. A missing name is not judged, but the
    /// directory in which it would be created is.
    fn check(&self, path: &Path) -> Result<()> {
        let mut links = 0;
        let mut at = PathBuf::new();
        // Last first.
        let mut left: Vec<PathBuf> = parts(path);
        while let Some(part) = left.pop() {
            if part == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let found = match fs::symlink_metadata(&next) {
                Ok(found) => found,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot look at {}", next.display()))
                }
            };
            if !self.users.contains(&found.uid()) {
                bail!(
                    "root does not write to {}: {} belongs to user {}, who could replace it by a symbolic link; choose a directory that only root can change",
                    path.display(),
                    next.display(),
                    found.uid()
                );
            }
            if found.is_symlink() {
                links += 1;
                if links > MOST_LINKS {
                    bail!("{}: too many symbolic links", path.display());
                }
                let target = fs::read_link(&next)
                    .with_context(|| format!("cannot look at {}", next.display()))?;
                left.extend(parts(&target));
                if target.is_absolute() {
                    at = PathBuf::new();
                }
                continue;
            }
            if found.is_dir() && self.others_write(&found) {
                bail!(
                    "root does not write to {}: other users may write to {}; choose a directory that only root can change",
                    path.display(),
                    next.display()
                );
            }
            at = next;
        }
        Ok(())
    }

    /// In a sticky directory no user can replace another user's file, and the owner is checked
    /// next.
    fn others_write(&self, directory: &fs::Metadata) -> bool {
        let mode = directory.mode();
        let others = mode & OTHERS_WRITE != 0;
        let group = mode & GROUP_WRITES != 0 && !self.groups.contains(&directory.gid());
        mode & STICKY == 0 && (others || group)
    }
}

/// The path's names, last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .filter(|part| *part != Component::CurDir)
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::{chown, symlink, PermissionsExt};

    /// Of a user that does not exist on any test machine.
    const STRANGER: u32 = 64_321;

    fn refusal(path: &Path) -> Option<String> {
        let own = geteuid().as_raw();
        let trusted = Trusted {
            users: [0, own].into(),
            groups: [0, nix::unistd::getegid().as_raw()].into(),
        };
        trusted.check(path).err().map(|error| error.to_string())
    }

    #[test]
    fn root_refuses_paths_that_others_can_change() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().canonicalize().expect("it is there");
        let path = |name: &str| root.join(name);
        fs::create_dir(path("own")).expect("made");
        symlink("own", path("link")).expect("made");
        symlink(path("link"), path("far")).expect("made");
        symlink("loop", path("loop")).expect("made");
        assert_eq!(refusal(&path("far/../own/results.json")), None);
        assert_eq!(refusal(&path("not/there/yet")), None);
        assert!(refusal(&path("loop/x"))
            .expect("no end")
            .contains("too many"));

        let open = path("open");
        fs::create_dir(&open).expect("made");
        symlink("open", path("to-open")).expect("made");
        for (mode, refused) in [(0o777, true), (0o1777, false), (0o755, false)] {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).expect("ours");
            for way in ["open/results.json", "to-open/results.json"] {
                let error = refusal(&path(way));
                assert_eq!(error.is_some(), refused, "{mode:o}: {error:?}");
            }
        }
    }

    #[test]
    fn a_strangers_link_is_not_followed() {
        if !geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().canonicalize().expect("it is there");
        let (theirs, link) = (root.join("theirs"), root.join("theirs/out"));
        fs::create_dir(&theirs).expect("made");
        symlink("/etc", &link).expect("made");
        std::os::unix::fs::lchown(&link, Some(STRANGER), None).expect("root may");
        let error = refusal(&link).expect("refused");
        assert!(error.contains(&format!("user {STRANGER}")), "{error}");
        chown(&theirs, Some(STRANGER), None).expect("root may");
        assert!(refusal(&theirs.join("new")).is_some());
        assert!(refusal(Path::new("/")).is_none());
    }
}
