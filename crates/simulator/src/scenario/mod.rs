// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scenario: one TOML file with network, flows, variants and axes.

mod build;
pub mod controls;
mod error;
pub mod file;
mod points;

use std::path::{Path, PathBuf};

use paceline_coordinator::algorithm::Choice;
use paceline_input::{Document, Format, Place, Reader, Reported};
use paceline_report::claims::Claim;

pub use build::Plan;
pub use error::ScenarioError;
use file::File;
pub use file::WINDOW_PARTS;
pub use points::{label, Point, ONLY};

/// Formats of a file's strings.
const FORMATS: [Format<'static>; 1] = [("coordinator", &Choice::check)];

/// The JSON schema of the file.
pub fn schema() -> serde_json::Value {
    paceline_input::schema::<File>()
}

/// A file that was read and checked.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name without `.toml`.
    pub name: String,
    /// Its content, without variants and axes.
    pub file: File,
    /// Its text.
    pub text: String,
    document: Document,
    reader: Reader<File>,
    table: toml::Table,
    path: PathBuf,
    points: Vec<Point>,
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ScenarioError`] with all problems: file, line, column, key, and what would be right.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|source| ScenarioError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks `text`, the content of `path`.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        let document = Document::new(path.display().to_string(), text);
        let reader = Reader::default();
        let file: File = reader.read(&document, &FORMATS)?;
        let points = document.check(|place| {
            for (index, claim) in file.holds.iter().enumerate() {
                if let Err(error) = Claim::parse(claim) {
                    place.key("holds").item(index).wrong(error.to_string());
                }
            }
            points::all(&file, place)
        })?;
        let scenario = Scenario {
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            table: document.table()?,
            points,
            file,
            text: text.to_owned(),
            document,
            reader,
            path: path.to_owned(),
        };
        // Each variant with the first and the last value of each axis: problems are
        // reported before any run.
        scenario.document.check(|place| {
            for points in scenario.points.chunk_by(|a, b| a.variant == b.variant) {
                for point in [points.first(), points.last()].into_iter().flatten() {
                    // A reported problem makes the whole an error.
                    let _ = scenario.plan_at(point, place);
                }
            }
            Ok(())
        })?;
        Ok(scenario)
    }

    /// Every point, variant after variant.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The plan of a point.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn plan(&self, point: &Point) -> Result<Plan, ScenarioError> {
        Ok(self.document.check(|place| self.plan_at(point, place))?)
    }

    fn plan_at(&self, point: &Point, place: &Place<'_>) -> Result<Plan, Reported> {
        let file = points::at(&self.table, &self.file, point, place, &self.reader)?;
        build::plan(file, place, &self.path)
    }
}
