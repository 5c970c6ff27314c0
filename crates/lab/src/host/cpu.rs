// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU use of the machine, and the counters of its TCP.

use paceline_experiment::record::{CpuRecord, TimerRecord};
use paceline_net::clock::now_ns;
use paceline_net::{Doing, Namespace};

use crate::CaseError;

/// Adds up CPU time over intervals. Idle time is the kernel's account, exact to one tick of
/// USER_HZ (10 ms) in each stretch.
#[derive(Debug, Clone, Copy)]
pub struct CpuMeter {
    busy_ns: u64,
    unsure_ns: u64,
    started_ns: u64,
    idle_ns: u64,
    cpus: u32,
    running: bool,
}

impl CpuMeter {
    /// Starts the first stretch.
    pub fn start() -> Result<Self, CaseError> {
        let (idle_ns, cpus) = read_stat()?;
        Ok(CpuMeter {
            busy_ns: 0,
            unsure_ns: 0,
            started_ns: now_ns(),
            idle_ns,
            cpus,
            running: true,
        })
    }

    /// Ends a stretch, if one is running.
    pub fn pause(&mut self) -> Result<(), CaseError> {
        if !self.running {
            return Ok(());
        }
        self.running = false;
        let (idle_ns, _) = read_stat()?;
        let elapsed_ns = (now_ns() - self.started_ns) * u64::from(self.cpus);
        self.busy_ns += elapsed_ns.saturating_sub(idle_ns - self.idle_ns);
        self.unsure_ns += NS_PER_TICK;
        Ok(())
    }

    /// Starts another stretch.
    pub fn resume(&mut self) -> Result<(), CaseError> {
        *self = CpuMeter {
            busy_ns: self.busy_ns,
            unsure_ns: self.unsure_ns,
            ..Self::start()?
        };
        Ok(())
    }

    /// Ends the last interval. Returns the CPU time used in all of them.
    pub fn stop(
        mut self,
        workload: usize,
        active_ns: u64,
        payload_bytes: u64,
    ) -> Result<CpuRecord, CaseError> {
        self.pause()?;
        Ok(CpuRecord {
            workload,
            busy_ns: self.busy_ns,
            unsure_ns: self.unsure_ns,
            active_ns,
            cpus: self.cpus,
            payload_bytes,
        })
    }
}

/// One step of /proc/stat, 1/USER_HZ, in nanoseconds.
const NS_PER_TICK: u64 = 10_000_000;

/// Idle time of all CPUs together in nanoseconds, and their number.
fn read_stat() -> Result<(u64, u32), CaseError> {
    let text = std::fs::read_to_string("/proc/stat").doing("reading /proc/stat")?;
    let mut idle = None;
    let mut cpus = 0;
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields[0] == "cpu" {
            // cpu user nice system idle iowait …
            let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
            idle = ticks(4)
                .zip(ticks(5))
                .map(|(idle, waiting)| (idle + waiting) * NS_PER_TICK);
        } else {
            cpus += 1;
        }
    }
    match idle {
        Some(idle) if cpus > 0 => Ok((idle, cpus)),
        _ => Err(CaseError::Unexpected(
            "/proc/stat does not have the form that proc(5) describes",
        )),
    }
}

/// The kernel's counters of retransmission timers, summed over `hosts`.
pub fn timers<'a>(
    hosts: impl Iterator<Item = &'a Namespace>,
    workload: usize,
) -> Result<TimerRecord, CaseError> {
    let mut sum = TimerRecord {
        workload,
        ..TimerRecord::default()
    };
    for host in hosts {
        let text = host.enter(|| {
            std::fs::read_to_string("/proc/thread-self/net/netstat")
                .doing("reading /proc/net/netstat")
        })?;
        // Pairs of lines: names, then values.
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
            return Err(CaseError::Unexpected(
                "/proc/net/netstat has no TcpExt counters",
            ));
        };
        for (name, value) in names
            .split_ascii_whitespace()
            .zip(values.split_ascii_whitespace())
        {
            let value = || value.parse::<u64>().unwrap_or(0);
            match name {
                "TCPTimeouts" => sum.timeouts += value(),
                "TCPSpuriousRTOs" => sum.spurious_timeouts += value(),
                "TCPLossProbes" => sum.loss_probes += value(),
                _ => {}
            }
        }
    }
    Ok(sum)
}

/// Data segments that `hosts` have sent, retransmissions included, and retransmissions.
pub fn segments<'a>(hosts: impl Iterator<Item = &'a Namespace>) -> Result<[u64; 2], CaseError> {
    let mut sum = [0, 0];
    for host in hosts {
        let read = |file: &str| {
            let path = format!("/proc/thread-self/net/{file}");
            host.enter(|| std::fs::read_to_string(&path).doing(format!("reading {path}")))
        };
        let first = counter(&read("netstat")?, "TcpExt:", "TCPOrigDataSent");
        let again = counter(&read("snmp")?, "Tcp:", "RetransSegs");
        let (Some(first), Some(again)) = (first, again) else {
            return Err(CaseError::Unexpected(
                "/proc/net has no TCPOrigDataSent or RetransSegs",
            ));
        };
        sum = [sum[0] + first + again, sum[1] + again];
    }
    Ok(sum)
}

/// A counter in pairs of lines, names and then values, that begin with `group`.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let mut pairs = lines
        .next()?
        .split_ascii_whitespace()
        .zip(lines.next()?.split_ascii_whitespace());
    pairs.find(|(found, _)| *found == name)?.1.parse().ok()
}

/// `after` minus `before`.
pub fn timers_since(before: TimerRecord, after: TimerRecord) -> TimerRecord {
    TimerRecord {
        workload: after.workload,
        timeouts: after.timeouts - before.timeouts,
        spurious_timeouts: after.spurious_timeouts - before.spurious_timeouts,
        loss_probes: after.loss_probes - before.loss_probes,
    }
}
