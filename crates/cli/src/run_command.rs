// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline run`: a command as a job.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::bail;
use paceline_agent::job::{self, JobOptions};
use paceline_agent::{group, service, Error};
use paceline_launch::launcher;
use paceline_launch::preload::{self, Choice};
use paceline_policy::{Policy, PolicyError};

use crate::output;
use crate::through_gateway::Through;

/// Exit code when paceline itself fails, as env(1) and timeout(1) have it.
pub const FAILED: u8 = 125;

/// Exits with the command's code; see `paceline --help` for paceline's own.
#[derive(clap::Args)]
pub struct Args {
    /// A preset (see paceline policy list) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "lfn")]
    policy: String,
    /// Group of parallel streams that its connections join (docs/parallel-streams.md). Their
    /// congestion control is then wrapped, whatever the policy
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Run the command as this user (with sudo: --user "$USER")
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Route its connections through this host's gateway to the site of this peer
    /// (docs/gateway.md); takes root
    #[arg(long, value_name = "PEER")]
    gateway: Option<String>,
    /// The gateway's control socket, if its configuration has another
    #[arg(long, value_name = "PATH", requires = "gateway")]
    gateway_socket: Option<PathBuf>,
    /// Without root: directory of the agent's sockets
    #[arg(long, value_name = "DIR", default_value = service::DIRECTORY)]
    agent: PathBuf,
    /// Preload the MPI shim into the command, whatever it is (docs/phases.md)
    #[arg(long, conflicts_with = "no_preload")]
    preload: bool,
    /// No summary of the connections at the job's end; warnings and errors remain
    #[arg(short, long)]
    pub quiet: bool,
    /// Never preload it [default: only into MPI launchers and their ranks]
    #[arg(long)]
    no_preload: bool,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<String>,
}

impl Args {
    fn preload(&self) -> Choice {
        match (self.preload, self.no_preload) {
            (true, _) => Choice::Always,
            (_, true) => Choice::Never,
            _ => Choice::Mpi,
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let warning = launcher::warning(&args.command, &args.policy, |name| std::env::var(name).ok());
    if let Some(name) = &args.group {
        group::check_name(name)?;
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let preload = args.preload();
    let mut through = None;
    let outcome = if job::capable() {
        if let Some(peer) = &args.gateway {
            through = Some(Through::start(args.gateway_socket.as_ref(), peer)?);
        }
        let policy = Policy::load(&args.policy)?;
        if job::has_phases(&policy) {
            load_shim(preload, &args.command, &mut command)?;
        }
        let options = JobOptions {
            policy,
            group: args.group,
            user: args.user,
            wait: through.as_ref().map(Through::wait),
        };
        warn(warning);
        job::run_in_job(&options, &mut command)
    } else {
        if args.user.is_some() {
            bail!("--user needs root: the agent runs a job as the requesting user");
        }
        if args.gateway.is_some() {
            bail!("--gateway needs root: the gateway takes orders only from its own user");
        }
        // The agent has its own copy of the allowed policies, and may read files that we may not.
        match Policy::load(&args.policy) {
            Ok(_) | Err(PolicyError::Read { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        load_shim(preload, &args.command, &mut command)?;
        warn(warning);
        service::run_by_agent(&args.agent, &args.policy, args.group, &mut command)
    };
    match outcome {
        Ok(outcome) => Ok(ExitCode::from(outcome.code())),
        Err(Error::Spawn { program, source }) => {
            if let Some(refused) = through.and_then(|through| through.refused()) {
                bail!("the gateway does not lead this job's connections: {refused}");
            }
            output::print_error(&format!("{}: {source}", program.display()));
            Ok(ExitCode::from(match source.kind() {
                ErrorKind::NotFound => 127,
                _ => 126,
            }))
        }
        Err(error) => Err(error.into()),
    }
}

fn load_shim(choice: Choice, words: &[String], command: &mut Command) -> anyhow::Result<()> {
    if !choice.includes(words, |name| std::env::var(name).ok()) {
        tracing::info!("the MPI shim is not preloaded: the command is no MPI launcher, and --preload is not given");
    } else if !preload::load_shim(command) {
        if choice == Choice::Always {
            bail!(
                "--preload: {} is not installed beside this program",
                preload::SHIM
            );
        }
        tracing::info!(
            "{} is not installed: phases of MPI programs are not detected",
            preload::SHIM
        );
    }
    Ok(())
}

fn warn(warning: Option<String>) {
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
}
