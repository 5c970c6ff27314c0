// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two sides of a transfer, and their connection.

mod across;
mod client;
mod counts;
mod pool;
mod progress;
mod receiver;
mod sandbox;
mod server;
mod share;
mod sink;
mod source;
mod streams;
mod together;
mod tuning;
mod way;

pub use paceline_conduit::connect::{Credentials, Standing};
pub use paceline_conduit::control::SERVICE;
pub use paceline_conduit::data_port::Ports;
pub use paceline_conduit::ssh::{Ssh, SshHost};

pub use across::{across, Across};
pub use client::{receive, send, Remote, Transfer};
pub use counts::{Counted, Counts};
pub use paceline_transfer::identity::identity;
pub use paceline_transfer::store::short as short_identity;
pub use progress::{shown, Event, Progress};
pub use receiver::{Receiver, ReceiverConfig};
pub use sandbox::{confine, Sandbox};
pub use server::{helper, Role};
pub use sink::Bounds;
pub use together::{together, Together};
pub use tuning::{Streams, Tuning, STREAMS};

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
