// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a file to a plan of runs.

mod controls;
mod world;

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use paceline_input::units::{Size, Time};
use paceline_input::{did_you_mean, nearest, Place, Reported};
use paceline_policy::Policy;

use super::controls::Preset;
use super::file::{File, FlowsTable, QueueTable, SenderTable, SourceTable, WINDOW_PARTS};
use crate::event::US;
use crate::link::Link;
use crate::sender::config::{Algorithm, SenderConfig, Stack};
use crate::source::{Lengths, SourceConfig};

/// Flows at most: their numbers, and those of their links, are of 32 bits.
const MOST_FLOWS: u64 = 100_000_000;

/// A group of flows, resolved.
#[derive(Debug, Clone)]
struct Flows {
    name: String,
    table: FlowsTable,
    sender: SenderConfig,
    source: SourceConfig,
    path: Vec<usize>,
}

/// Plan of the runs at one point of a scenario.
#[derive(Debug, Clone)]
pub struct Plan {
    file: File,
    groups: Vec<Flows>,
    measured: usize,
    /// Window of the burst meter, nanoseconds.
    pub window_ns: u64,
    /// When the run ends.
    pub duration_ns: u64,
    /// When its steady part begins, if it has one.
    pub steady_ns: Option<u64>,
}

fn ns(time: Time) -> u64 {
    time.micros() * US
}

/// The plan of a file, which may be one that was varied.
pub(super) fn plan(file: File, place: &Place<'_>, path: &Path) -> Result<Plan, Reported> {
    if file
        .steady_from
        .is_some_and(|steady| steady >= file.duration)
    {
        let problem = format!("must be before the end, \"{}\"", file.duration);
        place.key("steady_from").wrong(problem);
    }
    for (name, link) in &file.link {
        let place = place.key("link").key(name);
        check_queue(&link.queue, &place.key("queue"));
        check_queue(&link.reverse_queue, &place.key("reverse_queue"));
    }
    let measured = match &file.measure {
        None if file.link.is_empty() => {
            Err(place.key("link").wrong("give at least one: [link.gateway]"))
        }
        None => Ok(0),
        Some(name) => index_of(name, "link", &file.link, &place.key("measure")),
    };
    let mut groups = Vec::new();
    let mut made = 0;
    for (name, table) in &file.flows {
        groups.push(flows(&file, name, table, &mut made, place, path));
    }
    let groups = groups.into_iter().collect::<Result<Vec<_>, _>>()?;
    let Some(first) = groups.first() else {
        let problem = "give at least one group: [flows.clients]";
        return Err(place.key("flows").wrong(problem));
    };
    let one_way: u64 = first
        .path
        .iter()
        .map(|&link| ns(file.link[link].delay))
        .sum();
    let hops = if first.table.hosts.is_some() { 2 } else { 1 };
    let crossing = 2 * (one_way + hops * ns(first.table.edge_delay));
    let window_ns = file.window.map_or(crossing, ns);
    // At least a packet's time where there is no delay; a multiple of its parts.
    let window_ns = window_ns.max(US).next_multiple_of(WINDOW_PARTS);
    if ns(file.duration) / window_ns > 100_000_000 {
        let problem = "more than 100000000 windows: give a longer one";
        return Err(place.key("window").wrong(problem));
    }
    Ok(Plan {
        measured: measured?,
        window_ns,
        duration_ns: ns(file.duration),
        steady_ns: file.steady_from.map(ns),
        groups,
        file,
    })
}

/// A group of flows; `made` are those of the groups before it.
fn flows(
    file: &File,
    name: &str,
    table: &FlowsTable,
    made: &mut u64,
    root: &Place<'_>,
    path: &Path,
) -> Result<Flows, Reported> {
    let place = root.key("flows").key(name);
    *made = made.saturating_add(flows_of(table));
    if flows_of(table) == 0 || *made > MOST_FLOWS {
        let which = if table.hosts.is_some() {
            "hosts"
        } else {
            "count"
        };
        let problem = format!("makes {made} flows in all: 1 to {MOST_FLOWS} are possible");
        place.key(which).wrong(problem);
    }
    check_queue(&table.edge_queue, &place.key("edge_queue"));
    let links =
        table.path.iter().enumerate().map(|(index, link)| {
            index_of(link, "link", &file.link, &place.key("path").item(index))
        });
    let links = links.collect::<Result<Vec<_>, _>>();
    let sender = sender(file, &table.tcp, &place.key("tcp"), root, path)?;
    if let Some(group) = &table.group {
        check_group(file, group, &sender, &place.key("group"));
    }
    Ok(Flows {
        source: source(&table.source, &sender, &place.key("source"), path)?,
        name: name.to_owned(),
        table: table.clone(),
        sender,
        path: links?,
    })
}

