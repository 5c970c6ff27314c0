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
use paceline_report::results::Results;
use paceline_report::{csv as series_files, Series};
use paceline_simulator::measures::Outcome;
use paceline_simulator::model::{Capacity, Model};
use paceline_simulator::scenario::{label, Point, Scenario, ScenarioError};
use paceline_simulator::sweep::{self, Done, Job, Shard, Step};
use paceline_simulator::{output, page, series};

use crate::trusted_path;

/// Rounds of the stochastic model before its steady state, and in it.
const MODEL_WARM_UP: usize = 2_000;
const MODEL_ROUNDS: usize = 20_000;

/// Arguments of `paceline sim`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand, Debug)]
enum SimCommand {
    /// Run one point of a scenario: exit status 1 if a claim fails, 2 if it is wrong
    Run(RunArgs),
    /// Run every point of a scenario, on all cores; goes on where it was interrupted
    Sweep(SweepArgs),
    /// Join the directories of a sweep's shards
    Merge(MergeArgs),
    /// The stochastic model of TCP Reno (feng-2000, section 4) for a scenario's clients
    Model(ModelArgs),
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    /// The scenario's TOML
    scenario: PathBuf,
    /// The point: AXIS=VALUE; an axis that is not named has its first value
    #[arg(long = "at", value_name = "AXIS=VALUE")]
    at: Vec<String>,
    /// Only this variant; may be given several times
    #[arg(long = "variant", value_name = "NAME")]
    variants: Vec<String>,
    /// Only so many seeds
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct SweepArgs {
    /// The scenario's TOML
    scenario: PathBuf,
    /// Only part I of N, to be joined by `sim merge`
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
    /// Where the results go [default: results/SCENARIO]
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
    /// Results of a sweep to draw beside the model
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Common {
    /// Where results.json, the CSV files and report.html go [default: results/SCENARIO]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of the first run, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs at once [default: one for each CPU]
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
fn out(asked: Option<&PathBuf>, scenario: &Scenario) -> Result<PathBuf> {
    let directory = asked.map_or_else(|| Path::new("results").join(&scenario.name), Clone::clone);
    trusted_path::make_directory(&directory)?;
    Ok(directory)
}

/// The command line that makes the same results: nothing of this run's place.
fn command(verb: &str, scenario: &Scenario, common: Option<&Common>, more: &[String]) -> String {
    let mut words = vec![
        format!("paceline sim {verb}"),
        format!("experiments/{}.toml", scenario.name),
    ];
    words.extend_from_slice(more);
    if let Some(seed) = common.and_then(|common| common.seed) {
        words.push(format!("--seed {seed}"));
    }
    words.join(" ")
}

fn on_cores<T: Send>(jobs: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
    Ok(pool.context("cannot start threads")?.install(work))
}

fn run_point(args: &RunArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&args.scenario)?;
    let points = chosen(&scenario, &args.at, &args.variants, args.seeds)?;
    let seed = args.common.seed.unwrap_or(scenario.file.seed);
    let jobs = sweep::jobs(&points, seed);
    let began = Instant::now();
    let speed = Speed::default();
    let outcomes = on_cores(args.common.jobs, || {
        use rayon::prelude::*;
        jobs.par_iter()
            .map(|job| {
                // The first seed's is sampled over time.
                let outcome = sweep::run(&scenario, job, job.seed == seed, &stopped)?;
                let outcome = outcome.context("interrupted")?;
                speed.add(outcome.events, outcome.transmissions);
                Ok((job.clone(), outcome))
            })
            .collect::<Result<Vec<(Job, Outcome)>>>()
    })??;
    speed.tell(began);
    let directory = out(args.common.out.as_ref(), &scenario)?;
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let series: Vec<Series> = outcomes
        .iter()
        .filter(|(job, _)| job.seed == seed)
        .flat_map(|(job, outcome)| series::of(job, outcome))
        .collect();
    series_files::write(&directory.join("series"), &series)?;
    let done: Vec<Done> = outcomes
        .into_iter()
        .map(|(job, outcome)| Done {
            job,
            metrics: outcome.metrics,
        })
        .collect();
    let mut more: Vec<String> = args.at.iter().map(|at| format!("--at {at}")).collect();
    more.extend(args.variants.iter().map(|name| format!("--variant {name}")));
    more.extend(args.seeds.map(|seeds| format!("--seeds {seeds}")));
    let partial = points.len() < scenario.points().len() || args.seeds.is_some();
    let command = command("run", &scenario, Some(&args.common), &more);
    let results = output::results(&scenario, seed, &command, &done, partial)?;
    finish(
        &results,
        &points,
        &series,
        &done,
        &directory,
        args.common.json,
    )
}

/// The points that the command line names.
fn chosen(
    scenario: &Scenario,
    at: &[String],
    variants: &[String],
    seeds: Option<u32>,
) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = scenario.points().to_vec();
    let list = |names: Vec<String>| {
        let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    for name in variants {
        if !points.iter().any(|point| point.variant == *name) {
            let mut known: Vec<String> = points.iter().map(|point| point.variant.clone()).collect();
            known.dedup();
            return Err(ScenarioError::Unknown {
                what: "variant",
                asked: name.clone(),
                known: list(known),
            }
            .into());
        }
    }
    points.retain(|point| variants.is_empty() || variants.contains(&point.variant));
    for one in at {
        let (axis, value) = one
            .split_once('=')
            .with_context(|| format!("--at {one}: needs AXIS=VALUE"))?;
        let Some(table) = scenario.file.axis.get(axis) else {
            let known = list(scenario.file.axis.keys().cloned().collect());
            return Err(ScenarioError::Unknown {
                what: "axis",
                asked: axis.to_owned(),
                known,
            }
            .into());
        };
        if !table.values.iter().any(|known| label(known) == value) {
            let known = list(table.values.iter().map(label).collect());
            return Err(ScenarioError::Unknown {
                what: "value",
                asked: value.to_owned(),
                known,
            }
            .into());
        }
        points.retain(|point| {
            let values = point.values.iter();
            let mut values = values.filter(|(name, _)| name == axis);
            values.all(|(_, known)| label(known) == value)
        });
    }
    for (axis, table) in &scenario.file.axis {
        if !at.iter().any(|one| one.split('=').next() == Some(axis)) {
            let first = table.values.first().map(label);
            points.retain(|point| {
                let values = point.values.iter();
                let mut values = values.filter(|(name, _)| name == axis);
                values.all(|(_, value)| Some(label(value)) == first)
            });
        }
    }
    if let Some(seeds) = seeds {
        anyhow::ensure!(seeds > 0, "--seeds 0: at least one run is needed");
        for point in &mut points {
            point.seeds = seeds;
        }
    }
    Ok(points)
}

fn run_sweep(args: &SweepArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&args.scenario)?;
    let seed = args.common.seed.unwrap_or(scenario.file.seed);
    let shard = args.shard.unwrap_or(Shard::ALL);
    let directory = out(args.common.out.as_ref(), &scenario)?;
    let progress = progress();
    let (began, speed) = (Instant::now(), Speed::default());
    let told = |step: Step| {
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
    let done = on_cores(args.common.jobs, || {
        sweep::sweep(&scenario, seed, shard, &directory, &told, &stopped)
    })?;
    progress.finish_and_clear();
    let done = done?;
    speed.tell(began);
    if shard != Shard::ALL {
        output::write_runs(&done, &directory)?;
        println!(
            "{}: {} runs of part {}/{}; join all parts with: paceline sim merge DIR...",
            directory.display(),
            done.len(),
            shard.index,
            shard.of
        );
        return Ok(ExitCode::SUCCESS);
    }
    let command = command("sweep", &scenario, Some(&args.common), &[]);
    let results = output::results(&scenario, seed, &command, &done, false)?;
    finish(
        &results,
        scenario.points(),
        &[],
        &done,
        &directory,
        args.common.json,
    )
}

fn merge(args: &MergeArgs) -> Result<ExitCode> {
    let (scenario, seed, done) = sweep::merge(&args.directories)?;
    let directory = out(args.out.as_ref(), &scenario)?;
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let more = if seed == scenario.file.seed {
        vec![]
    } else {
        vec![format!("--seed {seed}")]
    };
    let command = command("sweep", &scenario, None, &more);
    let results = output::results(&scenario, seed, &command, &done, false)?;
    finish(
        &results,
        scenario.points(),
        &[],
        &done,
        &directory,
        args.json,
    )
}

fn model(args: &ModelArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&args.scenario)?;
    let seed = args.common.seed.unwrap_or(scenario.file.seed);
    let readings = [
        ("model", Capacity::RateAndBuffer),
        ("model-as-printed", Capacity::Printed),
    ];
    let first = &scenario.points()[0].variant;
    let points: Vec<Point> = scenario
        .points()
        .iter()
        .filter(|point| point.variant == *first)
        .cloned()
        .collect();
    let (mut done, mut all) = (Vec::new(), Vec::new());
    for (name, reading) in readings {
        for point in &points {
            let plan = scenario.plan(point)?;
            let (sender, each, clients) = plan.clients().context(
                "the model is about Poisson sources: the first group of flows has another source",
            )?;
            let link = plan.measured_link();
            let round_s = plan.window_ns as f64 / 1e9;
            let buffer = link.queue.packets.map(f64::from).or(link
                .queue
                .bytes
                .map(|size| size.bytes() as f64 / f64::from(sender.packet_bytes)));
            let model = Model {
                clients,
                packets_per_round: each * round_s,
                round_s,
                rate: link.rate.bits_per_second() as f64 / (8.0 * f64::from(sender.packet_bytes)),
                buffer: buffer.context("the model needs a queue with a limit: packets or bytes")?,
                window: f64::from(sender.window),
                warm_up: MODEL_WARM_UP,
                rounds: MODEL_ROUNDS,
            };
            let point = Point {
                variant: name.to_owned(),
                ..point.clone()
            };
            for seed in seed..seed + u64::from(point.seeds) {
                anyhow::ensure!(!stopped(), "interrupted");
                let found = model.run(reading, seed).context("no packet was sent")?;
                let metrics = [
                    ("steady_cov".to_owned(), found.cov),
                    ("congested_rounds_share".to_owned(), found.congested_share),
                    ("packets_per_round".to_owned(), found.mean),
                ];
                let job = Job {
                    number: done.len(),
                    point: point.clone(),
                    seed,
                };
                done.push(Done {
                    job,
                    metrics: metrics.into_iter().collect(),
                });
            }
            all.push(point);
        }
    }
    let command = command("model", &scenario, Some(&args.common), &[]);
    let mut results = output::results(&scenario, seed, &command, &done, true)?;
    results.notes = vec!["The stochastic model of feng-2000, section 4: no packets, no timeouts, all windows halve together.".to_owned()];
    if let Some(against) = &args.against {
        let simulated = Results::read(&against.join("results.json"))?;
        for (variant, metrics) in simulated.variants {
            let steady = metrics
                .into_iter()
                .filter(|(name, _)| name.starts_with("steady_cov/"));
            results.variants.insert(variant.clone(), steady.collect());
            all.extend(points.iter().map(|point| Point {
                variant: variant.clone(),
                ..point.clone()
            }));
        }
    }
    let directory = args
        .common
        .out
        .clone()
        .unwrap_or_else(|| Path::new("results").join(format!("{}-model", scenario.name)));
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    finish(&results, &all, &[], &done, &directory, args.common.json)
}

/// Writes everything, and says what came out.
fn finish(
    results: &Results,
    points: &[Point],
    series: &[Series],
    done: &[Done],
    directory: &Path,
    json: bool,
) -> Result<ExitCode> {
    results.write(&directory.join("results.json"))?;
    output::write_runs(done, directory)?;
    output::write_summary(results, directory)?;
    let page_file = directory.join("report.html");
    std::fs::write(&page_file, page::page(results, points, series))
        .with_context(|| format!("cannot write {}", page_file.display()))?;
    if json {
        crate::output::print_json_text(&results.to_json()?)?;
    } else {
        let mut text = String::new();
        for hold in &results.holds {
            let verdict = if hold.pass { "holds" } else { "FAILS" };
            text.push_str(&format!("{verdict}  {}  ({:.4})\n", hold.claim, hold.value));
        }
        text.push_str(&format!("{}\n", page_file.display()));
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

/// How fast it went, for people: nothing of it is in the results.
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

    fn tell(&self, began: Instant) {
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
