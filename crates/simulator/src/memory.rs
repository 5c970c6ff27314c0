// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory with scattered accesses.
//!
//! With a hundred thousand flows each event touches another page, and the TLB holds some two
//! thousand. With huge pages there are few again; Linux uses them for ranges under
//! madvise(MADV_HUGEPAGE). Where it does not, all works as before.

/// A huge page of x86-64, and of arm64 with pages of 4 KiB: less is not worth the call.
const HUGE: usize = 2 << 20;

/// Makes room for `more` further elements, in huge pages if they are many.
pub fn reserve<T>(all: &mut Vec<T>, more: usize) {
    if all.capacity() - all.len() >= more {
        return;
    }
    all.reserve(more);
    let begin = all.as_mut_ptr().cast::<u8>();
    let bytes = all.capacity() * size_of::<T>();
    let skipped = begin.align_offset(HUGE);
    if bytes < skipped + HUGE {
        return;
    }
    // SAFETY: the range lies within what the vector has allocated, and the advice changes none
    // of its contents. An error changes nothing.
    unsafe {
        libc::madvise(
            begin.wrapping_add(skipped).cast(),
            bytes - skipped,
            libc::MADV_HUGEPAGE,
        );
    }
}