/// Where something is in the file by its name.
fn index_of<T>(
    name: &str,
    what: &str,
    known: &IndexMap<String, T>,
    place: &Place<'_>,
) -> Result<usize, Reported> {
    known.get_index_of(name).ok_or_else(|| {
        let meant = did_you_mean(nearest(name, known.keys().map(String::as_str)));
        let known = names(known.keys());
        place.wrong(format!(
            "there is no {what} \"{name}\"{meant}; there are {known}"
        ))
    })
}

fn names<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

fn flows_of(table: &FlowsTable) -> u64 {
    match table.hosts {
        Some(hosts) => {
            let hosts = u64::from(hosts);
            (hosts * hosts.saturating_sub(1)).saturating_mul(u64::from(table.count))
        }
        None => u64::from(table.count),
    }
}

/// Whether flows of `sender` can be in the group of this name.
fn check_group(file: &File, name: &str, sender: &SenderConfig, place: &Place<'_>) {
    if index_of(name, "group", &file.group, place).is_err() {
        return;
    }
    if file.flows.contains_key(name) {
        place.wrong(format!(
            "[flows.{name}] and [group.{name}] need different names, as their metrics do"
        ));
    }
    if !sender.takes_laws() {
        place.wrong(
            "a group bounds windows only in the stack \"linux\", and not those of vegas or udp",
        );
    }
    if sender.fixed_window > 0 {
        place.wrong("a group bounds windows, and the sender's fixed_window does not move");
    }
}

fn check_queue(queue: &QueueTable, place: &Place<'_>) {
    if queue.packets.is_some() && queue.bytes.is_some() {
        place.wrong("has packets and bytes: give only one of them");
    }
    if queue
        .red
        .is_some_and(|red| !(red.min < red.max && red.max.is_finite()))
    {
        let problem = "min and max are average queue lengths in packets: 0 <= min < max";
        place.key("red").wrong(problem);
    }
}

/// The sender that a group's `tcp` names; `place` is the key's.
fn sender(
    file: &File,
    name: &str,
    place: &Place<'_>,
    root: &Place<'_>,
    path: &Path,
) -> Result<SenderConfig, Reported> {
    let named: Option<Algorithm> = toml::Value::String(name.to_owned()).try_into().ok();
    let empty = SenderTable::default();
    let own = match (file.sender.get(name), named) {
        (Some(table), _) => table,
        (None, Some(_)) => &empty,
        (None, None) => {
            let known = names(file.sender.keys());
            return Err(place.wrong(format!("there is no sender \"{name}\": give a table [sender.{name}] (there are {known}), or one of udp, reno, newreno, sack, vegas, cubic, bic")));
        }
    };
    let presets = [own, &file.tcp].map(|table| table.preset.map(Preset::table));
    let preset = |at: usize| presets[at].as_ref().unwrap_or(&empty);
    let tables = [own, preset(0), &file.tcp, preset(1)];
    macro_rules! first {
        ($key:ident) => {
            tables.iter().find_map(|table| table.$key.clone())
        };
    }
    let at = |key: &str| match file.sender.contains_key(name) {
        true => root.key("sender").key(name).key(key),
        false => root.key("tcp").key(key),
    };
    let Some(algorithm) = first!(algorithm).or(named) else {
        return Err(at("algorithm").wrong("is missing: one of \"udp\", \"reno\", \"newreno\", \"sack\", \"vegas\", \"cubic\", \"bic\""));
    };
    let policy = first!(policy);
    let modern = matches!(algorithm, Algorithm::Cubic | Algorithm::Bic) || policy.is_some();
    let stack = first!(stack).unwrap_or(if modern { Stack::Linux } else { Stack::Rfc });
    if stack == Stack::Ns3 && !matches!(algorithm, Algorithm::Newreno | Algorithm::Udp) {
        let problem = "the stack \"ns-3\" supports only newreno and udp";
        return Err(at("stack").wrong(problem));
    }
    let mut config = SenderConfig::of(algorithm, stack);
    if let Some(name) = policy {
        if !config.takes_laws() {
            let problem =
                "Paceline's laws need the stack \"linux\", and do not support vegas or udp";
            return Err(at("policy").wrong(problem));
        }
        let beside = path.parent().unwrap_or(Path::new("")).join(&name);
        let policy = match Policy::preset(&name) {
            Some(policy) => Ok(policy),
            None => Policy::load_file(&beside.to_string_lossy()),
        };
        let policy = policy.map_err(|error| at("policy").wrong(error.to_string()))?;
        config.follow(&policy);
    }
    // The schema has their range.
    let bytes = |size: Size| u32::try_from(size.bytes()).unwrap_or(u32::MAX);
    for (value, field) in [
        (first!(packet).map(bytes), &mut config.packet_bytes),
        (first!(ack).map(bytes), &mut config.ack_bytes),
        (first!(window), &mut config.window),
        (first!(initial_window), &mut config.initial_window),
        (first!(inflation), &mut config.inflation),
        (first!(ack_every), &mut config.ack_every),
    ] {
        *field = value.unwrap_or(*field);
    }
    // Where a stack has no other idea, slow start ends at the receiver's window.
    let end = first!(window).filter(|_| stack == Stack::Ns2);
    if let Some(segments) = first!(initial_ssthresh).or(end) {
        config.initial_ssthresh = f64::from(segments);
    }
    for (value, field) in [
        (first!(rto_initial), &mut config.rto.initial_ns),
        (first!(rto_min), &mut config.rto.floor_ns),
        (first!(rto_max), &mut config.rto.bound_ns),
        (first!(rto_tick), &mut config.rto.tick_ns),
        (first!(ack_delay), &mut config.ack_delay_ns),
        (first!(timer_tick), &mut config.timer_tick_ns),
    ] {
        *field = value.map_or(*field, ns);
    }
    if config.rto.bound_ns < config.rto.floor_ns || config.rto.bound_ns == 0 {
        let problem = "must be more than 0, and not less than rto_min";
        return Err(at("rto_max").wrong(problem));
    }
    for (value, field) in [
        (first!(handshake), &mut config.handshake),
        (first!(timestamps), &mut config.timestamps),
        (first!(validate), &mut config.validates),
        (first!(exit_to_flight), &mut config.exits_to_flight),
        (first!(limited_transmit), &mut config.limited_transmit),
    ] {
        *field = value.unwrap_or(*field);
    }
    if let Some(halves) = first!(halve) {
        config.halves = halves;
    }
    let vegas = [first!(alpha), first!(beta), first!(gamma)];
    for (value, field) in vegas.into_iter().zip(&mut config.vegas) {
        *field = value.unwrap_or(*field);
    }
    if config.vegas[0] > config.vegas[1] {
        return Err(at("alpha").wrong("must not be more than beta"));
    }
    controls::apply(&tables, &mut config, &at)?;
    Ok(config)
}

