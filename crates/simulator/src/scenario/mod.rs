// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scenario: one TOML with network, flows, what is compared and what is varied.

mod build;
pub mod file;
mod place;
mod points;

use std::path::{Path, PathBuf};

use paceline_report::claims::Claim;

pub use build::{Plan, WINDOW_PARTS};
use file::File;
pub use place::{Place, ScenarioError};
pub use points::{label, Point, ONLY};

/// Runs of a point at most.
const MOST_SEEDS: u32 = 10_000;

/// A file that was read and checked.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name without `.toml`.
    pub name: String,
    /// What it says, without variants and axes.
    pub file: File,
    /// Its text.
    pub text: String,
    table: toml::Table,
    place: Place,
    path: PathBuf,
    points: Vec<Point>,
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first problem: file, line, key, and what would be right.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|source| ScenarioError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks `text`, which `path` is the place of.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        let place = Place::new(path, text);
        let file: File = toml::from_str(text).map_err(|error| place.syntax(&error))?;
        let table: toml::Table = toml::from_str(text).map_err(|error| place.syntax(&error))?;
        for claim in &file.holds {
            Claim::parse(claim).map_err(|error| place.wrong("holds", error.to_string()))?;
        }
        let more = file.axis.values().filter_map(|axis| axis.more);
        let most = more.map(|more| more.seeds).fold(file.seeds, u32::max);
        if file.seeds == 0 || most > MOST_SEEDS {
            let problem = format!("must be from 1 to {MOST_SEEDS}");
            return Err(place.wrong("seeds", problem));
        }
        let scenario = Scenario {
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            points: points::all(&file, &place)?,
            file,
            text: text.to_owned(),
            table,
            place,
            path: path.to_owned(),
        };
        // Each variant with the first and the last value of each axis: what is wrong is
        // told before anything runs.
        for points in scenario.points.chunk_by(|a, b| a.variant == b.variant) {
            for point in [points.first(), points.last()].into_iter().flatten() {
                scenario.plan(point)?;
            }
        }
        Ok(scenario)
    }

    /// Every point, variant after variant.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// What is run at a point.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn plan(&self, point: &Point) -> Result<Plan, ScenarioError> {
        let file = points::at(&self.table, &self.file, point, &self.place, &self.path)?;
        build::plan(file, &self.place, &self.path)
    }
}
