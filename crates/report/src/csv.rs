// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CSV file (RFC 4180) per series.
//!
//! Four columns: `part`, `variant`, and x and y under their labels. Part and
//! variant are repeated in each line, so that the files of a run can be put one
//! after the other and taken apart again by any tool. Where a variant has several
//! lines of a part, `line` stands after `variant`.

use std::path::{Path, PathBuf};

use crate::results::round;
use crate::series::Series;

/// Why a series could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Two series would have one file.
    #[error(
        "two series would be written to {0}: part, variant and line must differ in more than punctuation"
    )]
    SameFile(String),
    /// A line that is not part, variant, x, y, or part, variant, line, x, y.
    #[error("{}, line {line}: expected {expected}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1, counted in records.
        line: usize,
        /// The right form.
        expected: &'static str,
    },
}

/// Name of the file of `series`: `PART-VARIANT.csv` or `PART-VARIANT-LINE.csv`, where
/// `_` replaces characters that are awkward in a file's name.
#[must_use]
pub fn file_name(series: &Series) -> String {
    let plain = |text: &str| -> String {
        text.chars()
            .map(|c| {
                if c.is_alphanumeric() || "-+.".contains(c) {
                    c
                } else {
                    '_'
                }
            })
            .collect()
    };
    let of_panel = match series.line.as_str() {
        "" => String::new(),
        line => format!("-{}", plain(line)),
    };
    format!(
        "{}-{}{of_panel}.csv",
        plain(&series.experiment_part),
        plain(&series.variant)
    )
}

/// The text of the file of `series`.
#[must_use]
pub fn to_csv(series: &Series) -> String {
    let (part, variant) = (field(&series.experiment_part), field(&series.variant));
    let (column, line) = match series.line.as_str() {
        "" => ("", String::new()),
        line => ("line,", format!("{},", field(line))),
    };
    let mut text = format!(
        "part,variant,{column}{},{}\n",
        field(&series.x_label),
        field(&series.y_label)
    );
    for &(x, y) in &series.points {
        let (x, y) = (round(x), round(y));
        text.push_str(&format!("{part},{variant},{line}{x},{y}\n"));
    }
    text
}

/// Writes each series to its file in `directory`, which is made if it is not there,
/// and returns the files. `.csv` files of an earlier run are removed from it first: a
/// reader finds one run.
///
/// # Errors
/// [`CsvError::SameFile`] before anything is written, and [`CsvError::Io`].
pub fn write(directory: &Path, series: &[Series]) -> Result<Vec<PathBuf>, CsvError> {
    let names: Vec<String> = series.iter().map(file_name).collect();
    if let Some((_, twice)) = names
        .iter()
        .enumerate()
        .find(|(i, name)| names[..*i].contains(name))
    {
        return Err(CsvError::SameFile(twice.clone()));
    }
    let io = |path: &Path, source| CsvError::Io {
        action: "write",
        path: path.to_owned(),
        source,
    };
    for earlier in files(directory)? {
        std::fs::remove_file(&earlier).map_err(|e| io(&earlier, e))?;
    }
    if !series.is_empty() {
        std::fs::create_dir_all(directory).map_err(|e| io(directory, e))?;
    }
    names
        .iter()
        .zip(series)
        .map(|(name, one)| {
            let path = directory.join(name);
            std::fs::write(&path, to_csv(one)).map_err(|e| io(&path, e))?;
            Ok(path)
        })
        .collect()
}

/// Reads every `.csv` file of `directory`, in the order of their names. A
/// directory that is not there holds none. A series without a point has no line
/// to name it, and is left out.
///
/// # Errors
/// [`CsvError::Io`], [`CsvError::Line`].
pub fn read(directory: &Path) -> Result<Vec<Series>, CsvError> {
    let io = |path: &Path, source| CsvError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let mut all = Vec::new();
    for path in files(directory)? {
        let text = std::fs::read_to_string(&path).map_err(|e| io(&path, e))?;
        all.extend(from_csv(&text, &path)?);
    }
    Ok(all)
}

/// The `.csv` files of `directory`, sorted; none if it is not there.
fn files(directory: &Path) -> Result<Vec<PathBuf>, CsvError> {
    let io = |source| CsvError::Io {
        action: "read",
        path: directory.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io)?,
    };
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(io)?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    Ok(files)
}

fn from_csv(text: &str, path: &Path) -> Result<Option<Series>, CsvError> {
    let wrong = |line, expected| CsvError::Line {
        path: path.to_owned(),
        line,
        expected,
    };
    let mut records = records(text)
        .into_iter()
        .enumerate()
        .map(|(index, fields)| (index + 1, fields));
    let header = || {
        wrong(
            1,
            "the header `part,variant,X,Y` or `part,variant,line,X,Y`",
        )
    };
    let (_, mut heads) = records.next().ok_or_else(header)?;
    let has_line = heads.len() == 5 && heads.remove(2) == "line";
    let [part, variant, x_label, y_label] = <[String; 4]>::try_from(heads).map_err(|_| header())?;
    if part != "part" || variant != "variant" {
        return Err(header());
    }
    let mut series: Option<Series> = None;
    for (number, mut fields) in records {
        let of_panel = match has_line && fields.len() == 5 {
            true => fields.remove(2),
            false => String::new(),
        };
        let Ok([part, variant, x, y]) = <[String; 4]>::try_from(fields) else {
            return Err(wrong(number, "as many fields as the header has"));
        };
        let (Ok(x), Ok(y)) = (x.parse(), y.parse()) else {
            return Err(wrong(number, "numbers for x and y"));
        };
        let series = series.get_or_insert_with(|| Series {
            experiment_part: part.clone(),
            variant: variant.clone(),
            line: of_panel.clone(),
            x_label: x_label.clone(),
            y_label: y_label.clone(),
            points: Vec::new(),
        });
        let same = part == series.experiment_part && variant == series.variant;
        if !same || of_panel != series.line {
            return Err(wrong(
                number,
                "the part, variant and line of those before: one series per file",
            ));
        }
        series.points.push((x, y));
    }
    Ok(series)
}

/// Quotes a field if it has to be.
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Splits a text into records and these into fields, without their quotes.
fn records(text: &str) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut value = String::new();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => value.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut value)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut value));
                records.push(std::mem::take(&mut record));
            }
            _ => value.push(c),
        }
    }
    if !value.is_empty() || !record.is_empty() {
        record.push(value);
        records.push(record);
    }
    records
}
