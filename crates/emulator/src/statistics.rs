// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of a link, and its validity.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

use crate::count::Count;
use crate::link::Cause;

/// Usual width of a bin of [`Bins`], nanoseconds.
pub const BIN_NS: u64 = 1_000_000;

/// Above this 99th percentile of lateness a run is invalid,
/// nanoseconds: a hundredth of a 20 ms round trip.
pub const LATENESS_LIMIT_NS: u64 = 200_000;

/// Bytes, or packets, per bin since [`Report::started_ns`], allocated before the run so
/// that counting never waits for memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bins {
    bytes: Vec<u32>,
    used: usize,
    /// Width of a bin, nanoseconds.
    pub bin_ns: u64,
    /// Bytes that came after the last bin.
    pub beyond: u64,
}

impl Clone for Bins {
    /// A copy for reading: only the bins in use.
    fn clone(&self) -> Self {
        Bins {
            bytes: self.as_slice().to_vec(),
            ..*self
        }
    }
}

impl Bins {
    pub(crate) fn new(duration_ns: u64, bin_ns: u64) -> Self {
        let count = duration_ns.div_ceil(bin_ns) as usize;
        Bins {
            bytes: vec![0; count],
            used: 0,
            bin_ns,
            beyond: 0,
        }
    }

    pub(crate) fn add(&mut self, since_start_ns: u64, bytes: u32) {
        match self.bin(since_start_ns) {
            Some(bin) => *bin = bin.saturating_add(bytes),
            None => self.beyond += u64::from(bytes),
        }
    }

    /// A bin keeps the largest of the values that it gets.
    pub(crate) fn raise(&mut self, since_start_ns: u64, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Some(bin) = self.bin(since_start_ns) {
            *bin = bytes.max(*bin);
        }
    }

    fn bin(&mut self, since_start_ns: u64) -> Option<&mut u32> {
        if self.bytes.is_empty() {
            return None;
        }
        let at = (since_start_ns / self.bin_ns) as usize;
        let bin = self.bytes.get_mut(at)?;
        self.used = self.used.max(at + 1);
        Some(bin)
    }

    /// The bins up to the last one that is not empty.
    pub fn as_slice(&self) -> &[u32] {
        &self.bytes[..self.used]
    }
}

/// Buckets per power of two: values are kept to 1/32.
const SUB_BUCKETS: u64 = 32;

/// A histogram of nanoseconds with a relative error of at most 1/32.
#[derive(Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Histogram {
            counts: vec![0; bucket(u64::MAX) + 1],
            total: 0,
            max: 0,
        }
    }

    pub(crate) fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
        self.max = 0;
    }

    fn join(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The upper edge of the bucket where `share` (0 to 1) of the values lie
    /// at or below.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_edge(at).min(self.max);
            }
        }
        0
    }

    pub(crate) fn summary(&self) -> Lateness {
        Lateness {
            median_ns: self.quantile(0.5),
            p99_ns: self.quantile(0.99),
            max_ns: self.max,
        }
    }
}

/// Half of the longest time that [`Recent`] covers.
const RECENT_HALF_NS: u64 = 5_000_000_000;

/// The lateness of the last 5 to 10 s.
pub(crate) struct Recent {
    /// When `now` begins.
    begun_ns: u64,
    now: Histogram,
    before: Histogram,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Recent {
            begun_ns: 0,
            now: Histogram::new(),
            before: Histogram::new(),
        }
    }

    fn go_on(&mut self, at_ns: u64) {
        let age = at_ns.saturating_sub(self.begun_ns);
        if age < RECENT_HALF_NS {
            return;
        }
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.clear();
        if age >= 2 * RECENT_HALF_NS {
            self.before.clear();
        }
        self.begun_ns = at_ns;
    }

    pub(crate) fn add(&mut self, at_ns: u64, value: u64) {
        self.go_on(at_ns);
        self.now.add(value);
    }

    pub(crate) fn summary(&mut self, at_ns: u64) -> Lateness {
        self.go_on(at_ns);
        let mut both = self.now.clone();
        both.join(&self.before);
        both.summary()
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB_BUCKETS {
        return value as usize;
    }
    let shift = u64::from(value.ilog2()) - u64::from(SUB_BUCKETS.ilog2());
    ((shift + 1) * SUB_BUCKETS + (value >> shift) - SUB_BUCKETS) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket;
    }
    let shift = bucket / SUB_BUCKETS - 1;
    let lowest = (bucket % SUB_BUCKETS + SUB_BUCKETS) << shift;
    lowest + ((1 << shift) - 1)
}

