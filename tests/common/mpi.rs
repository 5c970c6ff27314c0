// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI libraries, and the programs of `mpi/examples` under them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::paceline;

/// Both can be installed side by side.
#[derive(Debug, Clone, Copy)]
pub enum Library {
    OpenMpi,
    Mpich,
}

impl Library {
    /// As Debian tells their commands apart.
    pub fn name(self) -> &'static str {
        match self {
            Library::OpenMpi => "openmpi",
            Library::Mpich => "mpich",
        }
    }

    /// In CI it must be.
    pub fn is_installed(self) -> bool {
        let installed = ["mpicc", "mpif90", "mpirun"].iter().all(|command| {
            Command::new(format!("{command}.{}", self.name()))
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // Open MPI's launcher does not run as root unless told to.
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .status()
                .is_ok_and(|status| status.success())
        });
        if !installed {
            let is_ci = std::env::var("CI").as_deref() == Ok("true");
            assert!(!is_ci, "in CI both MPI libraries must be installed");
            println!("skipped: {self:?} is not installed");
        }
        installed
    }
}

/// What a run needs, in one directory.
pub struct Tools {
    /// With the shim of this tree beside it, where it looks for it.
    pub paceline: PathBuf,
    pub program: PathBuf,
}

impl Tools {
    pub fn build(place: &Path, library: Library, compiler: &str, source: &str) -> Self {
        let tools = Tools {
            paceline: install(place),
            program: place.join("phases"),
        };
        succeed(
            Command::new(format!("{compiler}.{}", library.name()))
                .current_dir(place)
                .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&tools.program)
                .arg(directory().join("examples").join(source)),
        );
        tools
    }
}

/// `mpi/` of this tree.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mpi")
}

/// Where `scripts/setup.sh test` puts mpi4py for this library; in CI it must have.
pub fn mpi4py(library: Library) -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let modules = target.join("mpi4py").join(library.name());
    if modules.join("mpi4py").is_dir() {
        return Some(modules);
    }
    let is_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!is_ci, "in CI there must be {}", modules.display());
    println!("skipped: no {}: scripts/setup.sh test", modules.display());
    None
}

/// The program in `place`, with the shim of this tree beside it, where it looks for it.
pub fn install(place: &Path) -> PathBuf {
    let built = Path::new(paceline().get_program()).to_path_buf();
    let installed = place.join("paceline");
    std::fs::copy(&built, &installed).unwrap();
    // Where cargo left it depends on what it was asked to build.
    let beside = built.parent().unwrap();
    let phase_library = [beside.to_path_buf(), beside.join("deps")]
        .iter()
        .map(|beside| beside.join("libpaceline.so"))
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("cargo built libpaceline.so");
    std::fs::copy(phase_library, place.join("libpaceline.so")).unwrap();
    succeed(
        Command::new("make")
            .args(["--silent", "-C"])
            .arg(directory())
            .arg(format!("OUT={}", place.display())),
    );
    installed
}

pub fn succeed(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}
