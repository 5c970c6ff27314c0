// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From raw records to a report: metrics, bounds, validity, claims.

#![forbid(unsafe_code)]

mod all_to_all;
mod bulk;
mod burst;
mod gateway;
mod impairments;
mod messages;
mod real_program;
mod recovery;
mod skeleton;
mod streams;
mod switch;
mod transfer;

use indexmap::IndexMap;
use paceline_experiment::file;
use paceline_experiment::plan::{Incast, Plan, Program, Workload};
use paceline_experiment::record::{CpuRecord, LinkReading, Record, RoundRecord, SampleRecord};
use paceline_experiment::Experiment;
use paceline_net::shaper::shaper_burst_bytes;
use paceline_report::claims::{Claim, ClaimError};
use paceline_report::results::{round, Checked, Link, Metric, PathLink, Results, ResultsError};
use paceline_report::{Report, Series};

/// A machine busier than this while it had something to send was the bottleneck
/// itself.
const MOST_BUSY: f64 = 0.90;
/// Tolerance of the round trip, beside 1 %: the time of hosts and router.
const LEAST_DELAY_TOLERANCE_NS: u64 = 100_000;
/// An echo's packet, framing included, bytes.
const ECHO_WIRE_BYTES: u64 = 100;
/// Ethernet header, bytes.
const HEADER_BYTES: u64 = 14;
/// TCP's timestamps in each header, with padding, bytes (RFC 7323, appendix A).
const TIMESTAMPS_BYTES: u64 = 12;

/// Why no report could be made of the records.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// A claim of the experiment does not fit its results.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A number that results cannot hold.
    #[error("{shard}: {metric}: {source}")]
    Metric {
        /// Which shard.
        shard: String,
        /// Which metric.
        metric: String,
        /// The problem.
        source: ResultsError,
    },
    /// A shard reported nothing about its link.
    #[error("no shard has read its link back")]
    NoLink,
}

/// The records of one shard, in one or several repetitions.
#[derive(Debug, Clone)]
pub struct ShardRecords {
    /// The plan of the run.
    pub plan: Plan,
    /// The records of each repetition.
    pub repetitions: Vec<Vec<Record>>,
}

/// The origin of the results.
#[derive(Debug, Clone)]
pub struct Origin {
    /// `virtual` or `live`.
    pub backend: &'static str,
    /// The command line that makes these results again.
    pub command: String,
    /// Variants were left out, so claims about them cannot be judged.
    pub partial: bool,
}

/// Makes the report of `experiment` from its shards' records.
///
/// # Errors
/// If a claim does not fit the results, or there is nothing to report.
pub fn report(
    experiment: &Experiment,
    origin: &Origin,
    shards: &[ShardRecords],
) -> Result<Report, CollectError> {
    let mut collector = Collector::default();
    for shard in shards {
        collector.shard(shard)?;
    }
    let link = collector.link.ok_or(CollectError::NoLink)?;
    let mut results = Results {
        experiment: experiment.name.clone(),
        title: Some(experiment.file.title.clone()),
        description: Some(experiment.file.description.trim().to_owned()),
        command: Some(origin.command.clone()),
        backend: origin.backend.to_owned(),
        kernel: collector.kernel,
        seed: shards
            .first()
            .map_or(experiment.file.seed, |shard| shard.plan.seed),
        valid: collector.invalid.is_empty(),
        warnings: collector.invalid,
        notes: collector.notes,
        cpu_idle: 1.0 - collector.most_busy,
        link,
        paths: match &experiment.file.paths {
            Some(_) => shards.iter().map(|shard| path(&shard.plan)).collect(),
            None => IndexMap::new(),
        },
        variants: collector.variants,
        bounds: collector.bounds,
        holds: Vec::new(),
        paper: experiment
            .file
            .paper
            .iter()
            .map(file::Paper::for_results)
            .collect(),
    };
    results.warnings.extend(collector.warnings);
    let is_unsure =
        |claim: &str| names(claim).any(|name| collector.unsure.iter().any(|of| of == name));
    for text in &experiment.file.holds {
        let claim = Claim::parse(text).map_err(ClaimError::from)?;
        let each = claim.each();
        let judged = claim
            .evaluate(&results)
            .and_then(|holds| Ok((holds, each.evaluate(&results)?)));
        match judged {
            Ok((holds, each)) => {
                // A claim about all together is unsure if one of them is.
                let one_is = each.iter().any(|hold| is_unsure(&hold.claim));
                for hold in holds {
                    let is_unsure = match claim.is_about_all() {
                        true => one_is,
                        false => is_unsure(&hold.claim),
                    };
                    if !is_unsure {
                        results.holds.push(hold);
                        continue;
                    }
                    let (claim, value) = (&hold.claim, round(hold.value));
                    results.notes.push(format!(
                        "not judged: {claim} ({value}): timers and repairs of the simulated \
                         senders decide it; --backend virtual can judge it"
                    ));
                }
            }
            Err(error) if origin.partial => results
                .notes
                .push(format!("not judged, for want of variants: {error}")),
            Err(error) => return Err(ClaimError::from(error).into()),
        }
    }
    Ok(Report {
        results,
        series: collector.series,
    })
}

