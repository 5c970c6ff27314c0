// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters that the programs write and this process has mapped.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{fence, Ordering};

use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};

use super::layout::Slot;
use super::Counts;
use crate::error::{Error, Result};

/// How long the counters hold, nanoseconds, where memory allows: a process that is
/// stopped or starved for so long still loses nothing.
const HOLD_NS: u64 = 60_000_000_000;
/// Memory of all CPUs' counters, bytes, if a shorter time than that is to be held.
const MOST_BYTES: u64 = 32 << 20;
/// Windows that are held at least.
const LEAST_SLOTS: u64 = 64;

/// Slots of a CPU, a power of two.
pub(super) fn slots(window_ns: u64, cpus: u32) -> u32 {
    let wanted = HOLD_NS.div_ceil(window_ns);
    let affordable = MOST_BYTES / size_of::<Slot>() as u64 / u64::from(cpus.max(1));
    let most = (affordable.max(LEAST_SLOTS) + 1).next_power_of_two() / 2;
    let slots = wanted.max(LEAST_SLOTS).next_power_of_two().min(most);
    u32::try_from(slots).expect("32 MB of slots are fewer than 2^32")
}

/// The mapped counters: a row of `slots`, and one more, for each CPU.
#[derive(Debug)]
pub(super) struct Ring {
    first: NonNull<Slot>,
    bytes: NonZeroUsize,
    slots: u32,
    cpus: u32,
}

// SAFETY: the memory is this value's own, and only read.
unsafe impl Send for Ring {}

impl Ring {
    pub fn map(fd: impl AsFd, slots: u32, cpus: u32) -> Result<Self> {
        let bytes = (slots as usize + 1) * cpus as usize * size_of::<Slot>();
        let bytes = NonZeroUsize::new(bytes).ok_or(Error::Incomplete { what: "counters" })?;
        // SAFETY: a new mapping of a map of that size, which is kept until drop.
        let first = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                fd,
                0,
            )
        }
        .map_err(|error| Error::system("cannot map the counters", error.into()))?;
        Ok(Ring {
            first: first.cast(),
            bytes,
            slots,
            cpus,
        })
    }

    /// Counts of all CPUs in a window that is over; `None` if its slots were used
    /// again since.
    pub fn read(&self, window: u64) -> Option<Counts> {
        let mut counts = Counts::default();
        for cpu in 0..self.cpus {
            let row = u64::from(cpu) * (u64::from(self.slots) + 1);
            let at = row + window % u64::from(self.slots);
            // SAFETY: below (slots + 1) * cpus, so inside the mapping; the kernel writes there,
            // hence the volatile reads.
            let (before, packets, bytes, after) = unsafe {
                let slot = self.first.add(at as usize).as_ptr();
                let before = (&raw const (*slot).window).read_volatile();
                fence(Ordering::Acquire);
                let packets = (&raw const (*slot).packets).read_volatile();
                let bytes = (&raw const (*slot).bytes).read_volatile();
                fence(Ordering::Acquire);
                (
                    before,
                    packets,
                    bytes,
                    (&raw const (*slot).window).read_volatile(),
                )
            };
            if before > window || after > window {
                return None;
            }
            // An older one: this CPU saw no packet in the window.
            if before == window {
                counts.packets += packets;
                counts.bytes += bytes;
            }
        }
        Some(counts)
    }

    /// How many windows are held.
    pub fn slots(&self) -> u32 {
        self.slots
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nothing refers to any more.
        let _ = unsafe { munmap(self.first.cast(), self.bytes.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_summed_over_cpus_and_not_read_once_its_slots_are_used_again() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        // Two CPUs with four slots each, and one behind them.
        let windows = [[8, 5, 2, 7, 8], [4, 9, 6, 3, 9]];
        for (cpu, row) in windows.iter().enumerate() {
            for window in row {
                for number in [*window, 10 + cpu as u64, 1000, 0] {
                    file.write_all(&number.to_ne_bytes()).unwrap();
                }
            }
        }
        let ring = Ring::map(&file, 4, 2).unwrap();
        let packets = |window| ring.read(window).map(|counts| counts.packets);
        assert_eq!(packets(8), Some(10)); // the second CPU saw none: its slot has window 4
        assert_eq!(packets(6), Some(11));
        assert_eq!(packets(7), Some(10));
        assert_eq!(packets(10), Some(0));
        // Window 4 is with the second CPU still, but the first has used the slot again.
        for gone in [1, 2, 3, 4, 5] {
            assert_eq!(packets(gone), None, "{gone}");
        }
    }

    #[test]
    fn slots_hold_the_time_or_fill_the_memory() {
        assert_eq!(slots(100_000_000, 2), 1024); // 600 windows
        assert_eq!(slots(3_600_000_000_000, 2), 64);
        assert_eq!(slots(1_000_000, 2), 65_536);
        assert_eq!(slots(100_000, 2), 1 << 19);
        assert_eq!(slots(1_000_000, 256), 4096);
        for cpus in [1, 2, 3, 7, 64, 256, 4096] {
            let slots = slots(100_000, cpus);
            assert!(slots.is_power_of_two() && slots >= 64);
            assert!(
                u64::from(slots) * u64::from(cpus) * 32 <= MOST_BYTES,
                "{cpus}"
            );
        }
    }
}
