// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands each process of a job the memory in which it shows its phase.
//!
//! A process asks over a Unix socket. SO_PEERCRED identifies the process, and its cgroup
//! identifies its job. It gets its own page and no other, whatever it requests. A page goes
//! when its process ends.

use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{sendmsg, ControlMessage, MsgFlags};
use paceline_abi::{PL_ABI_VERSION, PL_MAX_PROCESSES};
use paceline_cgroup::Hierarchy;

use crate::error::{Error, Result};
use crate::kernel_side::discover;
use crate::listening::{self, Listening, DIRECTORY};
use crate::peer::Peer;
use crate::supervise::pidfd;
use paceline_callers::{Call, Callers};

/// The variable that names the socket to the processes of a job; libpaceline reads it.
pub const SOCKET_VARIABLE: &str = "PACELINE_SOCKET";
/// Inode of the first PID namespace (include/linux/proc_ns.h): the kernel side knows
/// processes by their number there.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The whole request of a process: its version of the ABI.
const VERSION_BYTES: usize = size_of_val(&PL_ABI_VERSION);

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
    user: u32,
    lives: OwnedFd,
}

impl PageServer {
    /// Serves the jobs of this host's kernel side, at a socket of this process's own.
    ///
    /// # Errors
    /// [`Error::System`] where the socket cannot be made.
    pub fn start(hierarchy: &Hierarchy) -> Result<Self> {
        clean_sockets();
        let socket = format!("{DIRECTORY}/{}.sock", std::process::id());
        Self::serve(hierarchy, Listening::at(PathBuf::from(socket))?, Vec::new())
    }

    /// The same at a socket in place of a server that was killed: its processes' pages go
    /// with them, too.
    ///
    /// # Errors
    /// Where it cannot begin; or [`Error::OtherPidNamespace`].
    pub(crate) fn in_place_of_a_former(hierarchy: &Hierarchy, socket: Listening) -> Result<Self> {
        Self::serve(hierarchy, socket, clients_of_a_former_server())
    }

    /// Each client gets only its own page.
    fn serve(hierarchy: &Hierarchy, socket: Listening, clients: Vec<Client>) -> Result<Self> {
        if !in_first_pid_namespace()? {
            return Err(Error::OtherPidNamespace);
        }
        let path = socket.path().to_path_buf();
        let failed = |error| Error::path("listen at", &path, error);
        let stop = EventFd::new().map_err(|errno| failed(errno.into()))?;
        let stopped = stop.as_fd().try_clone_to_owned().map_err(failed)?;
        let hierarchy = hierarchy.clone();
        let thread = std::thread::Builder::new()
            .name("pages".to_owned())
            .spawn(move || serve(&hierarchy, &socket, &stopped, clients))
            .map_err(failed)?;
        Ok(Self {
            socket: path,
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
        if dead && listening::remove(&path).is_ok() {
            tracing::debug!("removed {}, left by an ended process", path.display());
        }
    }
    let _ = fs::remove_dir(DIRECTORY);
}

/// Whether the kernel side knows processes by the numbers that they have here.
pub(crate) fn in_first_pid_namespace() -> Result<bool> {
    const PATH: &str = "/proc/self/ns/pid";
    fs::metadata(PATH)
        .map(|metadata| metadata.ino() == FIRST_PID_NAMESPACE)
        .map_err(|error| Error::path("look at", Path::new(PATH), error))
}

fn serve(hierarchy: &Hierarchy, socket: &Listening, stop: &OwnedFd, mut clients: Vec<Client>) {
    let mut callers = Callers::default();
    loop {
        let mut sources = vec![
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
        ];
        sources.extend(
            clients
                .iter()
                .map(|client| PollFd::new(client.lives.as_fd(), PollFlags::POLLIN)),
        );
        sources.extend(callers.sources());
        match poll(&mut sources, callers.timeout()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                tracing::warn!(
                    "cannot accept more phase requests of this job's processes: {errno}"
                );
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
        callers.accept(socket.listener(), |_, _| Ok(()));
        for call in callers.ready(VERSION_BYTES, |request| request.len() == VERSION_BYTES) {
            let user = call.credentials.uid();
            let same = clients.iter().filter(|client| client.user == user);
            // As in bpf/accounts.h: a user without a page gets one while any is free.
            let same = same.count();
            if user != 0 && same + clients.len() >= PL_MAX_PROCESSES as usize {
                tracing::info!(
                    "user {user} has reached the limit of processes with phases: {same}"
                );
                continue;
            }
            match answer(hierarchy, &call) {
                Ok(Some(client)) => {
                    // A process that asks again has executed another program.
                    let key = |client: &Client| (client.job, client.process);
                    clients.retain(|other| key(other) != key(&client));
                    clients.push(client);
                }
                Ok(None) => {}
                Err(error) => tracing::info!("cannot serve phases to a process: {error}"),
            }
        }
    }
}

/// Processes that have their page from a server that was killed.
fn clients_of_a_former_server() -> Vec<Client> {
    let found = discover::find().ok().flatten();
    let Some(found) = found.filter(discover::Found::is_ours) else {
        return Vec::new();
    };
    let pages = found.pages().unwrap_or_default();
    let mut clients = Vec::new();
    for (key, _) in pages {
        let process = Path::new("/proc").join(key.process.to_string());
        match (pidfd(key.process), fs::metadata(process)) {
            (Ok(lives), Ok(metadata)) => clients.push(Client {
                job: key.job,
                process: key.process,
                user: metadata.uid(),
                lives,
            }),
            // Ended since.
            _ => drop(found.delete_page(key.job, key.process)),
        }
    }
    clients
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
fn answer(hierarchy: &Hierarchy, call: &Call) -> Result<Option<Client>> {
    let failed = |error| Error::system("cannot talk to a process of the job", error);
    if call.request != PL_ABI_VERSION.to_ne_bytes() {
        return Ok(None);
    }
    // The process that connected, not another one with its number.
    let peer = Peer::of(&call.stream, &call.credentials)?;
    let process = peer.process;
    let Some(found) = discover::find()?.filter(discover::Found::is_ours) else {
        return Ok(None);
    };
    let jobs = found.job_ids();
    let Some(job) = peer
        .cgroup(hierarchy)?
        .and_above(hierarchy)
        .find_map(|cgroup| cgroup.id().ok().filter(|id| jobs.contains(id)))
    else {
        return Ok(None);
    };
    let Some(page) = found.page(job, process)? else {
        return Ok(None);
    };
    if let Err(error) = peer.check() {
        // It ended in between: the page would go to the next process with its number.
        found.delete_page(job, process)?;
        return Err(error);
    }
    let descriptors = [page.as_raw_fd()];
    sendmsg::<()>(
        call.stream.as_raw_fd(),
        &[IoSlice::new(&[1])],
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map_err(|errno| failed(errno.into()))?;
    Ok(Some(Client {
        job,
        process,
        user: call.credentials.uid(),
        lives: peer.into_pidfd(),
    }))
}
