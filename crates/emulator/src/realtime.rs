// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that carries packets: its scheduling class, its rests, its timers, its clocks.

use std::time::Duration;

/// A packet due sooner than this is waited for without sleeping, nanoseconds:
/// about the least cost of going to sleep and waking.
const LEAST_MARGIN_NS: u64 = 5_000;
/// And at most, nanoseconds: where waking takes longer, spinning for it would take
/// most of a CPU from 20,000 packets per second on.
const MOST_MARGIN_NS: u64 = 100_000;
/// Window over which the thread watches its own CPU time, nanoseconds; also its period
/// under SCHED_DEADLINE. A rest takes some 50 us where timers are late by that much, a
/// twentieth of the window: packets that are due in a rest are late.
const WATCH_NS: u64 = 1_000_000;
/// CPU time in one such window after which the thread rests for the remainder,
/// nanoseconds: 94 %. The kernel grants 95 % to deadlines and real-time priorities,
/// and stops a thread that takes more for longer.
const BUSY_NS: u64 = WATCH_NS / 100 * 94;
/// Shortest rest to ask for, nanoseconds: enough for the thread to leave the CPU at all.
const LEAST_REST_NS: u64 = 1_000;
/// Real-time priority of the thread: above all ordinary threads, below the
/// kernel's own.
const PRIORITY: libc::c_int = 10;

/// Real time and exact timers, as far as allowed; true if allowed.
///
/// SCHED_DEADLINE comes first. From Linux 6.12 on ordinary threads have a deadline server
/// (kernel/sched/deadline.c), which takes a CPU from real-time priorities for 50 ms at a
/// time when they look starved; its deadline is a second away, and a sooner one goes
/// before it. Where the bandwidth is not free, or the thread may not run on every CPU, a
/// real-time priority remains.
pub(crate) fn become_realtime() -> bool {
    // SAFETY: plain system calls about the calling thread; the attributes are live.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        let attributes = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as u32,
            sched_policy: libc::SCHED_DEADLINE as u32,
            sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: BUSY_NS,
            sched_deadline: WATCH_NS,
            sched_period: WATCH_NS,
        };
        if libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 {
            return true;
        }
        let parameters = libc::sched_param {
            sched_priority: PRIORITY,
        };
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) == 0
    }
}

/// Watches the thread's own CPU time: the kernel stops a thread that never sleeps, for
/// longer than the rests that avoid this.
pub(crate) struct Watch {
    since: u64,
    cpu_since: u64,
    /// Rests so far.
    pub(crate) rests: u64,
}

impl Watch {
    /// From now on.
    pub(crate) fn new() -> Self {
        Watch {
            since: clock(libc::CLOCK_MONOTONIC),
            cpu_since: clock(libc::CLOCK_THREAD_CPUTIME_ID),
            rests: 0,
        }
    }

    /// Rests where the thread has used its CPU time of this window.
    pub(crate) fn rest_if_busy(&mut self, oversleep: &mut Oversleep) {
        let now = clock(libc::CLOCK_MONOTONIC);
        let elapsed = now - self.since;
        if elapsed < WATCH_NS {
            let used = clock(libc::CLOCK_THREAD_CPUTIME_ID) - self.cpu_since;
            if used < BUSY_NS {
                return;
            }
            self.rests += 1;
            // Waking late is rest, too.
            let rest = (WATCH_NS - elapsed).saturating_sub(oversleep.average);
            std::thread::sleep(Duration::from_nanos(rest.max(LEAST_REST_NS)));
            oversleep.see(clock(libc::CLOCK_MONOTONIC), now + rest);
        }
        self.since = clock(libc::CLOCK_MONOTONIC);
        self.cpu_since = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    }
}

/// Lateness of the thread's wake-ups: it sets its timer earlier by as much, and spins for
/// the rest. A virtual machine's timer is late by 40 us and more.
#[derive(Default)]
pub(crate) struct Oversleep {
    /// Moving average, nanoseconds.
    average: u64,
}

impl Oversleep {
    pub(crate) fn see(&mut self, woke: u64, wake_at: u64) {
        let late = woke.saturating_sub(wake_at).min(MOST_MARGIN_NS);
        self.average = (self.average * 7 + late) / 8;
    }

    /// One and a half times the average: most of the time that is enough.
    pub(crate) fn margin(&self) -> u64 {
        (self.average * 3 / 2).clamp(LEAST_MARGIN_NS, MOST_MARGIN_NS)
    }
}

/// CLOCK_MONOTONIC, and how far CLOCK_REALTIME is ahead of it. The thread may be interrupted
/// between two readings of clocks: of three tries the closest counts.
pub(crate) fn clocks() -> (u64, u64) {
    let tries = std::array::from_fn::<_, 3, _>(|_| {
        let before = clock(libc::CLOCK_MONOTONIC);
        let real = clock(libc::CLOCK_REALTIME);
        let after = clock(libc::CLOCK_MONOTONIC);
        (after - before, after, real.saturating_sub(after))
    });
    let (_, _, ahead) = *tries.iter().min().expect("three tries");
    (tries[0].1, ahead)
}

/// A clock of this machine, nanoseconds.
pub(crate) fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: time is live; the clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
