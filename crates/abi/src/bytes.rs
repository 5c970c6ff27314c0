// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ABI structs as the bytes that BPF maps and iterators carry, and their
//! fixed-length names.

use std::ffi::c_char;
use std::fmt;
use std::mem::size_of;

use crate::{
    pl_account, pl_changed_record, pl_connection_record, pl_counters, pl_counters_key, pl_group,
    pl_group_key, pl_job, pl_job_policy, pl_member, pl_member_key, pl_outside_record, pl_path,
    pl_path_key, pl_path_slot, pl_phase_page, pl_place, pl_place_key, pl_policy, pl_process_key,
    pl_shortage, pl_stream_record, pl_trial, pl_trial_key, pl_usage, pl_uwnd,
};

mod sealed {
    pub trait Sealed {}
}

/// A struct of the ABI: it is as good as its bytes.
///
/// # Safety
/// The type is `repr(C)` without implicit padding (the generator makes padding
/// a field), and every bit pattern of its size is a valid value.
pub unsafe trait Plain: Copy + sealed::Sealed {}

macro_rules! plain {
    ($($name:ident: $size:literal),* $(,)?) => {$(
        // The same sizes as in the header: a change of layout is made on both
        // sides on purpose, and raises PL_ABI_VERSION.
        const _: () = assert!(size_of::<$name>() == $size);
        impl sealed::Sealed for $name {}
        // SAFETY: integers, and arrays and structs of them, with padding as a
        // field.
        unsafe impl Plain for $name {}
    )*};
}

plain! {
    pl_policy: 72,
    pl_usage: 16,
    pl_account: 32,
    pl_shortage: 40,
    pl_job: 248,
    pl_job_policy: 4096,
    pl_changed_record: 8,
    pl_path_key: 40,
    pl_process_key: 16,
    pl_phase_page: 520,
    pl_path: 184,
    pl_path_slot: 192,
    pl_place_key: 16,
    pl_place: 56,
    pl_counters_key: 16,
    pl_counters: 120,
    pl_trial_key: 16,
    pl_trial: 48,
    pl_connection_record: 256,
    pl_outside_record: 56,
    pl_group_key: 40,
    pl_uwnd: 16,
    pl_group: 40,
    pl_member_key: 48,
    pl_member: 48,
    pl_stream_record: 176,
}

/// The bytes are not of the struct's length: another ABI version wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongLength {
    /// Length of the bytes.
    pub found: usize,
    /// Length of the struct.
    pub expected: usize,
}

impl fmt::Display for WrongLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes where the ABI has {}: the loaded kernel side is of another version",
            self.found, self.expected
        )
    }
}

impl std::error::Error for WrongLength {}

/// The bytes of a struct, as a BPF map takes them.
pub fn as_bytes<T: Plain>(value: &T) -> &[u8] {
    let start = std::ptr::from_ref(value).cast::<u8>();
    // SAFETY: `value` is valid for reads of its size for the life of the
    // borrow, and `Plain` has no uninitialised bytes.
    unsafe { std::slice::from_raw_parts(start, size_of::<T>()) }
}

/// The struct in the bytes of a BPF map or iterator, of any alignment.
///
/// # Errors
/// [`WrongLength`] unless there are exactly as many bytes as in the struct.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Result<T, WrongLength> {
    if bytes.len() != size_of::<T>() {
        return Err(WrongLength {
            found: bytes.len(),
            expected: size_of::<T>(),
        });
    }
    // SAFETY: the length was checked, the read is unaligned, and every bit
    // pattern is a valid `Plain`.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// `text` in an ABI text field, NUL-terminated; a longer one is cut at a
/// character's end.
pub fn name_to_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let mut end = text.len().min(N.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in array.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = *from as c_char;
    }
    array
}

/// The text of an ABI text field, up to its NUL.
pub fn name_text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array
        .iter()
        .map(|c| *c as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
