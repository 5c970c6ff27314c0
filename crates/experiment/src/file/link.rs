// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[link]` and its scenarios.

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Place;
use schemars::JsonSchema;
use serde::Deserialize;

use super::cross::{self, CrossKeys};
use super::impairment::{CodelKeys, LossKeys, PolicerKeys, ReorderKeys};
use super::step::{self, Step};
use super::{four, gigabit, impairment, twenty_mebibytes, File};
use crate::plan::{HostQueue, Impairments, Means, Topology, ETHERNET_MTU, MOST_HOSTS};

/// Least MTU of every host on the Internet (RFC 791), and of a link of IPv6.
const LEAST_MTU: [u32; 2] = [576, 1280];
/// Jumbo frames; beyond them the emulator's rings would hold few packets.
const MOST_MTU: u32 = 9216;
/// Ethernet header, bytes.
pub(super) const HEADER_BYTES: u64 = 14;

/// The network; see [`crate::plan::Topology`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Rate of the bottleneck, framing included.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Rate,
    /// One-way propagation delay.
    pub one_way_delay: Time,
    /// Size of the bottleneck's drop-tail queue.
    pub buffer: Size,
    /// Rate of each host's own link; absent: 1gbit, or `rate` with one cluster.
    pub edge_rate: Option<Rate>,
    /// Size of the queue of a switch's port to a host; absent: unlimited.
    #[serde(default)]
    pub switch_buffer: Size,
    /// Number of hosts of each cluster. Two clusters have the bottleneck between them, in both
    /// directions; one cluster has a switch whose ports have `rate`, `one_way_delay` and `buffer`.
    #[serde(default)]
    #[schemars(extend("examples" = [[8, 8], [16]]))]
    pub clusters: Vec<u32>,
    /// A host for a gateway at each end of the link, which forwards unless a variant has a
    /// `gateway`.
    #[serde(default)]
    pub gateways: bool,
    /// Upper limit of the kernel's buffer autotuning, per socket.
    #[serde(default = "twenty_mebibytes")]
    pub socket_buffer: Size,
    /// 4 or 6.
    #[serde(default = "four")]
    pub ip: u8,
    /// Largest IP packet on every link, bytes.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u32,
    /// Queueing discipline of the hosts' interfaces; absent: first in first out.
    pub qdisc: Option<HostQueue>,
    /// Loss towards the receiver, behind the queue: a share, or the probabilities of burst
    /// loss.
    pub loss: Option<LossKeys>,
    /// Jitter of the delay towards the receiver, uniform, without reordering.
    pub jitter: Option<Time>,
    /// Reordering towards the receiver: packets that others overtake.
    pub reorder: Option<ReorderKeys>,
    /// Rate of the return path, behind a queue of the bottleneck's size.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub return_rate: Option<Rate>,
    /// A token bucket in front of the queue.
    pub policer: Option<PolicerKeys>,
    /// CoDel in the queue.
    pub codel: Option<CodelKeys>,
    /// Hold ACKs for this time, then deliver them together.
    #[schemars(extend("x-range" = ["1us", impairment::MOST]))]
    pub ack_slots: Option<Time>,
    /// Other traffic while bursts run.
    pub cross: Option<CrossKeys>,
    /// Implementation of the bottleneck; absent: the backend's usual one.
    pub bottleneck: Option<Means>,
    /// Changes during a run.
    #[serde(default)]
    pub step: Vec<Step>,
}

/// One set of values for the link.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Last part of the metrics' names.
    pub name: String,
    /// Replaces the link's value, as do all keys below.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Option<Rate>,
    /// One-way propagation delay.
    pub one_way_delay: Option<Time>,
    /// Bottleneck's queue.
    pub buffer: Option<Size>,
    /// Largest IP packet, bytes.
    pub mtu: Option<u32>,
    /// Queueing discipline of the hosts' interfaces.
    pub qdisc: Option<HostQueue>,
    /// Loss towards the receiver.
    pub loss: Option<LossKeys>,
    /// Jitter of the delay towards the receiver.
    pub jitter: Option<Time>,
    /// Reordering towards the receiver: packets that others overtake.
    pub reorder: Option<ReorderKeys>,
    /// Rate of the return path.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub return_rate: Option<Rate>,
    /// A token bucket in front of the queue.
    pub policer: Option<PolicerKeys>,
    /// CoDel in the queue.
    pub codel: Option<CodelKeys>,
    /// Hold ACKs for this time.
    #[schemars(extend("x-range" = ["1us", impairment::MOST]))]
    pub ack_slots: Option<Time>,
    /// Other traffic while bursts run.
    pub cross: Option<CrossKeys>,
    /// Implementation of the bottleneck.
    pub bottleneck: Option<Means>,
    /// Changes during a run, instead of the link's.
    #[serde(default)]
    pub step: Vec<Step>,
}

