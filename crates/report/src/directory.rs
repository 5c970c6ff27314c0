// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A report as a directory of files.

use std::path::{Path, PathBuf};

use crate::results::{Results, ResultsError};
use crate::series::Report;
use crate::{csv, html};

/// Why a report could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// `results.json`.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A file of the series.
    #[error(transparent)]
    Csv(#[from] csv::CsvError),
    /// The directory could not be made, or the page not written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Report {
    /// Writes `results.json`, `series/*.csv`, `report.html` and the page's figures
    /// of bandwidth over time, `figure-PART.svg` and `traffic-PART.svg`, into `directory`, which is made
    /// if it is not there. Returns the path of the page.
    ///
    /// # Errors
    /// [`ReportError`] with the file.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, ReportError> {
        let io = |path: &Path, source| ReportError::Io {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(|e| io(directory, e))?;
        self.results.write(&directory.join("results.json"))?;
        csv::write(&directory.join("series"), &self.series)?;
        let parts: std::collections::BTreeSet<_> = self
            .series
            .iter()
            .map(|series| series.experiment_part.as_str())
            .collect();
        for part in parts {
            if let Some(svg) = html::figure_svg(self, part) {
                let file = directory.join(format!("figure-{}.svg", part.replace('/', "-")));
                std::fs::write(&file, svg).map_err(|e| io(&file, e))?;
            }
            if let Some(svg) = html::traffic_svg(self, part) {
                let file = directory.join(format!("traffic-{}.svg", part.replace('/', "-")));
                std::fs::write(&file, svg).map_err(|e| io(&file, e))?;
            }
        }
        let page = directory.join("report.html");
        std::fs::write(&page, html::page(self)).map_err(|e| io(&page, e))?;
        Ok(page)
    }

    /// Reads the files of [`Report::write`], except the page.
    ///
    /// # Errors
    /// [`ReportError`] with the file.
    pub fn read(directory: &Path) -> Result<Self, ReportError> {
        Ok(Report {
            results: Results::read(&directory.join("results.json"))?,
            series: csv::read(&directory.join("series"))?,
        })
    }
}
