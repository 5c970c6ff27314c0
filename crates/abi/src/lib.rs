// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract between Paceline's kernel side and user space.
//!
//! Everything is generated from `bpf/paceline_abi.h`, where the meaning and the
//! unit of each field are written. The layout that clang gives the structs is
//! compared with rustc's at compile time, field by field.

#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "generated: a struct with padding begins as zeros"
)]
mod bindings;
#[allow(unsafe_code, reason = "structs as the bytes that maps take")]
mod bytes;

pub use bindings::*;
pub use bytes::{as_bytes, from_bytes, name_text, name_to_array, Plain, WrongLength};
