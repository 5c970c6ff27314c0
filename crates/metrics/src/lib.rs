// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metrics of a service, for Prometheus and readers of its formats.
//!
//! - [`Page`]: metrics with their values, written as OpenMetrics 1.0 or as Prometheus' text
//!   format 0.0.4 by the crate `prometheus-client`;
//! - [`Server`]: the page at a Unix socket or a loopback address.
//!
//! Nothing here grows with the users' activity: a metric has at most [`MOST_SERIES`] series,
//! and the server answers a bounded number of callers at once.

#![forbid(unsafe_code)]

mod address;
mod page;
mod request;
mod server;

pub use address::{Address, AddressError};
pub use page::{Form, Page, MOST_SERIES, OTHER};
pub use server::Server;
