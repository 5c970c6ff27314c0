// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a scenario to a report of it: by a point or some, by all of them, by parts that
//! were run apart, or by the stochastic model.

mod chosen;
mod model;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use paceline_report::csv::{self as series_files, CsvError};
use paceline_report::results::{Results, ResultsError};
use paceline_report::Series;
use rayon::prelude::*;

use crate::measures::Outcome;
use crate::output::{self, OutputError};
use crate::scenario::{Point, Scenario, ScenarioError};
use crate::sweep::{self, Done, Job, OnStep, Shard, Step, SweepError};
use crate::{page, series};

pub use model::model;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Many runs.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The results.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// `results.json`.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// Series.
    #[error(transparent)]
    Series(#[from] CsvError),
    /// A point that was not named as one.
    #[error("--at {0}: expected AXIS=VALUE")]
    NotAPoint(String),
    /// None of a point's runs.
    #[error("--seeds 0: at least one run is needed")]
    NoSeeds,
    /// The model does not apply to this scenario.
    #[error("{0}")]
    NotForTheModel(&'static str),
    /// The system has no more threads.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
    /// A file or a directory.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `make` or `write`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Results of a scenario's runs.
#[derive(Debug)]
pub struct Report {
    /// The content of `results.json`.
    pub results: Results,
    points: Vec<Point>,
    done: Vec<Done>,
    /// Of the first seed's runs over time, where they were sampled.
    series: Option<Vec<Series>>,
}

impl Report {
    /// Writes `results.json`, the runs, the summary, the series and the page into
    /// `directory`, which is made. Returns where the page is.
    ///
    /// # Errors
    /// [`StudyError::Results`], [`StudyError::Output`], [`StudyError::Series`] or
    /// [`StudyError::Io`] for the first that cannot be written.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, StudyError> {
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StudyError::Io {
                action,
                path,
                source,
            }
        };
        std::fs::create_dir_all(directory).map_err(io("make", directory))?;
        if let Some(series) = &self.series {
            series_files::write(&directory.join("series"), series)?;
        }
        self.results.write(&directory.join("results.json"))?;
        output::write_runs(&self.done, directory)?;
        output::write_summary(&self.results, directory)?;
        let file = directory.join("report.html");
        let series = self.series.as_deref().unwrap_or_default();
        let text = page::page(&self.results, &self.points, series);
        std::fs::write(&file, text).map_err(io("write", &file))?;
        Ok(file)
    }
}

/// Which of a scenario's points.
#[derive(Debug, Clone, Copy, Default)]
pub struct Selection<'a> {
    /// `AXIS=VALUE`; an axis that is not named has its first value.
    pub at: &'a [String],
    /// Only these variants; all of them if there is none.
    pub variants: &'a [String],
    /// So many runs of each point instead of the scenario's.
    pub seeds: Option<u32>,
}

/// How runs are made.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Seed of the first run, instead of the scenario's.
    pub seed: Option<u64>,
    /// Runs at once; 0: one for each CPU.
    pub jobs: usize,
    /// Called after each run.
    pub on_step: &'a OnStep<'a>,
    /// Whether to stop.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// Runs some points of a scenario.
