// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own queues as the bottleneck.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_experiment::plan::{Codel, Loss, Policer, Reorder, Topology};
use paceline_net::ethernet::FRAMING_BYTES;
use paceline_net::shaper::{shaper, SHAPER_HANDLE};
use paceline_net::{Doing, Namespace};

use super::topology::Bottleneck;
use super::validity;
use crate::CaseError;

/// Packets that a delay line holds at most: more than any path does.
const DELAY_LINE_PACKETS: u32 = 100_000;
/// A delay line that keeps its packets in order is one with a rate; this one is next to none.
const IN_ORDER_BPS: u64 = 100_000_000_000;
/// The smallest packet that waits for a rate on its way back, framing included, bytes: an
/// ACK. The unit of a queue's capacity there.
const LEAST_WIRE_BYTES: u64 = 90;
/// ns per second times bits per byte.
const BYTE_NS: u64 = 8_000_000_000;
/// Of delay lines, and of one behind another.
pub(super) const DELAY_HANDLE: &str = "2:";
const OVERTAKEN_HANDLE: &str = "3:";
/// Of the discipline in a shaper's queue.
const CODEL_HANDLE: &str = "4:";
/// Largest table of a distribution (NETEM_DIST_MAX), and the value of one sigma in it.
const LARGEST_TABLE: u32 = 16_384;
const SIGMA: i32 = 8192;
/// The table's name.
const TABLE: &str = "overtaken";

/// The kernel's tbf with a drop-tail queue, and netem.
///
/// To a single receiver the queue is on the way there, and netem holds the whole
/// round trip's delay on the way back: TCP sees only the sum, and in this order
/// netem's queue is never part of the bottleneck's. Between two clusters, where each
/// direction carries data, and where something happens to packets on one of the two ways,
/// there is a bridge in between. Towards the far side a packet is queued at the router and
/// then delayed at the bridge. On the way back netem at the far side sends packets one by
/// one, if their rate is limited, and delays them; at the bridge they wait for their slot.
/// (A tbf would let through at once as many ACKs as one large packet has bytes.)
#[derive(Debug, Default)]
pub struct KernelBottleneck {
    built: Mutex<Built>,
}

#[derive(Debug, Default)]
struct Built {
    /// The junction of the two directions, if there are two.
    bridge: Option<Namespace>,
    /// The far side's interface.
    interface: String,
    /// Whether a policer is in front of the queue.
    policed: bool,
    /// Whether packets are lost on purpose.
    lossy: bool,
    /// Where the table of overtaken packets is.
    tables: Option<tempfile::TempDir>,
}

