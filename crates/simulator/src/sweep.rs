// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many runs of a scenario: all points, all seeds, on all cores, in parts that can be
//! joined, and going on where it was interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use indexmap::IndexMap;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::measures::{self, Outcome};
use crate::scenario::{Point, Scenario, ScenarioError};

/// The journal of a directory: a line for each run that is done.
pub const JOURNAL: &str = "runs.jsonl";
/// A copy of the scenario, for [`merge`].
pub const SCENARIO: &str = "scenario.toml";

/// Why a sweep failed.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A file.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A directory that holds something else.
    #[error("{} holds runs of another scenario, or of another version of this one: give another directory with --out", directory.display())]
    Another {
        /// The directory.
        directory: PathBuf,
    },
    /// The user stopped it.
    #[error("interrupted: {done} of {runs} runs are done and kept in {}; the same command resumes with the others", directory.display())]
    Interrupted {
        /// So many are done.
        done: usize,
        /// Of so many.
        runs: usize,
        /// Where.
        directory: PathBuf,
    },
    /// Parts that do not make a whole.
    #[error("{missing} of {runs} runs are missing, the first of them variant \"{variant}\" at {at}, seed {seed}: merge the directories of all shards")]
    Missing {
        /// So many.
        missing: usize,
        /// Of so many.
        runs: usize,
        /// The first one's variant.
        variant: String,
        /// Its values.
        at: String,
        /// Its seed.
        seed: u64,
    },
}

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its number among all of the scenario.
    pub number: usize,
    /// Its point.
    pub point: Point,
    /// Its seed.
    pub seed: u64,
}

/// A run that is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The run.
    pub job: Job,
    /// Its metrics.
    pub metrics: IndexMap<String, f64>,
}

/// The journal's head: the scenario that it is of.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: String,
    /// The scenario's name, after which the results are called.
    name: String,
    scenario: String,
    runs: usize,
    seed: u64,
}

impl Head {
    /// Whether both are about the same runs: words and claims may differ.
    fn is_of_the_same_runs(&self, other: &Head) -> bool {
        let bare = |text: &str| {
            let mut table: toml::Table = toml::from_str(text).ok()?;
            for key in ["title", "description", "holds"] {
                table.remove(key);
            }
            Some(table)
        };
        let same = self.scenario == other.scenario
            || bare(&self.scenario).is_some_and(|table| Some(table) == bare(&other.scenario));
        same && (&self.version, self.runs, self.seed) == (&other.version, other.runs, other.seed)
    }
}

/// A line of it. Numbers are texts: they are read as written, to the last bit.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    run: usize,
    metrics: IndexMap<String, String>,
}

/// Which runs, of how many parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub index: usize,
    /// Parts in all.
    pub of: usize,
}

impl Shard {
    /// All runs.
    pub const ALL: Shard = Shard { index: 1, of: 1 };
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let numbers = parts.and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        numbers
            .filter(|(index, of)| (1..=*of).contains(index))
            .map(|(index, of)| Shard { index, of })
            .ok_or_else(|| "expected I/N with I from 1 to N, such as 2/8".to_owned())
    }
}

/// All runs of `points`, in their order.
pub fn jobs(points: &[Point], seed: u64) -> Vec<Job> {
    let of_point = points.iter().flat_map(|point| {
        (0..u64::from(point.seeds)).map(move |more| (point, seed.wrapping_add(more)))
    });
    of_point
        .enumerate()
        .map(|(number, (point, seed))| Job {
            number,
            point: point.clone(),
            seed,
        })
        .collect()
}

/// Runs one job.
///
/// # Errors
/// When the scenario makes no sense there.
pub fn run(
    scenario: &Scenario,
    job: &Job,
    sampled: bool,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Outcome>, ScenarioError> {
    let plan = scenario.plan(&job.point)?;
    Ok(measures::run(&plan, job.seed, sampled, stop))
}

/// Called after each run: runs done, those of earlier calls included, and all runs.
pub type OnStep<'a> = dyn Fn(Step) + Sync + 'a;

/// Progress of a sweep.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Runs done.
    pub done: usize,
    /// Runs in all.
    pub runs: usize,
    /// Events of the run that ended.
    pub events: u64,
    /// Packets that links took in.
    pub transmissions: u64,
}

