// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs an experiment on a backend and makes its report.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use paceline_report::Report;

use crate::collect::{self, CollectError, Origin, Told};
use crate::experiment::{Experiment, ExperimentError};
use crate::live::{self, LiveError};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::virtual_machine::{self, Machine, VirtualError};

/// Wall time after which a machine is given up: ten times what the longest shard
/// takes on a busy machine.
const MACHINE_LIMIT: Duration = Duration::from_secs(3600);
/// Runs of each variant on the live backend, whose clock is real: an odd number,
/// so that one of them is the median.
const LIVE_REPETITIONS: u32 = 3;

/// Where the case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A stock kernel in QEMU.
    Virtual,
    /// This machine's kernel.
    Live,
}

/// How an experiment is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub backend: Backend,
    /// The file's smaller counts.
    pub quick: bool,
    /// Instead of the file's.
    pub seed: Option<u64>,
    /// Only these variants; empty for all.
    pub variants: Vec<String>,
    /// Machines at once; 0 for one per CPU.
    pub jobs: usize,
    /// Say on standard error how far the run is.
    pub progress: bool,
}

/// Why an experiment has no report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The file.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The virtual backend.
    #[error(transparent)]
    Virtual(#[from] VirtualError),
    /// The live backend.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The records.
    #[error(transparent)]
    Collect(#[from] CollectError),
}

/// Runs the experiment in `path`. `stop` ends it early, with an error.
///
/// # Errors
/// [`RunError`] with the first thing that failed.
pub fn run(path: &Path, options: &Options, stop: &AtomicBool) -> Result<Report, RunError> {
    let experiment = Experiment::load(path)?;
    let plans = experiment.shards(options.quick, options.seed, &options.variants)?;
    let origin = Origin {
        backend: match options.backend {
            Backend::Virtual => "virtual",
            Backend::Live => "live",
        },
        command: command(path, options),
        partial: !options.variants.is_empty(),
    };
    let told = match options.backend {
        Backend::Virtual => run_virtual(&experiment, plans, options, stop)?,
        Backend::Live => run_live(plans, options, stop)?,
    };
    Ok(collect::report(&experiment, &origin, &told)?)
}

/// The command line that makes the same results: nothing of this run's place.
fn command(path: &Path, options: &Options) -> String {
    let file = path.file_name().map_or(PathBuf::new(), PathBuf::from);
    let mut words = vec![
        "paceline lab run".to_owned(),
        format!("experiments/{}", file.display()),
    ];
    words.push(format!(
        "--backend {}",
        if options.backend == Backend::Virtual {
            "virtual"
        } else {
            "live"
        }
    ));
    if options.quick {
        words.push("--quick".to_owned());
    }
    if let Some(seed) = options.seed {
        words.push(format!("--seed {seed}"));
    }
    words.extend(
        options
            .variants
            .iter()
            .map(|variant| format!("--variant {variant}")),
    );
    words.join(" ")
}

/// One machine per shard, as many at once as there are CPUs. Each one's clock is
/// its own, so that their number does not reach the results.
fn run_virtual(
    experiment: &Experiment,
    plans: Vec<Plan>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Vec<Told>, RunError> {
    virtual_machine::clean_stale();
    let image = virtual_machine::prepare()?;
    let machine = Machine {
        image,
        shift: experiment.file.machine.shift,
        limit: MACHINE_LIMIT,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if options.jobs == 0 {
        cpus
    } else {
        options.jobs
    };
    let progress = Progress::new(&plans, 1, options.progress);
    // Shards are taken in the order of the file; results are put where they belong.
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..plans.len()).collect());
    let results: Mutex<Vec<Option<Told>>> = Mutex::new(vec![None; plans.len()]);
    let failure = Mutex::new(None);
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(plans.len()) {
            scope.spawn(|| loop {
                let Some(index) = locked(&queue).pop_front() else {
                    break;
                };
                let halt = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
                let plan = &plans[index];
                match virtual_machine::run(
                    &machine,
                    plan,
                    &|done| progress.step(index, 0, done),
                    &halt,
                ) {
                    Ok(records) => {
                        progress.finish(index);
                        let told = Told {
                            plan: plan.clone(),
                            repetitions: vec![records],
                            problems: Vec::new(),
                        };
                        locked(&results)[index] = Some(told);
                    }
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        locked(&failure).get_or_insert(error);
                        break;
                    }
                }
            });
        }
    });
    progress.end();
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    Ok(results
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_iter()
        .flatten()
        .collect())
}

fn run_live(plans: Vec<Plan>, options: &Options, stop: &AtomicBool) -> Result<Vec<Told>, RunError> {
    let repetitions = if options.quick { 1 } else { LIVE_REPETITIONS };
    let progress = Progress::new(&plans, repetitions, options.progress);
    let step = |index: usize, round: u32, done: u64| progress.step(index, round, done);
    let outcome = live::run(&plans, repetitions, &step, stop);
    progress.end();
    let told = plans.into_iter().zip(outcome?).map(|(plan, repetitions)| {
        let mut problems: Vec<String> = repetitions
            .iter()
            .flat_map(|run| &run.problems)
            .map(ToString::to_string)
            .collect();
        problems.dedup();
        Told {
            plan,
            repetitions: repetitions.into_iter().map(|run| run.records).collect(),
            problems,
        }
    });
    Ok(told.collect())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
