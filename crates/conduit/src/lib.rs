// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a transfer: making them, authentication, and their traffic as a whole:
//! messages on the control connection, frames and acknowledgements on data connections.
//!
//! [`connect`] makes them from the command's side, [`data_port`] takes those of one session in,
//! [`ssh`] starts the other side. The crate `mover` decides what to send.

#![deny(unsafe_code)]

pub mod connect;
pub mod control;
pub mod data_port;
mod draw;
mod error;
mod pacing;
pub mod ssh;
pub mod stream;

pub use draw::draw;
pub use error::{Error, Result};
pub use pacing::{look, set_rate, Seen};
