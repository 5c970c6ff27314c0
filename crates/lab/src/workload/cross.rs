// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other traffic on the link while bursts run, from the last sender host.

use std::collections::VecDeque;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle, ScopedJoinHandle};
use std::time::Duration;

use paceline_experiment::plan::Cross;
use paceline_experiment::record::{CrossRecord, Record};
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::connection::{connect_from_here, Congestion};
use paceline_net::{Doing, Error, Namespace};

use super::beside::Beside;
use super::random::Random;
use super::Case;
use crate::host::connection::{send_sized, serve_bursts};
use crate::CaseError;

/// An endless flow has left slow start by then.
const LEAD: Duration = Duration::from_secs(2);
/// Short flows in progress: where more pile up, the link does not carry them.
const MOST_AT_ONCE: usize = 512;

/// The other traffic of one workload. Dropped, it ends.
pub(super) enum Traffic {
    Endless(Vec<Beside>),
    Short(Short),
}

impl Traffic {
    /// Starts the plan's other traffic, if it has any, and lets it run for a while.
    pub fn start(case: &Case) -> Result<Option<Self>, CaseError> {
        let Some(cross) = &case.plan.topology.cross else {
            return Ok(None);
        };
        let Some(host) = case.network.senders.last() else {
            return Err(CaseError::Unexpected("cross traffic needs a host"));
        };
        let (listener, address) = case.network.listen()?;
        let mut traffic = match cross {
            Cross::Endless { congestion, flows } => {
                let one = |_| Beside::connect(host, (&listener, address), congestion);
                let mut flows = (0..*flows).map(one).collect::<Result<Vec<_>, _>>()?;
                for flow in &mut flows {
                    flow.start(now_ns())?;
                }
                Traffic::Endless(flows)
            }
            Cross::Short {
                congestion,
                size_bytes,
                per_second,
            } => {
                let flows = Flows {
                    listener,
                    address,
                    congestion: congestion.clone(),
                    size_bytes: *size_bytes,
                    mean_ns: 1e9 / per_second,
                };
                let host = Namespace::from_descriptor(host.name(), host.duplicate()?);
                Traffic::Short(Short::start(host, flows, Random::new(case.plan.seed)))
            }
        };
        thread::sleep(LEAD);
        if let Traffic::Endless(flows) = &mut traffic {
            flows.iter_mut().try_for_each(Beside::count)?;
        }
        Ok(Some(traffic))
    }

    /// Ends it, and records it.
    pub fn stop(self, case: &mut Case, workload: usize) -> Result<(), CaseError> {
        let mut record = CrossRecord {
            workload,
            bytes: 0,
            elapsed_ns: 0,
            flows_ns: Vec::new(),
        };
        match self {
            Traffic::Endless(flows) => {
                for flow in flows {
                    let (bytes, elapsed_ns) = flow.stop()?;
                    record.bytes += bytes;
                    record.elapsed_ns = record.elapsed_ns.max(elapsed_ns);
                }
            }
            Traffic::Short(mut short) => {
                let Some(done) = short.end().transpose()? else {
                    return Ok(());
                };
                if done.refused > 0 {
                    let text = format!(
                        "{} short flows of the cross traffic were left out, because {MOST_AT_ONCE} others had not ended: the link does not carry them",
                        done.refused
                    );
                    case.record(&Record::Untrusted { text })?;
                }
                record.bytes = done.flows_ns.len() as u64 * done.size_bytes;
                record.elapsed_ns = now_ns() - short.since_ns;
                record.flows_ns = done.flows_ns;
            }
        }
        case.record(&Record::Cross(record))
    }
}

/// Parameters of short flows.
struct Flows {
    listener: TcpListener,
    address: SocketAddr,
    congestion: String,
    size_bytes: u64,
    /// From the beginning of one to that of the next, on average, nanoseconds.
    mean_ns: f64,
}

/// Their results.
struct Done {
    size_bytes: u64,
    flows_ns: Vec<u64>,
    refused: u64,
}

/// Short flows, until they are ended.
pub(super) struct Short {
    ended: Arc<AtomicBool>,
    opener: Option<JoinHandle<Result<Done, Error>>>,
    since_ns: u64,
}

impl Short {
    fn start(host: Namespace, flows: Flows, random: Random) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        // Threads are in the network namespace of the one that makes them.
        let opener = thread::spawn(move || host.enter(|| flows.run(random, &seen)));
        Short {
            ended,
            opener: Some(opener),
            since_ns: now_ns(),
        }
    }

    /// Waits for those in progress; `None` the second time.
    fn end(&mut self) -> Option<Result<Done, Error>> {
        self.ended.store(true, Ordering::Relaxed);
        let ended = self.opener.take()?.join();
        Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        if !thread::panicking() {
            drop(self.end());
        }
    }
}

/// The result of a thread.
fn joined<T>(thread: Option<ScopedJoinHandle<T>>) -> Option<T> {
    let ended = thread?.join();
    Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

impl Flows {
    fn run(&self, mut random: Random, ended: &AtomicBool) -> Result<Done, Error> {
        let mut done = Done {
            size_bytes: self.size_bytes,
            flows_ns: Vec::new(),
            refused: 0,
        };
        thread::scope(|scope| {
            let mut under_way = VecDeque::new();
            let mut next_ns = now_ns();
            while !ended.load(Ordering::Relaxed) {
                next_ns += random.exponential_ns(self.mean_ns);
                sleep_until(next_ns);
                while under_way.front().is_some_and(ScopedJoinHandle::is_finished) {
                    done.flows_ns
                        .extend(joined(under_way.pop_front()).transpose()?);
                }
                match under_way.len() < MOST_AT_ONCE {
                    true => under_way.push_back(scope.spawn(|| self.one())),
                    false => done.refused += 1,
                }
            }
            while !under_way.is_empty() {
                done.flows_ns
                    .extend(joined(under_way.pop_front()).transpose()?);
            }
            Ok(done)
        })
    }

    /// One flow: how long it takes from its SYN to the receiver's answer, nanoseconds.
    fn one(&self) -> Result<u64, Error> {
        let own = Congestion {
            asked: Some(self.congestion.clone()),
            expected: Some(self.congestion.clone()),
        };
        let begin_ns = now_ns();
        let mut stream = connect_from_here(self.address, &own)?;
        thread::scope(|scope| {
            // Any of them: each takes one.
            let server = scope.spawn(|| serve_bursts(self.listener.accept()?.0));
            send_sized(&mut stream, self.size_bytes).doing("sending a short flow")?;
            stream
                .read_exact(&mut [0])
                .doing("reading a short flow's answer")?;
            let end_ns = now_ns();
            drop(stream);
            joined(Some(server))
                .transpose()
                .doing("receiving a short flow")?;
            Ok(end_ns - begin_ns)
        })
    }
}
