// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parallel streams: connections of several hosts carry as much each, begin at once, and
//! the transfer is over when the last of them is (kamezawa-2004, 2.1).

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use paceline_experiment::plan::Streams;
use paceline_experiment::record::{Record, StreamSample, StreamsRecord, SAMPLE_NS};
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::Doing;

use super::beside::Beside;
use super::Case;
use crate::host::adaptation::{self, Job};
use crate::host::connection::{connect, listen, receive_into, run_promptly, send, Counters};
use crate::host::coordination::Coordination;
use crate::host::cpu::CpuMeter;
use crate::network::routes;
use crate::network::topology::Network;
use crate::CaseError;

/// A sender looks at its pause after so many bytes.
const PIECE_BYTES: u64 = 64 * 1024;
/// From the decision to begin to the first byte, nanoseconds: all threads are up by then.
const LEAD_NS: u64 = 50_000_000;

/// One stream while it runs.
struct Stream {
    sender: TcpStream,
    receiver: TcpStream,
    sending: JoinHandle<std::io::Result<()>>,
    receiving: JoinHandle<std::io::Result<u64>>,
}

/// Runs the workload: stream k is of host k / `per_host`.
pub fn run(case: &mut Case, workload: usize, streams: &Streams) -> Result<(), CaseError> {
    for host in 0..streams.distant_hosts {
        // The receiver's packets take the longer way for both.
        case.network.router.tc(&format!(
            "qdisc add dev edge{host} root netem delay {}us limit 100000\n",
            streams.distant_rtt_ns / 1000
        ))?;
    }
    routes::add(case.network, &streams.routes)?;
    for repeat in 0..streams.repeats {
        run_once(case, workload, streams, repeat)?;
        case.advance()?;
    }
    routes::remove(case.network, &streams.routes)?;
    for host in 0..streams.distant_hosts {
        case.network
            .router
            .tc(&format!("qdisc del dev edge{host} root\n"))?;
    }
    Ok(())
}

fn run_once(
    case: &mut Case,
    workload: usize,
    streams: &Streams,
    repeat: u32,
) -> Result<(), CaseError> {
    let plan = case.plan;
    let (listener, address) = case.network.listen()?;
    let doors = doors(case.network, streams)?;
    let congestion = adaptation::congestion(&plan.adaptation)?;
    let hosts = &case.network.senders;
    let job = Job::start(&plan.adaptation)?;
    let mut pairs = Vec::new();
    Job::inside(job.as_ref(), || {
        for host in 0..streams.hosts {
            for _ in 0..streams.per_host {
                let (listener, address) = match doors.get(host as usize) {
                    Some((door, address)) => (door.as_ref(), *address),
                    None => (&listener, address),
                };
                let host = &hosts[host as usize];
                pairs.push(connect(host, listener, address, &congestion)?);
            }
        }
        Ok(())
    })?;
    let beside = streams.beside.as_deref().map(|name| {
        let host = &hosts[streams.hosts as usize];
        Beside::connect(host, (&listener, address), name)
    });
    let mut beside = beside.transpose()?;
    let algorithm = plan.adaptation.coordinate.as_ref();
    let mut coordination = algorithm.map(Coordination::start).transpose()?;
    if let Some(coordination) = &mut coordination {
        coordination.await_streams(pairs.len())?;
    }
    let meter = CpuMeter::start()?;
    let start_ns = now_ns() + LEAD_NS;
    let mut running = Vec::new();
    for (number, (sender, receiver)) in (0..).zip(pairs) {
        let to_send = sender.try_clone().doing("duplicating a socket")?;
        let to_receive = receiver.try_clone().doing("duplicating a socket")?;
        let size = streams.size_bytes;
        let pause = streams
            .pause
            .filter(|pause| pause.host == number / streams.per_host + 1)
            .map(|pause| start_ns + pause.at_ns..start_ns + pause.at_ns + pause.for_ns);
        running.push(Stream {
            sender,
            receiver,
            sending: thread::spawn(move || send_with_pause(to_send, size, start_ns, pause)),
            receiving: thread::spawn(move || receive_all(to_receive, size)),
        });
    }
    if let Some(beside) = &mut beside {
        beside.start(start_ns)?;
    }
    let samples = watch(&running, start_ns, streams, coordination.as_mut())?;
    if coordination.as_mut().is_some_and(Coordination::failed) {
        return Err(CaseError::Unexpected(
            "the coordinator's client ended before the streams",
        ));
    }
    drop(coordination);
    let mut record = StreamsRecord {
        workload,
        repeat,
        done_ns: Vec::new(),
        segments: 0,
        retransmitted: 0,
        spurious: 0,
        beside_bytes: 0,
        beside_ns: 0,
        step_ns: SAMPLE_NS,
        samples,
    };
    if let Some(beside) = beside {
        (record.beside_bytes, record.beside_ns) = beside.stop()?;
    }
    for stream in running {
        let counters = Counters::of(&stream.sender)?;
        record.segments += u64::from(counters.data_segments);
        record.retransmitted += u64::from(counters.retransmitted);
        record.spurious += u64::from(counters.duplicates_reported);
        record.done_ns.push(stream.end()?.saturating_sub(start_ns));
    }
    let last_ns = record.done_ns.iter().copied().max().unwrap_or(0);
    let payload = u64::from(streams.hosts * streams.per_host) * streams.size_bytes;
    let cpu = meter.stop(workload, last_ns, payload + record.beside_bytes)?;
    case.record(&Record::Streams(record))?;
    case.record(&Record::Cpu(cpu))
}

