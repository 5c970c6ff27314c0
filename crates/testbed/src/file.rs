// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A topology file as it is written. The keys are described in `docs/lab.md`.

use indexmap::IndexMap;
use paceline_input::units::{Rate, Size, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hosts of a cluster, and of a whole lab: each is three namespaces, two queues and
/// two interfaces, and all share this machine's CPUs.
pub const MOST_HOSTS: u32 = 250;
/// Clusters of a lab: each is a byte of the addresses, and a router.
pub const MOST_CLUSTERS: usize = 32;
/// Links of a lab: each has a thread that real-time priority puts before all others.
pub const MOST_WANS: usize = 32;
/// Slower than this the one packet that a line always holds is minutes long.
const LEAST_RATE: Rate = Rate::from_bits_per_second(8_000);
/// Beyond this machine's capacity, and within the range of the kernel's queues.
const MOST_RATE: Rate = Rate::from_bits_per_second(100_000_000_000);
/// A full Ethernet frame: a smaller queue holds nothing.
const LEAST_BUFFER: Size = Size::from_bytes(1514);
/// Real switches have less, and memory is finite.
const MOST_BUFFER: Size = Size::from_bytes(1 << 30);
/// Three times the way to the Moon. Packets on their way are kept in memory.
const MOST_DELAY: Time = Time::from_secs(4);

/// A network of clusters that stays up for programs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Paceline topology")]
pub struct File {
    /// Hosts around a switch.
    #[serde(default)]
    #[schemars(length(max = MOST_CLUSTERS))]
    pub cluster: Vec<Cluster>,
    /// Links between clusters.
    #[serde(default)]
    #[schemars(length(max = MOST_WANS))]
    pub wan: Vec<Wan>,
    /// Routes that replace the shortest ones.
    #[serde(default)]
    pub route: Vec<Route>,
    /// Default congestion control of all connections; absent: the machine's default.
    #[schemars(extend("format" = "congestion", "examples" = ["cubic"]))]
    pub congestion: Option<String>,
    /// Sysctls that are written on every host.
    #[serde(default)]
    #[schemars(with = "IndexMap<String, serde_json::Value>")]
    pub sysctl: IndexMap<String, toml::Value>,
}

/// Hosts around a switch.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Name of the cluster; its hosts are this name and a number, from 0.
    #[schemars(extend("format" = "node-name", "examples" = ["near"]))]
    pub name: String,
    /// Number of hosts.
    #[schemars(range(min = 1, max = MOST_HOSTS))]
    pub hosts: u32,
    /// Each host's link to the switch, framing included.
    #[serde(default = "gigabit")]
    pub edge_rate: LineRate,
    /// Drop-tail queue of each of the switch's ports towards a host.
    pub switch_buffer: Queue,
}

/// A link between two clusters.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wan {
    /// Name of the link; absent: FROM-TO.
    #[schemars(extend("format" = "node-name", "examples" = ["near"]))]
    pub name: Option<String>,
    /// The cluster where forward begins.
    pub from: String,
    /// The cluster where forward ends.
    pub to: String,
    /// Line rate, framing included.
    pub rate: Ways<LineRate>,
    /// Propagation delay.
    pub one_way_delay: Ways<Delay>,
    /// Drop-tail queue in front of the line.
    pub buffer: Ways<Queue>,
}

/// A route that replaces the shortest one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The cluster where the route begins.
    pub from: String,
    /// The cluster where the route ends.
    pub to: String,
    /// The links in order.
    pub via: Via,
    /// The route is used only from `from` to `to`.
    #[serde(default)]
    pub one_way: bool,
}

/// What a line carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-range" = [LEAST_RATE, MOST_RATE]))]
pub struct LineRate(pub Rate);

/// What a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(extend("x-range" = [LEAST_BUFFER, MOST_BUFFER]))]
pub struct Queue(pub Size);

/// How long a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(extend("x-range" = [null, MOST_DELAY]))]
pub struct Delay(pub Time);

/// One value for both directions, or one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Ways<T> {
    /// One value for both directions.
    Both(T),
    /// One value per direction.
    Each {
        /// From the link's `from` to its `to`.
        forward: T,
        /// From the link's `to` to its `from`.
        reverse: T,
    },
}

/// One link or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Via {
    /// One link.
    One(String),
    /// Several links, in the order of the route.
    Several(Vec<String>),
}

/// The same default as in experiments.
fn gigabit() -> LineRate {
    LineRate(Rate::from_bits_per_second(1_000_000_000))
}

impl<T: Copy> Ways<T> {
    /// Forward and back.
    pub fn both(self) -> (T, T) {
        match self {
            Ways::Both(value) => (value, value),
            Ways::Each { forward, reverse } => (forward, reverse),
        }
    }
}

impl Via {
    /// The links' names.
    pub fn links(&self) -> &[String] {
        match self {
            Via::One(link) => std::slice::from_ref(link),
            Via::Several(links) => links,
        }
    }
}

/// The JSON schema of the file.
pub fn schema() -> serde_json::Value {
    paceline_input::schema::<File>()
}
