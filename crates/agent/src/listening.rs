// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unix sockets that anybody may connect to: made here, or by a service manager that keeps
//! them while their server restarts (socket activation, sd_listen_fds(3)).

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;

use crate::error::{Error, Result};

/// Sockets of this host: of each `paceline run`, and of the agent.
pub const DIRECTORY: &str = "/run/paceline";
/// Below the directory: where programs ask for their pages. libpaceline knows the name.
pub(crate) const PAGES_SOCKET: &str = "agent.sock";
/// Below the directory: for requests for jobs.
pub(crate) const JOBS_SOCKET: &str = "jobs.sock";
/// Below the directory: for reading and bounding groups.
pub(crate) const GROUPS_SOCKET: &str = "groups.sock";

/// A socket that listens at a path, until it is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: UnixListener,
    path: PathBuf,
    /// It stays when its server ends.
    handed: bool,
    /// The directory is Paceline's own, and goes with the last socket in it.
    own_directory: bool,
}

impl Listening {
    /// A socket of this process's own, in place of one that a killed process left.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub(crate) fn at(path: PathBuf) -> Result<Self> {
        let failed = |error| Error::path("listen at", &path, error);
        let directory = path.parent().unwrap_or(Path::new("/"));
        let own_directory = directory == Path::new(DIRECTORY) || !directory.exists();
        let listener = loop {
            fs::create_dir_all(directory).map_err(failed)?;
            remove(&path).map_err(failed)?;
            match UnixListener::bind(&path) {
                Ok(listener) => break listener,
                // Another one that starts or ends has found the directory empty meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            listener,
            handed: false,
            own_directory,
            path,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.handed {
            return;
        }
        if let Err(error) = remove(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
        if self.own_directory {
            // Fails while others use the directory.
            let _ = self.path.parent().map(fs::remove_dir);
        }
    }
}

/// Sockets that the service manager passed and that are not yet in use.
#[derive(Debug)]
pub(crate) struct Handed(Vec<(PathBuf, UnixListener)>);

impl Handed {
    /// # Errors
    /// Where one is no Unix socket at a path.
    pub(crate) fn from_environment() -> Result<Self> {
        let what = "a socket from the service manager has no path: write ListenStream=/PATH";
        let failed = |error| Error::system(what, error);
        let mut given = ListenFd::from_env();
        let mut all = Vec::new();
        for number in 0..given.len() {
            let listener = given.take_unix_listener(number).map_err(failed)?;
            let Some(listener) = listener else { continue };
            listener.set_nonblocking(true).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let path = address
                .as_pathname()
                .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
            all.push((path.to_path_buf(), listener));
        }
        Ok(Self(all))
    }

    /// The socket at this path: the passed one, or a new one.
    ///
    /// # Errors
    /// As [`Listening::at`].
    pub(crate) fn or_at(&mut self, path: PathBuf) -> Result<Listening> {
        match self.0.iter().position(|(other, _)| *other == path) {
            Some(number) => Ok(Listening {
                listener: self.0.swap_remove(number).1,
                path,
                handed: true,
                own_directory: false,
            }),
            None => Listening::at(path),
        }
    }

    /// Whether there is one at this path.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|(other, _)| other == path)
    }

    /// # Errors
    /// Where one was not taken: its clients would wait for ever.
    pub(crate) fn all_taken(self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some((path, _)) => Err(Error::StrangeSocket { path: path.clone() }),
        }
    }
}

/// Removes a socket. Gone already is success.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
