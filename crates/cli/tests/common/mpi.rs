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
        let built = Path::new(paceline().get_program()).to_path_buf();
        let tools = Tools {
            paceline: place.join("paceline"),
            program: place.join("phases"),
        };
        std::fs::copy(&built, &tools.paceline).unwrap();
        // Where cargo left it depends on what it was asked to build.
        let directory = built.parent().unwrap();
        let phase_library = [directory.to_path_buf(), directory.join("deps")]
            .iter()
            .map(|directory| directory.join("libpaceline.so"))
            .filter(|path| path.exists())
            .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
            .expect("cargo built libpaceline.so");
        std::fs::copy(phase_library, place.join("libpaceline.so")).unwrap();

        let mpi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mpi");
        succeed(
            Command::new("make")
                .args(["--silent", "-C"])
                .arg(&mpi)
                .arg(format!("OUT={}", place.display())),
        );
        succeed(
            Command::new(format!("{compiler}.{}", library.name()))
                .current_dir(place)
                .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&tools.program)
                .arg(mpi.join("examples").join(source)),
        );
        tools
    }
}

fn succeed(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}
