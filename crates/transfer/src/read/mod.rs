// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a source has on its disks.

mod device;
mod file;
mod filter;
mod walk;

pub use file::{extents, open, read_bite, read_small, Small};
pub use filter::{Filter, FilterError};
pub use walk::{walk, More, Place, Seen, Tops};
