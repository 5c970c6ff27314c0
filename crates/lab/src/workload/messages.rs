// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages from the first host to the receiver, one way or there and back: ligon-1999, 4.2.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use paceline_experiment::plan::Messages;
use paceline_experiment::record::{MessagesRecord, Record, TraceRecord};
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::connection::listen_here;
use paceline_net::Doing;

use super::Case;
use crate::host::adaptation::{self, Job};
use crate::host::connection::{connect, connect_nagling, run_promptly, Counters};
use crate::host::cpu::CpuMeter;
use crate::host::trace::Trace;
use crate::CaseError;

/// Bytes that a receiver reads at once, at most: all that its buffer holds.
const READ_BYTES: usize = 4 << 20;

/// A connection whose two ends are both in the job: ACKs are the receiver's.
pub(super) struct Pair {
    // Order of the fields is order of dropping: sockets first, then the job.
    pub sender: TcpStream,
    pub receiver: TcpStream,
    _job: Option<Arc<Job>>,
}

impl Pair {
    /// Opens it from the first host to the receiver; `nagle`: the sender leaves TCP_NODELAY
    /// to the kernel and to a policy.
    pub fn open(case: &Case<'_>, nagle: bool) -> Result<Self, CaseError> {
        let connect = if nagle { connect_nagling } else { connect };
        let network = case.network;
        let congestion = adaptation::congestion(&case.plan.adaptation)?;
        let job = Job::start(&case.plan.adaptation)?;
        let (sender, receiver) = Job::inside(job.as_ref(), || {
            let at = network.receiver_address(0);
            let listener = network
                .receiver
                .enter(|| listen_here(at, congestion.asked.as_deref()))?;
            let address = listener.local_addr().doing("reading the port")?;
            let pair = connect(&network.senders[0], &listener, address, &congestion)?;
            congestion.check(&pair.1)?;
            Ok(pair)
        })?;
        Ok(Pair {
            sender,
            receiver,
            _job: job,
        })
    }
}

/// Runs the workload, each repetition on a connection of its own.
pub fn run(case: &mut Case, workload: usize, messages: &Messages) -> Result<(), CaseError> {
    for repeat in 0..messages.repeats {
        run_once(case, workload, messages, repeat == 0)?;
        case.advance()?;
    }
    Ok(())
}

fn run_once(
    case: &mut Case,
    workload: usize,
    messages: &Messages,
    first: bool,
) -> Result<(), CaseError> {
    let pair = Pair::open(case, messages.nagle)?;
    let receiver = pair.receiver.try_clone().doing("duplicating a socket")?;
    let of_receiver = messages.clone();
    let receiving = std::thread::spawn(move || receive(receiver, &of_receiver));
    let trace = (first && messages.trace > 0)
        .then(|| Trace::start(&case.network.router, "edge0", messages.trace))
        .transpose()?;
    let before = Counters::of(&pair.sender)?;
    let meter = CpuMeter::start()?;
    let begin_ns = now_ns();
    send(&pair.sender, messages).doing("sending messages")?;
    let time_ns = now_ns() - begin_ns;
    let mut cpu = meter.stop(workload, time_ns, messages.payload_bytes())?;
    if messages.size_bytes < case.plan.topology.frame().payload && messages.gap_ns == 0 {
        // Hosts that write less than a segment at once are limited by their CPU, on any
        // machine: its use does not invalidate the measurement.
        (cpu.busy_ns, cpu.unsure_ns) = (0, 0);
    }
    let after = Counters::of(&pair.sender)?;
    receiving
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .doing("receiving messages")?;
    let grown = |what: fn(&Counters) -> u32| u64::from(what(&after).wrapping_sub(what(&before)));
    case.record(&Record::Messages(MessagesRecord {
        workload,
        time_ns,
        segments: grown(|counters| counters.data_segments),
        acks: grown(|counters| counters.segments_in.wrapping_sub(counters.data_segments_in)),
        retransmitted: grown(|counters| counters.retransmitted),
        spurious: grown(|counters| counters.duplicates_reported),
    }))?;
    if let Some(trace) = trace {
        let packets = trace.stop()?;
        case.record(&Record::Trace(TraceRecord { workload, packets }))?;
    }
    case.record(&Record::Cpu(cpu))
}

/// Sends all messages, and waits for the answers: one to each exchange, or one byte at the end.
fn send(mut stream: &TcpStream, messages: &Messages) -> io::Result<()> {
    let message = vec![0; messages.size_bytes as usize];
    let mut answer = vec![0; message.len()];
    for _ in 0..messages.count {
        for _ in 0..messages.writes {
            stream.write_all(&message)?;
        }
        if messages.answered {
            stream.read_exact(&mut answer)?;
        }
        if messages.gap_ns > 0 {
            sleep_until(now_ns() + messages.gap_ns);
        }
    }
    match messages.answered {
        true => Ok(()),
        false => stream.read_exact(&mut [0]),
    }
}

fn receive(mut stream: TcpStream, messages: &Messages) -> io::Result<()> {
    run_promptly(true);
    let mut buffer = vec![0; READ_BYTES];
    if messages.answered {
        let exchange_bytes = messages.size_bytes * u64::from(messages.writes);
        let answer = vec![0; messages.size_bytes as usize];
        for _ in 0..messages.count {
            let mut left = exchange_bytes;
            while left > 0 {
                left -= read_some(&mut stream, left, &mut buffer)?;
            }
            stream.write_all(&answer)?;
        }
        return Ok(());
    }
    let mut left = messages.payload_bytes();
    while left > 0 {
        if messages.read_every_ns > 0 {
            sleep_until(now_ns() + messages.read_every_ns);
        }
        left -= read_some(&mut stream, left, &mut buffer)?;
    }
    stream.write_all(&[0])
}

/// Reads once, `left` bytes at most: how many there were.
fn read_some(stream: &mut TcpStream, left: u64, buffer: &mut [u8]) -> io::Result<u64> {
    let most = buffer
        .len()
        .min(usize::try_from(left).unwrap_or(usize::MAX));
    match stream.read(&mut buffer[..most])? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count as u64),
    }
}
