// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of a transfer of files. The crate `mover` has the connections, and the two sides that
//! use this.
//!
//! - [`identity`]: the same command is the same transfer;
//! - [`chunk`]: bites of files, their hashes, and their division among streams;
//! - [`wire`]: messages and frames, and their limits;
//! - [`read`]: the source's files;
//! - [`store`]: the sink's files on its disks, and its journal.
//!
//! Nothing here opens a connection or reads a clock; only the walk over a tree has threads.

#![deny(unsafe_code)]

pub mod chunk;
pub mod identity;
pub mod read;
pub mod store;
pub mod wire;
