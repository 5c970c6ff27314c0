// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest must have of this machine for the real programs of an experiment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use paceline_experiment::plan::{Plan, RealProgram, Starter, Workload};
use paceline_launch::preload;
use paceline_machine::{files_for_guest, find_program, Entry};
use paceline_testbed::mpi::Launcher;

use super::RunError;

/// Starts the remote shell of launchers, and most programs' scripts.
const SHELL: &str = "/bin/sh";

/// The real programs of `plans`.
fn programs(plans: &[Plan]) -> impl Iterator<Item = &RealProgram> {
    let workloads = plans.iter().flat_map(|plan| &plan.workloads);
    workloads.filter_map(|workload| match workload {
        Workload::RealProgram(program) => Some(program),
        _ => None,
    })
}

/// All that they need, beside the image: themselves, and `also`.
///
/// # Errors
/// With the first program whose files are not all here.
pub fn files(plans: &[Plan], also: &[PathBuf]) -> Result<Vec<Entry>, RunError> {
    let mut wanted = BTreeSet::new();
    for program in programs(plans) {
        let needed = needed(program, also).map_err(|problem| RunError::Program {
            program: program.label.clone(),
            problem,
        })?;
        wanted.extend(needed);
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    wanted.insert(SHELL.into());
    let names = [preload::YIELD, preload::SHIM, preload::PHASES].into_iter();
    let libraries = names.filter_map(|name| Some((name, preload::library(name)?)));
    let libraries: Vec<(&str, PathBuf)> = libraries.collect();
    wanted.extend(libraries.iter().map(|(_, path)| path.clone()));
    let mut entries = files_for_guest(&wanted.into_iter().collect::<Vec<_>>())?;
    // Where the guest's program looks for them: beside itself.
    let beside = |(name, path): &(&str, PathBuf)| Entry::link(format!("/{name}"), path);
    entries.extend(libraries.iter().map(beside));
    Ok(entries)
}

/// Files and directories for one program.
fn needed(program: &RealProgram, also: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let mut needed = BTreeSet::new();
    let mut words = vec![&program.command[0]];
    match &program.starter {
        Starter::Client { server, .. } => words.push(&server[0]),
        Starter::Launcher { library, .. } => {
            let launcher = Launcher::find(Some(*library)).map_err(|error| error.to_string())?;
            needed.extend(launcher.files().map_err(|error| error.to_string())?);
        }
    }
    for word in words {
        let path = Path::new(word);
        // A relative one is in its directory, which is there as a whole.
        match (word.contains('/'), path.is_absolute()) {
            (false, _) => needed.insert(find_program(word).map_err(|error| error.to_string())?),
            (true, true) => needed.insert(path.to_owned()),
            (true, false) => false,
        };
    }
    needed.extend(program.directory.clone());
    needed.extend(also.iter().cloned());
    match needed.iter().find(|path| !path.exists()) {
        Some(missing) => Err(format!(
            "{} is not on this machine: install what it belongs to, or correct command or [virtual] files",
            missing.display()
        )),
        None => Ok(needed),
    }
}
