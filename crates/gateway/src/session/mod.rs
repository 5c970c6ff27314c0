// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All connections between two gateways as streams of one session, without clock or socket.
//!
//! Its ancestor is the protocol between two Comet-TCP cards (kamezawa-2004, 3): packets are kept
//! until the other side has them, leave with gaps at a rate set in advance, and a full memory
//! stops the sender. The paper does not say how Comet repeats what is lost. All of that is ours:
//!
//! - each transmission has a new number, and the receiver reports every 10 ms the numbers that it
//!   has, with or without new ones ([`Session::transmit`]);
//! - loss by number, and after silence (`sent`);
//! - streams with credit, which returns when the far socket took the bytes (`credit`);
//! - weighted turns (`schedule`), one pacer (`pacer`), and a rate that is reserved or learned
//!   ([`Rate`]).

mod arrive;
mod buffer;
mod credit;
mod error;
mod frame;
mod fuzz;
#[cfg(test)]
mod hostile;
mod memory;
mod pacer;
mod rate;
mod receive;
mod received;
mod rtt;
mod schedule;
mod send;
mod sent;
mod settings;
mod state;
mod time;
mod transmit;

pub use error::SessionError;
pub use frame::{Receipts, WireError, MOST_DATAGRAM, MOST_TARGET};
pub use fuzz::fuzz_datagram;
pub use rate::Rate;
pub use settings::{Event, Limits, Settings, Side, Statistics, LEAST_MEMORY};
pub use state::Session;
pub use time::{Nanos, MS, SECOND};
