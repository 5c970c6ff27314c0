// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline lab up`, `down`, `list`, `show`, `exec` and `mpirun`: labs that stay up.

mod text;

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use paceline_experiment::plan::Library;
use paceline_testbed::client::{self, Down};
use paceline_testbed::mpi::{self, Launcher};
use paceline_testbed::{keeper, page, require_root, site, State, Topology};

use crate::output::{print, print_json};

/// Arguments of `lab up`.
#[derive(clap::Args, Debug)]
pub struct UpArgs {
    /// The topology's TOML
    topology: PathBuf,
    /// Name of the lab [default: the file's name without .toml]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print the lab as `list --json` does
    #[arg(long)]
    json: bool,
}

/// Arguments of `lab down`.
#[derive(clap::Args, Debug)]
pub struct DownArgs {
    /// Name of the lab [default: the only one]
    name: Option<String>,
}

/// Arguments of `lab list`.
#[derive(clap::Args, Debug)]
pub struct ListArgs {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `lab show`.
#[derive(clap::Args, Debug)]
pub struct ShowArgs {
    /// Name of the lab [default: the only one]
    name: Option<String>,
    /// Write a page with a picture of the topology to this file instead
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "page")]
    json: bool,
}

/// Arguments of `lab exec`.
#[derive(clap::Args, Debug)]
pub struct ExecArgs {
    /// Name of the lab [default: the only one]
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// A host, such as near0, or a cluster's switch, such as near
    node: String,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<String>,
}

/// Arguments of `lab mpirun`.
#[derive(clap::Args, Debug)]
pub struct MpirunArgs {
    /// Name of the lab [default: the only one]
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// MPI library whose launcher to use [default: that of mpirun in PATH]
    #[arg(long, value_enum)]
    mpi: Option<LibraryName>,
    /// The launcher's options, then --, then the program: -np 8 -- ./prog
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS -- PROG"
    )]
    words: Vec<String>,
}

/// Arguments of the hidden `lab keep`.
#[derive(clap::Args, Debug)]
pub struct KeepArgs {
    /// Name of the lab, for lists of processes
    _lab: String,
}