/// Where the receiver listens for each host, where they have routes of their own.
fn doors(
    network: &Network,
    streams: &Streams,
) -> Result<Vec<(Arc<TcpListener>, SocketAddr)>, CaseError> {
    let mut doors = Vec::new();
    for (number, route) in streams.routes.iter().enumerate() {
        let (listener, address) =
            listen(&network.receiver, routes::receiver_address(network, number))?;
        let door = (Arc::new(listener), address);
        doors.extend(vec![door; route.hosts as usize]);
    }
    Ok(doors)
}

impl Stream {
    /// When its last byte had arrived.
    fn end(self) -> Result<u64, CaseError> {
        let joined = |thread: thread::Result<_>| {
            thread.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        joined(self.sending.join().map(|sent| sent.map(|()| 0))).doing("sending a stream")?;
        Ok(joined(self.receiving.join()).doing("receiving a stream")?)
    }
}

/// Looks at all streams again and again until all have arrived.
fn watch(
    streams: &[Stream],
    start_ns: u64,
    plan: &Streams,
    mut coordination: Option<&mut Coordination>,
) -> Result<Vec<StreamSample>, CaseError> {
    let size = plan.size_bytes;
    let mut samples = Vec::new();
    loop {
        let since_start = samples.len() as u64 * SAMPLE_NS;
        sleep_until(start_ns + since_start);
        let dies = plan.coordinator_dies_ns.is_some_and(|at| at <= since_start);
        if let Some(coordination) = coordination.take_if(|_| dies) {
            coordination.kill_server();
        }
        let look = |stream: &Stream| -> Result<_, CaseError> {
            let arrived = Counters::of(&stream.receiver)?.received_bytes;
            let inflight = || Ok(Counters::of(&stream.sender)?.inflight);
            let inflight: Result<_, CaseError> = (arrived < size).then(inflight).transpose();
            Ok((arrived, inflight?))
        };
        let each = streams.iter().map(look).collect::<Result<Vec<_>, _>>()?;
        let sample = StreamSample::of(&each);
        let over = sample.active == 0
            || streams.iter().all(|stream| stream.receiving.is_finished())
            || streams.iter().any(failed);
        samples.push(sample);
        if over {
            return Ok(samples);
        }
    }
}

/// One that has ended without its data ends the watch; the error comes with its join.
fn failed(stream: &Stream) -> bool {
    let mut error: libc::c_int = 0;
    let mut length = size_of_val(&error) as libc::socklen_t;
    // SAFETY: `error` and `length` are live; the socket is open.
    let result = unsafe {
        libc::getsockopt(
            stream.sender.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &mut length,
        )
    };
    result != 0 || error != 0
}

fn send_with_pause(
    mut stream: TcpStream,
    size: u64,
    start_ns: u64,
    pause: Option<std::ops::Range<u64>>,
) -> std::io::Result<()> {
    sleep_until(start_ns);
    let Some(pause) = pause else {
        return send(&mut stream, size);
    };
    let mut left = size;
    while left > 0 {
        if pause.contains(&now_ns()) {
            sleep_until(pause.end);
        }
        let piece = left.min(PIECE_BYTES);
        send(&mut stream, piece)?;
        left -= piece;
    }
    Ok(())
}

fn receive_all(mut stream: TcpStream, size: u64) -> std::io::Result<u64> {
    run_promptly(true);
    receive_into(&mut stream, size, &mut vec![0; 256 * 1024])?;
    Ok(now_ns())
}
