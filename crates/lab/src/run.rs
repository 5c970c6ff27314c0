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
use crate::virtual_machine::{self, Machine, Unfinished, VirtualError};

/// Wall time without a word from a machine after which it is given up: ten times what
/// the longest step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3600);
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
    /// Where the results will go. Virtual machines that are done are kept there until
    /// [`virtual_machine::forget`], so that an interrupted run can go on.
    pub out: PathBuf,
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
    /// The user stopped the run, after some of its machines were done.
    #[error("interrupted: {done} of {of} virtual machines are done and kept in {}; the same command goes on with the others", directory.display())]
    Interrupted {
        /// So many.
        done: usize,
        /// Of so many.
        of: usize,
        /// Where.
        directory: PathBuf,
    },
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
        patience: PATIENCE,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if options.jobs == 0 {
        cpus
    } else {
        options.jobs
    };
    let unfinished = Unfinished::within(&options.out, &machine)?;
    let before = plans
        .iter()
        .map(|plan| unfinished.find(plan))
        .collect::<Result<Vec<_>, _>>()?;
    let progress = Progress::new(&plans, 1, options.progress);
    // Shards are taken in the order of the file; results are put where they belong.
    let mut queue = VecDeque::new();
    for (index, records) in before.iter().enumerate() {
        match records {
            Some(_) => progress.skip(index),
            None => queue.push_back(index),
        }
    }
    let (queue, results) = (Mutex::new(queue), Mutex::new(before));
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
                let step = |done| progress.step(index, 0, done);
                let outcome =
                    virtual_machine::run(&machine, plan, &step, &halt).and_then(|records| {
                        unfinished.keep(plan, &records)?;
                        Ok(records)
                    });
                match outcome {
                    Ok(records) => {
                        progress.finish(index);
                        locked(&results)[index] = Some(records);
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
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let done = results.iter().flatten().count();
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(VirtualError::Interrupted) if done > 0 => Err(RunError::Interrupted {
            done,
            of: plans.len(),
            directory: unfinished.directory().to_owned(),
        }),
        Some(error) => Err(error.into()),
        None => Ok(plans
            .into_iter()
            .zip(results)
            .filter_map(|(plan, records)| {
                Some(Told {
                    plan,
                    repetitions: vec![records?],
                })
            })
            .collect()),
    }
}

fn run_live(plans: Vec<Plan>, options: &Options, stop: &AtomicBool) -> Result<Vec<Told>, RunError> {
    let repetitions = if options.quick { 1 } else { LIVE_REPETITIONS };
    let progress = Progress::new(&plans, repetitions, options.progress);
    let step = |index: usize, round: u32, done: u64| progress.step(index, round, done);
    let outcome = live::run(&plans, repetitions, &step, stop);
    progress.end();
    let told = plans.into_iter().zip(outcome?);
    Ok(told
        .map(|(plan, repetitions)| Told { plan, repetitions })
        .collect())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
