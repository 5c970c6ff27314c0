// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline attach` and `paceline detach`: a policy for a running service.

use std::path::PathBuf;
use std::process::ExitCode;

use paceline_agent::attach::{self, Changed, Reach};
use paceline_agent::job::JobOptions;
use paceline_policy::Policy;

#[derive(clap::Args)]
pub struct AttachArgs {
    /// The cgroup: its directory, or its path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: PathBuf,
    /// A preset (see paceline policy list) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "lfn")]
    policy: String,
    /// Group of parallel streams that its connections join (docs/parallel-streams.md). Their
    /// congestion control is then wrapped, whatever the policy
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Allow the root of the hierarchy as --cgroup: it holds all processes of this host
    #[arg(long)]
    whole_host: bool,
}

#[derive(clap::Args)]
pub struct DetachArgs {
    /// The cgroup: its directory, or its path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: PathBuf,
}

pub fn attach(args: AttachArgs) -> anyhow::Result<ExitCode> {
    let options = JobOptions {
        policy: Policy::load(&args.policy)?,
        group: args.group,
        user: None,
        wait: None,
    };
    let reach = match args.whole_host {
        true => Reach::WholeHost,
        false => Reach::Cgroup,
    };
    let changed = attach::attach(&args.cgroup, &options, reach)?;
    report(
        &changed,
        &format!("under policy {}", options.policy.name),
        "now follow it",
    )
}

pub fn detach(args: DetachArgs) -> anyhow::Result<ExitCode> {
    let changed = attach::detach(&args.cgroup)?;
    report(&changed, "detached", "have their former settings again")
}

fn report(changed: &Changed, state: &str, what: &str) -> anyhow::Result<ExitCode> {
    for namespace in &changed.unreachable {
        tracing::warn!("existing connections not reached: {namespace}");
    }
    for socket in &changed.outside {
        tracing::warn!("not reached: {socket}");
    }
    crate::output::print(&format!(
        "{}: {state}; existing connections that {what}: {} (in {} network namespace{})\n",
        changed.cgroup.display(),
        changed.connections,
        changed.namespaces,
        if changed.namespaces == 1 { "" } else { "s" },
    ))?;
    Ok(ExitCode::SUCCESS)
}
