// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a file to what is run.

mod world;

use std::path::Path;
use std::sync::Arc;

use paceline_input::units::{Size, Time};
use paceline_policy::Policy;

use super::file::{File, FlowsTable, QueueTable, SenderTable, SourceTable};
use super::place::{Place, ScenarioError};
use crate::event::US;
use crate::link::Link;
use crate::sender::config::{Algorithm, SenderConfig, Stack};
use crate::source::{Lengths, SourceConfig};

/// Flows at most: their numbers, and those of their links, are of 32 bits.
const MOST_FLOWS: u64 = 100_000_000;
/// Four months: all times fit 64 bits of nanoseconds, with room.
const LONGEST_US: u64 = 10_000_000 * 1_000_000;

/// A group of flows, resolved.
#[derive(Debug, Clone)]
struct Flows {
    name: String,
    table: FlowsTable,
    sender: SenderConfig,
    source: SourceConfig,
    path: Vec<usize>,
}

/// What is run at one point of a scenario.
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

/// Parts of a window that arrivals are counted in, for other time scales.
pub const WINDOW_PARTS: u64 = 4;

fn ns(time: Time) -> u64 {
    time.micros() * US
}

pub(super) fn plan(file: File, place: &Place, path: &Path) -> Result<Plan, ScenarioError> {
    let time = |key: &str, time: Time, least: u64| {
        if (least..=LONGEST_US).contains(&time.micros()) {
            return Ok(());
        }
        let longest = Time::from_micros(LONGEST_US);
        let least = Time::from_micros(least);
        Err(place.wrong(key, format!("must be from {least} to {longest}")))
    };
    time("duration", file.duration, 1)?;
    if let Some(steady) = file.steady_from {
        if steady >= file.duration {
            let problem = format!("must be before the end, \"{}\"", file.duration);
            return Err(place.wrong("steady_from", problem));
        }
    }
    for (name, link) in &file.link {
        if link.rate.bits_per_second() == 0 {
            return Err(place.wrong(&format!("link.{name}.rate"), "must be more than 0"));
        }
        time(&format!("link.{name}.delay"), link.delay, 0)?;
        for (key, queue) in [
            ("queue", &link.queue),
            ("reverse_queue", &link.reverse_queue),
        ] {
            check_queue(queue, &format!("link.{name}.{key}"), place)?;
        }
    }
    let measured = match &file.measure {
        None if file.link.is_empty() => {
            return Err(place.wrong("link", "name at least one: [link.gateway]"))
        }
        None => 0,
        Some(name) => file.link.get_index_of(name).ok_or_else(|| {
            let known = names(file.link.keys());
            place.wrong(
                "measure",
                format!("there is no link \"{name}\"; there are {known}"),
            )
        })?,
    };
    let mut groups = Vec::new();
    let mut flows = 0u64;
    for (name, table) in &file.flows {
        let key = |key: &str| format!("flows.{name}.{key}");
        flows += flows_of(table);
        if flows_of(table) == 0 || flows > MOST_FLOWS {
            let which = if table.hosts.is_some() {
                "hosts"
            } else {
                "count"
            };
            let problem = format!("makes {flows} flows; from 1 to {MOST_FLOWS} are possible");
            return Err(place.wrong(&key(which), problem));
        }
        if table.per_host == 0 {
            return Err(place.wrong(&key("per_host"), "must be 1 or more"));
        }
        time(&key("start"), table.start, 0)?;
        time(&key("spread"), table.spread, 0)?;
        time(&key("edge_delay"), table.edge_delay, 0)?;
        check_queue(&table.edge_queue, &key("edge_queue"), place)?;
        if table.path.len() > 200 {
            return Err(place.wrong(&key("path"), "has more than 200 links"));
        }
        let links = table.path.iter().map(|link| {
            file.link.get_index_of(link).ok_or_else(|| {
                let known = names(file.link.keys());
                let problem = format!("there is no link \"{link}\"; there are {known}");
                place.wrong(&key("path"), problem)
            })
        });
        let links = links.collect::<Result<Vec<_>, _>>()?;
        let sender = sender(&file, &table.tcp, &key("tcp"), place, path)?;
        if let Some(group) = &table.group {
            check_group(&file, group, &sender)
                .map_err(|error| place.wrong(&key("group"), error))?;
        }
        groups.push(Flows {
            source: source(&table.source, &sender, &key("source"), place, path)?,
            name: name.clone(),
            table: table.clone(),
            sender,
            path: links,
        });
    }
    let Some(first) = groups.first() else {
        return Err(place.wrong("flows", "name at least one group: [flows.clients]"));
    };
    let one_way: u64 = first
        .path
        .iter()
        .map(|&link| ns(file.link[link].delay))
        .sum();
    let hops = if first.table.hosts.is_some() { 2 } else { 1 };
    let window_ns = match file.window {
        Some(window) => {
            time("window", window, WINDOW_PARTS)?;
            ns(window)
        }
        None => 2 * (one_way + hops * ns(first.table.edge_delay)),
    };
    // At least a packet's time where there is no delay; a multiple of its parts.
    let window_ns = window_ns.max(US).next_multiple_of(WINDOW_PARTS);
    if let Some(trace) = &file.trace {
        time("trace.every", trace.every, 1)?;
    }
    if ns(file.duration) / window_ns > 100_000_000 {
        return Err(place.wrong("window", "more than 100000000 windows: give a longer one"));
    }
    Ok(Plan {
        measured,
        window_ns,
        duration_ns: ns(file.duration),
        steady_ns: file.steady_from.map(ns),
        groups,
        file,
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

/// Whether flows of `sender` can be in the group of this name; what is wrong, if not.
fn check_group(file: &File, name: &str, sender: &SenderConfig) -> Result<(), String> {
    if !file.group.contains_key(name) {
        let known = names(file.group.keys());
        return Err(format!("there is no group \"{name}\"; there are {known}"));
    }
    if file.flows.contains_key(name) {
        return Err(format!(
            "[flows.{name}] and [group.{name}] have one name: their metrics would, too"
        ));
    }
    if !sender.takes_laws() {
        return Err(
            "windows are bounded in the stack \"linux\", and not of vegas or udp".to_owned(),
        );
    }
    Ok(())
}

fn check_queue(queue: &QueueTable, key: &str, place: &Place) -> Result<(), ScenarioError> {
    if queue.packets.is_some() && queue.bytes.is_some() {
        return Err(place.wrong(key, "has packets and bytes: give one of them"));
    }
    let Some(red) = &queue.red else {
        return Ok(());
    };
    let wrong = |problem: &str| Err(place.wrong(&format!("{key}.red"), problem));
    if !(red.min >= 0.0 && red.min < red.max && red.max.is_finite()) {
        return wrong("min and max are packets of the average queue, 0 <= min < max");
    }
    if !(red.weight > 0.0 && red.weight <= 1.0) {
        return wrong("weight is that of one arrival: above 0, at most 1, such as 0.002");
    }
    if !(red.max_p > 0.0 && red.max_p <= 1.0) {
        return wrong("max_p is a probability: above 0, at most 1, such as 0.1");
    }
    if red
        .idle_packets_per_second
        .is_some_and(|rate| !(rate > 0.0 && rate.is_finite()))
    {
        return wrong("idle_packets_per_second must be more than 0");
    }
    Ok(())
}

fn sender(
    file: &File,
    name: &str,
    key: &str,
    place: &Place,
    path: &Path,
) -> Result<SenderConfig, ScenarioError> {
    let named: Option<Algorithm> = toml::Value::String(name.to_owned()).try_into().ok();
    let empty = SenderTable::default();
    let own = match (file.sender.get(name), named) {
        (Some(table), _) => table,
        (None, Some(_)) => &empty,
        (None, None) => {
            let known = names(file.sender.keys());
            return Err(place.wrong(key, format!("there is no sender \"{name}\": give a table [sender.{name}], of which there are {known}, or one of udp, reno, newreno, sack, vegas, cubic, bic")));
        }
    };
    let tables = [own, &file.tcp];
    macro_rules! first {
        ($key:ident) => {
            tables.iter().find_map(|table| table.$key.clone())
        };
    }
    let at = |key: &str| match own.policy.is_some() || file.sender.contains_key(name) {
        true => format!("sender.{name}.{key}"),
        false => format!("tcp.{key}"),
    };
    let Some(algorithm) = first!(algorithm).or(named) else {
        return Err(place.wrong(&at("algorithm"), "is missing: one of \"udp\", \"reno\", \"newreno\", \"sack\", \"vegas\", \"cubic\", \"bic\""));
    };
    let policy = first!(policy);
    let modern = matches!(algorithm, Algorithm::Cubic | Algorithm::Bic) || policy.is_some();
    let stack = first!(stack).unwrap_or(if modern { Stack::Linux } else { Stack::Rfc });
    if stack == Stack::Ns3 && !matches!(algorithm, Algorithm::Newreno | Algorithm::Udp) {
        let problem = "\"ns-3\" is a stack of newreno and udp only";
        return Err(place.wrong(&at("stack"), problem));
    }
    let mut config = SenderConfig::of(algorithm, stack);
    if let Some(name) = policy {
        if !config.takes_laws() {
            let problem = "Paceline's laws are for the stack \"linux\", and not for vegas or udp";
            return Err(place.wrong(&at("policy"), problem));
        }
        let beside = path.parent().unwrap_or(Path::new("")).join(&name);
        let policy = match Policy::preset(&name) {
            Some(policy) => Ok(policy),
            None => Policy::load_file(&beside.to_string_lossy()),
        };
        let policy = policy.map_err(|error| place.wrong(&at("policy"), error.to_string()))?;
        config.follow(&policy);
    }
    let bytes = |key: &str, size: Size| match u32::try_from(size.bytes()) {
        Ok(bytes @ 1..=65_536) => Ok(bytes),
        _ => Err(place.wrong(&at(key), "must be from 1B to 64KiB")),
    };
    let segments = |key: &str, segments: u32| match segments {
        1..=1_000_000_000 => Ok(segments),
        _ => Err(place.wrong(&at(key), "must be from 1 to 1000000000 segments")),
    };
    let span = |key: &str, time: Time| match time.micros() <= LONGEST_US {
        true => Ok(ns(time)),
        false => Err(place.wrong(&at(key), "is too long")),
    };
    if let Some(size) = first!(packet) {
        config.packet_bytes = bytes("packet", size)?;
    }
    if let Some(size) = first!(ack) {
        config.ack_bytes = bytes("ack", size)?;
    }
    if let Some(window) = first!(window) {
        config.window = segments("window", window)?;
        // Where a stack has no other idea, slow start ends at the receiver's window.
        if stack == Stack::Ns2 {
            config.initial_ssthresh = f64::from(window);
        }
    }
    if let Some(window) = first!(initial_window) {
        config.initial_window = segments("initial_window", window)?;
    }
    if let Some(window) = first!(initial_ssthresh) {
        config.initial_ssthresh = f64::from(segments("initial_ssthresh", window)?);
    }
    for (key, value, field) in [
        (
            "rto_initial",
            first!(rto_initial),
            &mut config.rto.initial_ns,
        ),
        ("rto_min", first!(rto_min), &mut config.rto.floor_ns),
        ("rto_max", first!(rto_max), &mut config.rto.bound_ns),
        ("rto_tick", first!(rto_tick), &mut config.rto.tick_ns),
        ("ack_delay", first!(ack_delay), &mut config.ack_delay_ns),
    ] {
        if let Some(time) = value {
            *field = span(key, time)?;
        }
    }
    if config.rto.bound_ns < config.rto.floor_ns || config.rto.bound_ns == 0 {
        let problem = "must be more than 0, and not less than rto_min";
        return Err(place.wrong(&at("rto_max"), problem));
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
    if let Some(inflation) = first!(inflation) {
        if inflation > 3 {
            return Err(place.wrong(&at("inflation"), "must be from 0 to 3 segments"));
        }
        config.inflation = inflation;
    }
    if let Some(every) = first!(ack_every) {
        config.ack_every = segments("ack_every", every)?;
    }
    for (index, (key, value)) in [
        ("alpha", first!(alpha)),
        ("beta", first!(beta)),
        ("gamma", first!(gamma)),
    ]
    .into_iter()
    .enumerate()
    {
        if let Some(value) = value {
            if !(0.0..=1e6).contains(&value) {
                return Err(place.wrong(&at(key), "is a number of segments, 0 or more"));
            }
            config.vegas[index] = value;
        }
    }
    if config.vegas[0] > config.vegas[1] {
        return Err(place.wrong(&at("alpha"), "must not be more than beta"));
    }
    Ok(config)
}

fn source(
    table: &SourceTable,
    sender: &SenderConfig,
    key: &str,
    place: &Place,
    path: &Path,
) -> Result<SourceConfig, ScenarioError> {
    let positive = |key: &str, time: Time| match time.micros() {
        1..=LONGEST_US => Ok(ns(time)),
        _ => Err(place.wrong(key, "must be from 1us to 10000000s")),
    };
    let within = |key: &str, time: Time| match time.micros() {
        0..=LONGEST_US => Ok(ns(time)),
        _ => Err(place.wrong(key, "must be from 0s to 10000000s")),
    };
    let segments = |bytes: u64| {
        let segments = bytes.div_ceil(u64::from(sender.packet_bytes));
        match u32::try_from(segments) {
            Ok(segments @ 1..=1_000_000_000) => Ok(segments),
            _ => Err(place.wrong(key, "must be 1 to 1000000000 packets long")),
        }
    };
    Ok(match table {
        SourceTable::Poisson(mean) => SourceConfig::Poisson {
            mean_ns: positive(key, *mean)?,
        },
        SourceTable::Bulk(bulk) => {
            if bulk.size.is_none() && sender.algorithm == Algorithm::Udp {
                return Err(place.wrong(key, "udp without end would never stop: give a size"));
            }
            SourceConfig::Bulk(bulk.size.map(|size| segments(size.bytes())).transpose()?)
        }
        SourceTable::OnOff(table) => {
            if table.rate.bits_per_second() == 0 {
                return Err(place.wrong(key, "rate must be more than 0"));
            }
            let shape = table.pareto;
            if shape.is_some_and(|shape| !(shape > 1.0 && shape <= 100.0)) {
                return Err(place.wrong(key, "pareto is the shape, above 1, such as 1.5"));
            }
            let gap = Link::transmission_ns(table.rate.bits_per_second(), sender.packet_bytes);
            SourceConfig::OnOff {
                gap_ns: gap,
                on_ns: positive(key, table.on)?,
                off_ns: within(key, table.off)?,
                lengths: match (table.fixed, shape) {
                    (true, _) => Lengths::Fixed,
                    (false, Some(shape)) => Lengths::Pareto(shape),
                    (false, None) => Lengths::Exponential,
                },
            }
        }
        SourceTable::Phases(table) => SourceConfig::Phases {
            segments: segments(table.size.bytes())?,
            // A phase that begins where the last one ends would never let time pass.
            compute_ns: within(key, table.compute)?.max(1),
            count: table.count,
            spread_ns: within(key, table.spread)?,
        },
        SourceTable::Trace(name) => {
            let file = path.parent().unwrap_or(Path::new("")).join(name);
            let entries = trace(&file, sender.packet_bytes);
            SourceConfig::Trace(entries.map_err(|problem| place.wrong(key, problem))?)
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
                "{}:{number}: times are seconds and ascend",
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
