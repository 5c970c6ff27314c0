// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The source's files and devices.

mod device;
mod file;
mod filter;
mod walk;

pub use file::{extents, open, read_bite, read_small, Small};
pub use filter::{Filter, FilterError};
pub use walk::{walk, More, Place, Seen, Tops};
