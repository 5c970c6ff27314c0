// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bursts after idle: the workload of matsuda-2005, 4.3.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use paceline_experiment::plan::Burst;
use paceline_experiment::record::{BurstRecord, Record, SampleRecord};
use paceline_net::capture::{per_millisecond, Sampler};
use paceline_net::clock::{now_ns, realtime_ns, sleep_until};
use paceline_net::connection::Congestion;
use paceline_net::{Doing, Namespace};

use super::cross::Traffic;
use super::Case;
use crate::host::adaptation::{self, Job};
use crate::host::connection::{connect, connect_nagling, send_headed, serve_bursts, Counters};
use crate::host::cpu::CpuMeter;
use crate::host::empty_loop::EmptyLoop;
use crate::network::changes::Changes;
use crate::CaseError;

/// Connections of one job to the receiver, each with its server thread.
struct Connections {
    // Order of the fields is order of dropping: sockets first, then the job.
    senders: Vec<TcpStream>,
    servers: Vec<JoinHandle<std::io::Result<u64>>>,
    job: Option<Arc<Job>>,
}

impl Connections {
    fn open(
        host: &Namespace,
        job: Option<Arc<Job>>,
        listener: &TcpListener,
        address: SocketAddr,
        burst: &Burst,
        congestion: &Congestion,
    ) -> Result<Self, CaseError> {
        let connect = if burst.nagle {
            connect_nagling
        } else {
            connect
        };
        let pairs: Result<Vec<_>, _> = Job::inside(job.as_ref(), || {
            (0..burst.connections)
                .map(|_| Ok(connect(host, listener, address, congestion)?))
                .collect()
        });
        let (senders, receivers): (Vec<_>, Vec<_>) = pairs?.into_iter().unzip();
        let serve = |receiver| std::thread::spawn(move || serve_bursts(receiver));
        Ok(Connections {
            senders,
            servers: receivers.into_iter().map(serve).collect(),
            job,
        })
    }

    fn counters(&self) -> Result<Vec<Counters>, CaseError> {
        self.senders.iter().map(Counters::of).collect()
    }

    /// Sends `size` bytes, shared evenly, starting on all connections at once:
    /// first write and last reply.
    fn burst(&mut self, size: u64, header: u32) -> Result<(u64, u64), CaseError> {
        let count = self.senders.len() as u64;
        let share = move |index: u64| size / count + u64::from(index < size % count);
        let one = |stream: &mut TcpStream, size: u64| {
            let start = now_ns();
            send_headed(stream, size, header as usize)?;
            stream.read_exact(&mut [0])?;
            Ok((start, now_ns()))
        };
        let times: std::io::Result<Vec<(u64, u64)>> = match self.senders.as_mut_slice() {
            [stream] => one(stream, size).map(|times| vec![times]),
            streams => {
                let ready = Barrier::new(streams.len());
                std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..)
                        .zip(streams)
                        .map(|(index, stream)| {
                            let ready = &ready;
                            scope.spawn(move || {
                                ready.wait();
                                one(stream, share(index))
                            })
                        })
                        .collect();
                    threads
                        .into_iter()
                        .map(|thread| {
                            thread
                                .join()
                                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                        })
                        .collect()
                })
            }
        };
        let times = times.doing("sending a burst")?;
        let start = times.iter().map(|times| times.0).min();
        let end = times.iter().map(|times| times.1).max();
        start
            .zip(end)
            .ok_or(CaseError::Unexpected("a burst needs a connection"))
    }

    /// Closes the connections and waits for their servers: the payload received.
    fn close(mut self) -> Result<u64, CaseError> {
        self.senders.clear();
        let mut payload = 0;
        for server in self.servers.drain(..) {
            payload += server
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .doing("receiving a burst")?;
        }
        Ok(payload)
    }
}

