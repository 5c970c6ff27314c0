// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs an experiment on a backend and makes its report.

mod carried;
mod progress;
mod rounds;
pub mod unfinished;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use paceline_collect::{CollectError, Origin, ShardRecords};
use paceline_experiment::plan::Plan;
use paceline_experiment::record::Record;
use paceline_experiment::{Experiment, ExperimentError};
use paceline_machine::{self, Choice, Machine, VirtualError};
use paceline_report::{precision, Report};
use paceline_simulated::{SimulatedError, Watch};

use self::progress::Progress;
use self::rounds::SoFar;
use self::unfinished::{Unfinished, UnfinishedError};
use crate::backend::live::{self, LiveError};

pub use self::rounds::Enough;

/// Wall time without a record from a machine after which it is given up: ten times what
/// the longest step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Where the case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A stock kernel in QEMU.
    Virtual,
    /// This machine's kernel.
    Live,
    /// The discrete-event simulator.
    Sim,
}

impl Backend {
    /// As on the command line.
    fn name(self) -> &'static str {
        match self {
            Backend::Virtual => "virtual",
            Backend::Live => "live",
            Backend::Sim => "sim",
        }
    }
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
    /// On the virtual backend: the guests' kernel.
    pub kernel: Choice,
    /// On the virtual backend: the guests' log filter ([`Machine::log`]).
    pub log: Option<String>,
    /// On the live backend: when it has been repeated often enough.
    pub enough: Enough,
    /// Say on standard error how far the run is.
    pub progress: bool,
    /// Where the results will go. Cases that are done are kept there until
    /// [`unfinished::forget`], so that an interrupted run can go on.
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
    /// The simulator.
    #[error(transparent)]
    Simulated(#[from] SimulatedError),
    /// What a guest must have for a program is not on this machine.
    #[error("[[program]] {program}: {problem}")]
    Program {
        /// Its name.
        program: String,
        /// What is missing.
        problem: String,
    },
    /// The records.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// Runs that were done before.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedError),
    /// The user stopped the run, after some of its cases were done.
    #[error("interrupted: {done} runs of a variant are done and kept in {}; the same command resumes with the others", directory.display())]
    Interrupted {
        /// So many.
        done: usize,
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
    let mut plans = experiment.shards(options.quick, options.seed, &options.variants)?;
    let left_out = match options.backend {
        Backend::Sim => paceline_simulated::leave_out(&mut plans)?,
        Backend::Virtual | Backend::Live => Vec::new(),
    };
    let origin = Origin {
        backend: options.backend.name(),
        command: command(path, options),
        partial: !options.variants.is_empty() || !left_out.is_empty(),
    };
    let shards = match options.backend {
        Backend::Virtual => run_virtual(&experiment, plans, options, stop)?,
        Backend::Sim => run_sim(plans, options, stop)?,
        Backend::Live => return run_live(&experiment, &origin, plans, options, stop),
    };
    let mut report = paceline_collect::report(&experiment, &origin, &shards)?;
    report.results.notes.extend(left_out);
    Ok(report)
}

/// The command line that makes the same results: nothing of this run's place.
fn command(path: &Path, options: &Options) -> String {
    let file = path.file_name().map_or(PathBuf::new(), PathBuf::from);
    let mut words = vec![
        "paceline lab run".to_owned(),
        format!("experiments/{}", file.display()),
    ];
    words.push(format!("--backend {}", options.backend.name()));
    if options.quick {
        words.push("--quick".to_owned());
    }
    if let Some(seed) = options.seed {
        words.push(format!("--seed {seed}"));
    }
    match &options.kernel {
        Choice::Distribution => {}
        Choice::Suite(suite) => words.push(format!("--kernel {}", suite.name)),
        Choice::Directory(_) => words.push("--kernel DIRECTORY".to_owned()),
    }
    if options.backend == Backend::Live && !options.quick && options.enough != Enough::default() {
        let Enough { precision, budget } = options.enough;
        words.push(format!(
            "--precision {} --budget {}s",
            precision * 100.0,
            budget.as_secs()
        ));
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
) -> Result<Vec<ShardRecords>, RunError> {
    paceline_machine::clean_stale();
    let image = paceline_machine::prepare(&options.kernel)?;
    if let Some(reason) = &image.stale {
        eprintln!("paceline: {reason}");
    }
    let machine = Machine {
        image,
        shift: experiment.file.machine.shift,
        patience: PATIENCE,
        log: options.log.clone(),
    };
    let files = carried::files(&plans, &experiment.file.machine.files)?;
    let inputs = paceline_machine::inputs(&machine, &files)?;
    run_cases(plans, options, inputs, stop, &|plan, step, halt| {
        Ok(paceline_machine::run(&machine, plan, &files, step, halt)?)
    })
}

/// One thread per shard, likewise.
fn run_sim(
    plans: Vec<Plan>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Vec<ShardRecords>, RunError> {
    run_cases(
        plans,
        options,
        live::inputs()?,
        stop,
        &|plan, step, halt| Ok(paceline_simulated::run(plan, &Watch { step, halt })?),
    )
}

/// Runs one case: reports its progress, and checks whether to stop.
type RunCase<'c> =
    &'c (dyn Fn(&Plan, &dyn Fn(u64), &dyn Fn() -> bool) -> Result<Vec<Record>, RunError> + Sync);

/// Each plan once, `jobs` at once. Those that an interrupted run has done with the same
/// `inputs` are not done again.
fn run_cases(
    plans: Vec<Plan>,
    options: &Options,
    inputs: u64,
    stop: &AtomicBool,
    run_case: RunCase,
) -> Result<Vec<ShardRecords>, RunError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if options.jobs == 0 {
        cpus
    } else {
        options.jobs
    };
    let unfinished = Unfinished::within(&options.out, inputs);
    let before = plans
        .iter()
        .map(|plan| unfinished.find(plan, 0))
        .collect::<Result<Vec<_>, _>>()?;
    let progress = Progress::new(&plans, 1, options.progress);
    // Shards run in the order of the file; results are stored by their index.
    let mut queue = VecDeque::new();
    for (index, records) in before.iter().enumerate() {
        match records {
            Some(_) => progress.skip(index, 0),
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
                let outcome = run_case(plan, &step, &halt).and_then(|records| {
                    unfinished.keep(plan, 0, &records)?;
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
        Some(
            RunError::Virtual(VirtualError::Interrupted)
            | RunError::Simulated(SimulatedError::Interrupted),
        ) if done > 0 => Err(RunError::Interrupted {
            done,
            directory: unfinished.directory().to_owned(),
        }),
        Some(error) => Err(error),
        None => Ok(plans
            .into_iter()
            .zip(results)
            .filter_map(|(plan, records)| {
                Some(ShardRecords {
                    plan,
                    repetitions: vec![records?],
                })
            })
            .collect()),
    }
}

/// Round after round, until the intervals are narrow enough or the budget ends.
fn run_live(
    experiment: &Experiment,
    origin: &Origin,
    plans: Vec<Plan>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Report, RunError> {
    let started = Instant::now();
    let unfinished = Unfinished::within(&options.out, live::inputs()?);
    let mut shards: Vec<ShardRecords> = plans
        .iter()
        .map(|plan| ShardRecords {
            plan: plan.clone(),
            repetitions: Vec::new(),
        })
        .collect();
    let mut so_far = SoFar {
        done: 0,
        before: 0,
        gone: Duration::ZERO,
        half_width: Some(f64::INFINITY),
    };
    let wanted = |so_far: &SoFar| match options.quick {
        true => 1,
        false => options.enough.rounds(so_far),
    };
    let mut rounds = wanted(&so_far);
    let progress = Progress::new(&plans, rounds, options.progress);
    loop {
        let round = so_far.done;
        let mut all_before = true;
        for index in live::turns(plans.len(), round) {
            let plan = &plans[index];
            let records = match unfinished.find(plan, round)? {
                Some(records) => {
                    progress.skip(index, round);
                    records
                }
                None => {
                    all_before = false;
                    let step = |done| progress.step(index, round, done);
                    let done = shards.iter().map(|shard| shard.repetitions.len()).sum();
                    let records = live::run(plan, &step, stop).map_err(|error| match error {
                        LiveError::Interrupted if done > 0 => RunError::Interrupted {
                            done,
                            directory: unfinished.directory().to_owned(),
                        },
                        error => error.into(),
                    })?;
                    unfinished.keep(plan, round, &records)?;
                    records
                }
            };
            shards[index].repetitions.push(records);
        }
        let mut report = paceline_collect::report(experiment, origin, &shards)?;
        let least_sure = precision::least_sure(&report.results);
        so_far = SoFar {
            done: round + 1,
            before: so_far.before + u32::from(all_before),
            gone: started.elapsed(),
            half_width: least_sure.as_ref().map(|ratio| ratio.half_width),
        };
        rounds = wanted(&so_far);
        if rounds <= so_far.done {
            progress.end();
            if let Some(ratio) = least_sure {
                options
                    .enough
                    .add_precision(so_far.done, &ratio, &mut report.results);
            }
            return Ok(report);
        }
        progress.expect(rounds);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
