// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[program]]`: a real program on the hosts of two clusters, MPI's or a client and its
//! server, and the results in its output.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use indexmap::IndexMap;
use paceline_input::units::Time;
use paceline_input::Place;
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::File;
use crate::hash::hash_of;
use crate::plan::{self, Library};

/// A real program; see [`crate::plan::RealProgram`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Tail of the metrics' names; absent: the program's file name.
    pub name: Option<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The program's server and the server's arguments; absent: an MPI program.
    pub server: Option<Vec<String>>,
    /// The TCP port on which the server listens.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Number of MPI ranks, one per host; absent: all hosts.
    pub ranks: Option<u32>,
    /// MPI library whose launcher starts the program; absent: Open MPI.
    pub mpi: Option<Library>,
    /// Input files, beside the experiment.
    pub directory: Option<String>,
    /// The same, from where the experiment is.
    #[serde(skip)]
    place: Option<PathBuf>,
    /// Time limit of a run; exceeding it is an error.
    #[serde(default = "ten_minutes")]
    #[schemars(extend("x-range" = ["1s", LONGEST_TIMEOUT]))]
    pub timeout: Time,
    /// Results in the program's output.
    pub result: Option<Output>,
}

/// The values read from a program's output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// A file in the program's working directory; absent: its standard output.
    pub file: Option<String>,
    /// Speeds (more is better): the last part of a metric's name, and the position of its value:
    /// see [`pattern`].
    #[serde(default)]
    pub values: IndexMap<String, String>,
    /// The same for times, in seconds.
    #[serde(default)]
    pub times: IndexMap<String, String>,
}

impl Output {
    fn all(&self) -> impl Iterator<Item = (&String, &String)> {
        self.values.iter().chain(&self.times)
    }
}

/// Of a program's time.
const LONGEST_TIMEOUT: Time = Time::from_secs(24 * 3600);

fn ten_minutes() -> Time {
    Time::from_micros(600_000_000)
}

impl Program {
    /// Its own name, or its file's.
    fn label(&self) -> String {
        let file = || Path::new(self.command.first()?).file_name();
        match &self.name {
            Some(name) => name.clone(),
            None => file().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        }
    }

    /// The plan of the program, for this many hosts.
    pub(super) fn plan(&self, hosts: u32) -> plan::RealProgram {
        let pairs = |of: fn(&Output) -> &IndexMap<String, String>| {
            let all = self.result.iter().flat_map(of);
            all.map(|(key, text)| (key.clone(), text.clone())).collect()
        };
        let starter = match (&self.server, self.port) {
            (Some(server), Some(port)) => plan::Starter::Client {
                server: server.clone(),
                port,
            },
            _ => plan::Starter::Launcher {
                ranks: self.ranks.unwrap_or(hosts),
                library: self.mpi.unwrap_or_default(),
            },
        };
        plan::RealProgram {
            label: self.label(),
            command: self.command.clone(),
            starter,
            directory: self.place.clone(),
            inputs: self.place.as_deref().map_or(0, hash_of_files),
            timeout_ns: self.timeout.micros() * 1000,
            result_file: self.result.as_ref().and_then(|output| output.file.clone()),
            values: pairs(|output| &output.values),
            times: pairs(|output| &output.times),
        }
    }
}

/// Where a value stands in a program's output: `NAME` is for a line `NAME=VALUE`, anything
/// else a regular expression with one group, which is the value.
///
/// # Errors
/// The error of the expression.
pub fn pattern(text: &str) -> Result<Regex, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !text.is_empty() && text.chars().all(is_name) {
        let line = format!(r"(?m)^\s*{text}\s*=\s*(\S+)\s*$");
        return Regex::new(&line).map_err(|error| error.to_string());
    }
    let expression = Regex::new(&format!("(?m){text}")).map_err(|error| error.to_string())?;
    match expression.captures_len() {
        2 => Ok(expression),
        _ => Err(
            "must be the NAME of a line NAME=VALUE, or a regular expression with one group, \
             as \"Mop/s total *= *([0-9.]+)\""
                .to_owned(),
        ),
    }
}

/// The value that `pattern` finds in `text`: the last one.
///
/// # Errors
/// Why there is none.
pub fn value(pattern: &Regex, text: &str) -> Result<f64, String> {
    let found = pattern.captures_iter(text).last();
    let Some(found) = found.as_ref().and_then(|captures| captures.get(1)) else {
        return Err("not found".to_owned());
    };
    match found.as_str().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(format!("\"{}\" is not a number", found.as_str())),
    }
}

