// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Incast: many senders answer one receiver at once. Where whole windows are
//! lost, the retransmission timer rules (matsuda-2005, 2.3 and 4.4).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use paceline_experiment::plan::Incast;
use paceline_experiment::record::{Record, RoundRecord};
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::Doing;

use super::Case;
use crate::host::adaptation::{self, Job};
use crate::host::connection::{connect, send, Counters, REQUEST_BYTES};
use crate::host::cpu::{timers, timers_since, CpuMeter};
use crate::CaseError;

/// Runs the workload between the first N sender hosts and the receiver.
pub fn run(case: &mut Case, workload: usize, incast: &Incast) -> Result<(), CaseError> {
    let plan = case.plan;
    let (listener, address) = case.network.listen()?;
    let congestion = adaptation::congestion(&plan.adaptation)?;
    let namespaces = &case.network.senders[..incast.senders as usize];
    let job = Job::start(&plan.adaptation)?;
    let pairs: Result<Vec<_>, _> = Job::inside(job.as_ref(), || {
        namespaces
            .iter()
            .map(|host| Ok(connect(host, &listener, address, &congestion)?))
            .collect()
    });
    let (senders, mut receivers): (Vec<_>, Vec<_>) = pairs?.into_iter().unzip();
    let mut answering = Vec::new();
    for (sender, receiver) in senders.iter().zip(&receivers) {
        let stream = sender.try_clone().doing("duplicating a socket")?;
        answering.push(std::thread::spawn(move || answer_requests(stream)));
        receiver
            .set_nonblocking(true)
            .doing("making a socket non-blocking")?;
    }
    let before_timers = timers(namespaces.iter().map(AsRef::as_ref), workload)?;
    let mut meter = CpuMeter::start()?;
    meter.pause()?;
    let mut active_ns = 0;
    let mut before = sum_of_counters(&senders)?;
    for number in 1..=incast.rounds {
        meter.resume()?;
        let round = ask_all(&mut receivers, incast.answer_bytes)?;
        meter.pause()?;
        active_ns += round.end_ns - round.start_ns;
        let after = sum_of_counters(&senders)?;
        case.record(&Record::Round(RoundRecord {
            workload,
            round: number,
            completion_ns: round.end_ns - round.start_ns,
            longest_pause_ns: round.longest_pause_ns,
            segments: after[0] - before[0],
            retransmitted: after[1] - before[1],
            spurious: after[2] - before[2],
        }))?;
        before = after;
        case.advance()?;
        sleep_until((round.start_ns + incast.period_ns).max(round.end_ns));
    }
    let payload = u64::from(incast.senders) * incast.answer_bytes * u64::from(incast.rounds);
    case.record(&Record::Cpu(meter.stop(workload, active_ns, payload)?))?;
    let namespaces = &case.network.senders[..incast.senders as usize];
    let after_timers = timers(namespaces.iter().map(AsRef::as_ref), workload)?;
    case.record(&Record::Timers(timers_since(before_timers, after_timers)))?;
    drop(receivers);
    for thread in answering {
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .doing("answering a request")?;
    }
    Ok(())
}

struct Round {
    start_ns: u64,
    end_ns: u64,
    longest_pause_ns: u64,
}

/// Requests `answer_bytes` from every sender, one right after the other, and waits for
/// all answers.
fn ask_all(streams: &mut [TcpStream], answer_bytes: u64) -> Result<Round, CaseError> {
    let mut left = vec![answer_bytes; streams.len()];
    let mut buffer = vec![0; 1 << 18];
    let start_ns = now_ns();
    for stream in streams.iter_mut() {
        stream
            .write_all(&answer_bytes.to_be_bytes())
            .doing("requesting from a sender")?;
    }
    let mut last_ns = start_ns;
    let mut longest_pause_ns = 0;
    loop {
        let waiting: Vec<usize> = (0..streams.len())
            .filter(|&index| left[index] > 0)
            .collect();
        if waiting.is_empty() {
            return Ok(Round {
                start_ns,
                end_ns: last_ns,
                longest_pause_ns,
            });
        }
        let mut descriptors: Vec<PollFd> = waiting
            .iter()
            .map(|&index| PollFd::new(streams[index].as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut descriptors, PollTimeout::NONE).doing("waiting for answers")?;
        let ready: Vec<usize> = waiting
            .iter()
            .zip(&descriptors)
            .filter(|(_, descriptor)| {
                descriptor
                    .revents()
                    .is_some_and(|events| !events.is_empty())
            })
            .map(|(&index, _)| index)
            .collect();
        for index in ready {
            let count = streams[index]
                .read(&mut buffer)
                .doing("reading an answer")? as u64;
            if count == 0 {
                return Err(CaseError::Unexpected(
                    "a sender closed its connection during a round",
                ));
            }
            left[index] = left[index].saturating_sub(count);
            let now = now_ns();
            longest_pause_ns = longest_pause_ns.max(now - last_ns);
            last_ns = now;
        }
    }
}

fn answer_requests(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    loop {
        match stream.read_exact(&mut request) {
            Ok(()) => send(&mut stream, u64::from_be_bytes(request))?,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Data segments sent, segments sent again, and duplicates that the receiver
/// reported, over all connections.
fn sum_of_counters(senders: &[TcpStream]) -> Result<[u64; 3], CaseError> {
    let mut sum = [0; 3];
    for sender in senders {
        let counters = Counters::of(sender)?;
        sum[0] += u64::from(counters.data_segments);
        sum[1] += u64::from(counters.retransmitted);
        sum[2] += u64::from(counters.duplicates_reported);
    }
    Ok(sum)
}