/// How long after their due time packets were handed to the far interface,
/// nanoseconds. Taken after the system call returned, so it errs upwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// Half of the packets were at most this late.
    pub median_ns: u64,
    /// 99 of 100 packets were at most this late.
    pub p99_ns: u64,
    /// The latest of all.
    pub max_ns: u64,
}

/// The report of one direction.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DirectionReport {
    /// Packets that arrived at the link, dropped ones included.
    pub offered: Count,
    /// Packets handed to the far interface.
    pub carried: Count,
    /// Packets that the full buffer dropped.
    pub dropped: Count,
    /// Dropped by the policer.
    pub policed: Count,
    /// Packets that random early detection or CoDel dropped.
    pub dropped_early: Count,
    /// Packets that CoDel marked; they were carried, or lost on the line.
    pub marked: Count,
    /// Packets lost on the line.
    pub lost: Count,
    /// Copies that were handed to the far interface, in addition to carried packets.
    pub duplicated: Count,
    /// Packets in the buffer or on the line at the end.
    pub in_flight: Count,
    /// The most bytes the buffer held.
    pub peak_backlog: u64,
    /// Packets above the MTU (segmentation left to the interface): not
    /// carried, not in `offered`.
    pub oversize: u64,
    /// Packets whose checksum was left to the interface: not carried, not in
    /// `offered`.
    pub without_checksum: u64,
    /// Packets that the kernel lost before the emulator saw them.
    pub missed: u64,
    /// Packets that the far interface refused.
    pub refused: u64,
    /// How late packets were.
    pub lateness: Lateness,
    /// How late they were in the last 5 to 10 s.
    pub recent_lateness: Lateness,
    /// `offered` by arrival time.
    #[serde(skip)]
    pub offered_bins: Bins,
    /// The packets of `offered_bins`, whose values are numbers of them.
    #[serde(skip)]
    pub offered_packet_bins: Bins,
    /// `carried` by the time the last bit left the line, before the delay.
    #[serde(skip)]
    pub carried_bins: Bins,
    /// The largest backlog of the buffer, as arrivals found it.
    #[serde(skip)]
    pub backlog_bins: Bins,
    /// Packets that did not arrive, one by one, up to the requested number.
    #[serde(skip)]
    pub drops: Vec<Drop>,
}

/// A packet that did not arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drop {
    /// Since the start, nanoseconds: when it arrived at the buffer, or left the line.
    pub at_ns: u64,
    /// Why.
    pub cause: Cause,
    /// Bytes of the frame.
    pub size: u32,
    /// Its flow; `None` if it was not TCP or UDP over IP.
    pub flow: Option<Flow>,
}

/// Addresses and ports of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// IP protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// Where from.
    pub source: SocketAddr,
    /// Where to.
    pub destination: SocketAddr,
}

impl Drop {
    pub(crate) fn new(at_ns: u64, cause: Cause, size: u32, frame: &[u8]) -> Self {
        Drop {
            at_ns,
            cause,
            size,
            flow: Flow::of(frame),
        }
    }
}

impl Flow {
    /// The flow of an Ethernet frame.
    pub fn of(frame: &[u8]) -> Option<Flow> {
        let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
        let (source, destination) = match packet.net? {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                (
                    IpAddr::V4(header.source_addr()),
                    IpAddr::V4(header.destination_addr()),
                )
            }
            LaxNetSlice::Ipv6(ip) => {
                let header = ip.header();
                (
                    IpAddr::V6(header.source_addr()),
                    IpAddr::V6(header.destination_addr()),
                )
            }
            LaxNetSlice::Arp(_) => return None,
        };
        let (protocol, from, to) = match packet.transport? {
            TransportSlice::Tcp(tcp) => (6, tcp.source_port(), tcp.destination_port()),
            TransportSlice::Udp(udp) => (17, udp.source_port(), udp.destination_port()),
            _ => return None,
        };
        Some(Flow {
            protocol,
            source: SocketAddr::new(source, from),
            destination: SocketAddr::new(destination, to),
        })
    }
}

/// The report of a link from start to stop.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// CLOCK_MONOTONIC at the start, nanoseconds; bin 0 begins here.
    pub started_ns: u64,
    /// How long the link was up, nanoseconds.
    pub duration_ns: u64,
    /// CPU time the forwarding thread used, nanoseconds.
    pub cpu_ns: u64,
    /// Whether the forwarding thread had real-time priority.
    pub realtime: bool,
    /// Times the thread slept on purpose, lest the kernel throttle it.
    pub rests: u64,
    /// From the first port to the second.
    pub forward: DirectionReport,
    /// From the second port to the first.
    pub reverse: DirectionReport,
}

