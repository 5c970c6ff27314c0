// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real program on the hosts of both clusters: one of MPI, started by its library's
//! launcher, or a server and its client.
//!
//! Launcher and ranks are started as `paceline lab mpirun` starts them, in the job of the
//! variant's policy if it has one, with the MPI shim and the page socket of `paceline run`.
//! Of a server and its client the server is in that job.

mod place;
mod running;
mod seen;

use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use paceline_agent::pages::{PageServer, SOCKET_VARIABLE};
use paceline_experiment::plan::{Library, RealProgram, Starter};
use paceline_experiment::record::{RealProgramRecord, Record};
use paceline_launch::preload;
use paceline_net::Doing;
use paceline_testbed::mpi::Launcher;
use paceline_testbed::site::{Host, Site};
use place::Place;
use running::{describe, is_ready, Running};
use seen::Seen;

use super::{ranks, Case};
use crate::host::adaptation::{self, Job};
use crate::host::cpu::{self, CpuMeter};
use crate::network::topology::Network;
use crate::CaseError;

/// Between two looks whether the run is to end early.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Runs the program once.
pub(crate) fn run(
    case: &mut Case,
    workload: usize,
    program: &RealProgram,
) -> Result<(), CaseError> {
    let wrong = |problem: String| CaseError::RealProgram {
        program: program.label.clone(),
        problem,
    };
    let adaptation = &case.plan.adaptation;
    let has_phases = adaptation::has_phases(adaptation)?;
    let mpi = match program.starter {
        Starter::Launcher { library, .. } => Some(Mpi::find(library, has_phases).map_err(wrong)?),
        Starter::Client { .. } => None,
    };
    let congestion = adaptation::congestion(adaptation)?;
    if let Some(name) = &congestion.asked {
        case.network.set_congestion(name)?;
    }
    let place = Place::new(program)?;
    let site = open(case.network, program)?;
    let _guard = site.guard(place.path())?;
    let job = Job::start(adaptation)?;
    let pages = match has_phases && mpi.is_some() {
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

    let timeout = Duration::from_nanos(program.timeout_ns);
    let late = |place: &Place, what: &str| {
        let (seconds, output) = (timeout.as_secs(), place.last_lines());
        wrong(format!("{what} within its timeout of {seconds} s{output}"))
    };
    let ended = |place: &Place, what: &str, status: ExitStatus| {
        let (how, output) = (describe(status), place.last_lines());
        wrong(format!("{what} ended with {how}{output}"))
    };
    let mut running = Running::on(&site);
    if let Starter::Client { server, port } = &program.starter {
        running.serve(command(server), &place, job.as_ref())?;
        let begun = Instant::now();
        while !case.network.senders[0].enter(|| is_ready(*port).doing("looking for a server"))? {
            if let Some(status) = running.server_ended()? {
                return Err(ended(&place, &server[0], status));
            }
            if begun.elapsed() > timeout {
                return Err(late(
                    &place,
                    &format!("{} did not listen on port {port}", server[0]),
                ));
            }
            std::thread::sleep(HEARTBEAT);
            case.heartbeat()?;
        }
    }

    let before = cpu::segments(case.network.hosts())?;
    let meter = CpuMeter::start()?;
    let name = match &mpi {
        Some(mpi) => {
            let command = mpi.command(program, &site, pages.as_ref());
            running.start(command, &place, (0, job.as_ref()))?;
            mpi.launcher.program
        }
        None => {
            // The site's second host is the first far one.
            running.start(command(&program.command), &place, (1, None))?;
            &program.command[0]
        }
    };
    let status = loop {
        if let Some(status) = running.ended_within(HEARTBEAT)? {
            break status;
        }
        case.heartbeat()?;
        let gone = running.started.elapsed();
        if gone > timeout {
            return Err(late(&place, "it did not end"));
        }
        if let Some(seen) = &mut seen {
            seen.look_after(gone)?;
        }
    };
    let elapsed_ns = running.started.elapsed().as_nanos() as u64;
    let cpu = meter.stop(workload, elapsed_ns, 0)?;
    let after = cpu::segments(case.network.hosts())?;
    let governed = seen.as_mut().map(Seen::at_the_end).transpose()?;
    let server = running.server_ended()?;
    drop(running);
    if !status.success() {
        return Err(ended(&place, name, status));
    }
    if let Some(status) = server {
        return Err(ended(&place, "its server", status));
    }
    if let Some(governed) = governed.filter(|governed| governed.connections == 0) {
        return Err(wrong(format!(
            "no connection of it had the variant's policy ({governed:?})"
        )));
    }
    let values = place.values(program).map_err(wrong)?;
    case.record(&Record::RealProgram(RealProgramRecord {
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

/// A program and its arguments.
fn command(all: &[String]) -> Command {
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]);
    command
}

/// The hosts that have a rank, or the server and the client; the near ones first.
fn open(network: &Network, program: &RealProgram) -> Result<Site, CaseError> {
    let ranks = match program.starter {
        Starter::Launcher { ranks, .. } => ranks as usize,
        Starter::Client { .. } => 2,
    };
    let near = network.senders.len();
    let of_near = ranks.div_ceil(2).min(near);
    let of_far = ranks - of_near;
    let all = network.hosts().zip(network.addresses());
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
    Ok(Site::open(&hosts.collect::<Vec<_>>())?)
}

/// The launcher and environment of an MPI program.
struct Mpi {
    launcher: Launcher,
    /// The libraries that launcher and ranks preload.
    libraries: Vec<PathBuf>,
}

impl Mpi {
    fn find(library: Library, phases: bool) -> Result<Self, String> {
        let wanted: &[&str] = match phases {
            true => &[preload::SHIM, preload::YIELD],
            false => &[preload::YIELD],
        };
        let find = |name: &&str| {
            preload::library(name).ok_or_else(|| {
                format!("{name} is not installed beside this program: make -C mpi OUT=DIRECTORY")
            })
        };
        Ok(Mpi {
            launcher: Launcher::find(Some(library)).map_err(|error| error.to_string())?,
            libraries: wanted.iter().map(find).collect::<Result<_, _>>()?,
        })
    }

    fn command(&self, program: &RealProgram, site: &Site, pages: Option<&PageServer>) -> Command {
        let ranks = match program.starter {
            Starter::Launcher { ranks, .. } => ranks,
            Starter::Client { .. } => 1,
        };
        let mut command = Command::new(self.launcher.program);
        command
            .args(["-np", &ranks.to_string()])
            .args(&program.command)
            .envs(self.launcher.environment(&site.launch_paths()))
            // Each host has the CPUs of all of them.
            .env("OMP_NUM_THREADS", "1");
        preload::load(&mut command, &self.libraries);
        if let Some(pages) = pages {
            command.env(SOCKET_VARIABLE, PageServer::socket(pages));
        }
        command
    }
}
