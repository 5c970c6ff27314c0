// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Libraries that are loaded into the programs of a job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The dynamic linker's variable.
const VARIABLE: &str = "LD_PRELOAD";
/// The MPI shim, by which the collectives of a program are its phases.
pub const SHIM: &str = "libpaceline-mpi.so";
/// Makes ranks that wait sleep instead of spin: for labs, whose hosts share their CPUs.
pub const YIELD: &str = "libpaceline-yield.so";

/// Has `command` and all that it starts load the shim, if it is installed beside this
/// program.
pub(crate) fn load_shim(command: &mut Command) {
    match library(SHIM) {
        Some(shim) => load(command, &[shim]),
        None => tracing::info!("{SHIM} is not installed: MPI programs are not followed"),
    }
}

/// Has `command` and all that it starts load these. What else the caller preloads stays.
pub fn load(command: &mut Command, libraries: &[PathBuf]) {
    // First ours: a tool that wraps MPI functions as well is called by it.
    let mut all: Vec<OsString> = libraries.iter().map(OsString::from).collect();
    all.extend(std::env::var_os(VARIABLE).filter(|former| !former.is_empty()));
    command.env(VARIABLE, all.join(":".as_ref()));
}

/// A library of this name that is installed with this program.
#[must_use]
pub fn library(name: &str) -> Option<PathBuf> {
    find(&std::env::current_exe().ok()?, name)
}

/// Installed in PREFIX/lib/paceline beside PREFIX/bin; built beside the program itself.
fn find(program: &Path, name: &str) -> Option<PathBuf> {
    let directory = program.parent()?;
    [
        directory.join("../lib/paceline").join(name),
        directory.join(name),
    ]
    .iter()
    .find_map(|candidate| candidate.canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_shim_goes_before_one_beside_the_program() {
        let root = tempfile::tempdir().expect("a directory");
        let (bin, lib) = (root.path().join("bin"), root.path().join("lib/paceline"));
        for directory in [&bin, &lib] {
            std::fs::create_dir_all(directory).expect("a directory");
        }
        let program = bin.join("paceline");
        assert_eq!(find(&program, SHIM), None);
        std::fs::write(bin.join(SHIM), "").expect("a file");
        let canonical = |path: PathBuf| path.canonicalize().expect("it exists");
        assert_eq!(find(&program, SHIM), Some(canonical(bin.join(SHIM))));
        std::fs::write(lib.join(SHIM), "").expect("a file");
        assert_eq!(find(&program, SHIM), Some(canonical(lib.join(SHIM))));
    }
}