/// The names in a claim, as VARIANT/METRIC.
fn names(claim: &str) -> impl Iterator<Item = &str> {
    let words = claim.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')'));
    words.filter_map(|word| word.split('@').next())
}

/// A drawn path, by its name.
fn path(plan: &Plan) -> (String, PathLink) {
    let topology = &plan.topology;
    let link = PathLink {
        rate_bps: topology.seen_rate_bps() as f64,
        rtt_s: 2.0 * topology.one_way_delay_ns as f64 / 1e9,
        buffer_bytes: topology.buffer_bytes,
        offload: topology.offload,
    };
    (plan.scenario.clone(), link)
}

#[derive(Default)]
struct Collector {
    kernel: String,
    link: Option<Link>,
    variants: IndexMap<String, IndexMap<String, Metric>>,
    bounds: IndexMap<String, f64>,
    series: Vec<Series>,
    invalid: Vec<String>,
    warnings: Vec<String>,
    notes: Vec<String>,
    /// VARIANT/METRIC of bursts, simulated, whose times are not known well enough.
    unsure: Vec<String>,
    most_busy: f64,
}

/// Where a shard's metrics go.
struct Place<'a> {
    plan: &'a Plan,
    shard: String,
}

impl Place<'_> {
    /// `NAME/TAIL…/SCENARIO`, empty parts left out.
    fn metric(&self, name: &str, tails: &[&str]) -> String {
        let parts = [name]
            .into_iter()
            .chain(tails.iter().copied())
            .chain([self.plan.scenario.as_str()]);
        parts
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("/")
    }
}

impl Collector {
    fn shard(&mut self, records: &ShardRecords) -> Result<(), CollectError> {
        let place = Place {
            plan: &records.plan,
            shard: records.plan.shard_name(),
        };
        let of_all = || records.repetitions.iter().flatten();
        for record in of_all() {
            match record {
                Record::Begin { kernel } if self.kernel.is_empty() => {
                    self.kernel.clone_from(kernel)
                }
                Record::Link(reading) => self.link(&place, reading),
                Record::Impairments(reading) => {
                    let comparison = impairments::compare(&place.plan.topology, reading);
                    let named = |text| format!("{}: {text}", place.shard);
                    self.invalid.extend(comparison.wrong.into_iter().map(named));
                    let right = comparison.right.into_iter().map(named);
                    self.notes.extend(right);
                }
                Record::Warning { text } => self.warnings.push(format!("{}: {text}", place.shard)),
                Record::Untrusted { text } => {
                    self.invalid.push(format!("{}: {text}", place.shard));
                }
                _ => {}
            }
        }
        for (index, workload) in records.plan.workloads.iter().enumerate() {
            let cpus = pick(of_all(), |record| match record {
                Record::Cpu(cpu) if cpu.workload == index => Some(*cpu),
                _ => None,
            });
            let mut may_have_waited_for_cpu = true;
            match workload {
                Workload::Burst(burst) => self.burst(&place, index, burst, of_all())?,
                Workload::Incast(incast) => self.incast(&place, index, incast, of_all())?,
                Workload::Bulk(bulk) => self.bulk(&place, index, bulk, of_all(), &cpus)?,
                Workload::Streams(streams) => self.streams(&place, index, streams, of_all())?,
                Workload::Messages(messages) => {
                    self.messages(&place, index, messages, of_all())?;
                }
                Workload::Netpipe(netpipe) => self.netpipe(&place, index, netpipe, of_all())?,
                Workload::Ranks(ranks) => match &ranks.program {
                    Program::Switch(switch) => {
                        self.switch(&place, index, (&ranks.label, switch), of_all())?
                    }
                    Program::AllToAll(all) => {
                        self.all_to_all(&place, index, (&ranks.label, all), of_all())?
                    }
                    Program::OutOfCore(plan) => {
                        self.out_of_core(&place, index, (&ranks.label, plan), of_all())?
                    }
                    Program::Skeleton(plan) => {
                        may_have_waited_for_cpu = self.skeleton(&place, index, plan, of_all())?
                    }
                },
                Workload::RealProgram(program) => {
                    self.real_program(&place, index, program, of_all())?
                }
                Workload::Transfer(transfer) => self.transfer(&place, index, transfer, of_all())?,
            }
            if may_have_waited_for_cpu {
                self.cpu(&place, workload, &cpus);
            }
        }
        self.mean_of_skeletons(&place)
    }

