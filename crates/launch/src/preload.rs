// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Libraries that are loaded into the programs of a job.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::launcher;

/// The dynamic linker's variable.
const VARIABLE: &str = "LD_PRELOAD";
/// The MPI shim, by which the collectives of a program are its phases.
pub const SHIM: &str = "libpaceline-mpi.so";
/// What the shim loads, from beside itself.
pub const PHASES: &str = "libpaceline.so";
/// Makes ranks that wait sleep instead of spin: for labs, whose hosts share their CPUs.
pub const YIELD: &str = "libpaceline-yield.so";

/// AddressSanitizer's variable, and its option: a program that is built with it ends at
/// its start if another library is loaded before the sanitizer's own, as preloaded ones
/// are. Ours replace none of the functions that the sanitizer does.
const SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "verify_asan_link_order");

/// Variables that launchers set for the ranks that they start: Open MPI, PMIx (Slurm, PRRTE),
/// PMI (Hydra, Slurm, Cray), Intel MPI, MVAPICH.
const RANK_VARIABLES: [&str; 6] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_FD",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_RANK",
];

/// Which commands load the MPI shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Those that look as if they start an MPI program: see `looks_like_mpi`.
    #[default]
    Mpi,
    /// All.
    Always,
    /// None.
    Never,
}

impl Choice {
    /// Whether this command is one of them. `environment` looks up a variable of this
    /// process.
    pub fn includes(
        self,
        command: &[String],
        environment: impl Fn(&str) -> Option<String>,
    ) -> bool {
        match self {
            Self::Mpi => looks_like_mpi(command, environment),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Whether an MPI launcher is named anywhere in the command, also within the script of a
/// `sh -c`; or it is a `python -m mpi4py`; or this process is itself a rank, which a
/// launcher has started.
fn looks_like_mpi(command: &[String], environment: impl Fn(&str) -> Option<String>) -> bool {
    let separators = |c: char| c.is_whitespace() || ";|&()`\"'".contains(c);
    let mut words = command.iter().flat_map(|word| word.split(separators));
    let named = words.clone().any(launcher::is_of_mpi);
    let module = |word: &str| word == "mpi4py" || word.starts_with("mpi4py.");
    named
        || (words.any(|word| word == "-m") && words.next().is_some_and(module))
        || RANK_VARIABLES
            .iter()
            .any(|name| environment(name).is_some())
}

/// Preloads the shim into `command` and its children. False: the shim is not installed beside
/// this program.
pub fn load_shim(command: &mut Command) -> bool {
    let shim = library(SHIM);
    if let Some(shim) = &shim {
        load(command, std::slice::from_ref(shim));
    }
    shim.is_some()
}

/// Preloads these libraries into `command` and its children. The caller's own preloads stay.
pub fn load(command: &mut Command, libraries: &[PathBuf]) {
    let (fit, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
        libraries.iter().partition(|path| can_be_named(path));
    for path in others {
        tracing::warn!(
            "{} is not preloaded: the dynamic linker ends a path at a space or a colon, and this path has one",
            path.display()
        );
    }
    if fit.is_empty() {
        return;
    }
    // First ours: a tool that wraps MPI functions as well is called by it.
    let mut all: Vec<OsString> = fit.into_iter().map(OsString::from).collect();
    all.extend(std::env::var_os(VARIABLE).filter(|former| !former.is_empty()));
    command.env(VARIABLE, all.join(":".as_ref()));
    let (variable, option) = SANITIZER;
    let former = std::env::var_os(variable).unwrap_or_default();
    if let Some(options) = with_option(&former.to_string_lossy(), option) {
        command.env(variable, options);
    }
}

/// The options with this one off, unless they say something of it themselves.
fn with_option(former: &str, option: &str) -> Option<String> {
    if former.contains(option) {
        return None;
    }
    let former = Some(former).filter(|former| !former.is_empty());
    let off = format!("{option}=0");
    Some(former.map_or(off.clone(), |former| format!("{former}:{off}")))
}

fn can_be_named(path: &Path) -> bool {
    !path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == b':')
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

    fn included(command: &[&str], variable: Option<&str>) -> bool {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        Choice::Mpi.includes(&command, |name| {
            variable
                .is_some_and(|it| it == name)
                .then(|| "0".to_owned())
        })
    }

    #[test]
    fn mpi_launchers_are_seen_behind_what_wraps_them() {
        for command in [
            &["mpirun", "-np", "4", "./a"][..],
            &["/opt/openmpi/bin/mpiexec", "./a"],
            &["mpirun.mpich", "./a"],
            &["env", "A=b", "orterun", "./a"],
            &["timeout", "60", "mpiexec.hydra", "./a"],
            &["sh", "-c", "cd x && mpirun -np 2 ./a"],
            &["bash", "-c", "(\"/usr/bin/mpirun\" ./a); true"],
            &["python3", "-m", "mpi4py", "a.py"],
            &["python3", "-m", "mpi4py.futures", "a.py"],
            &["paceline", "lab", "mpirun", "-np", "2", "--", "./a"],
        ] {
            assert!(included(command, None), "{command:?}");
        }
    }

    #[test]
    fn other_commands_load_nothing_except_as_a_rank() {
        for command in [
            &["./a"][..],
            &["make", "mpirunner"],
            // Its tasks are not in this job: they load nothing by it.
            &["srun", "./a"],
            &["python3", "-m", "pip", "install", "mpi4py"],
        ] {
            assert!(!included(command, None), "{command:?}");
            assert!(included(command, Some("PMIX_RANK")), "{command:?}");
        }
        let command = ["mpirun".to_owned()];
        assert!(!Choice::Never.includes(&command, |_| None));
        assert!(Choice::Always.includes(&["ls".to_owned()], |_| None));
    }

    #[test]
    fn sanitizer_options_of_the_user_are_kept() {
        let option = SANITIZER.1;
        let off = |former| with_option(former, option);
        assert_eq!(off("").as_deref(), Some("verify_asan_link_order=0"));
        assert_eq!(
            off("detect_leaks=0").as_deref(),
            Some("detect_leaks=0:verify_asan_link_order=0")
        );
        assert_eq!(off("verify_asan_link_order=1"), None);
    }

    #[test]
    fn a_path_that_the_dynamic_linker_would_split_is_not_given_to_it() {
        let mut command = Command::new("true");
        load(&mut command, &[PathBuf::from("/my libraries/a.so")]);
        assert_eq!(command.get_envs().count(), 0);
        load(&mut command, &[PathBuf::from("/lib/a.so")]);
        assert_eq!(command.get_envs().count(), 2);
    }
}