impl KernelBottleneck {
    fn built(&self) -> MutexGuard<'_, Built> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of `tc` that delays packets out of a device, with the delay line's impairments.
#[derive(Debug, Default)]
struct DelayLine {
    delay_ns: u64,
    jitter_ns: u64,
    /// At which packets leave one by one; they stay in order.
    rate_bps: Option<u64>,
    /// Packets at most.
    limit: Option<u64>,
    loss: Option<Loss>,
}

impl DelayLine {
    fn line(&self, device: &str) -> String {
        let mut line = format!(
            "qdisc replace dev {device} root handle {DELAY_HANDLE} netem limit {} delay {}",
            self.limit.unwrap_or(DELAY_LINE_PACKETS.into()),
            time(self.delay_ns)
        );
        if self.jitter_ns > 0 {
            let _ = write!(line, " {}", time(self.jitter_ns));
        }
        match self.loss {
            None => {}
            Some(Loss::Random { share }) => {
                let _ = write!(line, " loss random {}", percent(share));
            }
            Some(Loss::Bursts {
                to_bad,
                to_good,
                good,
                bad,
            }) => {
                let chances = [to_bad, to_good, bad, good].map(percent).join(" ");
                let _ = write!(line, " loss gemodel {chances}");
            }
        }
        if let Some(rate_bps) = self.rate_bps {
            let _ = write!(line, " rate {rate_bps}bit {FRAMING_BYTES}");
        }
        line + "\n"
    }
}

/// A line of `tc` that releases packets once in so long. Without a delay: netem begins a
/// slot when it first sees a packet, not when that is due.
fn slots(device: &str, slot_ns: u64) -> String {
    format!(
        "qdisc replace dev {device} root handle {DELAY_HANDLE} netem limit {DELAY_LINE_PACKETS} slot {0} {0}\n",
        time(slot_ns)
    )
}

/// The way back to the sender, of a link with two ways.
fn way_back(wanted: &Topology) -> DelayLine {
    let rate_bps = wanted.impairments.return_rate_bps;
    DelayLine {
        delay_ns: wanted.one_way_delay_ns,
        rate_bps,
        limit: rate_bps.map(|rate_bps| {
            let under_way = u128::from(wanted.one_way_delay_ns) * u128::from(rate_bps);
            let bytes = wanted.buffer_bytes + (under_way / u128::from(BYTE_NS)) as u64;
            bytes / LEAST_WIRE_BYTES + 1
        }),
        ..DelayLine::default()
    }
}

/// As tc takes it, which knows no nanoseconds by their name.
fn time(ns: u64) -> String {
    format!("{}.{:03}us", ns / 1000, ns % 1000)
}

fn percent(share: f64) -> String {
    format!("{:.7}%", share * 100.0)
}

/// A line of `tc` that delays packets out of a device; none without a delay.
pub(super) fn delay(device: &str, delay_ns: u64) -> String {
    let line = DelayLine {
        delay_ns,
        ..DelayLine::default()
    };
    match delay_ns {
        0 => String::new(),
        _ => line.line(device),
    }
}

/// Lines of `tc` that drop all packets in the queue of a device, until it has another.
fn cut_off(device: &str) -> String {
    format!("qdisc replace dev {device} root handle 9: blackhole\n")
}

fn bottleneck_shaper(wanted: &Topology) -> String {
    let (rate, buffer) = (wanted.rate_bps, wanted.buffer_bytes);
    let lines = shaper("replace", "wan", rate, buffer, wanted.mtu);
    match &wanted.impairments.codel {
        Some(of) => lines + &codel("wan", of, wanted.queue_packets()),
        None => lines,
    }
}

/// A line of `tc` that puts CoDel into a shaper's queue, in place of drop-tail.
fn codel(device: &str, codel: &Codel, packets: u64) -> String {
    format!(
        "qdisc replace dev {device} parent {SHAPER_HANDLE}1 handle {CODEL_HANDLE} codel limit {packets} target {} interval {}{}\n",
        time(codel.target_ns),
        time(codel.interval_ns),
        if codel.ecn { " ecn" } else { "" },
    )
}

/// Lines of `tc` for the policer, which drops packets beyond a rate before the queue.
fn policer(device: &str, policer: &Policer, mtu: u32) -> String {
    let Policer {
        rate_bps,
        burst_bytes,
    } = policer;
    // A policer drops packets above its mtu.
    let largest = mtu + 100;
    format!(
        "qdisc add dev {device} clsact\nfilter add dev {device} egress pref 1 matchall action police rate {rate_bps}bit burst {burst_bytes} mtu {largest} overhead {FRAMING_BYTES} conform-exceed drop/ok\n"
    )
}

/// A line of `tc` behind a delay line: some packets are later, the others are not.
fn overtaken(device: &str, reorder: &Reorder) -> String {
    let half = time((reorder.by_ns / 2).max(1));
    format!(
        "qdisc replace dev {device} parent {DELAY_HANDLE}1 handle {OVERTAKEN_HANDLE} netem limit {DELAY_LINE_PACKETS} delay {half} {half} distribution {TABLE}\n"
    )
}

/// netem draws from a table of so many sigmas: of `by / 2` and a sigma of as much, one sigma
/// less is nothing, and one more is late by all of it.
fn overtaken_table(share: f64) -> String {
    let error = |size: u32| {
        let late = (share * f64::from(size)).round();
        (late / f64::from(size) - share).abs()
    };
    let size = (64..=LARGEST_TABLE)
        .min_by(|a, b| error(*a).total_cmp(&error(*b)))
        .unwrap_or(LARGEST_TABLE);
    let late = (share * f64::from(size)).round() as u32;
    let values = (0..size).map(|number| if number < late { SIGMA } else { -SIGMA });
    values.map(|value| format!("{value}\n")).collect()
}

impl Bottleneck for KernelBottleneck {
    fn install(
        &self,
        router: &Namespace,
        far: &Namespace,
        interface: &str,
        wanted: &Topology,
    ) -> Result<(), CaseError> {
        let join = |from: &Namespace, device: &str, to: &Namespace, peer: &str| {
            from.ip(&format!(
                "link add {device} type veth peer name {peer} netns {}\n",
                to.path()
            ))
        };
        let mut built = self.built();
        interface.clone_into(&mut built.interface);
        if !wanted.has_two_ways() {
            join(router, "wan", far, interface)?;
            router.tc(&bottleneck_shaper(wanted))?;
            return Ok(far.tc(&delay(interface, 2 * wanted.one_way_delay_ns))?);
        }
        let bridge = Namespace::create("bridge")?;
        join(router, "wan", &bridge, "near")?;
        join(far, interface, &bridge, "far")?;
        let mut lines = "link add bridge type bridge\nlink set bridge up\n".to_owned();
        for device in ["near", "far"] {
            let mtu = wanted.mtu;
            lines += &format!("link set {device} mtu {mtu} master bridge\nlink set {device} up\n");
        }
        bridge.ip(&lines)?;
        router.tc(&bottleneck_shaper(wanted))?;
        bridge.tc(&delay("far", wanted.one_way_delay_ns))?;
        // Between clusters both ways have the same rate, and no other.
        if wanted.far_hosts > 0 {
            let (rate, buffer) = (wanted.rate_bps, wanted.buffer_bytes);
            bridge.tc(&shaper("replace", "near", rate, buffer, wanted.mtu))?;
        }
        far.tc(&match wanted.impairments.return_rate_bps {
            Some(_) => way_back(wanted).line(interface),
            None => delay(interface, wanted.one_way_delay_ns),
        })?;
        built.bridge = Some(bridge);
        Ok(())
    }

