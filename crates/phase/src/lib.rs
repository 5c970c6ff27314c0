// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Phases of a process: `include/paceline.h` describes their use.
//!
//! As a shared library this is `libpaceline.so`, with the functions of that header
//! ([`ffi`]). Rust programs use [`Phases`] on a [`Page`] of their own.

pub mod ffi;
mod lock;
mod page;
mod phases;

pub use page::Page;
pub use phases::{EnterError, Phases, Token, Unbalanced, CLASSES};
