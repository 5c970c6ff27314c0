// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A WAN link between two network interfaces, in user space.
//!
//! Ethernet frames that arrive at one interface leave at the other, later:
//! each direction has its own rate, delay and drop-tail buffer, as the
//! hardware emulator of matsuda-2005, 3.1 had. It is simple: it measures its
//! own lateness, and reports when a run is invalid
//! ([`Report::problems`]).
//!
//! - [`Link`] is the arithmetic of one direction, without clock or socket.
//! - [`Port`] is an interface opened as one end.
//! - [`Emulator`] joins two ports by a thread of its own.
//!
//! Interfaces that face a link must not leave segmentation or checksums to
//! "hardware": [`disable_offloads`]. Hosts one hop behind may.

#![deny(unsafe_code)]

pub mod capture;
mod codel;
mod config;
mod count;
mod ecn;
pub mod file;
#[allow(unsafe_code, reason = "eventfd and poll")]
mod forward;
mod impairment;
mod link;
mod observe;
#[allow(unsafe_code, reason = "ethtool ioctls")]
mod offload;
mod path;
#[allow(unsafe_code, reason = "packet rings that the kernel shares")]
mod port;
pub mod probe;
#[allow(unsafe_code, reason = "clocks and scheduling classes")]
mod realtime;
pub mod record;
mod red;
pub mod socket;
mod statistics;
pub mod trace;

use std::io;

pub use codel::Verdict;
pub use config::{
    Buffer, Change, Codel, Jitter, Line, LinkConfig, Loss, Policer, Red, Reorder, Step,
    ETHERNET_FRAMING,
};
pub use count::Count;
pub use forward::{Control, Direction, Emulator, Settings};
pub use link::{Cause, Delivered, Link, Schedule};
pub use observe::Observe;
pub use offload::disable_offloads;
pub use port::{interface_mtu, Port, ETHERNET_HEADER};
pub use statistics::{Bins, DirectionReport, Lateness, Problem, Report, BIN_NS, LATENESS_LIMIT_NS};

/// Errors of a link.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// A rate of zero.
    #[error("a link needs a rate above 0 bit/s")]
    NoRate,
    /// Another rate for a line that follows a trace.
    #[error("the line follows a trace, so its rate cannot change")]
    RateOfTrace,
    /// A value that is not possible.
    #[error("{what} must be {range}")]
    Range {
        /// The value.
        what: &'static str,
        /// The allowed range.
        range: &'static str,
    },
    /// An invalid rate trace.
    #[error("{file}:{line}: {problem}")]
    Trace {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
    /// A buffer that would drop everything.
    #[error(
        "a buffer of {buffer_bytes} bytes holds no frame: it needs at least {frame_bytes} bytes"
    )]
    BufferTooSmall {
        /// The requested size.
        buffer_bytes: u64,
        /// The largest frame of the link.
        frame_bytes: u32,
    },
    /// An interface cannot be used as a port.
    #[error("cannot {step} interface {interface}: {source}")]
    Port {
        /// The interface.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The forwarding thread could not start or had to stop.
    #[error("the link's thread cannot {step}: {source}")]
    Thread {
        /// The step that failed.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The link ended by itself; stopping it returns the reason.
    #[error("the link has ended")]
    Ended,
    /// The forwarding thread panicked.
    #[error("the link's thread panicked")]
    Panicked,
    /// An interface of the link went away or down while it ran.
    #[error("interface {interface} of the link is down or gone")]
    InterfaceLost {
        /// The interface.
        interface: String,
    },
}
