// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock that costs a program with one communicating thread next to nothing.
//!
//! An atomic exchange takes some 20 ns on a common machine, and a switch has two
//! critical sections. Most MPI programs communicate from one thread. So the lock is
//! biased: the first thread that takes it owns it, and takes it again with plain
//! stores. The first other thread revokes that for good: it sets the owner to shared
//! and has the kernel put a memory barrier into every running thread (membarrier(2)).
//! After that the owner either has seen this or is seen inside, and the other thread
//! waits until it is out.

use std::sync::atomic::{compiler_fence, AtomicBool, AtomicUsize, Ordering};

/// No thread has taken the lock yet.
const NOBODYS: usize = 0;
/// More than one thread takes it. No thread's key is this: keys are addresses.
const SHARED: usize = 1;

// linux/membarrier.h
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;

#[derive(Debug)]
pub(crate) struct Lock {
    /// A thread's key, or one of the two above.
    owner: AtomicUsize,
    /// The owner is inside; only the owner writes it.
    owner_inside: AtomicBool,
    /// A thread is inside that took the lock as a shared one.
    taken: AtomicBool,
}

pub(crate) struct Held<'a> {
    lock: &'a Lock,
    as_owner: bool,
}

impl Lock {
    pub(crate) fn new() -> Self {
        // Without membarrier (a seccomp filter may forbid it) there is no bias.
        let biased = membarrier(REGISTER_PRIVATE_EXPEDITED);
        Self {
            owner: AtomicUsize::new(if biased { NOBODYS } else { SHARED }),
            owner_inside: AtomicBool::new(false),
            taken: AtomicBool::new(false),
        }
    }

    /// Takes the lock; `me` is the calling thread's key, and not 0 or 1.
    #[inline]
    pub(crate) fn hold(&self, me: usize) -> Held<'_> {
        if self.owner.load(Ordering::Relaxed) == me && self.enter_as_owner(me) {
            return Held {
                lock: self,
                as_owner: true,
            };
        }
        self.hold_slowly(me)
    }

    #[inline]
    fn enter_as_owner(&self, me: usize) -> bool {
        self.owner_inside.store(true, Ordering::Relaxed);
        // The revoker's membarrier orders the two for the CPU as well.
        compiler_fence(Ordering::SeqCst);
        let mine = self.owner.load(Ordering::Relaxed) == me;
        if !mine {
            self.owner_inside.store(false, Ordering::Release);
        }
        // Stores of the former owner of a shared lock are acquired in hold_slowly.
        mine
    }

    #[cold]
    fn hold_slowly(&self, me: usize) -> Held<'_> {
        let first = self
            .owner
            .compare_exchange(NOBODYS, me, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() && self.enter_as_owner(me) {
            return Held {
                lock: self,
                as_owner: true,
            };
        }
        while self
            .taken
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            // The holder may have lost its CPU: with more threads than CPUs, spinning
            // on would take a time slice.
            std::thread::yield_now();
        }
        if self.owner.swap(SHARED, Ordering::AcqRel) != SHARED {
            membarrier(PRIVATE_EXPEDITED);
        }
        while self.owner_inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Held {
            lock: self,
            as_owner: false,
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let inside = if self.as_owner {
            &self.lock.owner_inside
        } else {
            &self.lock.taken
        };
        inside.store(false, Ordering::Release);
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes two integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    struct Shared(UnsafeCell<u64>);
    // SAFETY: only the holder of the test's lock touches it.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn add(&self, lock: &Lock, me: usize, times: u64) {
            for _ in 0..times {
                let _held = lock.hold(me);
                // SAFETY: the lock is held.
                unsafe {
                    self.0
                        .get()
                        .write_volatile(self.0.get().read_volatile() + 1)
                };
            }
        }
    }

    /// Without mutual exclusion, additions are lost.
    #[test]
    fn the_owner_and_the_others_exclude_one_another() {
        const EACH: u64 = 200_000;
        for _ in 0..20 {
            let lock = Lock::new();
            let sum = Shared(UnsafeCell::new(0));
            std::thread::scope(|scope| {
                // The first thread owns it, and is well under way when others come.
                for (me, times) in [(16, EACH), (32, EACH / 10), (48, EACH / 10)] {
                    let (sum, lock) = (&sum, &lock);
                    scope.spawn(move || sum.add(lock, me, times));
                }
            });
            assert_eq!(sum.0.into_inner(), EACH + 2 * (EACH / 10));
        }
    }
}
