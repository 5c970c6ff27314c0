// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long flows side by side, and bursty ones among them.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use paceline_experiment::plan::{Adaptation, Bulk, BurstShape};
use paceline_experiment::record::{FlowRecord, GatewayRecord, Record};
use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::Doing;

use super::arrivals::Arrivals;
use super::Case;
use crate::host::adaptation::{self, Job};
use crate::host::connection::{connect, send, send_sized, serve_bursts, Counters};
use crate::host::cpu::CpuMeter;
use crate::network::changes::{self, Changes};
use crate::network::packets::Recording;
use crate::network::topology::edge_shaper;
use crate::network::wan::WanMeter;
use crate::workload::random::Random;
use crate::CaseError;

/// One flow while it runs.
struct Flow {
    group: usize,
    number: u32,
    start_ns: u64,
    sender: TcpStream,
    receiver: TcpStream,
    sending: JoinHandle<Vec<u64>>,
    receiving: JoinHandle<()>,
}

/// Runs the workload: group k sends from host k.
pub fn run(case: &mut Case, workload: usize, bulk: &Bulk) -> Result<(), CaseError> {
    let mut random = Random::new(case.plan.seed);
    set_links(case, bulk, |own_bps| own_bps)?;
    let network = case.network;
    for repeat in 1..=bulk.repeats {
        let sampled = bulk.sample_repeat == Some(repeat);
        changes::during(network, |changes| {
            run_once(case, workload, bulk, &mut random, sampled, changes)
        })?;
    }
    set_links(case, bulk, |_| case.plan.topology.edge_rate_bps)?;
    Ok(())
}

/// Gives the hosts of groups that have a link of their own this rate, bits per second.
fn set_links(case: &Case, bulk: &Bulk, rate: impl Fn(u64) -> u64) -> Result<(), CaseError> {
    for (group, host) in bulk.groups.iter().zip(&case.network.senders) {
        if let Some(own_bps) = group.edge_rate_bps {
            host.tc(&edge_shaper(
                "change",
                rate(own_bps),
                case.plan.topology.mtu,
            ))?;
        }
    }
    Ok(())
}

