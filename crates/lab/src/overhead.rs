// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of Paceline where it cannot gain: one endless transfer over a plain veth cable on
//! this machine, no shaping, no emulator, so that the CPU is the limit. CUBIC and Paceline on
//! CUBIC run in pairs, each pair in the other order than the one before it. Needs root.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use paceline_experiment::plan::{Adaptation, PolicySource};
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::{Doing, Namespace};
use paceline_report::interval::{self, CONFIDENCE};
use paceline_report::results::Metric;
use serde::Serialize;

use crate::backend::live::{kernel_release, LiveError};
use crate::host::adaptation::{self, Job};
use crate::host::connection::{connect, send, Counters};
use crate::host::windows::{self, KernelLog};
use crate::CaseError;

/// Time for slow start and buffers to settle before anything is counted.
const SETTLING_NS: u64 = 100_000_000;
/// With an interval wider than this share of the median the comparison is invalid: the
/// machine was too busy.
const WIDEST: f64 = 0.04;

/// The variants.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Pairs of transfers; at least 6, or there is no interval.
    pub pairs: u32,
    /// Measured time of each transfer, nanoseconds.
    pub duration_ns: u64,
    /// Paceline's policy, a preset.
    pub policy: String,
    /// Least ratio of throughputs that passes.
    pub least_ratio: f64,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overhead {
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Paceline's policy.
    pub policy: String,
    /// Measured time of each transfer, seconds.
    pub transfer_s: f64,
    /// Plain CUBIC, bits of payload per second.
    pub cubic_bps: Metric,
    /// Paceline on CUBIC.
    pub paceline_bps: Metric,
    /// Paceline's throughput over CUBIC's, pair by pair.
    pub ratio: Metric,
    /// Where the true median of the ratio lies with the confidence below: order
    /// statistics of the pairs, no assumption on their distribution.
    pub ratio_interval: [f64; 2],
    /// Confidence of the interval.
    pub confidence: f64,
    /// Least ratio that passes.
    pub least_ratio: f64,
    /// False if the interval is too wide.
    pub valid: bool,
    /// Whether the median ratio is at least `least_ratio`.
    pub pass: bool,
}

/// Runs the comparison. `progress` gets the pairs done; `stop` ends it early.
///
/// # Errors
/// [`LiveError::NotRoot`], [`LiveError::Interrupted`] after `stop`, else the
/// first thing that failed.
pub fn run(
    comparison: &Comparison,
    progress: &dyn Fn(u32),
    stop: &AtomicBool,
) -> Result<Overhead, LiveError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LiveError::NotRoot);
    }
    let failed = |source| LiveError::Case {
        shard: "overhead".to_owned(),
        source,
    };
    let cable = Cable::lay().map_err(failed)?;
    let cubic = Adaptation {
        congestion: Some("cubic".to_owned()),
        ..Adaptation::default()
    };
    let policy = Some(PolicySource::Preset(comparison.policy.clone()));
    let paceline = Adaptation {
        policy,
        ..Adaptation::default()
    };
    let variants = [&cubic, &paceline];
    let mut rates = [Vec::new(), Vec::new()];
    windows::take_jump();
    let mut log = KernelLog::start();
    for pair in 0..comparison.pairs {
        for turn in 0..2 {
            if stop.load(Ordering::Relaxed) {
                return Err(LiveError::Interrupted);
            }
            let index = (turn + pair as usize) % 2;
            let rate = cable
                .transfer(variants[index], comparison.duration_ns)
                .map_err(failed)?;
            rates[index].push(rate);
        }
        progress(pair + 1);
    }
    if let Some(problem) = windows::problems(&mut log).pop() {
        return Err(failed(CaseError::Untrusted(problem)));
    }
    summarize(comparison, rates).map_err(failed)
}

