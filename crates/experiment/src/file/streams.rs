// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[streams]]`: parallel transfers that are over when the last of them is.

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Place;
use schemars::JsonSchema;
use serde::Deserialize;

use super::check::MOST_SENDERS;
use super::{one, File};
use crate::plan;

/// Routes are lines of the receiver, which have names and addresses of their own.
const MOST_ROUTES: usize = 4;
/// Most connections of one `[[streams]]`.
const MOST_STREAMS: u32 = 1000;

/// Parallel transfers of one size; see [`crate::plan::Streams`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Tail of the metrics' names.
    #[serde(default)]
    pub name: String,
    /// Sender hosts.
    #[schemars(range(min = 1, max = MOST_SENDERS))]
    pub hosts: u32,
    /// Connections of each host.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub per_host: u32,
    /// Bytes of each connection.
    #[schemars(extend("x-range" = ["1B", null]))]
    pub size: Size,
    /// The same with `--quick`.
    #[schemars(extend("x-range" = ["1B", null]))]
    pub quick: Option<Size>,
    /// Repetitions, each on new connections.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeats: u32,
    /// Number of hosts with a longer route, from the first on.
    #[serde(default)]
    pub distant_hosts: u32,
    /// Delay added to the round trip of these hosts.
    #[serde(default)]
    pub distant_rtt: Time,
    /// A host whose programs are stopped for a while.
    pub pause: Option<Pause>,
    /// Time since the common start at which the coordinator is killed, in variants with one.
    pub coordinator_dies: Option<Time>,
    /// Congestion control of a competing endless flow from an additional host.
    pub beside: Option<String>,
    /// Additional routes to the receiver, in the order of the hosts that use them.
    #[serde(default)]
    #[schemars(length(max = MOST_ROUTES))]
    pub routes: Vec<Route>,
}

/// A route; see [`plan::Route`].
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Number of hosts that use it.
    #[schemars(range(min = 1))]
    pub hosts: u32,
    /// Rate of the route.
    #[schemars(extend("x-range" = ["1bit", null]))]
    pub rate: Rate,
    /// Queue of the route.
    #[schemars(extend("x-range" = ["1B", null]))]
    pub buffer: Size,
    /// Round-trip propagation delay of the route.
    pub rtt: Time,
}

/// When the programs of a host stand still.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Number of the host, from 1.
    #[schemars(range(min = 1))]
    pub host: u32,
    /// Start of the stop, as time since the common start.
    pub at: Time,
    /// Duration of the stop.
    #[serde(rename = "for")]
    #[schemars(extend("x-range" = ["1us", null]))]
    pub length: Time,
}

impl Streams {
    /// Sender hosts with the one of the flow beside them.
    pub(super) fn senders(&self) -> u32 {
        self.hosts.saturating_add(u32::from(self.beside.is_some()))
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

/// Checks the file's `[[streams]]`.
pub(super) fn check(file: &File, place: &Place<'_>) {
    for (index, streams) in file.streams.iter().enumerate() {
        let place = place.key("streams").item(index);
        let wrong = |key: &str, problem: String| place.key(key).wrong(problem);
        let hosts = streams.hosts;
        if streams.senders() > MOST_SENDERS {
            let most = MOST_SENDERS - u32::from(streams.beside.is_some());
            wrong("hosts", format!("must be 1 to {most}"));
        }
        if u64::from(hosts) * u64::from(streams.per_host) > u64::from(MOST_STREAMS) {
            let problem = format!("hosts times per_host must be 1 to {MOST_STREAMS}");
            wrong("per_host", problem);
        }
        if streams.distant_hosts > hosts {
            wrong(
                "distant_hosts",
                format!("must be at most the number of hosts, {hosts}"),
            );
        }
        if (streams.distant_hosts > 0) != (streams.distant_rtt.micros() > 0) {
            let problem = "give both distant_hosts and distant_rtt, or neither";
            wrong("distant_hosts", problem.to_owned());
        }
        routes(streams, &place.key("routes"));
        if streams.pause.is_some_and(|pause| pause.host > hosts) {
            let problem =
                format!("needs a host from 1 to {hosts} and a time: {{ host = 1, at = \"5s\", for = \"3s\" }}");
            wrong("pause", problem);
        }
    }
}

fn routes(streams: &Streams, place: &Place<'_>) {
    if streams.routes.is_empty() {
        return;
    }
    if streams.distant_hosts > 0 || streams.beside.is_some() {
        place.wrong("distant_hosts and beside need the link, which no stream uses");
    }
    let hosts = streams.routes.iter().map(|route| u64::from(route.hosts));
    if hosts.sum::<u64>() != u64::from(streams.hosts) {
        let all = streams.hosts;
        place.wrong(format!(
            "each route needs at least one host, and all routes together {all}"
        ));
    }
}
