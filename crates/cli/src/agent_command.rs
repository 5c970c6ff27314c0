// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline agent`: the service that runs jobs for users without root.

use std::path::PathBuf;
use std::process::ExitCode;

use paceline_agent::service::{Config, Service, DEFAULT_CONFIG, DIRECTORY};

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
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.as_deref())?;
    Service::start(config, &args.directory)?.run()?;
    Ok(ExitCode::SUCCESS)
}