/// Why a run is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The 99th percentile of lateness is above [`LATENESS_LIMIT_NS`].
    Late {
        /// "forward" or "reverse".
        direction: &'static str,
        /// The 99th percentile, nanoseconds.
        p99_ns: u64,
        /// That of the last seconds.
        recent_p99_ns: u64,
    },
    /// Packets were lost that no buffer dropped.
    Lost {
        /// "forward" or "reverse".
        direction: &'static str,
        /// How many.
        packets: u64,
    },
    /// An interface left segmentation or checksums to the link.
    Offloaded {
        /// "forward" or "reverse".
        direction: &'static str,
        /// How many.
        packets: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Late {
                direction,
                p99_ns,
                recent_p99_ns,
            } => write!(
                f,
                "emulator too late ({direction}): 99th percentile {} us since it began, {} us in the last seconds, limit {} us; free a CPU or lower the rate",
                p99_ns / 1_000,
                recent_p99_ns / 1_000,
                LATENESS_LIMIT_NS / 1_000
            ),
            Problem::Lost { direction, packets } => write!(
                f,
                "emulator lost {packets} packets ({direction}) beside those its buffer dropped"
            ),
            Problem::Offloaded { direction, packets } => write!(
                f,
                "{packets} packets ({direction}) came above the MTU or without checksum; switch off TSO and checksum offload on the interface that faces the link"
            ),
        }
    }
}

impl Report {
    /// Everything that makes the run invalid; empty when it is valid.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (direction, report) in [("forward", &self.forward), ("reverse", &self.reverse)] {
            let p99_ns = report.lateness.p99_ns;
            if p99_ns > LATENESS_LIMIT_NS {
                problems.push(Problem::Late {
                    direction,
                    p99_ns,
                    recent_p99_ns: report.recent_lateness.p99_ns,
                });
            }
            let packets = report.missed + report.refused;
            if packets > 0 {
                problems.push(Problem::Lost { direction, packets });
            }
            let packets = report.oversize + report.without_checksum;
            if packets > 0 {
                problems.push(Problem::Offloaded { direction, packets });
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_holds_its_values() {
        for value in (0..100_000).chain((17..63).map(|bit| (1 << bit) + 12_345)) {
            let edge = upper_edge(bucket(value));
            assert!(
                edge >= value && edge - value <= value / 32,
                "{value} in bucket up to {edge}"
            );
        }
        assert_eq!(upper_edge(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_of_a_hundred_values() {
        let mut histogram = Histogram::new();
        (1..=100).for_each(|value| histogram.add(value * 1_000));
        let Lateness {
            median_ns,
            p99_ns,
            max_ns,
        } = histogram.summary();
        assert!((50_000..=51_600).contains(&median_ns), "{median_ns}");
        assert!((99_000..=100_000).contains(&p99_ns), "{p99_ns}");
        assert_eq!(max_ns, 100_000);
        assert_eq!(Histogram::new().summary(), Lateness::default());
    }

    #[test]
    fn a_bad_moment_is_over_after_some_seconds() {
        let second = 1_000_000_000;
        let mut recent = Recent::new();
        recent.add(100 * second, 900_000);
        recent.add(103 * second, 1_000);
        assert_eq!(recent.summary(104 * second).max_ns, 900_000);
        recent.add(106 * second, 1_000);
        assert_eq!(recent.summary(107 * second).max_ns, 900_000);
        recent.add(112 * second, 2_000);
        assert_eq!(recent.summary(112 * second).max_ns, 2_000);
        assert_eq!(recent.summary(200 * second), Lateness::default());
    }

    #[test]
    fn bins_end_at_the_last_used_one_and_count_what_is_beyond() {
        let mut bins = Bins::new(3 * BIN_NS, BIN_NS);
        bins.add(BIN_NS, 10);
        bins.add(2 * BIN_NS - 1, 5);
        bins.add(3 * BIN_NS, 7);
        assert_eq!(bins.as_slice(), [0, 15]);
        assert_eq!(bins.beyond, 7);
    }

    #[test]
    fn a_clean_run_has_no_problem_and_each_fault_has_one() {
        let mut report = Report::default();
        assert!(report.problems().is_empty());
        report.forward.lateness.p99_ns = LATENESS_LIMIT_NS + 1;
        report.forward.missed = 1;
        report.reverse.oversize = 2;
        let problems = report.problems();
        assert_eq!(problems.len(), 3);
        assert!(problems[2].to_string().contains("2 packets (reverse)"));
    }
}
