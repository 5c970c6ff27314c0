// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands each process of a job the memory in which it shows its phase.
//!
//! A process asks over a Unix socket. The kernel says who it is (SO_PEERCRED), and
//! its own cgroup says to which job it belongs: it gets its own page and nobody
//! else's, whatever it asks. A page goes when its process ends.

use std::fs;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{getsockopt, sendmsg, sockopt, ControlMessage, MsgFlags};
use paceline_abi::PL_ABI_VERSION;

use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::kernel_side::discover;
use crate::supervise::pidfd;

/// The variable that names the socket to the processes of a job; libpaceline reads it.
pub const SOCKET_VARIABLE: &str = "PACELINE_SOCKET";
/// Sockets of all agents of this host.
const DIRECTORY: &str = "/run/paceline";
/// How long a client may take to say its four bytes: it must not hold up the others.
const PATIENCE: Duration = Duration::from_secs(1);
/// Inode of the first PID namespace (include/linux/proc_ns.h): the kernel side knows
/// processes by their number there.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// A thread that serves pages until it is dropped.
#[derive(Debug)]
pub struct PageServer {
    socket: PathBuf,
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
}

/// One process that has a page.
struct Client {
    job: u64,
    process: u32,
    lives: OwnedFd,
}

impl PageServer {
    /// Serves the jobs of this host's kernel side.
    ///
    /// # Errors
    /// Where the socket cannot be made; or [`Error::OtherPidNamespace`].
    pub fn start(hierarchy: &Hierarchy) -> Result<Self> {
        if pid_namespace()? != FIRST_PID_NAMESPACE {
            return Err(Error::OtherPidNamespace);
        }
        clean_sockets();
        let socket = Path::new(DIRECTORY).join(format!("{}.sock", std::process::id()));
        let failed = |error| Error::path("listen at", &socket, error);
        fs::create_dir_all(DIRECTORY).map_err(failed)?;
        // Of a killed process that had our number.
        remove(&socket).map_err(failed)?;
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        // Whoever may connect gets its own page only.
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let stop = EventFd::new().map_err(|errno| failed(errno.into()))?;
        let stopped = stop.as_fd().try_clone_to_owned().map_err(failed)?;
        let hierarchy = hierarchy.clone();
        let thread = std::thread::Builder::new()
            .name("pages".to_owned())
            .spawn(move || serve(&hierarchy, &listener, &stopped))
            .map_err(failed)?;
        Ok(Self {
            socket,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.socket) {
            tracing::warn!("cannot remove {}: {error}", self.socket.display());
        }
        // Fails while others use the directory.
        let _ = fs::remove_dir(DIRECTORY);
        if self.stop.write(1).is_ok() {
            drop(self.thread.take().map(JoinHandle::join));
        }
    }
}

/// Removes the sockets of agents that were killed.
pub(crate) fn clean_sockets() {
    let Ok(entries) = fs::read_dir(DIRECTORY) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let owner = path
            .file_stem()
            .and_then(|name| name.to_str()?.parse::<u32>().ok());
        let dead = owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if dead && remove(&path).is_ok() {
            tracing::debug!("removed {}, left by an ended process", path.display());
        }
    }
    let _ = fs::remove_dir(DIRECTORY);
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn pid_namespace() -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    const PATH: &str = "/proc/self/ns/pid";
    fs::metadata(PATH)
        .map(|metadata| metadata.ino())
        .map_err(|error| Error::path("look at", Path::new(PATH), error))
}

fn serve(hierarchy: &Hierarchy, listener: &UnixListener, stop: &OwnedFd) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let mut sources = vec![
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        ];
        sources.extend(
            clients
                .iter()
                .map(|client| PollFd::new(client.lives.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut sources, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                tracing::warn!("no more pages for the processes of this job: {errno}");
                return;
            }
        }
        let ready: Vec<bool> = sources
            .iter()
            .map(|source| source.any().unwrap_or(false))
            .collect();
        if ready[0] {
            return;
        }
        let mut ended = ready[2..].iter();
        clients.retain(|client| {
            let ended = *ended.next().expect("one source for each");
            if ended {
                forget(client);
            }
            !ended
        });
        while let Ok((stream, _)) = listener.accept() {
            match answer(hierarchy, stream) {
                Ok(Some(client)) => clients.push(client),
                Ok(None) => {}
                Err(error) => tracing::info!("a process gets no page: {error}"),
            }
        }
    }
}

fn forget(client: &Client) {
    let forgotten = discover::find().and_then(|found| match found {
        Some(found) if found.is_ours() => found.delete_page(client.job, client.process),
        _ => Ok(()),
    });
    if let Err(error) = forgotten {
        tracing::info!("{error}");
    }
}

/// Gives the process at the other end its page. Without one, it just hangs up.
fn answer(hierarchy: &Hierarchy, mut stream: UnixStream) -> Result<Option<Client>> {
    let failed = |error| Error::system("cannot talk to a process of the job", error);
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut version = [0; 4];
    stream.read_exact(&mut version).map_err(failed)?;
    if u32::from_ne_bytes(version) != PL_ABI_VERSION {
        return Ok(None);
    }
    let peer =
        getsockopt(&stream, sockopt::PeerCredentials).map_err(|errno| failed(errno.into()))?;
    let process = peer.pid() as u32;
    // From here on the number is this process's; if it has ended by now, the
    // cgroup below is read of nobody or of another, who is not at the other end.
    let lives = pidfd(process).map_err(failed)?;
    let Some(found) = discover::find()?.filter(discover::Found::is_ours) else {
        return Ok(None);
    };
    let jobs = found.job_ids();
    let Some(job) = hierarchy
        .of_process(process)?
        .and_above(hierarchy)
        .find_map(|cgroup| cgroup.id().ok().filter(|id| jobs.contains(id)))
    else {
        return Ok(None);
    };
    let Some(page) = found.page(job, process)? else {
        return Ok(None);
    };
    let descriptors = [page.as_raw_fd()];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(&[1])],
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map_err(|errno| failed(errno.into()))?;
    Ok(Some(Client {
        job,
        process,
        lives,
    }))
}
