// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline set`: another policy for a running job.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use paceline_agent::set::{self, Change, JobName, Report};
use paceline_agent::status::without;
use paceline_agent::{job, service};
use paceline_policy::change::Assignment;
use paceline_policy::Policy;

use crate::output::{self, foreign};

#[derive(clap::Args)]
pub struct Args {
    /// The job: its cgroup, as paceline status shows it, or the id in status --json
    #[arg(value_name = "JOB")]
    job: JobName,
    /// Keys of a policy file and their new values: ack.delay=12ms. An empty value (ack.delay=)
    /// leaves the key to the kernel
    #[arg(
        value_name = "KEY=VALUE",
        required_unless_present_any = ["reset", "policy"],
        conflicts_with_all = ["reset", "policy"]
    )]
    keys: Vec<Assignment>,
    /// Return to the policy that the job started with
    #[arg(long, conflicts_with = "policy")]
    reset: bool,
    /// Replace the whole policy: a preset, or, for root, a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// Without root: directory of the agent's sockets
    #[arg(long, value_name = "DIR", default_value = service::DIRECTORY)]
    agent: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let report = if job::capable() {
        let change = match (args.policy, args.reset) {
            (Some(policy), _) => Change::Policy(Box::new(Policy::load(&policy)?)),
            (None, true) => Change::Reset,
            (None, false) => Change::Keys(args.keys),
        };
        set::set(&args.job, &change)?
    } else {
        let asked = match (&args.policy, args.reset) {
            (Some(policy), _) => service::Asked::policy(policy),
            (None, true) => service::Asked::Reset,
            (None, false) => service::Asked::keys(&args.keys),
        };
        service::set_by_agent(&args.agent, args.job.id()?, asked)?
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&readable(&report))?;
    }
    for place in &report.unreachable {
        tracing::warn!("connections not reached: {place}");
    }
    for (errno, count) in &report.refused {
        tracing::warn!(
            "the kernel refused a setting for {count} connections, which keep their former policy: {}",
            std::io::Error::from_raw_os_error(*errno)
        );
    }
    Ok(
        match report.refused.is_empty() && report.unreachable.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
    )
}

fn readable(report: &Report) -> String {
    let mut text = String::new();
    if report.keys.is_empty() {
        let policy = foreign(&report.policy);
        let _ = writeln!(text, "no key has another value: policy {policy}");
        return text;
    }
    let value = |key: &str, value: &Option<String>| match value {
        Some(value) => foreign(value),
        None => without(key).to_owned(),
    };
    for change in &report.keys {
        let place = match change.running {
            true => String::new(),
            false => " (new connections only)".to_owned(),
        };
        let _ = writeln!(
            text,
            "{}: {} -> {}{place}",
            foreign(&change.key),
            value(&change.key, &change.was),
            value(&change.key, &change.is)
        );
    }
    let _ = writeln!(
        text,
        "{} running connection{} changed",
        report.connections,
        if report.connections == 1 { "" } else { "s" }
    );
    text
}
