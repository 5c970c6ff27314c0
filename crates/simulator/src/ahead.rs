// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefetching of memory.
//!
//! With a hundred thousand flows an event's flow is in no cache, and each event would wait
//! for memory several times over. The next events are known some events before, so their cache
//! lines can be prefetched. This is a hint: no result depends on it.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the cache lines of `value`.
#[inline(always)]
pub fn fetch<T>(value: &T) {
    let begin = std::ptr::from_ref(value).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(LINE) {
        fetch_line(begin.wrapping_add(line * LINE));
    }
    // One more where it does not begin at a line.
    fetch_line(begin.wrapping_add(size_of::<T>().max(1) - 1));
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch_line(line: *const u8) {
    use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
    // SAFETY: a prefetch reads nothing that the program sees, and no address faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn fetch_line(line: *const u8) {
    // SAFETY: as above; the instruction changes no register, flag or memory.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line,
            options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn fetch_line(_line: *const u8) {}