fn ethernet_mtu() -> u32 {
    ETHERNET_MTU
}

impl Link {
    /// With a scenario's values.
    pub(super) fn with(&self, scenario: &Scenario) -> Link {
        Link {
            rate: scenario.rate.unwrap_or(self.rate),
            one_way_delay: scenario.one_way_delay.unwrap_or(self.one_way_delay),
            buffer: scenario.buffer.unwrap_or(self.buffer),
            mtu: scenario.mtu.unwrap_or(self.mtu),
            qdisc: scenario.qdisc.or(self.qdisc),
            loss: scenario.loss.or(self.loss),
            jitter: scenario.jitter.or(self.jitter),
            reorder: scenario.reorder.or(self.reorder),
            return_rate: scenario.return_rate.or(self.return_rate),
            policer: scenario.policer.or(self.policer),
            codel: scenario.codel.or(self.codel),
            ack_slots: scenario.ack_slots.or(self.ack_slots),
            cross: scenario.cross.clone().or_else(|| self.cross.clone()),
            bottleneck: scenario.bottleneck.or(self.bottleneck),
            step: match scenario.step.is_empty() {
                true => self.step.clone(),
                false => scenario.step.clone(),
            },
            ..self.clone()
        }
    }

    /// Rate of each host's own link.
    pub(super) fn edge_rate(&self) -> Rate {
        let usual = match self.is_one_switch() {
            true => self.rate,
            false => gigabit(),
        };
        self.edge_rate.unwrap_or(usual)
    }

    /// Whether all hosts are at one switch.
    pub(super) fn is_one_switch(&self) -> bool {
        self.clusters.len() == 1
    }

    /// The topology with so many sender hosts.
    fn topology(&self, senders: u32) -> Topology {
        Topology {
            senders,
            far_hosts: self.clusters.get(1).copied().unwrap_or(0),
            one_switch: self.is_one_switch(),
            gateways: self.gateways,
            down: false,
            rate_bps: self.rate.bits_per_second(),
            one_way_delay_ns: nanoseconds(self.one_way_delay),
            buffer_bytes: self.buffer.bytes(),
            edge_rate_bps: self.edge_rate().bits_per_second(),
            switch_buffer_bytes: self.switch_buffer.bytes(),
            socket_buffer_bytes: self.socket_buffer.bytes(),
            initial_window: 0,
            ip: self.ip,
            offload: false,
            bottleneck: self.bottleneck,
            mtu: self.mtu,
            host_queue: self.qdisc,
            impairments: Impairments {
                loss: self.loss.map(LossKeys::plan),
                jitter_ns: self.jitter.map_or(0, nanoseconds),
                reorder: self.reorder.map(ReorderKeys::plan),
                return_rate_bps: self.return_rate.map(Rate::bits_per_second),
                policer: self.policer.map(PolicerKeys::plan),
                codel: self.codel.map(CodelKeys::plan),
                ack_slot_ns: self.ack_slots.map_or(0, nanoseconds),
            },
            cross: self.cross.as_ref().map(|cross| cross.plan(self.rate)),
            steps: self.step.iter().flat_map(|step| step.plans(self)).collect(),
        }
    }
}

pub(super) fn nanoseconds(time: Time) -> u64 {
    time.micros().saturating_mul(1000)
}

/// A link that the variants run on.
pub(super) struct OneLink {
    pub topology: Topology,
    /// Last part of the metrics' names.
    pub name: String,
    /// Whether the path was drawn with offload; see [`super::Offload::Drawn`].
    pub offload: bool,
}

