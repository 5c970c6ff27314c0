// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The working directory of a real program, and its output.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use paceline_experiment::file::program::{files_below, pattern, value};
use paceline_experiment::plan::RealProgram;
use paceline_net::Doing;

use super::CaseError;

/// Lines of a failed program's output that are shown.
const SHOWN_LINES: usize = 12;

const OUTPUT: &str = "output";
const ERRORS: &str = "errors";
/// A server's output, both streams.
const SERVED: &str = "served";

/// A temporary directory: the working directory of the program, its launcher's files, and its
/// output.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new(program: &RealProgram) -> Result<Self, CaseError> {
        let directory = tempfile::Builder::new()
            .prefix("paceline-program-")
            .tempdir()
            .doing("making a temporary directory")?;
        let place = Place(directory);
        let made = || -> io::Result<()> {
            fs::create_dir(place.work())?;
            fs::create_dir(place.0.path().join("tmp"))?;
            let Some(from) = &program.directory else {
                return Ok(());
            };
            for file in files_below(from)? {
                let to = place.work().join(&file);
                to.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::copy(from.join(&file), to)?;
            }
            Ok(())
        };
        made().doing(format!("copying the input files of {}", program.label))?;
        Ok(place)
    }

    /// All of it, which goes when this is dropped.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// `command` runs in this directory, with its output in files of it.
    pub fn hold(&self, command: &mut Command, is_server: bool) -> Result<(), CaseError> {
        let file = |name: &str| {
            let path = self.0.path().join(name);
            File::create(&path).doing(format!("making {}", path.display()))
        };
        let output = file(if is_server { SERVED } else { OUTPUT })?;
        let errors = match is_server {
            true => output.try_clone().doing("duplicating a descriptor")?,
            false => file(ERRORS)?,
        };
        command
            .env("TMPDIR", self.0.path().join("tmp"))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // A signal of the terminal to this process ends the program through it.
            .process_group(0);
        Ok(())
    }

    /// The directory that the program works in.
    pub fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    /// The values of the plan, or the first one that is missing, with the reason.
    pub fn values(&self, program: &RealProgram) -> Result<Vec<f64>, String> {
        let mut wanted = program.values.iter().chain(&program.times).peekable();
        if wanted.peek().is_none() {
            return Ok(Vec::new());
        }
        let (path, name) = match &program.result_file {
            Some(file) => (self.work().join(file), file.as_str()),
            None => (self.0.path().join(OUTPUT), "standard output"),
        };
        let text = fs::read(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let text = String::from_utf8_lossy(&text);
        let read = |(key, wanted): &(String, String)| {
            let found = pattern(wanted).and_then(|pattern| value(&pattern, &text));
            found.map_err(|problem| format!("{key}: no value by \"{wanted}\" in {name}: {problem}"))
        };
        wanted.map(read).collect()
    }

    /// The last output of the program and its launcher, for an error.
    pub fn last_lines(&self) -> String {
        let mut lines = Vec::new();
        for file in [SERVED, OUTPUT, ERRORS] {
            let text = fs::read(self.0.path().join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let filled: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            let from = filled.len().saturating_sub(SHOWN_LINES);
            lines.extend(filled[from..].iter().map(|line| format!("\n    {line}")));
        }
        match lines.is_empty() {
            true => "; it printed nothing".to_owned(),
            false => format!("; its last output:{}", lines.concat()),
        }
    }
}