fn summarize(
    comparison: &Comparison,
    [cubic, paceline]: [Vec<f64>; 2],
) -> Result<Overhead, CaseError> {
    let ratios: Vec<f64> = paceline
        .iter()
        .zip(&cubic)
        .map(|(paceline, cubic)| paceline / cubic)
        .collect();
    let ratio_interval = interval::of_median(&ratios).ok_or(CaseError::Unexpected(
        "an interval needs at least 6 pairs of transfers",
    ))?;
    let metric = |runs| {
        Metric::from_runs(runs).map_err(|_| CaseError::Unexpected("a transfer moved nothing"))
    };
    let ratio = metric(ratios)?;
    Ok(Overhead {
        kernel: kernel_release(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        policy: comparison.policy.clone(),
        transfer_s: comparison.duration_ns as f64 / 1e9,
        cubic_bps: metric(cubic)?,
        paceline_bps: metric(paceline)?,
        ratio_interval,
        confidence: CONFIDENCE,
        least_ratio: comparison.least_ratio,
        valid: ratio_interval[1] - ratio_interval[0] <= WIDEST * ratio.median,
        pass: ratio.median >= comparison.least_ratio,
        ratio,
    })
}

/// Two hosts and a cable, with all the offloads that the kernel gives a veth.
struct Cable {
    sender: Namespace,
    _receiver: Namespace,
    listener: TcpListener,
    address: SocketAddr,
}

impl Cable {
    fn lay() -> Result<Self, CaseError> {
        let sender = Namespace::create("sender")?;
        let receiver = Namespace::create("receiver")?;
        sender.ip(&format!(
            "link add eth0 type veth peer name eth0 netns {}\naddr add 10.154.0.1/24 dev eth0\nlink set dev eth0 up\n",
            receiver.path()
        ))?;
        receiver.ip("addr add 10.154.0.2/24 dev eth0\nlink set dev eth0 up\n")?;
        let (listener, address) = receiver.enter(|| {
            let listener = TcpListener::bind("10.154.0.2:0").doing("listening in the receiver")?;
            let address = listener
                .local_addr()
                .doing("reading the receiver's address")?;
            Ok((listener, address))
        })?;
        Ok(Cable {
            sender,
            _receiver: receiver,
            listener,
            address,
        })
    }

    /// One transfer: bits of payload per second that reached the receiver.
    fn transfer(&self, adaptation: &Adaptation, duration_ns: u64) -> Result<f64, CaseError> {
        let job = Job::start(adaptation)?;
        let congestion = adaptation::congestion(adaptation)?;
        let (sender, receiver) = Job::inside(job.as_ref(), || {
            Ok(connect(
                &self.sender,
                &self.listener,
                self.address,
                &congestion,
            )?)
        })?;
        let mut source = sender.try_clone().doing("duplicating a socket")?;
        let mut drain = receiver.try_clone().doing("duplicating a socket")?;
        // Both end when the connection is shut down below.
        let sending = std::thread::spawn(move || drop(send(&mut source, u64::MAX)));
        let receiving = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while matches!(drain.read(&mut buffer), Ok(1..)) {}
        });
        let measured = goodput(&receiver, duration_ns);
        // For the window that it shows (`windows::note`).
        Counters::of(&sender)?;
        for stream in [&sender, &receiver] {
            drop(stream.shutdown(Shutdown::Both));
        }
        for thread in [sending, receiving] {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        measured
    }
}

fn goodput(receiver: &TcpStream, duration_ns: u64) -> Result<f64, CaseError> {
    sleep_until(now_ns() + SETTLING_NS);
    let (begin_ns, before) = (now_ns(), Counters::of(receiver)?.received_bytes);
    sleep_until(begin_ns + duration_ns);
    let (end_ns, after) = (now_ns(), Counters::of(receiver)?.received_bytes);
    Ok((after - before) as f64 * 8e9 / (end_ns - begin_ns) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let comparison = Comparison {
            pairs: 6,
            duration_ns: 1,
            policy: "lfn".to_owned(),
            least_ratio: 0.97,
        };
        let cubic = vec![100.0, 50.0, 100.0, 50.0, 100.0, 50.0];
        let paceline = vec![98.0, 49.0, 98.0, 49.0, 98.0, 49.0];
        let found = summarize(&comparison, [cubic.clone(), paceline]).unwrap();
        assert_eq!(
            (found.ratio.median, found.ratio_interval),
            (0.98, [0.98, 0.98])
        );
        assert!(found.pass && found.valid);
        let found = summarize(&comparison, [cubic, vec![48.0; 6]]).unwrap();
        assert!(!found.pass && !found.valid);
    }
}