///
/// # Errors
/// [`StudyError::Scenario`] where the selection or the scenario makes no sense,
/// [`StudyError::Interrupted`].
pub fn run(
    scenario: &Scenario,
    selection: Selection<'_>,
    settings: Settings<'_>,
) -> Result<Report, StudyError> {
    let points = chosen::points(scenario, selection)?;
    let seed = settings.seed.unwrap_or(scenario.file.seed);
    let jobs = sweep::jobs(&points, seed);
    let (runs, done) = (jobs.len(), AtomicUsize::new(0));
    let outcomes = on_cores(settings.jobs, || {
        jobs.par_iter()
            .map(|job| {
                // The first seed's is sampled over time.
                let outcome = sweep::run(scenario, job, job.seed == seed, &|| (settings.stop)())?;
                let outcome = outcome.ok_or(StudyError::Interrupted)?;
                (settings.on_step)(Step {
                    done: done.fetch_add(1, Ordering::Relaxed) + 1,
                    runs,
                    events: outcome.events,
                    transmissions: outcome.transmissions,
                });
                Ok((job.clone(), outcome))
            })
            .collect::<Result<Vec<(Job, Outcome)>, StudyError>>()
    })??;
    let series: Vec<Series> = outcomes
        .iter()
        .filter(|(job, _)| job.seed == seed)
        .flat_map(|(job, outcome)| series::of(job, outcome))
        .collect();
    let done: Vec<Done> = outcomes
        .into_iter()
        .map(|(job, outcome)| Done {
            job,
            metrics: outcome.metrics,
        })
        .collect();
    let Selection {
        at,
        variants,
        seeds,
    } = selection;
    let mut more: Vec<String> = at.iter().map(|at| format!("--at {at}")).collect();
    more.extend(variants.iter().map(|name| format!("--variant {name}")));
    more.extend(seeds.map(|seeds| format!("--seeds {seeds}")));
    let partial = points.len() < scenario.points().len() || seeds.is_some();
    let command = command("run", scenario, settings.seed, &more);
    Ok(Report {
        results: output::results(scenario, seed, &command, &done, partial)?,
        points,
        done,
        series: Some(series),
    })
}

/// Outcome of a sweep.
#[derive(Debug)]
pub enum Swept {
    /// All points.
    Whole(Box<Report>),
    /// A part of them, which [`merge`] joins with the others.
    Part {
        /// Runs.
        runs: usize,
    },
}

/// Runs all points of a scenario, or a part of them, and keeps each run in `directory` as
/// soon as it is done; runs that are there already are not repeated.
///
/// # Errors
/// [`StudyError::Sweep`], [`StudyError::Output`].
pub fn sweep(
    scenario: &Scenario,
    shard: Shard,
    directory: &Path,
    settings: Settings<'_>,
) -> Result<Swept, StudyError> {
    let seed = settings.seed.unwrap_or(scenario.file.seed);
    let done = on_cores(settings.jobs, || {
        sweep::sweep(
            scenario,
            seed,
            shard,
            directory,
            settings.on_step,
            settings.stop,
        )
    })??;
    if shard != Shard::ALL {
        output::write_runs(&done, directory)?;
        return Ok(Swept::Part { runs: done.len() });
    }
    let command = command("sweep", scenario, settings.seed, &[]);
    let report = whole(scenario, seed, &command, done)?;
    Ok(Swept::Whole(Box::new(report)))
}

/// Joins the parts of a sweep. Returns the scenario's name, too.
///
/// # Errors
/// [`StudyError::Sweep`], [`StudyError::Output`].
pub fn merge(directories: &[PathBuf]) -> Result<(String, Report), StudyError> {
    let (scenario, seed, done) = sweep::merge(directories)?;
    let own = (seed != scenario.file.seed).then_some(seed);
    let command = command("sweep", &scenario, own, &[]);
    let report = whole(&scenario, seed, &command, done)?;
    Ok((scenario.name, report))
}

/// The report of all points.
fn whole(
    scenario: &Scenario,
    seed: u64,
    command: &str,
    done: Vec<Done>,
) -> Result<Report, StudyError> {
    Ok(Report {
        results: output::results(scenario, seed, command, &done, false)?,
        points: scenario.points().to_vec(),
        done,
        series: None,
    })
}

/// The command line that makes the same results: nothing of this run's place.
fn command(verb: &str, scenario: &Scenario, seed: Option<u64>, more: &[String]) -> String {
    let mut words = vec![
        format!("paceline sim {verb}"),
        format!("experiments/{}.toml", scenario.name),
    ];
    words.extend_from_slice(more);
    if let Some(seed) = seed {
        words.push(format!("--seed {seed}"));
    }
    words.join(" ")
}

fn on_cores<T: Send>(
    jobs: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, rayon::ThreadPoolBuildError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build()?;
    Ok(pool.install(work))
}
