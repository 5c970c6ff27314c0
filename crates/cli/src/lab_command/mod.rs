// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline lab run EXPERIMENT` and `paceline lab report DIR...`; the commands for labs
//! that stay up are in [`testbed`].

mod guest;
mod testbed;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::{Subcommand, ValueEnum};
use paceline_experiment::Experiment;
use paceline_input::units::Time;
use paceline_lab::run::{Backend, Enough, Options};
use paceline_machine::Choice;
use paceline_report::html::comparison::{comparison, Run};
use paceline_report::{table, Report};

use crate::trusted_path;

/// Exit status of an invalid run.
const INVALID: u8 = 3;
/// Columns of a table that goes to a file.
const PLAIN_WIDTH: usize = 100;

/// Arguments of `paceline lab`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Run an experiment: exit status 1 if a claim fails, 2 if the file is wrong, 3 if the
    /// run is invalid
    Run(RunArgs),
    /// Show the results of earlier runs and write their pages again; several make one page
    Report(ReportArgs),
    /// Build the network of a topology on this machine; it stays until `lab down`
    Up(testbed::UpArgs),
    /// Take a lab down and end the processes inside, also after a crash
    Down(testbed::DownArgs),
    /// List the labs that are up
    List(testbed::ListArgs),
    /// Show a lab: its requested and measured properties, and its traffic so far
    Show(testbed::ShowArgs),
    /// Run a command on a node of a lab; the exit status is the command's
    Exec(testbed::ExecArgs),
    /// Start an MPI program on the hosts of a lab: mpirun OPTIONS -- PROG
    Mpirun(testbed::MpirunArgs),
    /// Run a command of this machine in a guest of the virtual lab
    #[command(hide = true)]
    Guest(guest::Args),
    /// Started by `lab up`
    #[command(hide = true)]
    Keep(testbed::KeepArgs),
    /// The remote shell of MPI launchers
    #[command(hide = true)]
    Shell(testbed::ShellArgs),
    /// A command on another host of a transfer's experiment, in the place of ssh
    #[command(hide = true)]
    Reach(ReachArgs),
    /// Started by `lab run` beside a program
    #[command(hide = true)]
    Guard(testbed::GuardArgs),
}

impl Args {
    /// Whether the command speaks for another program, whose exit status it has.
    pub fn is_for_another(&self) -> bool {
        matches!(
            self.command,
            LabCommand::Exec(_)
                | LabCommand::Guest(_)
                | LabCommand::Mpirun(_)
                | LabCommand::Reach(_)
                | LabCommand::Shell(_)
        )
    }
}

#[derive(clap::Args, Debug)]
struct ReachArgs {
    host: String,
    command: String,
}

