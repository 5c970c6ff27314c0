// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment found, and every form in which it is shown.
//!
//! - [`results`]: the content of `results.json`, read and written so that equal
//!   runs give equal bytes.
//! - [`claims`]: the sentences of an experiment that must hold, such as
//!   `paceline/completion_s/1MB <= 1.10 * bound`.
//! - [`table`]: the table on the terminal.
//! - [`csv`]: one CSV file per series.
//! - [`html`]: `report.html`, one file that opens offline; several runs in one page.
//! - [`interval`]: how sure a median or a ratio of two is.
//! - [`paper`]: what a paper printed of the same thing.
//! - [`burstiness`]: how bursty traffic is, from packets per window.
//! - [`precision`]: the least sure ratio of a run.
//! - [`quantity`]: numbers with the unit that suits them.

#![forbid(unsafe_code)]

pub mod burstiness;
pub mod claims;
pub mod csv;
pub mod html;
pub mod interval;
pub mod paper;
pub mod precision;
pub mod quantity;
pub mod results;
pub mod table;

use std::path::{Path, PathBuf};

use results::{Results, ResultsError};

/// A whole report: the results, and the series that its figures are drawn from.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What `results.json` holds.
    pub results: Results,
    /// Samples over time, in the order in which they are to be shown.
    pub series: Vec<Series>,
}

/// Samples of one quantity over time, for one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The part of the experiment: the tail of its metrics, such as `10MB`.
    pub experiment_part: String,
    /// The variant, as in [`Results::variants`].
    pub variant: String,
    /// Which line of the variant's panel it is, where there are several of the part: such as
    /// `fastest`; else empty.
    pub line: String,
    /// Name and unit of x, such as `time since the start of the chunk (ms)`.
    pub x_label: String,
    /// Name and unit of y, such as `bandwidth (Mbit/s)`.
    pub y_label: String,
    /// The samples `(x, y)`, x ascending, in the units of the labels. Each holds
    /// from its own x to the next one's.
    pub points: Vec<(f64, f64)>,
}

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
        /// What the system said.
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

    /// Reads what [`Report::write`] wrote, the page apart.
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
