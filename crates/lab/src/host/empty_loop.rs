// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program with an empty loop, and the CPU time that the rest takes from it: the method by
//! which matsuda-2005, 4.6, measured the cost of pacing.
//!
//! The loop runs at the scheduler's least priority (SCHED_IDLE) on the machine's one CPU,
//! so that all other work goes first. Missing turns are the CPU time of that work, to the
//! instruction: the kernel's own account of idle time has steps of 10 ms.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::{JoinHandle, Thread};

use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::Doing;

use crate::CaseError;

/// The loop alone, before its speed is measured.
const SETTLING_NS: u64 = 20_000_000;
/// Time over which its speed is measured.
const ALONE_NS: u64 = 200_000_000;

const RESTS: u32 = 0;
const RUNS: u32 = 1;
const ENDS: u32 = 2;

#[derive(Default)]
struct Shared {
    state: AtomicU32,
    turns: AtomicU64,
}

/// The loop's thread. It sleeps until it is started, and ends when this is dropped.
pub struct EmptyLoop {
    shared: Arc<Shared>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
    /// Turns that it made alone, and the time they took.
    alone: (u64, u64),
}

/// A stretch in which the loop runs.
pub struct Stretch {
    turns: u64,
    begun_ns: u64,
}

impl EmptyLoop {
    /// Starts the loop and measures its speed while nothing else runs.
    ///
    /// # Errors
    /// If the machine has more than one CPU: sending would not take the loop's.
    pub fn start() -> Result<Self, CaseError> {
        let cpus = std::thread::available_parallelism().doing("counting the CPUs")?;
        if cpus.get() > 1 {
            return Err(CaseError::Unexpected(
                "an empty loop beside bursts needs a machine with one CPU, such as that of the \
                 virtual backend: with more, the loop has its own",
            ));
        }
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let handle = std::thread::spawn(move || turn(&of_thread));
        let mut empty_loop = EmptyLoop {
            shared,
            thread: handle.thread().clone(),
            handle: Some(handle),
            alone: (1, 0),
        };
        let settling = empty_loop.run();
        sleep_until(settling.begun_ns + SETTLING_NS);
        let alone = empty_loop.run();
        sleep_until(alone.begun_ns + ALONE_NS);
        empty_loop.alone = empty_loop.rest(&alone);
        if empty_loop.alone.0 == 0 {
            return Err(CaseError::Unexpected("the empty loop did not run"));
        }
        Ok(empty_loop)
    }

    /// Starts a stretch.
    pub fn run(&self) -> Stretch {
        self.shared.state.store(RUNS, Relaxed);
        self.thread.unpark();
        Stretch {
            turns: self.shared.turns.load(Relaxed),
            begun_ns: now_ns(),
        }
    }

    /// Ends the stretch: turns and nanoseconds since it began.
    fn rest(&self, stretch: &Stretch) -> (u64, u64) {
        let made = self.shared.turns.load(Relaxed) - stretch.turns;
        let ns = now_ns() - stretch.begun_ns;
        self.shared.state.store(RESTS, Relaxed);
        (made, ns)
    }

    /// Ends the stretch: nanoseconds that the loop lost, and those of the stretch.
    pub fn lost(&self, stretch: &Stretch) -> (u64, u64) {
        let made = self.rest(stretch);
        (lost_ns(made, self.alone), made.1)
    }
}

impl Drop for EmptyLoop {
    fn drop(&mut self) {
        self.shared.state.store(ENDS, Relaxed);
        self.thread.unpark();
        if let Some(handle) = self.handle.take() {
            drop(handle.join());
        }
    }
}

/// The time of `made` turns less what as many took `alone`; each is turns and nanoseconds.
fn lost_ns(made: (u64, u64), alone: (u64, u64)) -> u64 {
    let needed = u128::from(made.0) * u128::from(alone.1) / u128::from(alone.0.max(1));
    made.1
        .saturating_sub(u64::try_from(needed).unwrap_or(u64::MAX))
}

fn turn(shared: &Shared) {
    let least = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads one properly initialised struct. To lower oneself is always
    // allowed.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &least) };
    let mut turns = 0;
    loop {
        match shared.state.load(Relaxed) {
            RUNS => {
                turns += 1;
                shared.turns.store(turns, Relaxed);
            }
            ENDS => return,
            _ => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_the_loop_misses_are_lost_time() {
        // Alone a turn takes 4 ns; here 200 of 250 were made in 1000 ns.
        assert_eq!(lost_ns((200, 1000), (5000, 20_000)), 200);
        assert_eq!(lost_ns((0, 1000), (5000, 20_000)), 1000);
        // A clock's step more than there is time.
        assert_eq!(lost_ns((251, 1000), (5000, 20_000)), 0);
    }
}
