// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `live` backend: this machine's kernel, network namespaces as hosts and
//! the user-space emulator as the bottleneck. Needs root.
//!
//! Nothing outside the namespaces it makes is changed, and these belong to
//! descriptors of this process: they are gone when it is, even by `kill -9`.
//!
//! The clock is real and so is the noise. Variants take turns, so that what the
//! machine does meanwhile reaches them alike, and a run whose link was late says
//! so itself.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use paceline_emulator::{
    disable_offloads, Buffer, Change, Direction, Emulator, EmulatorError, LinkConfig, Observe,
    Port, Problem, Report, Settings,
};

use crate::case::{self, Bottleneck, CaseError, Namespace};
use crate::plan::{Plan, Topology};
use crate::record::{LinkReading, Record};

/// Largest IP packet on the link, bytes.
const MTU: u32 = 1500;

/// Why a live run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Namespaces, packet sockets and real-time priority are root's.
    #[error("the live backend needs root: sudo paceline lab run … --backend live (--backend virtual does not)")]
    NotRoot,
    /// A case failed.
    #[error("{shard}: {source}")]
    Case {
        /// Which one.
        shard: String,
        /// Why.
        source: CaseError,
    },
    /// The link stopped by itself.
    #[error("{shard}: {source}")]
    Link {
        /// Which one.
        shard: String,
        /// Why.
        source: EmulatorError,
    },
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
}

/// One run of one plan.
#[derive(Debug, Clone, Default)]
pub struct Repetition {
    /// What it told, in order.
    pub records: Vec<Record>,
    /// Why it is not to be trusted; empty if it is.
    pub problems: Vec<Problem>,
}

/// Runs each of `plans` `repetitions` times. They take turns: every round runs
/// all of them, and each round begins with another one. `progress` gets the index
/// of the plan, the round from 0 and the steps done in it; `stop` ends the run
/// early.
///
/// Returns the repetitions of each plan, in the order of `plans`.
///
/// # Errors
/// [`LiveError::Interrupted`] after `stop`; else the first thing that failed.
pub fn run(
    plans: &[Plan],
    repetitions: u32,
    progress: &dyn Fn(usize, u32, u64),
    stop: &AtomicBool,
) -> Result<Vec<Vec<Repetition>>, LiveError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LiveError::NotRoot);
    }
    let mut results = vec![Vec::new(); plans.len()];
    for round in 0..repetitions {
        for turn in 0..plans.len() {
            let index = (turn + round as usize) % plans.len();
            let repetition = run_once(&plans[index], &|done| progress(index, round, done), stop)?;
            results[index].push(repetition);
        }
    }
    Ok(results)
}

/// Runs one plan once.
fn run_once(
    plan: &Plan,
    progress: &dyn Fn(u64),
    stop: &AtomicBool,
) -> Result<Repetition, LiveError> {
    let link = EmulatedBottleneck::default();
    let mut repetition = Repetition::default();
    repetition.records.push(Record::Begin {
        kernel: kernel_release(),
    });
    let mut link_error = None;
    let mut sink = |record: &Record| {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match record {
            Record::Progress { done } => progress(*done),
            // Ends each workload. After the last one the network goes, and with
            // it the link.
            Record::Cpu(_) => match link.report() {
                Ok(report) => repetition.problems = report.problems(),
                Err(error) => {
                    link_error = Some(error);
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            },
            _ => {}
        }
        repetition.records.push(match record {
            Record::Link(reading) => Record::Link(link.read_back(*reading)),
            other => other.clone(),
        });
        Ok(())
    };
    let outcome = case::run(plan, &link, &mut sink);
    if stop.load(Ordering::Relaxed) {
        return Err(LiveError::Interrupted);
    }
    let shard = plan.shard_name();
    match (outcome, link_error) {
        (_, Some(source)) => Err(LiveError::Link { shard, source }),
        (Err(source), None) => Err(LiveError::Case { shard, source }),
        (Ok(()), None) => Ok(repetition),
    }
}

/// Release of the kernel that runs.
pub(crate) fn kernel_release() -> String {
    // uname(2) fails on no Linux.
    nix::sys::utsname::uname().map_or_else(
        |_| String::new(),
        |names| names.release().to_string_lossy().into_owned(),
    )
}

/// The emulator between router and receiver, in a namespace of its own:
///
/// ```text
/// router wan --- router [emulator] receiver --- eth0 receiver
/// ```
#[derive(Debug, Default)]
struct EmulatedBottleneck {
    running: Mutex<Option<(Emulator, Namespace)>>,
}

impl EmulatedBottleneck {
    /// What the link did so far; nothing before there is one.
    fn report(&self) -> Result<Report, EmulatorError> {
        match &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((emulator, _)) => emulator.report(),
            None => Ok(Report::default()),
        }
    }

    /// The reading with the buffer as the link itself counted it when it began
    /// to drop. From outside, what waits in the buffer and what is on its way to
    /// the far end look the same.
    fn read_back(&self, reading: LinkReading) -> LinkReading {
        let forward = self
            .report()
            .map(|report| report.forward)
            .unwrap_or_default();
        let filled = forward.dropped.packets > 0;
        LinkReading {
            buffer_bytes: filled.then_some(forward.peak_backlog),
            ..reading
        }
    }
}

impl Bottleneck for EmulatedBottleneck {
    fn install(
        &self,
        router: &Namespace,
        far: &Namespace,
        interface: &str,
        wanted: &Topology,
    ) -> Result<(), CaseError> {
        let place = Namespace::create("link")?;
        // The link's own interfaces only pass on what others send.
        place.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        place.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        for (host, interface, port) in [(router, "wan", "router"), (far, interface, "receiver")] {
            host.ip(&format!(
                "link add {interface} type veth peer name {port} netns {}\n",
                place.path()
            ))?;
            place.ip(&format!("link set dev {port} up\n"))?;
            host.enter(|| disable_offloads(interface).map_err(emulator))?;
        }
        let line = LinkConfig::new(
            wanted.rate_bps,
            wanted.one_way_delay_ns,
            Buffer::Bytes(wanted.buffer_bytes),
        );
        let open = |port: &str| place.enter(|| Port::open(port, MTU).map_err(emulator));
        // Bandwidth is sampled at the router, as in the other backends.
        let settings = Settings {
            forward: line.clone(),
            reverse: line,
            observe: Observe::NOTHING,
        };
        let link =
            Emulator::start(open("router")?, open("receiver")?, settings).map_err(emulator)?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some((link, place));
        Ok(())
    }

    fn set_rate(
        &self,
        _router: &Namespace,
        _wanted: &Topology,
        rate_bps: u64,
    ) -> Result<(), CaseError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((link, _)) = &*running else {
            return Err(CaseError::Unexpected(
                "the link's rate was to be changed before there was a link",
            ));
        };
        for direction in [Direction::Forward, Direction::Reverse] {
            let change = Change {
                rate_bits: Some(rate_bps),
                ..Change::default()
            };
            link.control().change(direction, change).map_err(emulator)?;
        }
        Ok(())
    }
}

fn emulator(error: EmulatorError) -> CaseError {
    CaseError::System {
        doing: "setting the link up".to_owned(),
        source: io::Error::other(error),
    }
}
