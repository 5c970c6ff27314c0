// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real MPI program, started by its library's launcher on the hosts of both clusters.
//!
//! Launcher and ranks are started as `paceline lab mpirun` starts them, in the job of the
//! variant's policy if it has one, with the MPI shim and the page socket of `paceline run`.

mod seen;

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_agent::pages::{PageServer, SOCKET_VARIABLE};
use paceline_agent::preload;

use super::adaptation::{self, Job};
use super::connection::Congestion;
use super::cpu::{self, CpuMeter};
use super::{ranks, Case, CaseError, Doing};
use crate::experiment::program::{files_below, pattern, value};
use crate::plan::Mpi;
use crate::record::{MpiRecord, Record};
use crate::testbed::launching::LaunchPaths;
use crate::testbed::mark::Process;
use crate::testbed::mpi::Launcher;
use crate::testbed::node;
use crate::testbed::site::{Host, Site};
use seen::Seen;

/// Between two looks whether the run is to end early.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// Of what a program that failed has said, so many lines are shown.
const SHOWN_LINES: usize = 12;

/// Runs the program once.
pub(crate) fn run(case: &mut Case, workload: usize, mpi: &Mpi) -> Result<(), CaseError> {
    let wrong = |problem: String| CaseError::Mpi {
        program: mpi.label.clone(),
        problem,
    };
    let adaptation = &case.plan.adaptation;
    let launcher = Launcher::find(Some(mpi.library)).map_err(|error| wrong(error.to_string()))?;
    let libraries = libraries(adaptation::has_phases(adaptation)?).map_err(wrong)?;
    let congestion = adaptation::congestion(adaptation)?;
    if let Some(name) = &congestion.asked {
        case.network.set_congestion(name)?;
    }
    let place = Place::new(mpi)?;
    let site = open(case, mpi)?;
    let _guard = site.guard(place.0.path())?;
    let job = Job::start(adaptation)?;
    let pages = match adaptation::has_phases(adaptation)? {
        true => Some(ranks::serve_pages()?),
        false => None,
    };
    let mut seen = match &job {
        Some(job) => Some(Seen::new(job.cgroup(), &congestion)),
        None => {
            seen::check(case.network, &congestion)?;
            None
        }
    };

    let mut command = command(&launcher, &site.launch_paths(), mpi, &place)?;
    preload::load(&mut command, &libraries);
    if let Some(pages) = &pages {
        command.env(SOCKET_VARIABLE, PageServer::socket(pages));
    }
    let first = site.first()?;
    let directory = std::ffi::CString::new(place.work().as_os_str().as_bytes())
        .map_err(|_| wrong("its directory has a NUL in its name".to_owned()))?;
    // SAFETY: system calls only, on what was made before the fork.
    unsafe {
        command.pre_exec(move || {
            node::join(&first)?;
            match libc::chdir(directory.as_ptr()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }

    let before = cpu::segments(case.network.hosts())?;
    let meter = CpuMeter::start()?;
    let mut launched = Launched::start(&site, job.as_ref(), &mut command)?;
    let timeout = Duration::from_nanos(mpi.timeout_ns);
    let status = loop {
        if let Some(status) = launched.ended_within(HEARTBEAT)? {
            break status;
        }
        // This ends the run if it was interrupted.
        let done = case.done;
        case.record(&Record::Progress { done })?;
        let gone = launched.started.elapsed();
        if gone > timeout {
            let problem = format!(
                "it did not end within its timeout of {} s{}",
                timeout.as_secs(),
                place.last_words()
            );
            return Err(wrong(problem));
        }
        if let Some(seen) = &mut seen {
            seen.look_after(gone)?;
        }
    };
    let elapsed_ns = launched.started.elapsed().as_nanos() as u64;
    let cpu = meter.stop(workload, elapsed_ns, 0)?;
    let after = cpu::segments(case.network.hosts())?;
    let governed = seen.as_mut().map(Seen::at_the_end).transpose()?;
    drop(launched);
    if !status.success() {
        let problem = format!(
            "{} ended with {}{}",
            launcher.program,
            describe(status),
            place.last_words()
        );
        return Err(wrong(problem));
    }
    if let Some(governed) = governed.filter(|governed| governed.connections == 0) {
        return Err(wrong(format!(
            "none of its connections had the variant's policy ({governed:?})"
        )));
    }
    let values = place.values(mpi).map_err(wrong)?;
    case.record(&Record::Mpi(MpiRecord {
        workload,
        elapsed_ns,
        values,
        segments: after[0] - before[0],
        retransmitted: after[1] - before[1],
        governed,
    }))?;
    case.record(&Record::Cpu(cpu))?;
    case.advance()
}

/// What the launcher and its ranks are to load.
fn libraries(phases: bool) -> Result<Vec<PathBuf>, String> {
    let wanted: &[&str] = match phases {
        true => &[preload::SHIM, preload::YIELD],
        false => &[preload::YIELD],
    };
    let find = |name: &&str| {
        preload::library(name).ok_or_else(|| {
            format!("{name} is not installed beside this program: make -C mpi OUT=DIRECTORY")
        })
    };
    wanted.iter().map(find).collect()
}

/// The hosts that have a rank, the near ones first.
fn open(case: &Case, mpi: &Mpi) -> Result<Site, CaseError> {
    let near = case.network.senders.len();
    let of_near = (mpi.ranks as usize).div_ceil(2).min(near);
    let of_far = mpi.ranks as usize - of_near;
    let all = case.network.hosts().zip(case.network.addresses());
    let hosts = all.enumerate().filter_map(|(index, (network, address))| {
        let (cluster, number, count) = match index.checked_sub(near) {
            None => ("near", index, of_near),
            Some(index) => ("far", index, of_far),
        };
        (number < count).then(|| Host {
            name: format!("{cluster}{number}"),
            network,
            address,
        })
    });
    Site::open(&hosts.collect::<Vec<_>>())
}

fn command(
    launcher: &Launcher,
    paths: &LaunchPaths,
    mpi: &Mpi,
    place: &Place,
) -> Result<Command, CaseError> {
    let file = |name: &str| {
        let path = place.0.path().join(name);
        File::create(&path).doing(format!("making {}", path.display()))
    };
    let mut command = Command::new(launcher.program);
    command
        .args(["-np", &mpi.ranks.to_string()])
        .args(&mpi.command)
        .envs(launcher.environment(paths))
        // Each host has the CPUs of all of them.
        .env("OMP_NUM_THREADS", "1")
        .env("TMPDIR", place.0.path().join("tmp"))
        .stdin(Stdio::null())
        .stdout(file(OUTPUT)?)
        .stderr(file(ERRORS)?)
        // What ends this process from the terminal ends the program by way of it.
        .process_group(0);
    Ok(command)
}

const OUTPUT: &str = "output";
const ERRORS: &str = "errors";

/// A temporary directory: what the program runs in, its launcher's own files, and what it
/// says.
struct Place(tempfile::TempDir);

impl Place {
    fn new(mpi: &Mpi) -> Result<Self, CaseError> {
        let directory = tempfile::Builder::new()
            .prefix("paceline-program-")
            .tempdir()
            .doing("making a temporary directory")?;
        let place = Place(directory);
        let made = || -> io::Result<()> {
            fs::create_dir(place.work())?;
            fs::create_dir(place.0.path().join("tmp"))?;
            let Some(from) = &mpi.directory else {
                return Ok(());
            };
            for file in files_below(from)? {
                let to = place.work().join(&file);
                to.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::copy(from.join(&file), to)?;
            }
            Ok(())
        };
        made().doing(format!("copying the input files of {}", mpi.label))?;
        Ok(place)
    }

    fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    /// The values of the plan, or what is wrong with which one.
    fn values(&self, mpi: &Mpi) -> Result<Vec<f64>, String> {
        if mpi.values.is_empty() {
            return Ok(Vec::new());
        }
        let (path, name) = match &mpi.result_file {
            Some(file) => (self.work().join(file), file.as_str()),
            None => (self.0.path().join(OUTPUT), "standard output"),
        };
        let text = fs::read(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let text = String::from_utf8_lossy(&text);
        let read = |(key, wanted): &(String, String)| {
            let found = pattern(wanted).and_then(|pattern| value(&pattern, &text));
            found.map_err(|problem| format!("{key}: no value by \"{wanted}\" in {name}: {problem}"))
        };
        mpi.values.iter().map(read).collect()
    }

    /// The end of what the program and its launcher have said, for an error.
    fn last_words(&self) -> String {
        let mut lines = Vec::new();
        for file in [OUTPUT, ERRORS] {
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
            true => "; it said nothing".to_owned(),
            false => format!("; its last words:{}", lines.concat()),
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

/// The launcher. It ends when this is dropped, and with it all that runs on the hosts.
struct Launched<'a> {
    site: &'a Site,
    child: Child,
    process: Process,
    started: Instant,
}

impl<'a> Launched<'a> {
    fn start(
        site: &'a Site,
        job: Option<&Arc<Job>>,
        command: &mut Command,
    ) -> Result<Self, CaseError> {
        let program = Path::new(command.get_program()).display().to_string();
        let started = Instant::now();
        let child = Job::inside(job, || command.spawn().doing(format!("starting {program}")))?;
        let process = Process::open(child.id()).doing(format!("watching {program}"))?;
        Ok(Launched {
            site,
            child,
            process,
            started,
        })
    }

    fn ended_within(&mut self, patience: Duration) -> Result<Option<ExitStatus>, CaseError> {
        let waiting = "waiting for the launcher";
        self.process.wait_for(patience).doing(waiting)?;
        self.child.try_wait().doing(waiting)
    }
}

impl Drop for Launched<'_> {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        // Before the job ends, which they are in. What stays, the next command ends.
        drop(self.site.end_all());
    }
}
