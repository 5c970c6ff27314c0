// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[streams]]`: parallel transfers that are over when the last of them is.

use paceline_input::units::{Rate, Size, Time};
use serde::Deserialize;

use super::check::{Place, MOST_SENDERS};
use super::{one, ExperimentError, File};
use crate::plan;

/// Routes are lines of the receiver, which have names and addresses of their own.
const MOST_ROUTES: usize = 4;
/// Most connections of one `[[streams]]`.
const MOST_STREAMS: u32 = 1000;

/// Parallel transfers of one size; see [`crate::plan::Streams`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Tail of the metrics' names.
    #[serde(default)]
    pub name: String,
    /// Sender hosts.
    pub hosts: u32,
    /// Connections of each.
    #[serde(default = "one")]
    pub per_host: u32,
    /// Bytes of each connection.
    pub size: Size,
    /// The same with `--quick`.
    pub quick: Option<Size>,
    /// How often the whole is run, each time on new connections.
    #[serde(default = "one")]
    pub repeats: u32,
    /// Hosts whose route is longer, from the first on.
    #[serde(default)]
    pub distant_hosts: u32,
    /// By how much: added to their round trip.
    #[serde(default)]
    pub distant_rtt: Time,
    /// A host whose programs stand still for a while.
    pub pause: Option<Pause>,
    /// When the coordinator, of the variants that have one, dies; since the common start.
    pub coordinator_dies: Option<Time>,
    /// Congestion control of an endless flow beside them, from a host of its own.
    pub beside: Option<String>,
    /// Routes to the receiver beside the link, each that of the next hosts.
    #[serde(default)]
    pub routes: Vec<Route>,
}

/// A route; see [`plan::Route`].
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Hosts that take it.
    pub hosts: u32,
    /// Its rate.
    pub rate: Rate,
    /// Its queue.
    pub buffer: Size,
    /// Its propagation there and back.
    pub rtt: Time,
}

/// When the programs of a host stand still.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Which, from 1.
    pub host: u32,
    /// Since the common start.
    pub at: Time,
    /// For how long.
    #[serde(rename = "for")]
    pub length: Time,
}

impl Streams {
    /// Sender hosts with the one of the flow beside them.
    pub(super) fn senders(&self) -> u32 {
        self.hosts + u32::from(self.beside.is_some())
    }

    /// As the guest gets it.
    pub(super) fn plan(&self, quick: bool) -> plan::Streams {
        let size = if quick { self.quick } else { None };
        plan::Streams {
            label: self.name.clone(),
            hosts: self.hosts,
            per_host: self.per_host,
            size_bytes: size.unwrap_or(self.size).bytes(),
            repeats: self.repeats,
            distant_hosts: self.distant_hosts,
            distant_rtt_ns: self.distant_rtt.micros() * 1000,
            pause: self.pause.map(|pause| plan::Pause {
                host: pause.host,
                at_ns: pause.at.micros() * 1000,
                for_ns: pause.length.micros() * 1000,
            }),
            coordinator_dies_ns: self.coordinator_dies.map(|at| at.micros() * 1000),
            beside: self.beside.clone(),
            routes: self.routes.iter().map(Route::plan).collect(),
        }
    }
}

impl Route {
    fn plan(&self) -> plan::Route {
        plan::Route {
            hosts: self.hosts,
            rate_bps: self.rate.bits_per_second(),
            buffer_bytes: self.buffer.bytes(),
            rtt_ns: self.rtt.micros() * 1000,
        }
    }
}

/// What is wrong with the routes.
fn check_routes(streams: &Streams) -> Result<(), String> {
    let routes = &streams.routes;
    if routes.is_empty() {
        return Ok(());
    }
    if routes.len() > MOST_ROUTES {
        return Err(format!("at most {MOST_ROUTES}"));
    }
    if streams.distant_hosts > 0 || streams.beside.is_some() {
        return Err("distant_hosts and beside are of the link, which nobody takes".to_owned());
    }
    let hosts: u32 = routes.iter().map(|route| route.hosts).sum();
    if hosts != streams.hosts || routes.iter().any(|route| route.hosts == 0) {
        let all = streams.hosts;
        return Err(format!("each has a host at least, and all of them {all}"));
    }
    let empty = |route: &Route| route.rate.bits_per_second() == 0 || route.buffer.bytes() == 0;
    match routes.iter().any(empty) {
        true => Err("rate and buffer must be more than 0".to_owned()),
        false => Ok(()),
    }
}

/// The first problem of the file's `[[streams]]`.
pub(super) fn check(file: &File, place: &Place) -> Result<(), ExperimentError> {
    for (index, streams) in file.streams.iter().enumerate() {
        let wrong =
            |key: &str, problem: String| Err(place.wrong("[[streams]]", index, key, problem));
        let hosts = streams.hosts;
        if hosts == 0 || streams.senders() > MOST_SENDERS {
            let most = MOST_SENDERS - u32::from(streams.beside.is_some());
            return wrong("hosts", format!("must be 1 to {most}"));
        }
        if streams.per_host == 0 || hosts * streams.per_host > MOST_STREAMS {
            let problem = format!("hosts times per_host must be 1 to {MOST_STREAMS}");
            return wrong("per_host", problem);
        }
        if streams.size.bytes() == 0 || streams.quick.is_some_and(|size| size.bytes() == 0) {
            return wrong("size", "must be at least one byte".to_owned());
        }
        if streams.repeats == 0 || streams.repeats > 1000 {
            return wrong("repeats", "must be 1 to 1000".to_owned());
        }
        if streams.distant_hosts > hosts {
            return wrong("distant_hosts", format!("there are {hosts} hosts"));
        }
        if (streams.distant_hosts > 0) != (streams.distant_rtt.micros() > 0) {
            let problem = "distant_hosts and distant_rtt are given together or not at all";
            return wrong("distant_hosts", problem.to_owned());
        }
        if let Err(problem) = check_routes(streams) {
            return wrong("routes", problem);
        }
        if let Some(pause) = streams.pause {
            if pause.host == 0 || pause.host > hosts || pause.length.micros() == 0 {
                let problem =
                    format!("names a host from 1 to {hosts} and a time: {{ host = 1, at = \"5s\", for = \"3s\" }}");
                return wrong("pause", problem);
            }
        }
    }
    Ok(())
}
