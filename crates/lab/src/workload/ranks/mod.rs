// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A message-passing program: one process per rank, each on its own host, all in one job. The
//! phase of a process reaches Paceline the way that it does in a user's program: over
//! libpaceline and the agent's socket.

mod exchange;
mod messages;
mod out_of_core;
mod rank;
mod skeleton;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use messages::Sent;
use nix::sched::{setns, CloneFlags};
use paceline_agent::cgroup::Hierarchy;
use paceline_agent::pages::{PageServer, SOCKET_VARIABLE};
use paceline_experiment::plan::{Program, Ranks, Skeleton, Switch};
use paceline_experiment::record::{BurstRecord, Record, RunRecord, SampleRecord};
use paceline_net::capture::{per_millisecond, Sampler};
use paceline_net::clock::{now_ns, realtime_ns};
use paceline_net::{Doing, Namespace};
use rank::{Event, Order, RankPlan, Transfer};

use super::Case;
use crate::host::adaptation::{self, Job};
use crate::host::cpu::CpuMeter;
use crate::host::windows;
use crate::network::topology::Network;
use crate::workload::random::Random;
use crate::CaseError;

pub use rank::{is_rank, rank_main};

/// Rank r listens here on its host.
const PORT: u16 = 7000;
/// From the order to start until all ranks do: they have it by then.
const START_AFTER_NS: u64 = 50_000_000;

/// Runs the workload on all hosts: near ones are the first ranks.
pub(crate) fn run(case: &mut Case, workload: usize, ranks: &Ranks) -> Result<(), CaseError> {
    let (repeats, spread_ns) = match &ranks.program {
        Program::Switch(_) | Program::AllToAll(_) | Program::OutOfCore(_) => (1, 0),
        Program::Skeleton(skeleton) => (skeleton.repeats, skeleton.spread_ns),
    };
    let mut random = Random::new(case.plan.seed);
    for _ in 0..repeats {
        run_once(case, workload, ranks, || random.below(spread_ns + 1))?;
    }
    Ok(())
}