#[derive(clap::Args, Debug)]
struct ReportArgs {
    /// Directories that `lab run` wrote
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Write one page that compares all of them: best variant, ratio, confidence interval
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print results.json instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    /// The experiment's TOML
    experiment: PathBuf,
    /// Run in a virtual machine (no root), on this machine's kernel (root), or in the
    /// simulator (no root, no kernel: CUBIC, Reno and the control laws)
    #[arg(long, value_enum, default_value = "virtual")]
    backend: BackendName,
    /// Use the smaller counts that the experiment gives
    #[arg(long)]
    quick: bool,
    /// Directory for results.json, series/ and report.html [default: results/EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed, instead of the experiment's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only this variant; may be repeated. Claims about other variants are not evaluated
    #[arg(long = "variant", value_name = "NAME")]
    variants: Vec<String>,
    /// Print results.json instead of the table
    #[arg(long)]
    json: bool,
    /// Live: repeat until each ratio to cubic (or the first variant) is known to within this
    /// many percent, at least three times; with --quick: once
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    precision: f64,
    /// Live: time limit; start no round that would exceed it
    #[arg(long, value_name = "TIME", default_value = "30min")]
    budget: Time,
    /// Virtual: the kernel, from a Debian suite (bookworm, trixie, sid, experimental) or a
    /// directory of packages [default: this machine's distribution]
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<Choice>,
    /// Virtual machines in parallel [default: one per CPU]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|percent| (0.1..=100.0).contains(percent))
        .ok_or_else(|| "a number from 0.1 to 100 is needed, such as 5".to_owned())
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum BackendName {
    Virtual,
    Live,
    Sim,
}

/// Runs the command. `log`: the log filter of programs in virtual machines.
///
/// # Errors
/// When the experiment is not valid or its run came to no end, a directory holds
/// no results, or a report cannot be written; those of [`testbed`].
pub fn run(args: Args, log: Option<String>) -> Result<ExitCode> {
    match args.command {
        LabCommand::Run(args) => run_experiment(&args, log),
        LabCommand::Guest(args) => guest::run(args, log),
        LabCommand::Report(args) => report(&args),
        LabCommand::Up(args) => testbed::up(args),
        LabCommand::Down(args) => testbed::down(&args),
        LabCommand::List(args) => testbed::list(&args),
        LabCommand::Show(args) => testbed::show(&args),
        LabCommand::Exec(args) => testbed::exec(&args),
        LabCommand::Mpirun(args) => testbed::mpirun(&args),
        LabCommand::Keep(_) => testbed::keep(),
        LabCommand::Reach(args) => Ok(paceline_courier::door::reach(&args.host, &args.command)?),
        LabCommand::Shell(args) => testbed::shell(&args),
        LabCommand::Guard(args) => testbed::guard(&args),
    }
}

fn report(args: &ReportArgs) -> Result<ExitCode> {
    let mut reports = Vec::new();
    for directory in &args.directories {
        reports.push(Report::read(directory)?);
    }
    let mut worst = Outcome::Holds;
    for (report, directory) in reports.iter().zip(&args.directories) {
        trusted_path::check(directory)?;
        report.write(directory)?;
        print(report, args.json)?;
        worst = worst.max(Outcome::of(report));
    }
    if let Some(page) = &args.page {
        trusted_path::check(page)?;
        let runs: Vec<Run> = reports
            .iter()
            .zip(&args.directories)
            .map(|(report, directory)| Run {
                results: &report.results,
                page: own_page(directory, page),
            })
            .collect();
        std::fs::write(page, comparison(&runs))
            .with_context(|| format!("cannot write {}", page.display()))?;
    }
    Ok(worst.into())
}

/// The page of the run in `directory`: as seen from `page`, or where that is not above it,
/// from the root.
fn own_page(directory: &Path, page: &Path) -> PathBuf {
    let own = directory.join("report.html");
    let beside = page.parent().unwrap_or(Path::new(""));
    match own.strip_prefix(beside) {
        Ok(relative) => relative.to_owned(),
        Err(_) => std::path::absolute(&own).unwrap_or(own),
    }
}

static STOP: AtomicBool = AtomicBool::new(false);

fn run_experiment(args: &RunArgs, log: Option<String>) -> Result<ExitCode> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")?;
    let name = args.experiment.file_stem().unwrap_or_default();
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("results").join(name));
    if args.kernel.is_some() && !matches!(args.backend, BackendName::Virtual) {
        bail!("--kernel selects the kernel of a virtual machine: add --backend virtual");
    }
    // A file that is wrong leaves no directory.
    Experiment::load(&args.experiment)?;
    trusted_path::make_directory(&out)?;
    let options = Options {
        backend: match args.backend {
            BackendName::Virtual => Backend::Virtual,
            BackendName::Live => Backend::Live,
            BackendName::Sim => Backend::Sim,
        },
        quick: args.quick,
        seed: args.seed,
        variants: args.variants.clone(),
        jobs: args.jobs,
        kernel: args.kernel.clone().unwrap_or_default(),
        log,
        enough: Enough {
            precision: args.precision / 100.0,
            budget: Duration::from_micros(args.budget.micros()),
        },
        progress: true,
        out,
    };
    let report = paceline_lab::run::run(&args.experiment, &options, &STOP)?;
    let page = report.write(&options.out)?;
    paceline_lab::run::unfinished::forget(&options.out)?;
    print(&report, args.json)?;
    if !args.json {
        println!("\n{}", page.display());
    }
    Ok(Outcome::of(&report).into())
}

fn print(report: &Report, json: bool) -> Result<()> {
    if json {
        print!("{}", report.results.to_json()?);
        return Ok(());
    }
    let terminal = std::io::stdout().is_terminal();
    let width = if terminal {
        terminal_width()
    } else {
        PLAIN_WIDTH
    };
    print!(
        "{}",
        table::render(
            &report.results,
            table::Options {
                color: terminal,
                width
            }
        )
    );
    Ok(())
}

fn terminal_width() -> usize {
    // The shell's own knowledge; a table of the plain width is readable anywhere.
    std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .unwrap_or(PLAIN_WIDTH)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Holds,
    ClaimFails,
    Invalid,
}

impl Outcome {
    fn of(report: &Report) -> Self {
        if !report.results.valid {
            Outcome::Invalid
        } else if report.results.all_hold() {
            Outcome::Holds
        } else {
            Outcome::ClaimFails
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Holds => ExitCode::SUCCESS,
            Outcome::ClaimFails => ExitCode::FAILURE,
            Outcome::Invalid => ExitCode::from(INVALID),
        }
    }
}