/// Runs a shard of the scenario's points, and keeps each run in `directory` as soon as it
/// is done. Returns the shard's runs in order.
///
/// # Errors
/// [`SweepError`].
pub fn sweep(
    scenario: &Scenario,
    seed: u64,
    shard: Shard,
    directory: &Path,
    on_step: &OnStep,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Done>, SweepError> {
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |source| SweepError::Io {
            action,
            path,
            source,
        }
    };
    fs::create_dir_all(directory).map_err(io("write", directory))?;
    let all = jobs(scenario.points(), seed);
    let runs = all.len();
    let mine: Vec<Job> = all
        .into_iter()
        .filter(|job| job.number % shard.of == shard.index - 1)
        .collect();
    let journal = directory.join(JOURNAL);
    let head = Head {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: scenario.name.clone(),
        scenario: scenario.text.clone(),
        runs,
        seed,
    };
    let before = match journal.exists() {
        true => read_journal(&journal, Some(&head))?.1,
        false => BTreeMap::new(),
    };
    let copy = directory.join(SCENARIO);
    fs::write(&copy, &scenario.text).map_err(io("write", &copy))?;
    // Whole lines only: a line cut off by a kill is removed.
    write_journal(&journal, &head, &before)?;
    let file = OpenOptions::new().append(true).open(&journal);
    let file = Mutex::new(file.map_err(io("write", &journal))?);
    let done = Mutex::new(before);
    let count = mine.len();
    let mut pending: Vec<&Job> = {
        let done = done.lock().unwrap_or_else(PoisonError::into_inner);
        mine.iter()
            .filter(|job| !done.contains_key(&job.number))
            .collect()
    };
    // The later values of an axis are the larger ones: no core is left with them alone.
    pending.reverse();
    let step = |events, transmissions| {
        let done = done.lock().unwrap_or_else(PoisonError::into_inner).len();
        on_step(Step {
            done: done.min(count),
            runs: count,
            events,
            transmissions,
        });
    };
    step(0, 0);
    pending
        .par_iter()
        .try_for_each(|job| -> Result<(), SweepError> {
            if stop() {
                return Ok(());
            }
            let Some(outcome) = run(scenario, job, false, &|| stop())? else {
                return Ok(());
            };
            let line = line(job.number, &outcome.metrics);
            {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.write_all(line.as_bytes())
                    .map_err(io("write", &journal))?;
            }
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(job.number, outcome.metrics);
            step(outcome.events, outcome.transmissions);
            Ok(())
        })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let finished = mine.iter().filter(|job| done.contains_key(&job.number));
    let finished = finished.count();
    if finished < count {
        return Err(SweepError::Interrupted {
            done: finished,
            runs: count,
            directory: directory.to_owned(),
        });
    }
    // In order, so that equal sweeps leave equal bytes.
    write_journal(&journal, &head, &done)?;
    Ok(mine
        .into_iter()
        .filter_map(|job| {
            let metrics = done.remove(&job.number)?;
            Some(Done { job, metrics })
        })
        .collect())
}

/// Joins the shards' directories.
///
/// # Errors
/// [`SweepError::Another`] if they are not of one scenario, [`SweepError::Missing`] if
/// some are not there.
pub fn merge(directories: &[PathBuf]) -> Result<(Scenario, u64, Vec<Done>), SweepError> {
    let mut found: Option<(Head, PathBuf)> = None;
    let mut done = BTreeMap::new();
    for directory in directories {
        let expected = found.as_ref().map(|(head, _)| head);
        let (head, runs) = read_journal(&directory.join(JOURNAL), expected)?;
        done.extend(runs);
        found.get_or_insert((head, directory.join(SCENARIO)));
    }
    let (head, path) = found.expect("the command line asks for one at least");
    let mut scenario = Scenario::parse(&head.scenario, &path)?;
    scenario.name = head.name;
    let all = jobs(scenario.points(), head.seed);
    let known: BTreeSet<usize> = done.keys().copied().collect();
    let mut missing = all.iter().filter(|job| !known.contains(&job.number));
    if let Some(first) = missing.next() {
        return Err(SweepError::Missing {
            missing: 1 + missing.count(),
            runs: all.len(),
            variant: first.point.variant.clone(),
            at: first.point.tail(),
            seed: first.seed,
        });
    }
    let done = all.into_iter().filter_map(|job| {
        let metrics = done.remove(&job.number)?;
        Some(Done { job, metrics })
    });
    let done = done.collect();
    Ok((scenario, head.seed, done))
}

type Runs = BTreeMap<usize, IndexMap<String, f64>>;

fn line(run: usize, metrics: &IndexMap<String, f64>) -> String {
    let metrics = metrics
        .iter()
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    let mut line =
        serde_json::to_string(&Line { run, metrics }).expect("texts and numbers always serialise");
    line.push('\n');
    line
}

fn read_journal(path: &Path, expected: Option<&Head>) -> Result<(Head, Runs), SweepError> {
    let io = |source| SweepError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let another = || SweepError::Another {
        directory: path.parent().unwrap_or(path).to_owned(),
    };
    let mut lines = BufReader::new(File::open(path).map_err(io)?).lines();
    let head = lines.next().transpose().map_err(io)?.unwrap_or_default();
    let head: Head = serde_json::from_str(&head).map_err(|_| another())?;
    if expected.is_some_and(|expected| !expected.is_of_the_same_runs(&head)) {
        return Err(another());
    }
    let mut runs = Runs::new();
    for line in lines {
        let Ok(Line { run, metrics }) = serde_json::from_str(&line.map_err(io)?) else {
            // A line that a kill cut off.
            continue;
        };
        let metrics: Option<IndexMap<String, f64>> = metrics
            .into_iter()
            .map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect();
        if let Some(metrics) = metrics {
            runs.insert(run, metrics);
        }
    }
    Ok((head, runs))
}

fn write_journal(path: &Path, head: &Head, runs: &Runs) -> Result<(), SweepError> {
    let mut text = serde_json::to_string(head).expect("texts and numbers always serialise");
    text.push('\n');
    for (run, metrics) in runs {
        text.push_str(&line(*run, metrics));
    }
    let part = path.with_extension("part");
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, path))
        .map_err(|source| SweepError::Io {
            action: "write",
            path: path.to_owned(),
            source,
        })
}