/// Each rank starts `late_ns` after the common moment.
fn run_once(
    case: &mut Case,
    workload: usize,
    ranks: &Ranks,
    mut late_ns: impl FnMut() -> u64,
) -> Result<(), CaseError> {
    let plan = case.plan;
    let job = Job::start(&plan.adaptation)?;
    let congestion = adaptation::congestion(&plan.adaptation)?;
    // Without it the ranks have no phases: in variants without a policy.
    let pages = job.as_ref().map(|_| serve_pages()).transpose()?;
    let mut processes = Job::inside(job.as_ref(), || {
        case.network
            .hosts()
            .map(|host| Process::start(host, pages.as_ref()))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let addresses: Vec<SocketAddr> = case
        .network
        .addresses()
        .map(|address| SocketAddr::new(address, PORT))
        .collect();
    for (rank, process) in processes.iter_mut().enumerate() {
        process.order(&Order::Listen(RankPlan {
            rank,
            addresses: addresses.clone(),
            congestion: congestion.clone(),
            program: ranks.program.clone(),
        }))?;
    }
    all(&mut processes, |process| process.expect(Event::Ready))?;
    all(&mut processes, |process| process.order(&Order::Connect))?;
    all(&mut processes, |process| process.expect(Event::Ready))?;
    let start_ns = now_ns() + START_AFTER_NS;
    all(&mut processes, |process| {
        process.order(&Order::Start(start_ns + late_ns()))
    })?;
    let mut meter = CpuMeter::start()?;
    let (active_ns, finished) = match &ranks.program {
        Program::Switch(switch) => {
            meter.pause()?;
            let active_ns = follow_switch(case, workload, switch, &mut processes[0], &mut meter)?;
            (active_ns, finish(&mut processes)?)
        }
        Program::AllToAll(all) => {
            let rounds = (all.rounds, all.from_round, 1);
            follow_rounds(case, workload, rounds, &mut processes, start_ns)?
        }
        Program::OutOfCore(plan) => {
            let rounds = (plan.iterations, plan.from_iteration, plan.iterations);
            let (all_ns, finished) =
                follow_rounds(case, workload, rounds, &mut processes, start_ns)?;
            let computing_ns = u64::from(plan.iterations) * plan.compute_ns;
            (all_ns.saturating_sub(computing_ns), finished)
        }
        Program::Skeleton(skeleton) => {
            follow_skeleton(case, workload, skeleton, &mut processes, start_ns)?
        }
    };
    let payload = finished.iter().map(|rank| rank.received_bytes).sum();
    case.record(&Record::Cpu(meter.stop(workload, active_ns, payload)?))
}

/// Starts a capture of the packets behind the link between two clusters, or behind the port
/// of the first host of one.
fn watch(network: &Network) -> Result<Sampler, CaseError> {
    Ok(match &network.far {
        Some(far) => Sampler::at(&far.router, "wan")?,
        None => Sampler::at(&network.senders[0], "eth0")?,
    })
}

fn all<T>(
    processes: &mut [Process],
    step: impl FnMut(&mut Process) -> Result<T, CaseError>,
) -> Result<Vec<T>, CaseError> {
    processes.iter_mut().map(step).collect()
}

/// Ends the ranks when all are through.
fn finish(processes: &mut [Process]) -> Result<Vec<Finished>, CaseError> {
    all(processes, |process| process.expect(Event::Ready))?;
    all(processes, |process| process.order(&Order::End))?;
    all(processes, Process::finish)
}

pub(super) fn serve_pages() -> Result<PageServer, CaseError> {
    Hierarchy::find()
        .map_err(paceline_agent::Error::from)
        .and_then(|hierarchy| PageServer::start(&hierarchy))
        .map_err(|error| CaseError::Policy {
            message: error.to_string(),
        })
}

/// Rank 0 reports each transfer; a capture behind the link counts the packets meanwhile.
/// Returns the nanoseconds of the transfers.
fn follow_switch(
    case: &mut Case,
    workload: usize,
    switch: &Switch,
    first: &mut Process,
    meter: &mut CpuMeter,
) -> Result<u64, CaseError> {
    let mut active_ns = 0;
    for cycle in 1..=switch.cycles {
        first.expect(Event::Begins)?;
        let began_ns = now_ns();
        meter.resume()?;
        let sampler = watch(case.network)?;
        let transfer = match first.next()? {
            Event::Transferred(transfer) => transfer,
            _ => return Err(Process::OUT_OF_TURN),
        };
        meter.pause()?;
        active_ns += transfer.end_ns.saturating_sub(began_ns);
        let mut packets = sampler.stop()?;
        let start_realtime_ns = realtime_ns() - (now_ns() - transfer.start_ns);
        packets.retain(|packet| packet.time_ns >= start_realtime_ns);
        let Transfer { before, .. } = transfer;
        case.record(&Record::Burst(BurstRecord {
            workload,
            burst: cycle,
            completion_ns: transfer.end_ns - transfer.start_ns,
            began_ns: None,
            segments: transfer.segments,
            retransmitted: transfer.retransmitted,
            spurious: transfer.spurious,
            marked: 0,
            cwnd: [before.cwnd, transfer.begun.cwnd],
            ssthresh: [before.ssthresh, transfer.begun.ssthresh],
            loop_ns: None,
            timers: None,
        }))?;
        case.record(&Record::Samples(SampleRecord {
            workload,
            burst: cycle,
            bytes_per_ms: per_millisecond(&packets, start_realtime_ns, transfer.mss),
        }))?;
        case.advance()?;
    }
    Ok(active_ns)
}

/// All ranks report when they completed each of so many rounds, which count from one of them
/// on; the capture counts from a third one on. Returns the nanoseconds of all of these.
fn follow_rounds(
    case: &mut Case,
    workload: usize,
    (rounds, from_round, watched): (u32, u32, u32),
    processes: &mut [Process],
    start_ns: u64,
) -> Result<(u64, Vec<Finished>), CaseError> {
    let mut sampler = None;
    for round in 1..=rounds {
        if round == 1 && watched == 1 {
            sampler = Some(watch(case.network)?);
        }
        processes[0].expect(Event::Begins)?;
        if round > 1 && watched == round {
            sampler = Some(watch(case.network)?);
        }
        case.advance()?;
    }
    let finished = finish(processes)?;
    let done_ns = last_of_each_part(&finished, start_ns);
    // The first rank's: data of earlier rounds that others still send costs them time, and
    // no data of the counted rounds was sent earlier.
    let from_ns = match from_round {
        0 | 1 => 0,
        from => finished
            .iter()
            .map(|rank| rank.done_ns[from as usize - 2].saturating_sub(start_ns))
            .min()
            .unwrap_or(0),
    };
    if let Some(sampler) = sampler {
        let began_ns = match watched as usize {
            0 | 1 => from_ns,
            watched => done_ns[watched - 2],
        };
        let began_realtime_ns = realtime_ns() - (now_ns() - start_ns - began_ns);
        let mut packets = sampler.stop()?;
        packets.retain(|packet| packet.time_ns >= began_realtime_ns);
        let mss = case.plan.topology.frame().payload as u32;
        case.record(&Record::Samples(SampleRecord {
            workload,
            burst: rounds,
            bytes_per_ms: per_millisecond(&packets, began_realtime_ns, mss),
        }))?;
    }
    let active_ns = done_ns.last().copied().unwrap_or(0);
    case.record(&Record::Run(run_record(
        workload, done_ns, from_ns, &finished,
    )))?;
    Ok((active_ns, finished))
}

/// When the last rank completed each part, nanoseconds since the start.
fn last_of_each_part(finished: &[Finished], start_ns: u64) -> Vec<u64> {
    let parts = finished.first().map_or(0, |rank| rank.done_ns.len());
    (0..parts)
        .map(|part| finished.iter().map(|rank| rank.done_ns[part]).max())
        .map(|last| last.unwrap_or(start_ns).saturating_sub(start_ns))
        .collect()
}

fn run_record(
    workload: usize,
    done_ns: Vec<u64>,
    from_ns: u64,
    finished: &[Finished],
) -> RunRecord {
    let sum = |count: fn(&Sent) -> u64| finished.iter().map(|rank| count(&rank.sent)).sum();
    RunRecord {
        workload,
        done_ns,
        from_ns,
        segments: sum(|sent| sent.segments),
        retransmitted: sum(|sent| sent.retransmitted),
        spurious: sum(|sent| sent.spurious),
    }
}

/// All ranks report the times of their progress; the capture counts the last iteration.
/// Returns the nanoseconds of communication: the run's less the ranks' mean time of
/// computing.
fn follow_skeleton(
    case: &mut Case,
    workload: usize,
    plan: &Skeleton,
    processes: &mut [Process],
    start_ns: u64,
) -> Result<(u64, Vec<Finished>), CaseError> {
    let mut sampler = None;
    for iteration in 1..=plan.iterations {
        processes[0].expect(Event::Begins)?;
        if iteration == plan.iterations {
            sampler = Some(watch(case.network)?);
        }
        (case.sink)(&Record::Progress {
            done: case.done + u64::from(iteration),
        })
        .map_err(CaseError::Sink)?;
    }
    case.done += u64::from(plan.iterations);
    let finished = finish(processes)?;
    let done_ns = last_of_each_part(&finished, start_ns);
    let parts = done_ns.len();
    if let Some(sampler) = sampler {
        let began_ns = start_ns + done_ns[parts - 3];
        let began_realtime_ns = realtime_ns() - (now_ns() - began_ns);
        let mut packets = sampler.stop()?;
        packets.retain(|packet| packet.time_ns >= began_realtime_ns);
        let mss = case.plan.topology.frame().payload as u32;
        case.record(&Record::Samples(SampleRecord {
            workload,
            burst: plan.iterations,
            bytes_per_ms: per_millisecond(&packets, began_realtime_ns, mss),
        }))?;
    }
    let computing_ns = skeleton::of(plan)?.computing_ns(plan.iterations);
    let total_ns = done_ns[parts - 1];
    let active_ns = total_ns.saturating_sub(computing_ns);
    case.record(&Record::Run(run_record(workload, done_ns, 0, &finished)))?;
    Ok((active_ns, finished))
}

/// The final event of a rank.
struct Finished {
    received_bytes: u64,
    sent: Sent,
    done_ns: Vec<u64>,
}

/// One rank's process. It ends when it is dropped.
struct Process {
    child: Child,
    orders: ChildStdin,
    events: BufReader<ChildStdout>,
}

impl Process {
    const OUT_OF_TURN: CaseError = CaseError::Unexpected("a rank sent an unexpected message");

    /// This very program as a rank on `host`; it waits for its plan.
    fn start(host: &Namespace, pages: Option<&PageServer>) -> Result<Self, CaseError> {
        let namespace = host.duplicate()?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0(rank::NAME)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(pages) = pages {
            command.env(SOCKET_VARIABLE, pages.socket());
        }
        // SAFETY: one system call on a descriptor that is open until the spawn
        // below returns.
        unsafe {
            command.pre_exec(move || Ok(setns(&namespace, CloneFlags::CLONE_NEWNET)?));
        }
        let mut child = command
            .spawn()
            .doing(format!("starting a rank on {}", host.name()))?;
        let missing = CaseError::Unexpected("a rank has no standard input or output");
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(events)) => Ok(Self {
                child,
                orders,
                events: BufReader::new(events),
            }),
            _ => Err(missing),
        }
    }

    fn order(&mut self, order: &Order) -> Result<(), CaseError> {
        let mut line = serde_json::to_vec(order).expect("an order is plain data");
        line.push(b'\n');
        Ok(self.orders.write_all(&line).doing("ordering a rank")?)
    }

    fn next(&mut self) -> Result<Event, CaseError> {
        let mut line = String::new();
        let length = self
            .events
            .read_line(&mut line)
            .doing("reading from a rank")?;
        if length == 0 {
            return Err(CaseError::Unexpected("a rank ended before its program did"));
        }
        match serde_json::from_str(&line) {
            Ok(Event::Failed(text)) => Err(CaseError::Rank(text)),
            Ok(event) => Ok(event),
            Err(_) => Err(Self::OUT_OF_TURN),
        }
    }

    fn expect(&mut self, event: Event) -> Result<(), CaseError> {
        if self.next()? == event {
            Ok(())
        } else {
            Err(Self::OUT_OF_TURN)
        }
    }

    /// Waits for its end.
    fn finish(&mut self) -> Result<Finished, CaseError> {
        match self.next()? {
            Event::Done {
                received_bytes,
                sent,
                done_ns,
                jumped,
            } => {
                jumped.into_iter().for_each(windows::note);
                Ok(Finished {
                    received_bytes,
                    sent,
                    done_ns,
                })
            }
            _ => Err(Self::OUT_OF_TURN),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is done has ended or is about to: to kill it does no harm.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