/// Runs the workload on the first sender host.
pub fn run(
    case: &mut Case,
    workload: usize,
    burst: &Burst,
    changes: &Changes,
) -> Result<(), CaseError> {
    let plan = case.plan;
    let by_time = plan.topology.changes_by_time();
    let (listener, address) = case.network.listen()?;
    let congestion = adaptation::congestion(&plan.adaptation)?;
    let open_in = |case: &Case<'_>, job| -> Result<Connections, CaseError> {
        Connections::open(
            &case.network.senders[0],
            job,
            &listener,
            address,
            burst,
            &congestion,
        )
    };
    let open = |case: &Case<'_>| open_in(case, Job::start(&plan.adaptation)?);
    let mut connections = open(case)?;
    let empty_loop = burst.empty_loop.then(EmptyLoop::start).transpose()?;
    let mut lost_ns = 0;
    let traffic = Traffic::start(case)?;
    let mut meter = CpuMeter::start()?;
    // Other CPU time between bursts is not the workload's.
    meter.pause()?;
    let mut active_ns = 0;
    let mut payload = 0;
    let begin_ns = now_ns();
    changes.begin(begin_ns);
    for number in 1..=burst.count {
        let chunk = burst.chunk(number);
        if burst.fresh && number > 1 {
            payload += connections.close()?;
            connections = open(case)?;
        } else if burst.renew > 0 && number > 1 && (number - 1) % burst.renew == 0 {
            let job = connections.job.clone();
            payload += connections.close()?;
            connections = open_in(case, job)?;
        }
        let sampler = (burst.sample_burst == Some(number))
            .then(|| case.network.capture())
            .transpose()?;
        changes.next_burst(number)?;
        let before = connections.counters()?;
        let start_realtime_ns = realtime_ns();
        meter.resume()?;
        let beside = empty_loop.as_ref().map(EmptyLoop::run);
        let (start, end) = connections.burst(chunk.size_bytes, burst.header_bytes)?;
        let loop_ns = empty_loop
            .as_ref()
            .zip(beside)
            .map(|(empty_loop, stretch)| empty_loop.lost(&stretch));
        meter.pause()?;
        let after = connections.counters()?;
        active_ns += loop_ns.map_or(end - start, |(_, all)| all);
        lost_ns += loop_ns.map_or(0, |(lost, _)| lost);
        let packets = sampler.map(Sampler::stop).transpose()?;
        let grown = |what: fn(&Counters) -> u32| -> u64 {
            let sum = |of: &[Counters]| {
                of.iter()
                    .map(|counters| u64::from(what(counters)))
                    .sum::<u64>()
            };
            sum(&after) - sum(&before)
        };
        case.record(&Record::Burst(BurstRecord {
            workload,
            burst: number,
            completion_ns: end - start,
            began_ns: by_time.then(|| start.saturating_sub(begin_ns)),
            segments: grown(|counters| counters.data_segments),
            retransmitted: grown(|counters| counters.retransmitted),
            spurious: grown(|counters| counters.duplicates_reported),
            marked: grown(|counters| counters.marked),
            cwnd: [before[0].cwnd, after[0].cwnd],
            ssthresh: [before[0].ssthresh, after[0].ssthresh],
            loop_ns,
            timers: None,
        }))?;
        if let Some(packets) = packets {
            let bytes_per_ms = per_millisecond(&packets, start_realtime_ns, before[0].mss);
            case.record(&Record::Samples(SampleRecord {
                workload,
                burst: number,
                bytes_per_ms,
            }))?;
        }
        case.advance()?;
        sleep_until(end + chunk.gap_ns);
    }
    payload += connections.close()?;
    if let Some(traffic) = traffic {
        traffic.stop(case, workload)?;
    }
    let mut cpu = meter.stop(workload, active_ns, payload)?;
    if empty_loop.is_some() {
        // With the loop no CPU is idle, and its measurement is exact.
        (cpu.busy_ns, cpu.unsure_ns) = (lost_ns, 0);
    }
    case.record(&Record::Cpu(cpu))
}