    /// Compares the link with its settings; the first shard's is reported.
    fn link(&mut self, place: &Place, reading: &LinkReading) {
        let wanted = &place.plan.topology;
        let rate_bps = wanted.seen_rate_bps();
        if !wanted.is_rate(reading.rate_bps) {
            self.invalid.push(format!(
                "{}: the link ran at {:.1} Mbit/s instead of {:.1}",
                place.shard,
                reading.rate_bps as f64 / 1e6,
                rate_bps as f64 / 1e6
            ));
        }
        let rtt_ns = 2 * wanted.one_way_delay_ns;
        // An echo comes back at the rate of that way.
        let back = wanted.impairments.return_rate_bps;
        let echo_ns = back.map_or(0, |rate_bps| ECHO_WIRE_BYTES * 8_000_000_000 / rate_bps);
        let tolerance_ns = LEAST_DELAY_TOLERANCE_NS.max(rtt_ns / 100) + echo_ns;
        if reading.rtt_ns.abs_diff(rtt_ns) > tolerance_ns {
            self.invalid.push(format!(
                "{}: the round trip took {:.3} ms instead of {:.3}",
                place.shard,
                reading.rtt_ns as f64 / 1e6,
                rtt_ns as f64 / 1e6
            ));
        }
        if let Some(buffer) = reading.buffer_bytes {
            // One packet, and the shaper's bucket on top of the queue.
            let packet = u64::from(wanted.mtu) + HEADER_BYTES;
            let bucket = u64::from(shaper_burst_bytes(wanted.mtu));
            if buffer.abs_diff(wanted.buffer_bytes) > packet + bucket {
                self.invalid.push(format!(
                    "{}: the buffer held {buffer} bytes instead of {}",
                    place.shard, wanted.buffer_bytes
                ));
            }
        }
        // A variant may be without timestamps, whose bytes are data then.
        let payload = wanted.frame().payload + TIMESTAMPS_BYTES;
        let largest = u64::from(wanted.packet_segments()) * payload;
        if !wanted.offload && reading.largest_packet_bytes > largest {
            self.invalid.push(format!(
                "{}: packets of {} bytes left the sender although offload is off",
                place.shard, reading.largest_packet_bytes
            ));
        }
        self.link.get_or_insert(Link {
            rate_bps: Checked {
                asked: rate_bps as f64,
                measured: reading.rate_bps as f64,
            },
            one_way_delay_s: Checked {
                asked: wanted.one_way_delay_ns as f64 / 1e9,
                measured: reading.rtt_ns as f64 / 2e9,
            },
            buffer_bytes: wanted.buffer_bytes,
            buffer_measured_bytes: reading.buffer_bytes,
            edge_rate_bps: Some(wanted.edge_rate_bps as f64),
            rtt_s: Some(reading.rtt_ns as f64 / 1e9),
        });
    }

    fn cpu(&mut self, place: &Place, workload: &Workload, cpus: &[CpuRecord]) {
        for cpu in cpus {
            // The certain part: bursts of a millisecond are below the resolution of /proc/stat.
            let busy_ns = cpu.busy_ns.saturating_sub(cpu.unsure_ns);
            let busy =
                (busy_ns as f64 / (cpu.active_ns * u64::from(cpu.cpus)).max(1) as f64).min(1.0);
            self.most_busy = self.most_busy.max(busy);
            if busy > MOST_BUSY {
                let problem = format!(
                    "{} {}: the CPU was {:.0} % busy while data was sent: it, not the link, may have set the pace",
                    place.shard,
                    workload.label(),
                    busy * 100.0
                );
                // Once for all runs that were as busy.
                if !self.invalid.contains(&problem) {
                    self.invalid.push(problem);
                }
            }
        }
    }

