// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the link's impairments: loss, jitter, reordering, policing.

use std::net::UdpSocket;
use std::time::Duration;

use paceline_experiment::plan::{Impairments, Topology};
use paceline_experiment::record::ImpairmentReading;
use paceline_net::clock::{now_ns, realtime_ns, sleep_until};
use paceline_net::receive::receive;
use paceline_net::Doing;

use super::topology::Network;
use super::{calibrate, codel};
use crate::CaseError;

/// Small packets that are sent towards the receiver at most,
const MOST_PROBES: u64 = 20_000;
/// and for how long at most, nanoseconds.
const LONGEST_NS: u64 = 4_000_000_000;
/// Minimum interval between probes, nanoseconds: the time that the hosts need for one.
const LEAST_GAP_NS: u64 = 50_000;
/// Payload of a probe, and its size on the wire: its number, UDP, IP and Ethernet.
const PROBE_BYTES: usize = 16;
const PROBE_WIRE_BYTES: u64 = 110;
/// In each slot so many packets come back, and in so many slots.
const PER_SLOT: u64 = 50;
const SLOTS: u64 = 20;

/// Measures the impairments that the link of `network` was given.
pub fn read_back(network: &Network, rtt_ns: u64) -> Result<ImpairmentReading, CaseError> {
    let wanted = &network.wanted;
    let impairments = &wanted.impairments;
    let mut reading = ImpairmentReading::default();
    let (sender, receiver) = calibrate::sockets(network)?;
    if impairments.loss.is_some() || impairments.jitter_ns > 0 || impairments.reorder.is_some() {
        let rate_bps = impairments.policer.map_or(wanted.rate_bps, |policer| {
            policer.rate_bps.min(wanted.rate_bps)
        });
        // Half of the rate: nothing waits.
        let gap_ns = (2 * PROBE_WIRE_BYTES * 8_000_000_000 / rate_bps).max(LEAST_GAP_NS);
        let count = MOST_PROBES.min(LONGEST_NS / gap_ns).max(100);
        let probes = Probes::send(
            &sender,
            &receiver,
            count,
            gap_ns,
            settled_ns(wanted, rtt_ns),
        )?;
        if impairments.loss.is_some() {
            reading.lost_share = Some(1.0 - probes.arrived.len() as f64 / count as f64);
            reading.probes = count;
        }
        if impairments.jitter_ns > 0 {
            let longest = probes.in_order().map(|(_, late_ns)| late_ns).max();
            reading.jitter_ns = longest.map(|ns| ns.saturating_sub(wanted.one_way_delay_ns));
        }
        if impairments.reorder.is_some() {
            let kept = probes.in_order().count();
            let all = probes.arrived.len().max(1);
            reading.overtaken_share = Some(1.0 - kept as f64 / all as f64);
            reading.probes = count;
        }
    }
    if let Some(codel) = impairments.codel {
        let settled_ns = settled_ns(wanted, rtt_ns);
        // Losses of the line and drops of a policer would count as CoDel's.
        let alone = Topology {
            impairments: Impairments {
                loss: None,
                policer: None,
                jitter_ns: 0,
                reorder: None,
                ..*impairments
            },
            ..wanted.clone()
        };
        network.change(&alone, false)?;
        reading.codel_ns = codel::measure((&sender, &receiver), wanted, codel, settled_ns)?;
        network.change(wanted, false)?;
    }
    if let Some(policer) = impairments.policer {
        // Losses of the line would be missing in the rate.
        let lossless = Topology {
            impairments: Impairments {
                loss: None,
                ..*impairments
            },
            ..wanted.clone()
        };
        network.change(&lossless, false)?;
        let settled_ns = settled_ns(wanted, rtt_ns);
        let rate_bps = policer.rate_bps.min(wanted.rate_bps);
        let sockets = (&sender, &receiver);
        reading.policer_bps =
            calibrate::passed_bps(sockets, wanted, rate_bps, policer.burst_bytes, settled_ns)?;
        network.change(wanted, false)?;
    }
    if let Some(rate_bps) = impairments.return_rate_bps {
        let settled_ns = settled_ns(wanted, rtt_ns);
        let sockets = (&receiver, &sender);
        reading.return_rate_bps = calibrate::passed_bps(sockets, wanted, rate_bps, 0, settled_ns)?;
    }
    if impairments.ack_slot_ns > 0 {
        let slot_ns = impairments.ack_slot_ns;
        let gap_ns = (slot_ns / PER_SLOT).max(LEAST_GAP_NS);
        let count = (SLOTS * slot_ns / gap_ns).max(2);
        let settled_ns = settled_ns(wanted, rtt_ns);
        let probes = Probes::send(&receiver, &sender, count, gap_ns, settled_ns)?;
        reading.ack_slot_ns = probes.slot_ns(slot_ns / 4);
    }
    Ok(reading)
}

