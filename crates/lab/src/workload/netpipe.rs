// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages there and back with growing sizes, as NetPIPE sends them: of each size as many as
//! a trial's time takes, judged by the size before, in several trials, of which the fastest
//! counts.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{channel, Receiver, Sender};

use paceline_experiment::plan::Netpipe;
use paceline_experiment::record::{NetpipeRecord, Record};
use paceline_net::clock::now_ns;
use paceline_net::Doing;

use super::messages::Pair;
use super::Case;
use crate::host::connection::run_promptly;
use crate::host::cpu::CpuMeter;
use crate::CaseError;

/// Exchanges of a trial at least, as NetPIPE's TRIALS, and at most.
const LEAST_EXCHANGES: u64 = 7;
const MOST_EXCHANGES: u64 = 100_000;

/// Exchanges of one size that the other side is to answer.
struct Trial {
    size_bytes: u64,
    exchanges: u32,
}

/// Runs the workload on one connection.
pub fn run(case: &mut Case, workload: usize, netpipe: &Netpipe) -> Result<(), CaseError> {
    let pair = Pair::open(case, false)?;
    let receiver = pair.receiver.try_clone().doing("duplicating a socket")?;
    let (orders, trials) = channel();
    let answering = std::thread::spawn(move || answer(receiver, &trials));
    let meter = CpuMeter::start()?;
    let begin_ns = now_ns();
    let mut payload = 0;
    // The first exchanges wake everything up.
    let mut exchange_ns =
        trial(&pair.sender, &orders, 1, LEAST_EXCHANGES as u32)? / LEAST_EXCHANGES;
    let mut size_before = 1;
    for &size_bytes in &netpipe.sizes {
        let expected_ns = (exchange_ns * size_bytes / size_before).max(1);
        let exchanges = (netpipe.trial_ns / expected_ns).clamp(LEAST_EXCHANGES, MOST_EXCHANGES);
        let exchanges = exchanges as u32;
        let mut best_ns = u64::MAX;
        for _ in 0..netpipe.trials {
            best_ns = best_ns.min(trial(&pair.sender, &orders, size_bytes, exchanges)?);
            payload += 2 * size_bytes * u64::from(exchanges);
        }
        exchange_ns = best_ns / u64::from(exchanges);
        size_before = size_bytes;
        case.record(&Record::Netpipe(NetpipeRecord {
            workload,
            size_bytes,
            exchanges,
            time_ns: best_ns,
        }))?;
        case.advance()?;
    }
    let cpu = meter.stop(workload, now_ns() - begin_ns, payload)?;
    drop(orders);
    answering
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .doing("answering messages")?;
    case.record(&Record::Cpu(cpu))
}

/// How long so many exchanges took, nanoseconds.
fn trial(
    mut stream: &TcpStream,
    orders: &Sender<Trial>,
    size_bytes: u64,
    exchanges: u32,
) -> Result<u64, CaseError> {
    // Nobody takes it only if the other side has failed; then there is no answer either.
    drop(orders.send(Trial {
        size_bytes,
        exchanges,
    }));
    let mut message = vec![0; size_bytes as usize];
    let begin_ns = now_ns();
    for _ in 0..exchanges {
        stream.write_all(&message).doing("sending a message")?;
        stream
            .read_exact(&mut message)
            .doing("waiting for an answer")?;
    }
    Ok(now_ns() - begin_ns)
}

fn answer(mut stream: TcpStream, trials: &Receiver<Trial>) -> io::Result<()> {
    run_promptly(true);
    while let Ok(trial) = trials.recv() {
        let mut message = vec![0; trial.size_bytes as usize];
        for _ in 0..trial.exchanges {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
    }
    Ok(())
}