    fn change(
        &self,
        router: &Namespace,
        far: &Namespace,
        wanted: &Topology,
        cut: bool,
    ) -> Result<(), CaseError> {
        let mut built = self.built();
        let built = &mut *built;
        let impairments = &wanted.impairments;
        let Some(bridge) = &built.bridge else {
            router.tc(&bottleneck_shaper(wanted))?;
            let back = DelayLine {
                delay_ns: 2 * wanted.one_way_delay_ns,
                ..DelayLine::default()
            };
            return Ok(far.tc(&back.line(&built.interface))?);
        };
        let lines = |device: &str, lines: String| match (wanted.down, cut) {
            (true, _) => cut_off(device),
            (false, true) => cut_off(device) + &lines,
            (false, false) => lines,
        };
        let mut at_router = lines("wan", bottleneck_shaper(wanted));
        if let Some(of) = impairments.policer.as_ref().filter(|_| !built.policed) {
            at_router += &policer("wan", of, wanted.mtu);
            built.policed = true;
        }
        let there = DelayLine {
            delay_ns: wanted.one_way_delay_ns,
            jitter_ns: impairments.jitter_ns,
            rate_bps: (impairments.jitter_ns > 0).then_some(IN_ORDER_BPS),
            loss: impairments.loss,
            limit: None,
        };
        let mut at_bridge = lines("far", there.line("far"));
        if let Some(reorder) = impairments.reorder.as_ref().filter(|_| !wanted.down) {
            if built.tables.is_none() {
                built.tables = Some(write_table(reorder.share)?);
            }
            at_bridge += &overtaken("far", reorder);
        }
        if impairments.ack_slot_ns > 0 {
            at_bridge += &lines("near", slots("near", impairments.ack_slot_ns));
        }
        let back = way_back(wanted);
        built.lossy |= impairments.loss.is_some();
        router.tc(&at_router)?;
        let tables = built.tables.as_ref().map(tempfile::TempDir::path);
        bridge.tc_with_tables(&at_bridge, tables)?;
        Ok(far.tc(&lines(&built.interface, back.line(&built.interface)))?)
    }

    fn problems(&self) -> Result<Vec<String>, CaseError> {
        let built = self.built();
        let intended = |kind: &str| kind == "tbf" || built.lossy && kind == "netem";
        match &built.bridge {
            Some(bridge) => validity::dropped(bridge, |queue| intended(&queue.kind)),
            None => Ok(Vec::new()),
        }
    }
}

/// A directory with the table of overtaken packets.
fn write_table(share: f64) -> Result<tempfile::TempDir, CaseError> {
    let place = std::env::temp_dir();
    std::fs::create_dir_all(&place).doing("making the temporary directory")?;
    let directory = tempfile::tempdir_in(place).doing("making a directory for tc")?;
    let file = directory.path().join(format!("{TABLE}.dist"));
    std::fs::write(file, overtaken_table(share)).doing("writing a table for tc")?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_share_that_is_late() {
        for share in [0.0001, 0.01, 1.0 / 3.0, 0.0123, 0.5] {
            let table = overtaken_table(share);
            let late = table.lines().filter(|value| *value == "8192").count();
            let found = late as f64 / table.lines().count() as f64;
            assert!((found / share - 1.0).abs() < 1e-3, "{share}: {found}");
        }
    }

    #[test]
    fn a_delay_line_becomes_one_qdisc_command() {
        let line = DelayLine {
            delay_ns: 10_000_000,
            jitter_ns: 2_000_000,
            rate_bps: Some(IN_ORDER_BPS),
            limit: None,
            loss: Some(Loss::Bursts {
                to_bad: 0.001,
                to_good: 0.2,
                good: 0.0,
                bad: 1.0,
            }),
        };
        assert_eq!(
            line.line("far"),
            "qdisc replace dev far root handle 2: netem limit 100000 delay 10000.000us 2000.000us loss gemodel 0.1000000% 20.0000000% 100.0000000% 0.0000000% rate 100000000000bit 24\n"
        );
    }
}
