// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline sim`: TCP in simulated time.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use paceline_simulator::scenario::Scenario;
use paceline_simulator::study::{self, Report, Selection, Settings, Swept};
use paceline_simulator::sweep::{OnStep, Shard, Step};

use crate::trusted_path;

/// Arguments of `paceline sim`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand, Debug)]
enum SimCommand {
    /// Run one point of a scenario: exit status 1 if a claim fails, 2 if the file is invalid
    Run(RunArgs),
    /// Run every point of a scenario on all cores; resumes where it was interrupted
    Sweep(SweepArgs),
    /// Join the directories of a sweep's shards
    Merge(MergeArgs),
    /// Evaluate the stochastic model of TCP Reno (feng-2000, section 4) for a scenario's clients
    Model(ModelArgs),
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    /// The scenario's TOML
    scenario: PathBuf,
    /// The point: AXIS=VALUE; an axis that is not named takes its first value
    #[arg(long = "at", value_name = "AXIS=VALUE")]
    at: Vec<String>,
    /// Only this variant; may be repeated
    #[arg(long = "variant", value_name = "NAME")]
    variants: Vec<String>,
    /// Number of seeds, instead of the scenario's
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct SweepArgs {
    /// The scenario's TOML
    scenario: PathBuf,
    /// Run only part I of N; `sim merge` joins the parts
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct MergeArgs {
    /// Directories that `sim sweep --shard` wrote
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Directory for the results [default: results/SCENARIO]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print results.json instead of a summary
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct ModelArgs {
    /// The scenario's TOML
    scenario: PathBuf,
    /// Results of a sweep to plot beside the model
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Common {
    /// Directory for results.json, the CSV files and report.html [default: results/SCENARIO]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of the first run, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Parallel runs [default: one per CPU]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,
    /// Print results.json instead of a summary
    #[arg(long)]
    json: bool,
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Runs the command.
///
/// # Errors
/// When a scenario is not valid, was interrupted, or its results cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")?;
    match &args.command {
        SimCommand::Run(args) => run_point(args),
        SimCommand::Sweep(args) => run_sweep(args),
        SimCommand::Merge(args) => merge(args),
        SimCommand::Model(args) => model(args),
    }
}

fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The directory for a scenario's results, where they may be written.
fn out(asked: Option<&PathBuf>, name: &str) -> Result<PathBuf> {
    let directory = asked.map_or_else(|| Path::new("results").join(name), Clone::clone);
    trusted_path::make_directory(&directory)?;
    Ok(directory)
}

impl Common {
    fn settings<'a>(&self, on_step: &'a OnStep<'a>) -> Settings<'a> {
        Settings {
            seed: self.seed,
            jobs: self.jobs,
            on_step,
            stop: &stopped,
        }
    }
}

fn run_point(args: &RunArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&args.scenario)?;
    let selection = Selection {
        at: &args.at,
        variants: &args.variants,
        seeds: args.seeds,
    };
    let (began, speed) = (Instant::now(), Speed::default());
    let on_step = |step: Step| speed.add(step.events, step.transmissions);
    let report = study::run(&scenario, selection, args.common.settings(&on_step))?;
    speed.print(began);
    let directory = out(args.common.out.as_ref(), &scenario.name)?;
    finish(&report, &directory, args.common.json)
}

fn run_sweep(args: &SweepArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&args.scenario)?;
    let shard = args.shard.unwrap_or(Shard::ALL);
    let directory = out(args.common.out.as_ref(), &scenario.name)?;
    let progress = progress();
    let (began, speed) = (Instant::now(), Speed::default());
    let on_step = |step: Step| {
        progress.set_length(step.runs as u64);
        if step.events == 0 {
            // Runs of an earlier time say nothing of the speed of this one.
            progress.set_position(step.done as u64);
            progress.reset_eta();
        } else {
            progress.inc(1);
        }
        speed.add(step.events, step.transmissions);
    };
    let swept = study::sweep(&scenario, shard, &directory, args.common.settings(&on_step));
    progress.finish_and_clear();
    let swept = swept?;
    speed.print(began);
    match swept {
        Swept::Whole(report) => finish(&report, &directory, args.common.json),
        Swept::Part { runs } => {
            println!(
                "{}: {runs} runs of part {}/{}; join all parts with: paceline sim merge DIR...",
                directory.display(),
                shard.index,
                shard.of
            );
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn merge(args: &MergeArgs) -> Result<ExitCode> {
    let (name, report) = study::merge(&args.directories)?;
    let directory = out(args.out.as_ref(), &name)?;
    finish(&report, &directory, args.json)
}

fn model(args: &ModelArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&args.scenario)?;
    let settings = args.common.settings(&|_| ());
    let report = study::model(&scenario, args.against.as_deref(), settings)?;
    let directory = match &args.common.out {
        Some(directory) => directory.clone(),
        None => Path::new("results").join(format!("{}-model", scenario.name)),
    };
    finish(&report, &directory, args.common.json)
}

/// Writes all files, and prints the results.
fn finish(report: &Report, directory: &Path, json: bool) -> Result<ExitCode> {
    let page = report.write(directory)?;
    let results = &report.results;
    if json {
        crate::output::print_json_text(&results.to_json()?)?;
    } else {
        let mut text = String::new();
        for hold in &results.holds {
            let verdict = if hold.pass { "holds" } else { "FAILS" };
            text.push_str(&format!("{verdict}  {}  ({:.4})\n", hold.claim, hold.value));
        }
        text.push_str(&format!("{}\n", page.display()));
        crate::output::print(&text)?;
    }
    Ok(match results.all_hold() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} to go") {
        bar.set_style(style);
    }
    bar
}

/// The speed, for people: it is not in the results.
#[derive(Default)]
struct Speed {
    events: AtomicU64,
    transmissions: AtomicU64,
}

impl Speed {
    fn add(&self, events: u64, transmissions: u64) {
        self.events.fetch_add(events, Ordering::Relaxed);
        self.transmissions
            .fetch_add(transmissions, Ordering::Relaxed);
    }

    fn print(&self, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        let millions = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / 1e6;
        let (events, packets) = (millions(&self.events), millions(&self.transmissions));
        if events > 0.0 {
            eprintln!(
                "{seconds:.1} s: {events:.1} million events ({:.1} million per second), {packets:.1} million packet transmissions ({:.1} million per second)",
                events / seconds,
                packets / seconds
            );
        }
    }
}
