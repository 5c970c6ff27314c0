// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process of a rank: orders come in by standard input, events go out by standard output, a
//! line of JSON each.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use paceline::{Page, Phases};
use paceline_agent::pages::SOCKET_VARIABLE;
use paceline_experiment::plan::{AllToAll, Program, Switch};
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::connection::Congestion;
use paceline_net::Doing;
use serde::{Deserialize, Serialize};

use super::messages::{Mesh, Sent};
use super::out_of_core::{self, Server};
use super::skeleton;
use crate::host::connection::Counters;
use crate::host::windows::{self, Windows};
use crate::CaseError;

/// The name under which this program runs as a rank.
pub const NAME: &str = "paceline-rank";
/// Phase class of the all-to-all.
const ALL_TO_ALL: u32 = 1;

/// An order to a rank.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Listen for the other ranks.
    Listen(RankPlan),
    /// Connect to them: all listen.
    Connect,
    /// Begin at this time (CLOCK_MONOTONIC, nanoseconds): all are connected.
    Start(u64),
    /// Report the sent data and end: all ranks are done.
    End,
}

/// A rank's part.
#[derive(Debug, Serialize, Deserialize)]
pub struct RankPlan {
    /// Which one it is.
    pub rank: usize,
    /// Where each rank listens.
    pub addresses: Vec<SocketAddr>,
    /// Of its connections.
    pub congestion: Congestion,
    /// The program of all ranks.
    pub program: Program,
}

/// An event of a rank.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The order was carried out.
    Ready,
    /// Rank 0: a cycle or an iteration begins.
    Begins,
    /// Rank 0: a transfer is over.
    Transferred(Transfer),
    /// The program is done.
    Done {
        /// Payload received from all ranks.
        received_bytes: u64,
        /// The data it sent to all ranks.
        sent: Sent,
        /// A skeleton: when each part was done, CLOCK_MONOTONIC, nanoseconds.
        done_ns: Vec<u64>,
        /// A window that no TCP computes, if it saw one.
        jumped: Option<Windows>,
    },
    /// It could not go on.
    Failed(String),
}

/// One transfer as its sender saw it. Times are CLOCK_MONOTONIC, nanoseconds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Before the first write.
    pub start_ns: u64,
    /// When the one-byte reply was there.
    pub end_ns: u64,
    /// At the switch, before the first write.
    pub before: Windows,
    /// After the first write.
    pub begun: Windows,
    /// Data segments, retransmissions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that the receiver reported as arrived twice.
    pub spurious: u64,
    /// Payload of a segment.
    pub mss: u32,
}

/// Whether this process was started as a rank.
pub fn is_rank() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Runs as a rank, and ends the process.
pub fn rank_main() -> ! {
    let mut lines = io::stdin().lines();
    if let Err(error) = serve(&mut lines) {
        // A lab that has closed the pipe does not need the event.
        drop(report(&Event::Failed(error.to_string())));
        std::process::exit(1);
    }
    std::process::exit(0)
}

fn serve(lines: &mut impl Iterator<Item = io::Result<String>>) -> Result<(), CaseError> {
    let Some(Order::Listen(plan)) = order(lines)? else {
        return Ok(());
    };
    let phases = phases()?;
    let congestion = &plan.congestion;
    let listener = Mesh::listen(plan.addresses[plan.rank], congestion)?;
    let server = match plan.program {
        Program::OutOfCore(_) => Some(Server::listen(plan.addresses[plan.rank], congestion)?),
        _ => None,
    };
    report(&Event::Ready)?;
    let Some(Order::Connect) = order(lines)? else {
        return Ok(());
    };
    let mut mesh = Mesh::connect(plan.rank, &plan.addresses, &listener, congestion)?;
    let mut files = server
        .map(|server| server.serve(plan.rank, &plan.addresses, congestion))
        .transpose()?;
    report(&Event::Ready)?;
    let Some(Order::Start(at_ns)) = order(lines)? else {
        return Ok(());
    };
    sleep_until(at_ns);
    let first = mesh.rank() == 0;
    let begins = || {
        if first {
            report(&Event::Begins)
        } else {
            Ok(())
        }
    };
    let done_ns = match &plan.program {
        Program::Switch(switch) => {
            run_switch(&mut mesh, switch, phases.as_ref())?;
            Vec::new()
        }
        Program::AllToAll(plan) => all_to_all(&mut mesh, plan, phases.as_ref())?,
        Program::Skeleton(plan) => {
            sleep_exactly()?;
            skeleton::run(&mut mesh, plan, phases.as_ref(), begins)?
        }
        Program::OutOfCore(plan) => {
            sleep_exactly()?;
            let files = files
                .as_mut()
                .ok_or(CaseError::Unexpected("a rank has no file server"))?;
            out_of_core::run(&mut mesh, files, plan, phases.as_ref(), begins)?
        }
    };
    // Data in flight to others is to arrive, and to be counted.
    report(&Event::Ready)?;
    let Some(Order::End) = order(lines)? else {
        return Ok(());
    };
    let mut sent = mesh.sent()?;
    let mut received_bytes = mesh.received_bytes();
    if let Some(files) = files {
        sent += files.sent()?;
        received_bytes += files.close()?;
    }
    report(&Event::Done {
        received_bytes,
        sent,
        done_ns,
        jumped: windows::take_jump(),
    })
}