fn run_once(
    case: &mut Case,
    workload: usize,
    bulk: &Bulk,
    random: &mut Random,
    sampled: bool,
    changes: &Changes,
) -> Result<(), CaseError> {
    let plan = case.plan;
    let (listener, address) = case.network.listen()?;
    let mut jobs = Vec::new();
    let mut pairs = Vec::new();
    for (index, group) in bulk.groups.iter().enumerate() {
        let adaptation = match &group.congestion {
            Some(name) => &Adaptation {
                congestion: Some(name.clone()),
                ..Adaptation::default()
            },
            None => &plan.adaptation,
        };
        let congestion = adaptation::congestion(adaptation)?;
        let host = &case.network.senders[index];
        let job = Job::start(adaptation)?;
        Job::inside(job.as_ref(), || {
            for number in 0..group.flows {
                let after_ns = group.start_ns + random.below(group.spread_ns + 1);
                let (sender, receiver) = connect(host, &listener, address, &congestion)?;
                pairs.push((index, number, after_ns, sender, receiver));
            }
            Ok(())
        })?;
        jobs.push(job);
    }
    let meter = CpuMeter::start()?;
    let begin_ns = now_ns();
    changes.begin(begin_ns);
    let first_ns = begin_ns + pairs.first().map_or(0, |pair| pair.2);
    let first_link = bulk.groups.first().and_then(|group| group.edge_rate_bps);
    let edge_bps = first_link.unwrap_or(plan.topology.edge_rate_bps);
    let mut recording = sampled
        .then(|| Recording::start(case.network, first_ns, edge_bps))
        .transpose()?;
    let topology = &plan.topology;
    let arrivals = (!topology.outages().is_empty())
        .then(|| Arc::new(Arrivals::new(begin_ns, bulk.duration_ns)));
    let wan = match case.gateways {
        Some(_) => Some(WanMeter::start(&case.network.router)?),
        None => None,
    };
    let mut flows = Vec::new();
    for (group, number, after_ns, sender, receiver) in pairs {
        let start_ns = begin_ns + after_ns;
        let bursts = bulk.groups[group].bursts;
        let to_send = sender.try_clone().doing("duplicating a socket")?;
        let to_receive = receiver.try_clone().doing("duplicating a socket")?;
        let read = arrivals.clone();
        flows.push(Flow {
            group,
            number,
            start_ns,
            sender,
            receiver,
            sending: std::thread::spawn(move || keep_sending(to_send, start_ns, bursts)),
            receiving: std::thread::spawn(move || {
                keep_receiving(to_receive, bursts.is_some(), read.as_deref())
            }),
        });
    }
    let end_ns = begin_ns + bulk.duration_ns;
    for second in 1..=bulk.duration_ns.div_ceil(1_000_000_000) {
        let second_ns = end_ns.min(begin_ns + second * 1_000_000_000);
        while let Some(recording) = recording.as_mut().filter(|r| r.next_ns() <= second_ns) {
            sleep_until(recording.next_ns());
            recording.look(&flows[0].sender)?;
        }
        sleep_until(second_ns);
        case.advance()?;
    }
    // Everything is read before anything is taken down.
    let end_ns = now_ns();
    let mut records = Vec::new();
    let mut payload = 0;
    for flow in &flows {
        let bytes = received_bytes(&flow.receiver)?;
        let counters = Counters::of(&flow.sender)?;
        payload += bytes;
        records.push(FlowRecord {
            workload,
            group: flow.group,
            flow: flow.number,
            bytes,
            active_ns: end_ns.saturating_sub(flow.start_ns),
            segments: u64::from(counters.data_segments),
            retransmitted: u64::from(counters.retransmitted),
            marked: u64::from(counters.marked),
            bursts_ns: Vec::new(),
        });
    }
    let cpu = meter.stop(workload, end_ns - begin_ns, payload)?;
    if let Some(arrivals) = &arrivals {
        case.record(&Record::Arrivals(arrivals.record(workload)))?;
    }
    if let (Some(wan), Some(gateways)) = (wan, &mut case.gateways) {
        let most_in_10ms_bytes = wan.stop()?;
        let counted = gateways.counted()?;
        case.record(&Record::Gateway(GatewayRecord {
            workload,
            most_in_10ms_bytes,
            ..counted
        }))?;
    }
    if let Some(recording) = recording {
        let mss = Counters::of(&flows[0].sender)?.mss;
        case.record(&Record::Packets(recording.stop(workload, mss)?))?;
    }
    for (flow, record) in flows.into_iter().zip(&mut records) {
        record.bursts_ns = flow.stop()?;
        case.record(&Record::Flow(record.clone()))?;
    }
    case.record(&Record::Cpu(cpu))
}

impl Flow {
    /// Resets the connection, so that the link is quiet at once: the bursts that
    /// were completed.
    fn stop(self) -> Result<Vec<u64>, CaseError> {
        let now = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        for stream in [&self.sender, &self.receiver] {
            // SAFETY: pointer and length describe `now`.
            let result = unsafe {
                libc::setsockopt(
                    stream.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    std::ptr::from_ref(&now).cast(),
                    size_of_val(&now) as libc::socklen_t,
                )
            };
            nix::errno::Errno::result(result).doing("setting SO_LINGER")?;
            // Wakes its thread; a flow that ended by itself is not connected any more.
            drop(stream.shutdown(Shutdown::Both));
        }
        let bursts = self
            .sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.receiving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(bursts)
    }
}

/// Sends until the connection is shut down: each completed burst's time.
fn keep_sending(mut stream: TcpStream, start_ns: u64, bursts: Option<BurstShape>) -> Vec<u64> {
    sleep_until(start_ns);
    let mut completed = Vec::new();
    let Some(shape) = bursts else {
        // Ends with the error that the shutdown makes.
        drop(send(&mut stream, u64::MAX));
        return completed;
    };
    let mut one = || -> io::Result<()> {
        let begun = now_ns();
        send_sized(&mut stream, shape.size_bytes)?;
        stream.read_exact(&mut [0])?;
        let ended = now_ns();
        completed.push(ended - begun);
        sleep_until(ended + shape.gap_ns);
        Ok(())
    };
    while one().is_ok() {}
    completed
}

fn keep_receiving(mut stream: TcpStream, bursts: bool, arrivals: Option<&Arrivals>) {
    if bursts {
        // The shutdown cuts a burst short: no error.
        drop(serve_bursts(stream));
    } else {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if let Some(arrivals) = arrivals {
                arrivals.add(count as u64);
            }
        }
    }
}

/// Payload that arrived in order, as the receiver's TCP counts it.
fn received_bytes(stream: &TcpStream) -> Result<u64, CaseError> {
    Ok(Counters::of(stream)?.received_bytes)
}
