// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node: a network namespace, a UTS namespace with the node's name, and a mount
//! namespace with the lab's /etc/hosts and the node's own interfaces in /sys. All are
//! descriptors: nothing of them is in the file system.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nix::sched::{setns, unshare, CloneFlags};
use nix::unistd::sethostname;
use paceline_net::{Doing, Error, Namespace};

/// The interface of a host.
pub const HOST_DEVICE: &str = "eth0";
/// Where mounts are prepared. It exists on every system, and a mount over it is visible
/// in the new mount namespace only, and not for long.
const SCRATCH: &str = "/tmp";
/// The part of /sys that a node has itself. All of it would hide the cgroup file systems and
/// other mounts there.
const OWN_SYSFS: [&str; 2] = ["class/net", "devices/virtual/net"];

/// A host or a switch.
#[derive(Debug)]
pub struct Node {
    network: Namespace,
    names: OwnedFd,
    mounts: OwnedFd,
}

impl Node {
    /// A new node called `name` whose /etc/hosts is `hosts`. Its mounts carry `mark`,
    /// by which processes inside can be found ([`super::mark`]).
    pub fn create(name: &str, hosts: &str, mark: &str) -> Result<Self, Error> {
        Self::make(name, None, hosts, mark)
    }

    /// The same around a network that exists already.
    pub fn around(network: &Namespace, name: &str, hosts: &str, mark: &str) -> Result<Self, Error> {
        Self::make(name, Some(network), hosts, mark)
    }

    /// In a thread that ends afterwards.
    fn make(
        name: &str,
        network: Option<&Namespace>,
        hosts: &str,
        mark: &str,
    ) -> Result<Self, Error> {
        std::thread::scope(|scope| {
            scope
                .spawn(|| Self::make_here(name, network, hosts, mark))
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn make_here(
        name: &str,
        network: Option<&Namespace>,
        hosts: &str,
        mark: &str,
    ) -> Result<Self, Error> {
        match network {
            Some(network) => setns(network, CloneFlags::CLONE_NEWNET),
            None => unshare(CloneFlags::CLONE_NEWNET),
        }
        .and_then(|()| unshare(CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWNS))
        .doing(format!("making the namespaces of {name}"))?;
        sethostname(name).doing(format!("naming {name}"))?;
        mount_own(hosts, mark).doing(format!("mounting {name}'s /etc/hosts and /sys"))?;
        let open = |kind: &str| -> Result<OwnedFd, Error> {
            let path = format!("/proc/thread-self/ns/{kind}");
            let file = File::open(&path).doing(format!("opening {path} of {name}"))?;
            Ok(file.into())
        };
        Ok(Node {
            network: Namespace::from_descriptor(name, open("net")?),
            names: open("uts")?,
            mounts: open("mnt")?,
        })
    }

    /// Its network.
    pub fn network(&self) -> &Namespace {
        &self.network
    }

    /// The arguments of [`enter`], to be sent to another process.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [
            self.network.as_fd(),
            self.names.as_fd(),
            self.mounts.as_fd(),
        ]
    }

    /// The network namespace's inode, as `lsns` shows it.
    pub fn inode(&self) -> Result<u64, Error> {
        fs::metadata(self.network.path())
            .map(|metadata| metadata.ino())
            .doing(format!("reading {}", self.network.path()))
    }
}

/// Mounts the node's own files, in its own mount namespace.
fn mount_own(hosts: &str, mark: &str) -> io::Result<()> {
    const NOTHING: Option<&str> = None;
    let at_scratch = |source: &str, kind: &str| {
        let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some(source), SCRATCH, Some(kind), safe, NOTHING)
    };
    let bind = |from: &str, to: &str| {
        let from = Path::new(SCRATCH).join(from);
        mount(Some(&from), to, NOTHING, MsFlags::MS_BIND, NOTHING)
    };
    // Later mounts and unmounts of the machine happen here, too; those here do not reach
    // the machine.
    let flags = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    mount(NOTHING, "/", NOTHING, flags, NOTHING)?;

    at_scratch(mark, "tmpfs")?;
    fs::write(Path::new(SCRATCH).join("hosts"), hosts)?;
    bind("hosts", "/etc/hosts")?;
    umount2(SCRATCH, MntFlags::MNT_DETACH)?;

    at_scratch("sysfs", "sysfs")?;
    for part in OWN_SYSFS {
        bind(part, &format!("/sys/{part}"))?;
    }
    umount2(SCRATCH, MntFlags::MNT_DETACH)?;
    Ok(())
}

/// Moves the calling process into a node, whose [`Node::descriptors`] these are. It
/// must have one thread only. The working directory stays, where the node sees it.
pub fn enter(descriptors: &[OwnedFd; 3]) -> io::Result<()> {
    let directory = std::env::current_dir();
    join(descriptors)?;
    // Joining mounts leads to their root, which is where a command starts that came
    // from a directory that is not there.
    if let Ok(directory) = directory {
        let _ = std::env::set_current_dir(directory);
    }
    Ok(())
}

/// The same by system calls alone, as between fork and exec: the working directory is the
/// root afterwards.
pub fn join(descriptors: &[OwnedFd; 3]) -> io::Result<()> {
    let [network, names, mounts] = descriptors;
    setns(network, CloneFlags::CLONE_NEWNET)?;
    setns(names, CloneFlags::CLONE_NEWUTS)?;
    Ok(setns(mounts, CloneFlags::CLONE_NEWNS)?)
}