/// The link of each path, each scenario, or the only one. Paths have the scenarios in turn.
pub(super) fn links(file: &File, senders: u32, (quick, seed): (bool, u64)) -> Vec<OneLink> {
    let one = |link: &Link, name: String, offload| OneLink {
        topology: link.topology(senders),
        name,
        offload,
    };
    let Some(paths) = &file.paths else {
        let mut all: Vec<OneLink> = file
            .scenario
            .iter()
            .map(|scenario| one(&file.link.with(scenario), scenario.name.clone(), false))
            .collect();
        if all.is_empty() {
            all.push(one(&file.link, String::new(), false));
        }
        return all;
    };
    let mut scenarios = file.scenario.iter().cycle();
    paths
        .draw(quick, seed, file.link.mtu)
        .into_iter()
        .map(|path| match scenarios.next() {
            Some(scenario) => {
                let link = path.on(&file.link.with(scenario));
                one(
                    &link,
                    format!("{}-{}", path.name, scenario.name),
                    path.offload,
                )
            }
            None => one(&path.on(&file.link), path.name.clone(), path.offload),
        })
        .collect()
}

/// Checks the link, its scenarios and its steps.
pub(super) fn check(file: &File, place: &Place<'_>) {
    let link = place.key("link");
    let of_link = problems(&file.link);
    for (key, problem) in &of_link {
        link.key(key).wrong(problem);
    }
    clusters(file, &link);
    for (index, scenario) in file.scenario.iter().enumerate() {
        let place = place.key("scenario").item(index);
        let mut of_scenario = problems(&file.link.with(scenario));
        of_scenario.retain(|problem| !of_link.contains(problem));
        for (key, problem) in of_scenario {
            // Which it has from the link.
            let key = if key == "edge_rate" { "rate" } else { key };
            place.key(key).wrong(problem);
        }
    }
    step::check(file, place);
    cross::check(file, place);
}

/// A key, and the problem of its value.
pub(super) type Wrong = (&'static str, String);

/// The problems of a link's values.
fn problems(link: &Link) -> Vec<Wrong> {
    let mut found = Vec::new();
    let mut wrong = |key, problem: &str| found.push((key, problem.to_owned()));
    if link.ip != 4 && link.ip != 6 {
        wrong("ip", "must be 4 or 6");
    }
    if link.is_one_switch() && link.edge_rate() != link.rate {
        wrong(
            "edge_rate",
            "one switch has ports of one rate: leave edge_rate out, or give that of rate",
        );
    } else if link.edge_rate() < link.rate {
        wrong(
            "edge_rate",
            "edge_rate must be at least the link's rate: else the hosts' links are the bottleneck",
        );
    }
    if link.is_one_switch() && link.bottleneck == Some(Means::Emulator) {
        wrong(
            "bottleneck",
            "the ports of one switch are the kernel's: leave bottleneck out, or write \"kernel\"",
        );
    }
    let least = LEAST_MTU[usize::from(link.ip == 6)];
    if !(least..=MOST_MTU).contains(&link.mtu) {
        let ip = link.ip;
        let problem = format!("must be {least} to {MOST_MTU} bytes on IPv{ip}, such as 9000");
        wrong("mtu", &problem);
    }
    let frame = u64::from(link.mtu) + HEADER_BYTES;
    if link.buffer.bytes() < frame {
        wrong("buffer", &one_frame(frame));
    }
    if (1..frame).contains(&link.switch_buffer.bytes()) {
        wrong("switch_buffer", &one_frame(frame));
    }
    found.extend(impairment::problems(link, frame));
    found
}

pub(super) fn one_frame(bytes: u64) -> String {
    format!("must hold one frame at least: {bytes}B")
}

fn clusters(file: &File, place: &Place<'_>) {
    let link = &file.link;
    let clusters = place.key("clusters");
    match link.clusters[..] {
        [] => {
            if link.switch_buffer.bytes() > 0 {
                place.key("switch_buffer").wrong("needs two clusters");
            }
            return;
        }
        [hosts] => {
            if !(2..=MOST_HOSTS).contains(&hosts) {
                clusters.wrong(format!(
                    "one cluster must have 2 to {MOST_HOSTS} hosts, as in clusters = [16]"
                ));
            }
            if link.switch_buffer.bytes() > 0 {
                place
                    .key("switch_buffer")
                    .wrong("needs two clusters: of one switch, buffer is the queue of each port");
            }
        }
        [near, far] if near == far && (1..=MOST_HOSTS).contains(&near) => {}
        _ => {
            clusters.wrong(format!(
                "must be two of the same size, 1 to {MOST_HOSTS}, as [8, 8], or one, as [16]"
            ));
        }
    }
    if file.steps().next().is_some() {
        clusters.wrong("[[link.step]] and [[scenario.step]] support bursts and bulk, not clusters");
    }
    if link.topology(1).impairments != Impairments::default() {
        clusters.wrong("loss, jitter, reorder, return_rate, policer, codel and ack_slots support senders and one receiver, not clusters");
    }
}
