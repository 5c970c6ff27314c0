// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline agent`: the service that runs jobs for users who are not root.

use std::path::PathBuf;
use std::process::ExitCode;

use paceline_agent::service::{Config, Service, DEFAULT_CONFIG, DIRECTORY};

/// Runs in the foreground until SIGTERM or SIGINT; jobs go on without it.
#[derive(clap::Args)]
pub struct Args {
    /// Which groups may run jobs with which policies
    #[arg(long, value_name = "FILE", help = format!(
        "Which groups may run jobs, and with which policies [default: {DEFAULT_CONFIG}, if it exists]"
    ))]
    config: Option<PathBuf>,
    /// Where its sockets are made
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.as_deref())?;
    Service::start(config, &args.directory)?.run()?;
    Ok(ExitCode::SUCCESS)
}
