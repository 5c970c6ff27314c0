// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that a process shares with the kernel side.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nix::cmsg_space;
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use nix::sys::socket::{recvmsg, ControlMessageOwned, MsgFlags};
use paceline_abi::{pl_phase_page, PL_ABI_VERSION};

/// How long a program waits for an agent that does not answer. An agent needs
/// milliseconds, but on a busy host the verifier may take a CPU for seconds, once for
/// each job that begins; a program must not hang for ever because of an agent.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process's phase, where the kernel side reads it.
#[derive(Debug)]
pub struct Page {
    memory: NonNull<pl_phase_page>,
}

// SAFETY: the memory is shared with the kernel anyway, and is only accessed
// through atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps a page that the agent made. The descriptor is not needed afterwards.
    ///
    /// # Errors
    /// The system's error of the mapping.
    pub fn map(descriptor: OwnedFd) -> io::Result<Self> {
        let length = NonZeroUsize::new(size_of::<pl_phase_page>()).expect("not empty");
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                descriptor.as_fd(),
                0,
            )?
        };
        Ok(Self {
            memory: memory.cast(),
        })
    }

    /// A page without a reader: for benchmarks and tests.
    ///
    /// # Errors
    /// The system's error of the mapping.
    pub fn unshared() -> io::Result<Self> {
        let length = NonZeroUsize::new(size_of::<pl_phase_page>()).expect("not empty");
        // SAFETY: as above.
        let memory = unsafe {
            nix::sys::mman::mmap_anonymous(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE,
            )?
        };
        Ok(Self {
            memory: memory.cast(),
        })
    }

    /// Asks the agent that listens at `socket` for this process's page.
    ///
    /// # Errors
    /// Where there is no agent, or it gives none: this process is in no job, or
    /// the job's policy has no phases, or the agent is of another version.
    pub fn ask(socket: &Path) -> io::Result<Self> {
        use std::io::Write;
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&PL_ABI_VERSION.to_ne_bytes())?;
        let mut answer = [0];
        let mut parts = [io::IoSliceMut::new(&mut answer)];
        let mut control = cmsg_space!(std::os::fd::RawFd);
        let message = recvmsg::<()>(
            stream.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        for item in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(descriptors) = item {
                if let [descriptor] = descriptors[..] {
                    // SAFETY: the kernel has just installed it for us alone.
                    return Self::map(unsafe { OwnedFd::from_raw_fd(descriptor) });
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "the agent has no page for this process",
        ))
    }

    /// Counts a program that maps the page: 1 for the first of a process.
    pub(crate) fn count_program(&self) -> u32 {
        // SAFETY: the mapping lives as long as `self`, and the field is aligned.
        let programs = unsafe { AtomicU32::from_ptr(&raw mut (*self.memory.as_ptr()).programs) };
        programs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Switches: one store.
    pub(crate) fn set_phase(&self, phase: u32) {
        // SAFETY: the mapping lives as long as `self`, and the field is aligned.
        let word = unsafe { AtomicU32::from_ptr(&raw mut (*self.memory.as_ptr()).phase) };
        word.store(phase, Ordering::Relaxed);
    }

    /// Counts an entering of `class`, below [`crate::CLASSES`]; for one caller at a
    /// time.
    pub(crate) fn count(&self, class: u32) {
        // SAFETY: as above; the class is in range.
        let counter = unsafe {
            AtomicU64::from_ptr(&raw mut (*self.memory.as_ptr()).entered[class as usize])
        };
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The kernel side's view: the phase, and how often `class` was entered.
    pub fn read(&self, class: u32) -> (u32, u64) {
        // SAFETY: the mapping lives as long as `self`.
        let page = unsafe { self.memory.as_ptr().read_volatile() };
        (
            page.phase,
            page.entered.get(class as usize).copied().unwrap_or(0),
        )
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and nobody has a reference into it.
        let result = unsafe { munmap(self.memory.cast(), size_of::<pl_phase_page>()) };
        debug_assert_eq!(result, Ok(()));
    }
}
