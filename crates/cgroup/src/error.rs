// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the hierarchy and of the lock.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every failure. Each message names the error, its place, and the right form where that is
/// known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No cgroup v2 hierarchy is mounted.
    #[error(
        "no cgroup v2 hierarchy in /proc/self/mountinfo (ip netns exec hides it: use nsenter --net=/run/netns/NAME paceline ...; otherwise: mount -t cgroup2 none /sys/fs/cgroup/unified)"
    )]
    NoCgroup2,

    /// The hierarchy is mounted read-only.
    #[error(
        "the cgroup v2 hierarchy at {} is mounted read-only, as in most containers, so Paceline cannot create a job's cgroup. Run paceline on the host, or start the container with a writable cgroup (docker: --privileged --cgroupns=host)",
        path.display()
    )]
    CgroupReadOnly {
        /// Mount point.
        path: PathBuf,
    },

    /// The caller's own cgroup is not below any mounted hierarchy.
    #[error(
        "this process is in cgroup {own}, which is in no mounted cgroup v2 hierarchy: mount a cgroup2 in this namespace"
    )]
    CgroupOutside {
        /// Path from /proc/self/cgroup.
        own: String,
    },

    /// A path given by the user is not a cgroup v2 directory.
    #[error("{} is not a cgroup v2 directory (it has no cgroup.procs); the hierarchy is mounted at {}", path.display(), mount.display())]
    NotACgroup {
        /// The path as given.
        path: PathBuf,
        /// Where the hierarchy is.
        mount: PathBuf,
    },

    /// The lock file belongs to another user.
    #[error(
        "{} is not a regular file that only root can open, so it cannot be the lock: remove it",
        path.display()
    )]
    LockFile {
        /// Where it is.
        path: PathBuf,
    },

    /// A file or system call failed.
    #[error("{action}: {source}")]
    System {
        /// The action that failed, with the path.
        action: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// An I/O error on a path.
    pub(crate) fn path(verb: &str, path: &Path, source: io::Error) -> Self {
        Error::System {
            action: format!("cannot {verb} {}", path.display()),
            source,
        }
    }
}
