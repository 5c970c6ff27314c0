// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPU a machine's threads share, and in which order they run on it.
//!
//! QEMU's main loop moves an idle guest's clock on to its next timer. It takes a guest
//! for idle that has halted but whose last instructions are not yet counted
//! (`icount_start_warp_timer` beside `rr_cpu_thread_fn`, QEMU 7.2 to 8.2): if it looks
//! at that moment, the clock goes too far by those instructions, and the run is not
//! the same as the last one. Such a moment passes without a system call. So both
//! threads get one CPU, where the main loop goes first: it runs when the other
//! thread has woken it, or waits, and never in between.

use std::io;
use std::sync::Mutex;

use nix::sched::{sched_getaffinity, sched_getcpu, sched_setaffinity, CpuSet};
use nix::unistd::Pid;

/// How many of this process's machines use each CPU.
static MACHINES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A machine's CPU, given back when dropped.
pub struct Processor(usize);

impl Processor {
    /// One that the fewest of this process's machines use; the caller's own, where
    /// the kernel found room for it, comes first.
    ///
    /// # Errors
    /// If the kernel does not say which CPUs there are.
    pub fn take() -> io::Result<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let here = sched_getcpu()?;
        let mut machines = machines();
        machines.resize(CpuSet::count(), 0);
        let cpu = (0..CpuSet::count())
            .filter(|&cpu| allowed.is_set(cpu) == Ok(true))
            .min_by_key(|&cpu| (machines[cpu], cpu != here))
            .unwrap_or(here);
        machines[cpu] += 1;
        Ok(Processor(cpu))
    }

    /// What a child does with it before it becomes QEMU.
    pub fn confine(&self) -> io::Result<impl Fn() -> io::Result<()> + use<>> {
        let mut only = CpuSet::new();
        only.set(self.0)?;
        Ok(move || {
            sched_setaffinity(Pid::from_raw(0), &only)?;
            go_first();
            Ok(())
        })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        machines()[self.0] -= 1;
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

fn machines() -> std::sync::MutexGuard<'static, Vec<usize>> {
    MACHINES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
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
        let taken: Vec<_> = (0..2 * count)
            .map(|_| Processor::take().expect("a CPU"))
            .collect();
        let mut first: Vec<_> = taken[..count].iter().map(|taken| taken.0).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), count);
        assert!(machines()
            .iter()
            .all(|&machines| machines == 2 || machines == 0));
        drop(taken);
        assert!(machines().iter().all(|&machines| machines == 0));
    }
}
