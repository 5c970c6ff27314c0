// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes inside of a lab. A node's mounts carry the lab's mark as the
//! source of a tmpfs, and the kernel shows the mounts of each process. Unlike an inode
//! or a process's number it is never used again, and unlike a variable or a cgroup a
//! process cannot lose it on the way, by `su` for example.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// Prefix of every mark.
const PREFIX: &str = "paceline-lab:";
/// A killed process may end its system call first; processes that it started during the
/// search are found in the next round.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two checks.
const INTERVAL: Duration = Duration::from_millis(5);

/// A lab, as no other lab has ever been: its name, and its keeper by number and start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The lab's name.
    pub lab: String,
    /// Inode of the keeper's PID namespace, where `keeper` means something.
    pid_namespace: u64,
    /// The keeper's process.
    keeper: u32,
    /// When that started, in ticks since boot.
    started: u64,
}

impl Mark {
    /// The mark of a lab that this process keeps.
    pub fn own(lab: &str) -> io::Result<Self> {
        let keeper = std::process::id();
        Ok(Mark {
            lab: lab.to_owned(),
            pid_namespace: pid_namespace()?,
            keeper,
            started: started(keeper)?,
        })
    }

    /// Whether the process that kept the lab is known to be gone. Never known of labs
    /// in another PID namespace.
    fn is_orphaned(&self) -> bool {
        pid_namespace().is_ok_and(|own| own == self.pid_namespace)
            && started(self.keeper).map_or_else(
                |error| error.kind() == io::ErrorKind::NotFound,
                |started| started != self.started,
            )
    }

    /// Parses the form of [`Display`](std::fmt::Display).
    pub fn parse(source: &str) -> Option<Self> {
        let mut parts = source.strip_prefix(PREFIX)?.split(':');
        let mark = Mark {
            lab: parts.next()?.to_owned(),
            pid_namespace: parts.next()?.parse().ok()?,
            keeper: parts.next()?.parse().ok()?,
            started: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(mark)
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{PREFIX}{}:{}:{}:{}",
            self.lab, self.pid_namespace, self.keeper, self.started
        )
    }
}

/// Ends all processes inside of labs whose keeper has ended, but those of which this
/// process is one. Returns how many there were.
///
/// # Errors
/// Where some are still there after a while.
pub fn end_orphans() -> io::Result<usize> {
    end_where(Mark::is_orphaned)
}

/// Ends all processes that bear this mark. Returns how many there were.
///
/// # Errors
/// Where some are still there after a while.
pub fn end_inside(mark: &Mark) -> io::Result<usize> {
    end_where(|its| its == mark)
}

fn end_where(applies: impl Fn(&Mark) -> bool) -> io::Result<usize> {
    let bears = |process: u32| marks_of(process).iter().any(&applies);
    let mut ended = std::collections::BTreeSet::new();
    let begin = Instant::now();
    loop {
        let orphans = processes_that(bears);
        if orphans.is_empty() {
            return Ok(ended.len());
        }
        if begin.elapsed() > PATIENCE {
            let list: Vec<String> = orphans.iter().map(u32::to_string).collect();
            return Err(io::Error::other(format!(
                "processes of a lab do not end: {}",
                list.join(", ")
            )));
        }
        for process in orphans {
            if kill_if(process, || bears(process)) {
                ended.insert(process);
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

/// The marks that a process bears: one for each lab that it is inside of.
pub fn marks_of(process: u32) -> Vec<Mark> {
    marks_in(&format!("/proc/{process}"))
}

/// The marks of the calling process.
pub fn own_marks() -> Vec<Mark> {
    marks_in("/proc/self")
}

fn marks_in(directory: &str) -> Vec<Mark> {
    // One that has ended has no mounts.
    let mountinfo = fs::read_to_string(format!("{directory}/mountinfo")).unwrap_or_default();
    marks_of_mounts(&mountinfo)
}

/// The marks in a process's mountinfo.
pub fn marks_of_mounts(mountinfo: &str) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for line in mountinfo.lines().filter(|line| line.contains(PREFIX)) {
        // ... - TYPE SOURCE OPTIONS
        let source = line
            .split_once(" - tmpfs ")
            .and_then(|(_, rest)| rest.split(' ').next());
        marks.extend(source.and_then(Mark::parse));
    }
    marks.dedup();
    marks
}

fn processes_that(bear: impl Fn(u32) -> bool) -> Vec<u32> {
    let mounts = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let own = mounts("self");
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        // Most have the machine's mounts, like us; to read them would take longer.
        .filter(|process| mounts(&process.to_string()).is_some_and(|its| Some(its) != own))
        .filter(|process| bear(*process))
        .collect()
}

/// Kills a process if `applies` to it. That is called with an open pidfd, so that the
/// number is still that process's.
fn kill_if(process: u32, applies: impl FnOnce() -> bool) -> bool {
    match Process::open(process) {
        Ok(descriptor) => applies() && descriptor.kill().is_ok(),
        Err(_) => false,
    }
}

/// A process, and never another one with the same number.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// The process that has this number now.
    pub fn open(process: u32) -> io::Result<Self> {
        // SAFETY: a plain call; the descriptor is ours alone.
        unsafe {
            let descriptor = libc::syscall(libc::SYS_pidfd_open, process as libc::pid_t, 0);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Process(OwnedFd::from_raw_fd(descriptor as i32)))
        }
    }

    /// SIGKILL. Has ended already is success.
    pub fn kill(&self) -> io::Result<()> {
        // SAFETY: a plain call on an open descriptor, without further information.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        match result {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                gone if gone.raw_os_error() == Some(libc::ESRCH) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Waits until it has ended; whether it has.
    pub fn wait(&self) -> io::Result<bool> {
        self.wait_for(PATIENCE)
    }

    /// The same, but no longer than this.
    pub fn wait_for(&self, patience: Duration) -> io::Result<bool> {
        let mut ended = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience).map_err(io::Error::other)?;
        match poll(&mut ended, timeout) {
            Ok(count) => Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn pid_namespace() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|metadata| metadata.ino())
}

/// When a process started, in ticks since boot.
fn started(process: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    parse_started(&stat).ok_or_else(|| io::Error::other(format!("/proc/{process}/stat: {stat}")))
}

/// `PID (NAME) STATE ...`: the 22nd field. A process that has ended but is not waited
/// for yet keeps nothing: it counts as gone, with a start that none has.
fn parse_started(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    match fields.next()? {
        "Z" | "X" => Some(u64::MAX),
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark::own("two-clusters").unwrap();
        assert_eq!(Mark::parse(&mark.to_string()), Some(mark.clone()));
        assert!(!mark.is_orphaned());
        let before = Mark {
            started: mark.started - 1,
            ..mark.clone()
        };
        assert!(before.is_orphaned());
        // The same numbers, but of other processes.
        let elsewhere = Mark {
            pid_namespace: 1,
            ..before
        };
        assert!(!elsewhere.is_orphaned());
        assert_eq!(Mark::parse(&format!("{mark}:1")), None);
        assert_eq!(Mark::parse("tmpfs"), None);
    }

    #[test]
    fn a_process_that_has_ended_keeps_nothing() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        assert_eq!(parse_started(stat), Some(4711));
        assert_eq!(parse_started(&stat.replace(" S ", " Z ")), Some(u64::MAX));
    }
}
