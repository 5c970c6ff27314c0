// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline schema KIND`: the JSON schema of a kind of file, for editors.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

use crate::output;

/// Arguments of `paceline schema`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The kind of file
    kind: Kind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// For `run --policy`
    Policy,
    /// For `emulate run --file`
    Link,
    /// For `sim`
    Scenario,
    /// For `lab run`
    Experiment,
    /// For `lab up`
    Topology,
    /// The agent's configuration
    Agent,
    /// For `gateway serve`
    Gateway,
    /// Not a file: the agent's protocol for plugins of schedulers
    AgentProtocol,
}

/// Runs the command.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let schema = match args.kind {
        Kind::Policy => paceline_policy::schema(),
        Kind::Link => paceline_emulator::file::schema(),
        Kind::Scenario => paceline_simulator::scenario::schema(),
        Kind::Experiment => paceline_experiment::file::schema(),
        Kind::Topology => paceline_testbed::file::schema(),
        Kind::Agent => paceline_agent::service::config_schema(),
        Kind::Gateway => paceline_gateway::config::schema(),
        Kind::AgentProtocol => paceline_agent::service::protocol_schema(),
    };
    output::print_json(&schema)?;
    Ok(ExitCode::SUCCESS)
}