    fn put(
        &mut self,
        place: &Place,
        metric: &str,
        runs: Vec<f64>,
        bound: Option<f64>,
    ) -> Result<(), CollectError> {
        let wrong = |source| CollectError::Metric {
            shard: place.shard.clone(),
            metric: metric.to_owned(),
            source,
        };
        let summed = Metric::from_runs(runs).map_err(wrong)?;
        self.variants
            .entry(place.plan.variant.clone())
            .or_default()
            .insert(metric.to_owned(), summed);
        if let Some(bound) = bound {
            self.bounds.entry(metric.to_owned()).or_insert(bound);
        }
        Ok(())
    }

    /// The shares of segments that were sent again, and of those that arrived twice, of
    /// (retransmitted, spurious, sent).
    fn sent_again(
        &mut self,
        place: &Place,
        name: impl Fn(&'static str) -> String,
        sent: impl Iterator<Item = (u64, u64, u64)> + Clone,
    ) -> Result<(), CollectError> {
        let retransmitted = share(sent.clone().map(|(again, _, all)| (again, all)));
        self.put(
            place,
            &name("retransmitted_share"),
            vec![retransmitted],
            None,
        )?;
        let spurious = share(sent.map(|(_, twice, all)| (twice, all)));
        self.put(place, &name("spurious_share"), vec![spurious], None)
    }

    /// The share of segments that a link with CoDel marked, of (marked, sent).
    fn marked(
        &mut self,
        place: &Place,
        tails: &[&str],
        marked: impl Iterator<Item = (u64, u64)>,
    ) -> Result<(), CollectError> {
        let codel = place.plan.topology.impairments.codel;
        if !codel.is_some_and(|codel| codel.ecn) {
            return Ok(());
        }
        let metric = place.metric("marked_share", tails);
        self.put(place, &metric, vec![share(marked)], None)
    }

    /// Bandwidth over time, for the figure.
    fn series(&mut self, place: &Place, label: &str, x_label: &str, samples: &SampleRecord) {
        let megabits = |bytes: u64| bytes as f64 * 8.0 / 1e3;
        self.series.push(Series {
            experiment_part: place.metric(label, &[]),
            variant: place.plan.variant.clone(),
            x_label: x_label.to_owned(),
            y_label: "bandwidth (Mbit/s)".to_owned(),
            line: String::new(),
            points: (0..)
                .map(f64::from)
                .zip(samples.bytes_per_ms.iter().map(|&bytes| megabits(bytes)))
                .collect(),
        });
    }

    fn incast<'r>(
        &mut self,
        place: &Place,
        index: usize,
        incast: &Incast,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), CollectError> {
        let rounds: Vec<&RoundRecord> = pick(records.clone(), |record| match record {
            Record::Round(round) if round.workload == index && round.round >= incast.from_round => {
                Some(round)
            }
            _ => None,
        });
        if rounds.is_empty() {
            return Ok(());
        }
        let topology = &place.plan.topology;
        let senders = u64::from(incast.senders);
        let rtt_ns = 2 * topology.one_way_delay_ns;
        let payload = senders * incast.answer_bytes;
        let frame = topology.frame();
        let bound = frame.completion_s(payload, senders, topology.rate_bps, rtt_ns);
        let name = |metric| place.metric(metric, &[&incast.label]);
        let times = rounds
            .iter()
            .map(|round| seconds(round.completion_ns))
            .collect();
        self.put(place, &name("round_s"), times, Some(bound))?;
        let pauses = rounds
            .iter()
            .map(|round| seconds(round.longest_pause_ns))
            .collect();
        self.put(place, &name("pause_s"), pauses, None)?;
        let sent = rounds
            .iter()
            .map(|round| (round.retransmitted, round.spurious, round.segments));
        self.sent_again(place, name, sent)?;
        let timeouts = pick(records, |record| match record {
            Record::Timers(timers) if timers.workload == index => Some(timers.timeouts as f64),
            _ => None,
        });
        if timeouts.is_empty() {
            return Ok(());
        }
        self.put(place, &name("timeouts"), timeouts, None)
    }
}

fn pick<'r, T>(
    records: impl Iterator<Item = &'r Record>,
    choose: impl FnMut(&'r Record) -> Option<T>,
) -> Vec<T> {
    records.filter_map(choose).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The part's share of the whole over all pairs of (part, whole).
fn share(pairs: impl Iterator<Item = (u64, u64)>) -> f64 {
    let (part, whole) = pairs.fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    part as f64 / whole.max(1) as f64
}
