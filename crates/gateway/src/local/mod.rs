// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections of programs at this site: those that they make, and those that are made to them
//! for the peer.

mod allow;
pub mod counts;
mod dial;
pub mod honest;
mod http;
mod proxy;
#[allow(unsafe_code, reason = "the state of a TCP socket")]
mod relay;
mod socks;
mod target;
pub mod transparent;

pub use allow::{Allow, Ports};
pub use dial::{dial, Dialling};
pub use proxy::{serve, Protocol};
pub use target::{Reason, Target};
