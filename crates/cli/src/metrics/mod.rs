// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--metrics` of the services: their states as pages of metrics.
//!
//! docs/metrics.md names each metric; dashboards and alert rules below `contrib/` use them. A
//! name, once published, keeps its meaning.

mod agent;
mod coordinator;
mod gateway;
mod receiver;

use anyhow::{Context, Result};
use paceline_metrics::{Address, Page, Server};

pub use agent::Agent;
pub use coordinator::coordinator;
pub use gateway::gateway;
pub use receiver::receiver;

/// Serves pages, and prints the address.
///
/// # Errors
/// If that is not possible at the address.
pub fn serve(address: &Address, make: impl FnMut() -> Page + Send + 'static) -> Result<Server> {
    let server = Server::start(address, make)
        .with_context(|| format!("--metrics: cannot serve at {address}"))?;
    eprintln!("metrics at {}", server.address());
    Ok(server)
}

/// The start of each page. `state` is the source of the rest, or the error of its read.
fn begin<T>(state: Result<T>) -> (Page, Option<T>) {
    let state = state
        .inspect_err(|error| tracing::warn!("metrics without the state: {error:#}"))
        .ok();
    let mut page = Page::default();
    page.gauges(
        "build_info",
        "The version of the program that serves this page",
        "version",
        [(env!("CARGO_PKG_VERSION").to_owned(), 1.0)],
    );
    page.gauge(
        "state_readable",
        "1 if the service's state could be read for this page, else 0",
        f64::from(u8::from(state.is_some())),
    );
    (page, state)
}