/// After so long all packets have arrived.
fn settled_ns(wanted: &Topology, rtt_ns: u64) -> u64 {
    let impairments = &wanted.impairments;
    let late_ns = impairments.reorder.map_or(0, |reorder| reorder.by_ns);
    2 * rtt_ns
        + late_ns
        + impairments.jitter_ns
        + impairments.ack_slot_ns
        + Duration::from_millis(20).as_nanos() as u64
}

/// Small packets that were sent at an even pace.
struct Probes {
    /// Number of each that arrived, how long it took, and when it did, nanoseconds, in the
    /// order of their arrival.
    arrived: Vec<(u64, u64, u64)>,
}

impl Probes {
    fn send(
        from: &UdpSocket,
        to: &UdpSocket,
        count: u64,
        gap_ns: u64,
        settled_ns: u64,
    ) -> Result<Self, CaseError> {
        let begun_ns = now_ns();
        let mut packet = [0; PROBE_BYTES];
        for number in 0..count {
            sleep_until(begun_ns + number * gap_ns);
            packet[..8].copy_from_slice(&number.to_be_bytes());
            packet[8..].copy_from_slice(&realtime_ns().to_be_bytes());
            from.send(&packet).doing("sending a probe")?;
        }
        sleep_until(now_ns() + settled_ns);
        let mut arrived = Vec::new();
        while let Some((length, time_ns)) = receive(to, &mut packet, false)? {
            // An echo of the measurement before may still come.
            if length == PROBE_BYTES {
                let word = |at: usize| {
                    let bytes = packet[at..at + 8].try_into().unwrap_or_default();
                    u64::from_be_bytes(bytes)
                };
                arrived.push((word(0), time_ns.saturating_sub(word(8)), time_ns));
            }
        }
        Ok(Probes { arrived })
    }

    /// Number and time of those that were not overtaken.
    fn in_order(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut next = 0;
        self.arrived
            .iter()
            .filter_map(move |&(number, late_ns, _)| {
                let kept = number >= next;
                next = next.max(number + 1);
                kept.then_some((number, late_ns))
            })
    }

    /// The median time from one arrival to the next, of those that are so long apart.
    fn slot_ns(&self, apart_ns: u64) -> Option<u64> {
        let pairs = self.arrived.windows(2);
        let mut gaps: Vec<u64> = pairs
            .map(|pair| pair[1].2.saturating_sub(pair[0].2))
            .filter(|gap| *gap > apart_ns)
            .collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_arrives_after_a_later_one_was_overtaken() {
        let probes = Probes {
            arrived: [0, 1, 3, 4, 2, 5]
                .map(|number| (number, 10, 10 * number))
                .to_vec(),
        };
        let kept: Vec<u64> = probes.in_order().map(|(number, _)| number).collect();
        assert_eq!(kept, [0, 1, 3, 4, 5]);
    }

    #[test]
    fn a_slot_is_the_time_between_arrivals_that_come_together() {
        let times = [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 3010];
        let probes = Probes {
            arrived: times.map(|time| (0, 0, time)).to_vec(),
        };
        assert_eq!(probes.slot_ns(250), Some(998));
    }
}
