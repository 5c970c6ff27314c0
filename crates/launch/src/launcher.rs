// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launchers that start a job's processes somewhere else.
//!
//! `srun`, `ssh` and MPI launchers with remote hosts ask a daemon to start the processes, so
//! they are not descendants of `paceline run` and not in the job's cgroup. `paceline run` must
//! be on the other side of the launcher.
//!
//! A name shows it early, where the launcher is the command or behind a known wrapper.
//! Launchers in scripts are not searched: a job's counts at its end (`verdict.rs`) show them
//! all.

/// MPI launchers, also as Debian names them (`mpirun.openmpi`, `mpiexec.hydra`).
const OF_MPI: [&str; 6] = [
    "mpirun",
    "mpiexec",
    "mpirun_rsh",
    "orterun",
    "prterun",
    "prun",
];

/// Commands that become the command in their arguments.
const WRAPPERS: [&str; 9] = [
    "env", "nice", "ionice", "timeout", "nohup", "setsid", "stdbuf", "time", "exec",
];

/// Whether a word names an MPI launcher, by its path or without.
pub(crate) fn is_of_mpi(word: &str) -> bool {
    OF_MPI.contains(&base_name(word).split('.').next().unwrap_or_default())
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The command behind its wrappers. Options of a wrapper whose values look like a command hide
/// it: then there is no early warning.
fn unwrapped(command: &[String]) -> Vec<String> {
    let Some((first, rest)) = command.split_first() else {
        return Vec::new();
    };
    let name = base_name(first);
    if matches!(name, "sh" | "bash" | "dash" | "zsh") {
        let script = rest.iter().skip_while(|word| *word != "-c").nth(1);
        return script.map_or_else(
            || command.to_vec(),
            |script| {
                unwrapped(
                    &script
                        .split_whitespace()
                        .map(str::to_owned)
                        .collect::<Vec<_>>(),
                )
            },
        );
    }
    if !WRAPPERS.contains(&name) {
        return command.to_vec();
    }
    let is_own = |word: &&String| {
        word.starts_with(['-', '+'])
            || word.contains('=')
            || word.starts_with(|first: char| first.is_ascii_digit())
    };
    unwrapped(&rest.iter().skip_while(is_own).cloned().collect::<Vec<_>>())
}

/// The warning about a command that `paceline run` is about to start; none where its processes
/// will be in the job.
///
/// `environment` looks up a variable; passed in, so that this reads none.
pub fn warning(
    command: &[String],
    policy: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let command = unwrapped(command);
    let (first, arguments) = command.split_first()?;
    let launcher = base_name(first);
    if arguments.iter().any(|word| base_name(word) == "paceline") {
        return None;
    }
    let (why, form) = match launcher {
        "srun" => (
            "srun's tasks are started by slurmstepd".to_owned(),
            format!("srun [OPTIONS] paceline run --policy {policy} -- ./prog"),
        ),
        "ssh" | "rsh" | "pdsh" => (
            format!("{launcher} starts the command on another host"),
            format!("{launcher} HOST paceline run --policy {policy} -- ./prog"),
        ),
        _ if is_of_mpi(launcher) => {
            let where_from = remote_hosts(arguments, environment)?;
            (
                format!("{launcher} starts ranks on other hosts ({where_from})"),
                format!("{launcher} [OPTIONS] paceline run --policy {policy} -- ./prog"),
            )
        }
        _ => return None,
    };
    Some(format!(
        "{why}: those processes are outside this job and keep the kernel's TCP. Write instead: {form}"
    ))
}

/// The source of an MPI launcher's hosts other than this one.
fn remote_hosts(
    arguments: &[String],
    environment: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let (option, attached) = match argument.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        match option {
            "-H" | "-host" | "--host" | "-hosts" | "--hosts" => {
                let hosts = attached.or_else(|| arguments.next().cloned())?;
                if hosts.split(',').any(is_elsewhere) {
                    return Some(format!("{option} {hosts}"));
                }
            }
            "-hostfile" | "--hostfile" | "-machinefile" | "--machinefile"
            | "--default-hostfile" | "-f" => {
                let file = attached.or_else(|| arguments.next().cloned())?;
                return Some(format!("{option} {file}"));
            }
            _ => {}
        }
    }
    let several =
        |name: &str| environment(name).and_then(|value| value.parse::<u32>().ok()) > Some(1);
    if several("SLURM_JOB_NUM_NODES") || several("SLURM_NNODES") {
        return Some("the Slurm allocation has several nodes".to_owned());
    }
    // Without the counts, the list itself: a comma or a range is several.
    let list = environment("SLURM_JOB_NODELIST")?;
    list.contains([',', '['])
        .then(|| format!("SLURM_JOB_NODELIST={list}"))
}

fn is_elsewhere(host: &str) -> bool {
    // Open MPI writes slots after a colon.
    let name = host.split(':').next().unwrap_or(host).trim();
    !matches!(name, "" | "localhost" | "127.0.0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warn(command: &str, environment: &[(&str, &str)]) -> Option<String> {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        warning(&command, "lfn", |name| {
            environment
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn local_commands_need_no_warning() {
        for command in [
            "./prog srun",
            "mpirun -np 4 ./prog",
            "mpirun -H localhost:4 ./prog",
            "mpiexec --host localhost,127.0.0.1 ./prog",
        ] {
            assert_eq!(warn(command, &[]), None, "{command}");
        }
    }

    #[test]
    fn launchers_of_remote_ranks_get_the_form_that_works() {
        let shown = warn("/usr/bin/srun -n 4 ./prog", &[]).unwrap();
        assert!(shown.contains("srun [OPTIONS] paceline run --policy lfn -- ./prog"));
        for command in [
            "mpirun --host a,b ./prog",
            "mpirun --host=a ./prog",
            "mpiexec -f hosts ./prog",
            "orterun --hostfile h ./prog",
            "ssh a ./prog",
            "mpirun.openmpi --host a,b ./prog",
            "env A=b srun ./prog",
            "nice -n 10 timeout -k 5 1h ssh a ./prog",
        ] {
            assert!(warn(command, &[]).is_some(), "{command}");
        }
    }

    #[test]
    fn a_launcher_is_seen_in_a_plain_script() {
        let command = |script: &str| ["sh", "-c", script].map(str::to_owned);
        let warned = |script| warning(&command(script), "lfn", |_| None).is_some();
        assert!(warned("exec srun -n 4 ./prog"));
        assert!(!warned("./prog srun"));
        assert!(!warned("srun paceline run -- ./prog"));
    }

    #[test]
    fn a_slurm_allocation_of_several_nodes_counts() {
        let command = "mpirun ./prog";
        assert!(warn(command, &[("SLURM_JOB_NUM_NODES", "2")]).is_some());
        assert!(warn(command, &[("SLURM_JOB_NODELIST", "n[1-2]")]).is_some());
        assert_eq!(warn(command, &[("SLURM_JOB_NUM_NODES", "1")]), None);
        assert_eq!(warn(command, &[("SLURM_JOB_NODELIST", "n1")]), None);
    }

    #[test]
    fn the_right_form_is_not_warned_about() {
        assert_eq!(warn("srun paceline run --policy lfn -- ./prog", &[]), None);
        assert_eq!(
            warn("mpirun -H a,b /opt/bin/paceline run -- ./prog", &[]),
            None
        );
    }
}
