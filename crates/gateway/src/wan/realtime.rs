// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduling class of the thread that paces: on a busy machine an ordinary one leaves
//! gaps of many milliseconds, which are lost for good.

/// Real-time priority: above all ordinary threads, below the kernel's own.
const PRIORITY: libc::c_int = 10;

/// Real time and exact timers for this thread, as far as allowed; true if allowed.
pub fn become_realtime() -> bool {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: plain system calls about the calling thread; the parameters are live.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) == 0
    }
}