/// Sleeps stand for computing. By default the kernel lets each take 50 us more, which
/// in the thousands of short ones of a wavefront would be a tenth of all.
fn sleep_exactly() -> Result<(), CaseError> {
    Ok(nix::sys::prctl::set_timerslack(1).doing("disabling timer slack")?)
}

/// `None`: the lab has ended.
fn order(lines: &mut impl Iterator<Item = io::Result<String>>) -> Result<Option<Order>, CaseError> {
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    let line = line.doing("reading from the lab")?;
    serde_json::from_str(&line)
        .map(Some)
        .map_err(|_| CaseError::Unexpected("a rank received an unknown order"))
}

fn report(event: &Event) -> Result<(), CaseError> {
    let mut line = serde_json::to_vec(event).expect("an event is plain data");
    line.push(b'\n');
    Ok(io::stdout()
        .write_all(&line)
        .doing("reporting to the lab")?)
}

/// This process's phases; `None` in a variant without a job, and in a job whose
/// policy has no phases: neither is an error.
fn phases() -> Result<Option<Phases>, CaseError> {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE) else {
        return Ok(None);
    };
    match Page::ask(Path::new(&socket)) {
        Ok(page) => Ok(Some(Phases::new(page))),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(None),
        Err(error) => Ok(Err(error).doing("requesting this rank's phases")?),
    }
}

fn run_switch(mesh: &mut Mesh, switch: &Switch, phases: Option<&Phases>) -> Result<(), CaseError> {
    let half = mesh.size() / 2;
    for _ in 0..switch.cycles {
        if mesh.rank() == 0 {
            report(&Event::Begins)?;
        }
        enter(phases, ALL_TO_ALL)?;
        for _ in 0..switch.rounds {
            exchange_across(mesh, switch.block_bytes)?;
        }
        leave(phases)?;
        match mesh.rank() {
            0 => {
                // One-to-one begins when the collective is over for all.
                for other in 1..mesh.size() {
                    mesh.receive(other, 1)?;
                }
                let transfer = transfer(mesh, half, switch.transfer_bytes)?;
                let over_ns = transfer.end_ns;
                report(&Event::Transferred(transfer))?;
                sleep_until(over_ns + switch.pause_ns);
                for other in 1..mesh.size() {
                    mesh.send(other, 1)?;
                }
            }
            rank => {
                mesh.send(0, 1)?;
                if rank == half {
                    mesh.receive(0, switch.transfer_bytes)?;
                    mesh.send(0, 1)?;
                }
                mesh.receive(0, 1)?;
            }
        }
    }
    Ok(())
}

/// When this rank completed each round: CLOCK_MONOTONIC, nanoseconds.
fn all_to_all(
    mesh: &mut Mesh,
    plan: &AllToAll,
    phases: Option<&Phases>,
) -> Result<Vec<u64>, CaseError> {
    let mut done_ns = Vec::new();
    for _ in 0..plan.rounds {
        if mesh.rank() == 0 {
            report(&Event::Begins)?;
        }
        enter(phases, ALL_TO_ALL)?;
        mesh.exchange_with_all(plan.block_bytes)?;
        leave(phases)?;
        done_ns.push(now_ns());
        // For the windows that they show (`windows::note`).
        mesh.sent()?;
    }
    Ok(done_ns)
}

/// The all-to-all of matsuda-2005, 4.2: only the messages over the link between the
/// clusters, pair by pair, each rank with every one of the other side.
fn exchange_across(mesh: &mut Mesh, bytes: u64) -> Result<(), CaseError> {
    let half = mesh.size() / 2;
    let here = mesh.rank() % half;
    for step in 0..half {
        let partner = if mesh.rank() < half {
            half + (here + step) % half
        } else {
            (here + half - step) % half
        };
        mesh.send(partner, bytes)?;
        mesh.receive(partner, bytes)?;
    }
    Ok(())
}

fn transfer(mesh: &mut Mesh, to: usize, bytes: u64) -> Result<Transfer, CaseError> {
    /// One write, after which the windows of the new phase apply.
    const FIRST_BYTES: u64 = 64_000;
    let windows = |counters: &Counters| Windows {
        cwnd: counters.cwnd,
        ssthresh: counters.ssthresh,
    };
    let before = mesh.counters(to)?;
    let start_ns = now_ns();
    mesh.send(to, bytes.min(FIRST_BYTES))?;
    let begun = mesh.counters(to)?;
    mesh.send(to, bytes.saturating_sub(FIRST_BYTES))?;
    mesh.receive(to, 1)?;
    let end_ns = now_ns();
    let after = mesh.counters(to)?;
    Ok(Transfer {
        start_ns,
        end_ns,
        before: windows(&before),
        begun: windows(&begun),
        segments: u64::from(after.data_segments - before.data_segments),
        retransmitted: u64::from(after.retransmitted - before.retransmitted),
        spurious: u64::from(after.duplicates_reported - before.duplicates_reported),
        mss: before.mss,
    })
}

pub fn enter(phases: Option<&Phases>, class: u32) -> Result<(), CaseError> {
    phases
        .map_or(Ok(()), |phases| phases.enter(class))
        .map_err(|_| CaseError::Unexpected("a phase class could not be entered"))
}

pub fn leave(phases: Option<&Phases>) -> Result<(), CaseError> {
    phases
        .map_or(Ok(()), Phases::leave)
        .map_err(|_| CaseError::Unexpected("a phase was left without being entered"))
}
