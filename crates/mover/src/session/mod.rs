// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections, and the two sides of a transfer.

mod across;
mod client;
mod connect;
mod control;
mod counts;
mod data_port;
mod draw;
mod identity;
mod pool;
mod progress;
mod receiver;
mod sandbox;
mod server;
mod share;
mod sink;
mod source;
mod ssh;
mod stream;
mod streams;
mod together;
mod tuning;
mod way;

pub use across::{across, Across};
pub use client::{receive, send, Remote, Transfer};
pub use connect::{Credentials, Standing};
pub use control::SERVICE;
pub use counts::{Counted, Counts};
pub use data_port::Ports;
pub use identity::{identity, short_identity};
pub use progress::{shown, Event, Progress};
pub use receiver::{Receiver, ReceiverConfig};
pub use sandbox::{confine, Sandbox};
pub use server::{helper, Role};
pub use sink::Bounds;
pub use ssh::{Ssh, SshHost};
pub use together::{together, Together};
pub use tuning::{Streams, Tuning, STREAMS};

#[cfg(test)]
mod tests;
