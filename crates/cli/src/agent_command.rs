// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline agent`: the service that runs jobs for users without root.

use std::path::PathBuf;
use std::process::ExitCode;

use paceline_agent::service::{Config, Service, DEFAULT_CONFIG, DIRECTORY};
use paceline_metrics::Address;

use crate::metrics;

/// Runs in the foreground until SIGTERM or SIGINT. Running jobs continue without it.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration: the groups that may run jobs, and their policies
    #[arg(long, value_name = "FILE", help = format!(
        "Configuration: the groups that may run jobs, and their policies [default: {DEFAULT_CONFIG}, if it exists]"
    ))]
    config: Option<PathBuf>,
    /// Directory of the agent's sockets
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
    /// Serve metrics for Prometheus: at a Unix socket's path, or a loopback address and port
    /// (docs/metrics.md)
    #[arg(long, value_name = "PATH|ADDRESS:PORT")]
    metrics: Option<Address>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.as_deref())?;
    let service = Service::start(config, &args.directory)?;
    let serving = match &args.metrics {
        Some(address) => {
            let mut agent = metrics::Agent::new(service.tally());
            Some(metrics::serve(address, move || agent.page())?)
        }
        None => None,
    };
    service.run()?;
    drop(serving);
    Ok(ExitCode::SUCCESS)
}
