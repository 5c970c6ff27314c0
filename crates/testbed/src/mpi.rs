// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of an MPI launcher for a lab: variables of its environment, which its
//! command line overrides.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use paceline_experiment::plan::Library;

use super::launching::LaunchPaths;
use super::node::HOST_DEVICE;
use super::TestbedError;

/// An MPI launcher of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// Which library's.
    pub library: Library,
    /// The program, to be looked up in PATH.
    pub program: &'static str,
}

impl Launcher {
    /// The launcher of `library`, or else the one that `mpirun` is.
    ///
    /// # Errors
    /// [`TestbedError::NoLauncher`] where none is in PATH.
    pub fn find(library: Option<Library>) -> Result<Self, TestbedError> {
        // The long names are those of distributions that have both.
        let programs: &[&'static str] = match library {
            None => &["mpirun"],
            Some(Library::OpenMpi) => &["mpirun.openmpi", "mpirun"],
            Some(Library::Mpich) => &["mpirun.mpich", "mpiexec.hydra", "mpirun"],
        };
        let found = programs.iter().find_map(|program| {
            let of = library_of(program)?;
            library
                .is_none_or(|wanted| wanted == of)
                .then_some(Launcher {
                    library: of,
                    program,
                })
        });
        found.ok_or_else(|| {
            let name = match library {
                None => "Open MPI or MPICH",
                Some(Library::OpenMpi) => "Open MPI",
                Some(Library::Mpich) => "MPICH",
            };
            let tried = programs.join(", ");
            TestbedError::NoLauncher(format!(
                "no launcher of {name} in PATH (looked for {tried})"
            ))
        })
    }

    /// What launcher and ranks need of this machine where there is nothing else, as in a guest:
    /// programs, and directories of plug-ins and settings.
    ///
    /// # Errors
    /// [`TestbedError::NoLauncher`] for MPICH, whose ranks poll: all ranks of a guest have one
    /// CPU. And where the library does not say where its files are.
    pub fn files(&self) -> Result<Vec<PathBuf>, TestbedError> {
        let problem = |text: &str| TestbedError::NoLauncher(text.to_owned());
        if self.library == Library::Mpich {
            return Err(problem(
                "MPICH's ranks poll, and in a guest all have one CPU: take mpi = \"openmpi\", or --backend live",
            ));
        }
        let output = Command::new("ompi_info")
            .args(["--parsable", "--path", "all"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| problem(&format!("cannot run ompi_info of Open MPI: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let place = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(&format!("path:{name}:")));
            line.map(PathBuf::from)
                .ok_or_else(|| problem(&format!("ompi_info says no path of {name}")))
        };
        let programs = place("bindir")?;
        let mut files = vec![programs.join(self.program), programs.join("orted")];
        for name in ["pkglibdir", "pkgdatadir"] {
            files.push(place(name)?);
        }
        // Those may be built in or left out.
        let mut optional = vec![place("sysconfdir")?];
        // PMIx is a library of its own in distributions, with its plug-ins beside it.
        let libraries = place("libdir")?;
        let pmix = libraries.ancestors().find_map(|directory| {
            let library = std::fs::canonicalize(directory.join("libpmix.so.2")).ok()?;
            Some(library.parent()?.join("pmix"))
        });
        optional.extend(pmix);
        files.extend(optional.into_iter().filter(|path| path.exists()));
        Ok(files)
    }

    /// Its environment to start ranks on the hosts that `launching` lists, when it is started
    /// on the first of them.
    pub fn environment(&self, launching: &LaunchPaths) -> Vec<(&'static str, String)> {
        let fixed = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            pairs
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect()
        };
        match self.library {
            Library::OpenMpi => {
                let mut all = fixed(&[
                    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                    ("OMPI_MCA_oob_tcp_if_include", HOST_DEVICE),
                    ("OMPI_MCA_btl_tcp_if_include", HOST_DEVICE),
                    ("OMPI_MCA_pml", "ob1"),
                    ("OMPI_MCA_btl", "tcp,self"),
                    // Ranks take turns over the hosts, as many as there are.
                    ("OMPI_MCA_rmaps_base_mapping_policy", "node"),
                    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                    // Each host sees all of this machine's CPUs: with binding, the first
                    // ranks of all hosts would share the first one.
                    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
                    ("OMPI_MCA_mpi_yield_when_idle", "1"),
                ]);
                all.push(("OMPI_MCA_plm_rsh_agent", launching.shell.clone()));
                all.push(("OMPI_MCA_orte_default_hostfile", launching.hosts.clone()));
                all
            }
            Library::Mpich => {
                let mut all = fixed(&[
                    ("HYDRA_LAUNCHER", "ssh"),
                    ("HYDRA_IFACE", HOST_DEVICE),
                    // UCX and libfabric, one of which MPICH is built with. Shared memory
                    // would join hosts that are one machine.
                    ("UCX_TLS", "tcp,self"),
                    ("UCX_NET_DEVICES", HOST_DEVICE),
                    ("FI_TCP_IFACE", HOST_DEVICE),
                ]);
                all.push(("HYDRA_LAUNCHER_EXEC", launching.shell.clone()));
                all.push(("HYDRA_HOST_FILE", launching.hosts.clone()));
                all
            }
        }
    }
}

/// The MPI library of a launcher; none if the program is missing or of another library.
fn library_of(program: &str) -> Option<Library> {
    let output = Command::new(program)
        .arg("--version")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("Open MPI") || text.contains("OpenRTE") {
        Some(Library::OpenMpi)
    } else if text.contains("HYDRA") {
        Some(Library::Mpich)
    } else {
        None
    }
}

/// The command line of a remote shell, as ssh's: options, the host, and words that a
/// shell there joins. None where there is no host.
pub fn remote_command(words: &[String]) -> Option<(&str, String)> {
    let host = words.iter().position(|word| !word.starts_with('-'))?;
    Some((&words[host], words[host + 1..].join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_shell_passes_options_over() {
        let words: Vec<String> = ["-x", "-q", "near1", "a=1;", "hostname", "-f"]
            .map(str::to_owned)
            .to_vec();
        let (host, command) = remote_command(&words).unwrap();
        assert_eq!((host, command.as_str()), ("near1", "a=1; hostname -f"));
        assert_eq!(remote_command(&words[..2]), None);
    }
}