/// Arguments of the hidden `lab shell`.
#[derive(clap::Args, Debug)]
pub struct ShellArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Arguments of the hidden `lab guard`.
#[derive(clap::Args, Debug)]
pub struct GuardArgs {
    mark: String,
    directory: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum LibraryName {
    Openmpi,
    Mpich,
}

/// `lab up`.
///
/// # Errors
/// When the topology is not valid, or the lab cannot be made.
pub fn up(args: UpArgs) -> Result<ExitCode> {
    let topology = Topology::load(&args.topology)?;
    let name = match args.name {
        Some(name) => name,
        None => args
            .topology
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    // The keeper works elsewhere.
    let file = std::path::absolute(&args.topology).unwrap_or(args.topology);
    let state = keeper::up(&topology, &file.to_string_lossy(), &name)?;
    if args.json {
        print_json(&state)?;
    } else {
        print(&text::summary(&state))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `lab down`.
///
/// # Errors
/// When a part of it does not end, or the lab is ambiguous.
pub fn down(args: &DownArgs) -> Result<ExitCode> {
    let outcome = client::down(args.name.as_deref())?;
    let (what, processes) = match outcome {
        Down::Ended { lab, processes } => (format!("lab {lab} is down"), processes),
        Down::WasNotUp { processes } => {
            let what = match &args.name {
                Some(name) => format!("no lab {name} was up"),
                None => "no lab was up".to_owned(),
            };
            (what, processes)
        }
    };
    if processes > 0 {
        // Jobs that were inside: as every command does.
        if let Err(error) = paceline_agent::clean_up() {
            tracing::info!("cannot clean up the lab's jobs; the next command tries again: {error}");
        }
    }
    let ended = match processes {
        0 => String::new(),
        1 => "; 1 process inside was ended".to_owned(),
        many => format!("; {many} processes inside were ended"),
    };
    print(&format!("{what}{ended}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// `lab list`.
///
/// # Errors
/// When a lab does not answer.
pub fn list(args: &ListArgs) -> Result<ExitCode> {
    let states = client::list()?;
    if args.json {
        print_json(&states)?;
    } else {
        print(&text::list(&states))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `lab show`.
///
/// # Errors
/// When there is no such lab, or the page cannot be written.
pub fn show(args: &ShowArgs) -> Result<ExitCode> {
    require_root("show")?;
    let state = client::describe(&client::find(args.name.as_deref())?)?;
    if let Some(path) = &args.page {
        std::fs::write(path, page::page(&state))
            .with_context(|| format!("cannot write {}", path.display()))?;
        print(&format!("{}\n", path.display()))?;
    } else if args.json {
        print_json(&state)?;
    } else {
        print(&text::details(&state))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `lab exec`: becomes the command.
///
/// # Errors
/// When there is no such lab or node.
pub fn exec(args: &ExecArgs) -> Result<ExitCode> {
    require_root("exec")?;
    let lab = client::find(args.lab.as_deref())?;
    client::enter(&lab, &args.node)?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    Ok(become_command(command))
}

/// `lab mpirun`: becomes the launcher, on the first host.
///
/// # Errors
/// When there is no such lab or launcher.
pub fn mpirun(args: &MpirunArgs) -> Result<ExitCode> {
    // Only the launcher knows which of its options have values.
    let (options, program) = match args.words.iter().position(|word| word == "--") {
        Some(end) if end + 1 < args.words.len() => (&args.words[..end], &args.words[end + 1..]),
        _ => bail!("\"--\" before the program is missing: paceline lab mpirun -np 8 -- ./prog"),
    };
    require_root("mpirun")?;
    let state: State = client::describe(&client::find(args.lab.as_deref())?)?;
    let launcher = Launcher::find(args.mpi.map(|name| match name {
        LibraryName::Openmpi => Library::OpenMpi,
        LibraryName::Mpich => Library::Mpich,
    }))?;
    let first = state.hosts().next().context("the lab has no hosts")?;
    client::enter(&state.lab, first)?;
    let mut command = Command::new(launcher.program);
    command
        .args(options)
        .args(program)
        .envs(launcher.environment(&state.launch_paths()));
    Ok(become_command(command))
}

/// `lab keep`: see [`keeper`].
///
/// # Errors
/// Where `lab up` has not started it.
pub fn keep() -> Result<ExitCode> {
    keeper::keep()?;
    // The error was reported already.
    Ok(ExitCode::FAILURE)
}

/// `lab shell`: the replacement for ssh of a launcher on one of the hosts.
///
/// # Errors
/// Where no host is named, or none that is there.
pub fn shell(args: &ShellArgs) -> Result<ExitCode> {
    let Some((host, words)) = mpi::remote_command(&args.words) else {
        bail!("lab shell is for launchers: HOST COMMAND...");
    };
    let lab = client::find(None)?;
    client::enter(&lab, host)?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &words]);
    Ok(become_command(command))
}

/// `lab guard`: ends the processes on an experiment's hosts when that was killed.
///
/// # Errors
/// Where a part of it remains.
pub fn guard(args: &GuardArgs) -> Result<ExitCode> {
    if site::guard(&args.mark, &args.directory)? {
        // The program's job: as every command does.
        if let Err(error) = paceline_agent::clean_up() {
            tracing::info!("cannot clean up the job; the next command tries again: {error}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns only on failure, with the exit code of shells for it.
fn become_command(mut command: Command) -> ExitCode {
    let error = command.exec();
    let program = Path::new(command.get_program());
    crate::output::print_error(&format!("{}: {error}", program.display()));
    ExitCode::from(match error.kind() {
        ErrorKind::NotFound => 127,
        _ => 126,
    })
}