/// All files below a directory, by their paths in it, in order. Links to directories are
/// not followed.
pub fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(place) = waiting.pop() {
        for entry in fs::read_dir(directory.join(&place))? {
            let entry = entry?;
            let path = place.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                waiting.push(path);
            } else if fs::metadata(entry.path())?.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Names and contents; an unreadable file is found when it is copied.
fn hash_of_files(directory: &Path) -> u64 {
    let mut parts = Vec::new();
    for file in files_below(directory).unwrap_or_default() {
        parts.push(fs::read(directory.join(&file)).unwrap_or_default());
        parts.push(file.into_os_string().into_encoded_bytes());
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    hash_of(&parts)
}

/// Makes directories relative to the experiment.
pub(super) fn resolve_directories(programs: &mut [Program], path: &Path) {
    let beside = path.parent().unwrap_or(Path::new(""));
    for program in programs {
        let directory = program.directory.as_ref().filter(|name| is_below(name));
        program.place = directory
            .map(|directory| beside.join(directory))
            .filter(|place| place.is_dir())
            .map(|place| std::path::absolute(&place).unwrap_or(place));
    }
}

/// Whether a path leads down from where it begins.
fn is_below(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// A program and its arguments, as the kernel takes them.
fn is_command(words: &[String]) -> bool {
    words.first().is_some_and(|program| !program.is_empty())
        && words.iter().all(|word| !word.contains('\0'))
}

/// Whether it can be part of a metric's name, and be named in a claim.
fn is_tail(name: &str) -> bool {
    let in_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.chars().all(in_names)
}

/// A part of a metric's name.
const TAIL: &str = "must have only letters, digits, -, _ and .: it is part of a metric's name";

/// Checks the file's `[[program]]`.
pub(super) fn check(file: &File, place: &Place<'_>) {
    let clusters = file.link.clusters.iter();
    let hosts = clusters.fold(0, |sum: u32, hosts| sum.saturating_add(*hosts));
    for (index, path) in file.machine.files.iter().enumerate() {
        if !path.is_absolute() {
            let problem = "must be an absolute path, such as \"/usr/lib/python3.11\"; \
                a program's own input files are in its directory";
            let files = place.key("virtual").key("files");
            files.item(index).wrong(problem);
        }
    }
    if !file.program.is_empty() && file.link.ip != 4 {
        let problem = "[[program]] needs ip = 4: MPI libraries use IPv4";
        place.key("link").key("ip").wrong(problem);
    }
    for (index, program) in file.program.iter().enumerate() {
        let place = place.key("program").item(index);
        let wrong = |key: &str, problem: &str| place.key(key).wrong(problem);
        if !is_command(&program.command) {
            let problem = "give the program and its arguments, such as [\"hpcc\"]";
            wrong("command", problem);
        }
        match &program.server {
            Some(server) => served(program, server, &place),
            None if program.port.is_some() => {
                let problem =
                    "is the port of a server: give the server, such as server = [\"redis-server\"]";
                wrong("port", problem);
            }
            None => {}
        }
        let label = program.label();
        let is_named = program.name.is_some() || is_command(&program.command);
        if is_named && !is_tail(&label) {
            wrong("name", TAIL);
        }
        let mut before = file.program[..index].iter();
        if before.any(|other| other.label() == label) {
            wrong(
                "name",
                &format!("another [[program]] has the label \"{label}\", too"),
            );
        }
        let ranks = program.ranks;
        if ranks.is_some_and(|ranks| !(2..=hosts).contains(&ranks)) {
            let problem = format!("must be 2 to the number of hosts, {hosts}: each host runs one");
            wrong("ranks", &problem);
        }
        let directory = program.directory.as_ref();
        if let Some(directory) = directory.filter(|_| program.place.is_none()) {
            let problem = match is_below(directory) {
                true => format!("there is no directory \"{directory}\" beside the experiment"),
                false => "must be the name of a directory beside the experiment".to_owned(),
            };
            wrong("directory", &problem);
        }
        if let Some(output) = &program.result {
            results(output, &place.key("result"));
        }
    }
}

/// Checks a program that has a server.
fn served(program: &Program, server: &[String], place: &Place<'_>) {
    let wrong = |key: &str, problem: &str| place.key(key).wrong(problem);
    if !is_command(server) {
        let problem = "give the server and its arguments, such as [\"redis-server\"]";
        wrong("server", problem);
    }
    if program.port.is_none() {
        let problem = "give the TCP port on which the server listens, 1 to 65535";
        wrong("port", problem);
    }
    for (key, is_there) in [
        ("mpi", program.mpi.is_some()),
        ("ranks", program.ranks.is_some()),
    ] {
        if is_there {
            wrong(key, "needs an MPI program, which has no server");
        }
    }
    if program.result.is_none() {
        let problem =
            "give the values that the client prints, such as { times = { 1MB = \"NAME\" } }: \
            a server has no other results";
        wrong("result", problem);
    }
}

/// Checks the results that the output has.
fn results(output: &Output, place: &Place<'_>) {
    if output.all().next().is_none() {
        place.wrong(
            "give values (more is better), such as \
            { values = { Mops = \"Mop/s total *= *([0-9.]+)\" } }, or times in seconds",
        );
    }
    if output.file.as_ref().is_some_and(|file| !is_below(file)) {
        let problem = "must be in the program's working directory";
        place.key("file").wrong(problem);
    }
    for (table, of) in [("values", &output.values), ("times", &output.times)] {
        for (key, text) in of {
            let place = place.key(table).key(key);
            if !is_tail(key) {
                place.wrong_key(TAIL);
            }
            if let Err(problem) = pattern(text) {
                place.wrong(problem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_line() {
        let text = "N=1\nPTRANS_GBs=0.25\nStarPTRANS_GBs=9\nPTRANS_GBs_max=8\n";
        assert_eq!(value(&pattern("PTRANS_GBs").unwrap(), text), Ok(0.25));
        assert!(value(&pattern("PTRANS").unwrap(), text).is_err());
        assert!(value(&pattern("N").unwrap(), "N=one\n")
            .unwrap_err()
            .contains("one"));
    }

    #[test]
    fn an_expression_has_one_group_and_its_last_match_counts() {
        let npb = pattern("Mop/s total *= *([0-9.]+)").unwrap();
        let text = " Mop/s total     =  1.00\n Mop/s total     =                   893.62\n";
        assert_eq!(value(&npb, text), Ok(893.62));
        for wrong in ["", "no group", "(two)(groups)", "(open"] {
            assert!(pattern(wrong).is_err(), "{wrong}");
        }
    }
}
