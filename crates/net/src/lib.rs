// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux's network for experiments, labs that stay up and their measurements.
//!
//! - [`namespace`]: a host of a lab, as long as its descriptor lives;
//! - [`shaper`], [`queues`]: a link's rate and drop-tail queue, made and read back;
//! - [`connection`]: TCP connections with a given congestion control;
//! - [`payload`]: bytes that measured connections carry;
//! - [`nft`]: rules of nftables, and the features for them that this kernel lacks;
//! - [`receive`]: packets with the kernel's time of arrival;
//! - [`capture`]: the headers of packets at an interface, and when they passed;
//! - [`clock`], [`tick`], [`ethernet`]: the kernel's clocks, and the overhead of a frame;
//! - [`process`], [`scratch`]: processes and directories that a killed run does not leave.
//!
//! Making namespaces needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "packet sockets")]
pub mod capture;
pub mod clock;
#[allow(unsafe_code, reason = "socket options that nix does not have")]
pub mod connection;
mod error;
pub mod ethernet;
pub mod namespace;
pub mod nft;
#[allow(unsafe_code, reason = "SO_RCVLOWAT, and a thread's priority")]
pub mod payload;
#[allow(unsafe_code, reason = "what is done between fork and exec")]
pub mod process;
pub mod queues;
pub mod receive;
pub mod scratch;
pub mod shaper;
#[allow(unsafe_code, reason = "clock_getres")]
pub mod tick;

pub use error::{Doing, Error};
pub use namespace::Namespace;
