// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a transfer of files is made of. Connections, and the two sides that use this, are the
//! crate `mover`.
//!
//! - [`chunk`]: bites of files, their hashes, and which stream sends which;
//! - [`wire`]: messages and frames, and their limits;
//! - [`read`]: the source's files;
//! - [`store`]: what a sink has on its disks, and its journal.
//!
//! Nothing here opens a connection or reads a clock; only the walk over a tree has threads.

#![deny(unsafe_code)]

pub mod chunk;
pub mod read;
pub mod store;
pub mod wire;
