// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline doctor`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use paceline_agent::doctor::{self, Check, Level, PathOptions, Report};
use paceline_agent::service;
use paceline_gateway::config::Config;
use paceline_gateway::probe::{probes, Probe};
use paceline_input::units;

/// Exits 1 if Paceline, or the gateway of `--gateway`, cannot run here. With `--job`: 0 if the
/// job was sampled, whatever was found, else 1.
#[derive(clap::Args)]
pub struct Args {
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Rate of the path whose bandwidth-delay product the buffers must hold
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = units::parse_rate)]
    rate: u64,
    /// Round-trip time of that path
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = units::parse_duration)]
    rtt: Duration,
    /// Also check the requirements of the gateway of this configuration file, and the paths to
    /// its peers
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// Show what limits each connection of this running job, with a remedy: its id, its cgroup,
    /// or the last part of that (paceline.1234.1)
    #[arg(long, value_name = "JOB", conflicts_with_all = ["rate", "rtt", "gateway"])]
    job: Option<String>,
    /// How long to sample the job, 100ms to 10min
    #[arg(long = "for", value_name = "TIME", default_value = "1s", requires = "job", value_parser = units::parse_duration)]
    time: Duration,
    /// Without root: directory of the agent's sockets
    #[arg(long, value_name = "DIR", default_value = service::DIRECTORY, requires = "job")]
    agent: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(job) = &args.job {
        let report = paceline_limits::examine(job, &args.agent, args.time)?;
        match args.json {
            true => crate::output::print_json(&report)?,
            false => crate::output::print(&report.text())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let gateway = args.gateway.as_deref().map(Config::load).transpose()?;
    let mut report = doctor::examine(PathOptions {
        rate_bits_per_s: args.rate,
        rtt: args.rtt,
    });
    if let Some(config) = &gateway {
        for probe in crate::transfer::block_on(probes(config))? {
            let check = check(probe);
            report.can_run &= check.level != Level::Fail;
            report.checks.push(check);
        }
    }
    if args.json {
        crate::output::print_json(&report)?;
    } else {
        crate::output::print(&readable(&report))?;
    }
    Ok(if report.can_run {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn check(probe: Probe) -> Check {
    let level = match (probe.is_right, probe.is_needed) {
        (true, _) => Level::Ok,
        (false, false) => Level::Warn,
        (false, true) => Level::Fail,
    };
    Check {
        name: probe.name,
        level,
        found: probe.found,
        meaning: probe.meaning.to_owned(),
        advice: probe.advice,
    }
}

fn readable(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let level = match check.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        text.push_str(&format!("{level}  {:<15}  {}\n", check.name, check.found));
        text.push_str(&format!("{:23}{}\n", "", check.meaning));
        if let Some(advice) = &check.advice {
            text.push_str(&format!("{:23}-> {advice}\n", ""));
        }
    }
    let count = |level| {
        report
            .checks
            .iter()
            .filter(|check| check.level == level)
            .count()
    };
    let verdict = match report.can_run {
        true => "Paceline can run here",
        false => "Paceline cannot run here",
    };
    text.push_str(&format!(
        "\n{verdict}: {} ok, {} warnings, {} failures\n",
        count(Level::Ok),
        count(Level::Warn),
        count(Level::Fail)
    ));
    text
}
