// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Unix socket: the kernel reports the user of the process at the other end.

use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};

use crate::error::{file_error, Error};
use crate::purpose::Purpose;

/// Default socket of a user's service: `/run/paceline` for root,
/// else below `XDG_RUNTIME_DIR`, else below `/tmp`.
pub fn default_socket(purpose: Purpose, user: u32, runtime_directory: Option<&Path>) -> PathBuf {
    let directory = match (user, runtime_directory) {
        (0, _) => PathBuf::from("/run/paceline"),
        (_, Some(directory)) => directory.join("paceline"),
        (_, None) => PathBuf::from(format!("/tmp/paceline-{user}")),
    };
    directory.join(format!("{purpose}.sock"))
}

/// Listens at `path`, whose directory is made if it is not there. A socket that nobody
/// answers any more is replaced. `shared`: users other than this one may connect, and
/// are judged then.
///
/// # Errors
/// [`Error::File`] if another process already listens, if the directory is one in
/// which others could put a socket of their own, or it cannot be made.
pub fn bind(path: &Path, shared: bool) -> Result<UnixListener, Error> {
    let error = |error: std::io::Error| file_error(path, error.to_string());
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        let mode = if shared || geteuid().is_root() {
            0o755
        } else {
            0o700
        };
        match DirBuilder::new().mode(mode).create(directory) {
            Err(other) if other.kind() != ErrorKind::AlreadyExists => {
                return Err(file_error(directory, other.to_string()));
            }
            _ => check_directory(directory)?,
        }
    }
    if let Ok(metadata) = fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(file_error(
                path,
                "exists and is not a socket: remove it or give another path",
            ));
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Err(other) if other.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(error)?;
            }
            _ => return Err(file_error(path, "a service already listens on this socket")),
        }
    }
    let listener = UnixListener::bind(path).map_err(error)?;
    let mode = if shared { 0o666 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(error)?;
    Ok(listener)
}

fn check_directory(directory: &Path) -> Result<(), Error> {
    let metadata =
        fs::metadata(directory).map_err(|error| file_error(directory, error.to_string()))?;
    let ours = metadata.uid() == geteuid().as_raw() || metadata.uid() == 0;
    let sticky = metadata.mode() & 0o1000 != 0;
    if !metadata.is_dir() || !ours || (metadata.mode() & 0o022 != 0 && !sticky) {
        return Err(file_error(
            directory,
            "other users could replace the socket: use a directory that only you can change",
        ));
    }
    Ok(())
}

/// Connects to a service, if it belongs to one of `users`.
///
/// # Errors
/// [`Error::NoListener`], [`Error::File`], [`Error::NotAuthorized`].
pub async fn connect(path: &Path, users: &[u32]) -> Result<UnixStream, Error> {
    let stream = UnixStream::connect(path).await;
    let stream = stream.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::NoListener {
            path: path.display().to_string(),
        },
        _ => file_error(path, error.to_string()),
    })?;
    check_peer(&stream, users)?;
    Ok(stream)
}

/// Whether the process at the other end belongs to one of `users`.
///
/// # Errors
/// [`Error::NotAuthorized`].
pub fn check_peer(stream: &UnixStream, users: &[u32]) -> Result<(), Error> {
    // An unknown user is not authorized.
    let user = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
    match users.contains(&user) {
        true => Ok(()),
        false => Err(Error::NotAuthorized { user }),
    }
}
