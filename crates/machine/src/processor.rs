// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU that a machine's threads share, and their order on it.
//!
//! QEMU's main loop moves an idle guest's clock on to its next timer. A halted guest
//! counts as idle even if its last instructions are not yet counted
//! (`icount_start_warp_timer` beside `rr_cpu_thread_fn`, QEMU 7.2 to 8.2): if the main
//! loop runs at that moment, the clock goes too far by those instructions, and the run
//! is not reproducible. The other thread makes no system call in that time. So both
//! threads get one CPU, where the main loop has priority: it runs when the other thread
//! has woken it, or waits, and never in between.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::sched::{sched_getaffinity, sched_getcpu, sched_setaffinity, CpuSet};
use nix::unistd::Pid;

/// Names a place on a CPU: an abstract socket, which one process has, and which is free when
/// that process is gone.
const PLACE: &str = "paceline-machine";
/// Places on each CPU; machines beyond are put anywhere.
const PLACES: usize = 64;

/// A machine's CPU, given back when dropped.
pub struct Processor {
    cpu: usize,
    _place: Option<UnixDatagram>,
}

impl Processor {
    /// One that the fewest machines use, also those of other processes of this host; the
    /// caller's own, where the kernel found room for it, comes first.
    ///
    /// # Errors
    /// If the kernel does not list its CPUs.
    pub fn take() -> io::Result<Self> {
        Self::take_of(PLACE)
    }

    fn take_of(name: &str) -> io::Result<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let here = sched_getcpu()?;
        let mut cpus: Vec<usize> = (0..CpuSet::count())
            .filter(|&cpu| allowed.is_set(cpu) == Ok(true))
            .collect();
        cpus.sort_by_key(|&cpu| cpu != here);
        for place in 0..PLACES {
            for &cpu in &cpus {
                let address = SocketAddr::from_abstract_name(format!("{name}-{cpu}-{place}"))?;
                if let Ok(place) = UnixDatagram::bind_addr(&address) {
                    return Ok(Processor {
                        cpu,
                        _place: Some(place),
                    });
                }
            }
        }
        Ok(Processor {
            cpu: here,
            _place: None,
        })
    }

    /// Code for a child to run before it becomes QEMU: binds it to the CPU.
    pub fn confine(&self) -> io::Result<impl Fn() -> io::Result<()> + use<>> {
        let mut only = CpuSet::new();
        only.set(self.cpu)?;
        Ok(move || {
            sched_setaffinity(Pid::from_raw(0), &only)?;
            go_first();
            Ok(())
        })
    }
}

/// The first thread, QEMU's main loop, goes before those that it makes. Without the
/// right to do so it mostly does anyway: it runs for microseconds at a time.
fn go_first() {
    let least = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives as long as the call, which is async-signal-safe.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_share_a_cpu_only_when_each_has_one() {
        let allowed = sched_getaffinity(Pid::from_raw(0)).expect("a set");
        let count = (0..CpuSet::count())
            .filter(|&cpu| allowed.is_set(cpu) == Ok(true))
            .count();
        let name = format!("paceline-machine-test-{}", std::process::id());
        let take = || Processor::take_of(&name).expect("a CPU");
        let on = |taken: &[Processor]| {
            let mut cpus: Vec<_> = taken.iter().map(|taken| taken.cpu).collect();
            cpus.sort_unstable();
            cpus
        };
        let mut taken: Vec<_> = (0..2 * count).map(|_| take()).collect();
        let mut first = on(&taken[..count]);
        assert_eq!(first, on(&taken[count..]), "each has two");
        first.dedup();
        assert_eq!(first.len(), count);
        // A freed place is the next one's.
        let freed = taken.remove(0).cpu;
        assert_eq!(take().cpu, freed);
    }
}
