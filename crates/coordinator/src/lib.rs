// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parallel streams that finish together (kamezawa-2004, section 5): clients report the
//! windows of their hosts' streams, a coordinator answers with bounds for them.
//!
//! - [`algorithm`]: computes the bounds; pure, without clock or I/O;
//! - [`local`]: a client's access to its own host;
//! - [`server`], [`client`]: the two ends;
//! - [`protocol`]: their messages, in the frames of [`paceline_security`], which also
//!   authorizes clients;
//! - [`status`]: the status of a group.

#![forbid(unsafe_code)]

pub mod algorithm;
pub mod client;
mod error;
mod group;
pub mod local;
pub mod protocol;
mod reach;
mod round_log;
pub mod server;
pub mod status;
mod wire_error;

pub use error::{Error, Result};