fn source(
    table: &SourceTable,
    sender: &SenderConfig,
    place: &Place<'_>,
    path: &Path,
) -> Result<SourceConfig, Reported> {
    let segments = |bytes: u64, place: &Place<'_>| {
        let segments = bytes.div_ceil(u64::from(sender.packet_bytes));
        match u32::try_from(segments) {
            Ok(segments @ 1..=1_000_000_000) => Ok(segments),
            _ => Err(place.wrong("must be 1 to 1000000000 packets long")),
        }
    };
    Ok(match table {
        SourceTable::Poisson(mean) => SourceConfig::Poisson { mean_ns: ns(*mean) },
        SourceTable::Bulk(bulk) => {
            let place = place.key("bulk");
            if bulk.size.is_none() && sender.algorithm == Algorithm::Udp {
                return Err(place.wrong("a udp source without a size never stops: give a size"));
            }
            let size = bulk
                .size
                .map(|size| segments(size.bytes(), &place.key("size")));
            SourceConfig::Bulk(size.transpose()?)
        }
        SourceTable::OnOff(table) => {
            let gap = Link::transmission_ns(table.rate.bits_per_second(), sender.packet_bytes);
            SourceConfig::OnOff {
                gap_ns: gap,
                on_ns: ns(table.on),
                off_ns: ns(table.off),
                lengths: match (table.fixed, table.pareto) {
                    (true, _) => Lengths::Fixed,
                    (false, Some(shape)) => Lengths::Pareto(shape),
                    (false, None) => Lengths::Exponential,
                },
            }
        }
        SourceTable::Phases(table) => SourceConfig::Phases {
            segments: segments(table.size.bytes(), &place.key("phases").key("size"))?,
            // A phase that begins where the last one ends would never let time pass.
            compute_ns: ns(table.compute).max(1),
            count: table.count,
            apart_ns: 0,
            spread_ns: ns(table.spread),
        },
        SourceTable::Trace(name) => {
            let file = path.parent().unwrap_or(Path::new("")).join(name);
            let entries = trace(&file, sender.packet_bytes);
            SourceConfig::Trace(entries.map_err(|problem| place.key("trace").wrong(problem))?)
        }
    })
}

/// Lines of `seconds,bytes`, times ascending; those without a number at first are skipped.
fn trace(file: &Path, packet_bytes: u32) -> Result<Arc<[(u64, u32)]>, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let parts = line.split_once(',').and_then(|(seconds, bytes)| {
            Some((
                seconds.trim().parse::<f64>().ok()?,
                bytes.trim().parse::<u32>().ok()?,
            ))
        });
        let Some((seconds, bytes)) = parts else {
            if entries.is_empty() {
                continue;
            }
            return Err(format!("{}:{number}: needs SECONDS,BYTES", file.display()));
        };
        let time = (seconds * 1e9) as u64;
        let ascends = entries.last().is_none_or(|&(last, _)| time >= last);
        if !(0.0..=1e7).contains(&seconds) || !ascends {
            return Err(format!(
                "{}:{number}: times must be seconds in ascending order",
                file.display()
            ));
        }
        entries.push((time, bytes.div_ceil(packet_bytes)));
    }
    match entries.is_empty() {
        true => Err(format!("{} holds no line SECONDS,BYTES", file.display())),
        false => Ok(entries.into()),
    }
}
