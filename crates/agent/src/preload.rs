// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The MPI shim, loaded into the programs of a job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The dynamic linker's variable.
const VARIABLE: &str = "LD_PRELOAD";
const SHIM: &str = "libpaceline-mpi.so";

/// Has `command` and all that it starts load the shim, if it is installed beside this
/// program. What else the caller preloads stays.
pub(crate) fn load_shim(command: &mut Command) {
    let Some(shim) = std::env::current_exe().ok().and_then(|exe| find(&exe)) else {
        tracing::info!("{SHIM} is not installed: MPI programs are not followed");
        return;
    };
    let mut list = OsString::from(shim);
    if let Some(former) = std::env::var_os(VARIABLE).filter(|former| !former.is_empty()) {
        // First ours: a tool that wraps MPI functions as well is called by it.
        list.push(":");
        list.push(former);
    }
    command.env(VARIABLE, list);
}

/// Installed in PREFIX/lib/paceline beside PREFIX/bin; built beside the program itself.
fn find(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?;
    [
        directory.join("../lib/paceline").join(SHIM),
        directory.join(SHIM),
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
        assert_eq!(find(&program), None);
        std::fs::write(bin.join(SHIM), "").expect("a file");
        let canonical = |path: PathBuf| path.canonicalize().expect("it exists");
        assert_eq!(find(&program), Some(canonical(bin.join(SHIM))));
        std::fs::write(lib.join(SHIM), "").expect("a file");
        assert_eq!(find(&program), Some(canonical(lib.join(SHIM))));
    }
}
